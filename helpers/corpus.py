"""Many texts at once: the course's passages, token categories, and tidy tables.

In every table layers and heads are numbered from 1, as in the papers. `weight` columns hold
attention weights α, `norm` columns hold lengths of vectors.
"""

import random
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from helpers.alignment import Gold, read_gold
from helpers.arguments import check_index, check_number, check_strings, read_file, shown
from helpers.encode import encode
from helpers.models import Model, check_model
from helpers.progress import progress
from helpers.stages import mixing_ratio, stage_map, transformed_norms, weighted_norms
from helpers.trace import Trace, read, trace

CATEGORIES = ("[CLS]", "[SEP]", "[MASK]", "punctuation", "other")
_SPECIAL = {
    "[CLS]": "[CLS]",
    "<s>": "[CLS]",
    "[SEP]": "[SEP]",
    "</s>": "[SEP]",
    "[MASK]": "[MASK]",
    "<mask>": "[MASK]",
    ",": "punctuation",
    ".": "punctuation",
}


def read_passages(path: str | Path | None = None) -> list[str]:
    """Texts, one a line; without a path the 200 passages written for this course.

    Empty lines are left out. Raises ValueError if nothing is left or the file does not exist.
    """
    if path is None:
        text = (files("helpers") / "data" / "passages.txt").read_text(encoding="utf-8")
    else:
        text = read_file(path, "give a text file, one text a line")
    lines = text.splitlines()
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise ValueError(f"path {str(path)!r} holds no text; give a file with one text a line.")
    return texts


class AlignedPair(NamedTuple):
    """Two sentences, words separated by spaces, and the links between their words."""

    source: str
    target: str
    gold: Gold


def read_alignments() -> list[AlignedPair]:
    """The 160 German-English pairs with gold links that were made for this course.

    Links are (German word, English word), counted from 0; see helpers/data/alignments.card.md.
    """
    file = files("helpers") / "data" / "alignments.tsv"
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    lengths = [(len(source.split()), len(target.split())) for source, target, _ in rows]
    gold = read_gold([links for *_, links in rows], one_indexed=True, lengths=lengths)
    return [AlignedPair(row[0], row[1], links) for row, links in zip(rows, gold, strict=True)]


def read_agreement() -> pd.DataFrame:
    """The agreement sentences made for this course: [MASK] is in the verb's place, once a text.

    Columns: text; number, "singular" or "plural", the subject's and so the verb's; template, the
    name of the sentence's frame; attractors, how many other nouns stand before the verb, 0 to 2;
    opposite, how many of these have the other number; split, "train" or "test", which share no
    noun; noun, the subject's singular. Rows 2n and 2n + 1 differ in the subject alone.
    """
    with (files("helpers") / "data" / "agreement.tsv").open(encoding="utf-8") as file:
        return pd.read_csv(file, sep="\t")


def categories(tokens: list[str]) -> list[str]:
    """One of CATEGORIES for each token; comma and full stop are the punctuation, as in K20."""
    check_strings("tokens", tokens)
    return [_SPECIAL.get(token.lstrip("Ġ▁"), "other") for token in tokens]


def frequency_ranks(model: Model, ids: list[int]) -> np.ndarray:
    """Rank of each word by frequency, 1996 = most frequent; NaN for all that is no whole word.

    The ids of BERT's uncased vocabulary are ordered by frequency, so that the id is the rank.
    That holds for whole alphabetic words from id 1996 ("the") on, and for this vocabulary only:
    under another one every rank is NaN. Raises ValueError for an id that is not in the vocabulary.
    """
    check_model(model)
    size = len(model.tokenizer)
    if not isinstance(ids, list | tuple):
        raise TypeError(f"ids must be a list of whole numbers, such as run.ids, got {shown(ids)}.")
    for number in ids:
        check_index("ids, each of them,", number, size, from_end=False)
    if model.tokenizer.convert_tokens_to_ids(["the", "of"]) != [1996, 1997]:
        return np.full(len(ids), np.nan)
    tokens = model.tokenizer.convert_ids_to_tokens(ids)
    words = [i >= 1996 and token.isalpha() for i, token in zip(ids, tokens, strict=True)]
    return np.where(words, ids, np.nan)


def traces(model: Model, texts: list[str]) -> Iterator[Trace]:
    """Trace one text after the other, with a progress bar that disappears."""
    for text in progress(_some(texts)):
        yield trace(model, text)


def token_table(model: Model, texts: list[str]) -> pd.DataFrame:
    """One row for each text, layer, head and token: what is read of the token, and how long it is.

    Columns: text, layer, head, position, token, category, rank; `weight`, α averaged over the
    queries; `norm`, ‖f(x)‖; `weighted_norm`, ‖αf(x)‖ averaged over the queries; `input_norm`, ‖x‖.
    """
    frames = []
    for number, run in enumerate(traces(model, texts)):
        norms = transformed_norms(run)
        inputs = torch.stack([block.x.norm(dim=-1) for block in run.blocks])
        weights = run.attention.mean(dim=2)
        columns = {
            "weight": weights,
            "norm": norms,
            "weighted_norm": weights * norms,
            "input_norm": inputs[:, None].expand_as(norms),
        }
        frames.append(_tidy(model, run, number, columns, ("layer", "head", "position")))
    return _join(frames)


def category_shares(model: Model, texts: list[str]) -> pd.DataFrame:
    """How much of weight and of norm goes to each category, by layer and head.

    One row for each layer, head and category; head "all" combines the heads as Attn-W and Attn-N
    do. `weight` and `norm` are shares, averaged over all rows (queries) of all texts: the sum
    over the keys of the category divided by the sum over all keys. `norm_sum` is the same sum of
    norms, not divided: the quantity of K20, section 4. A category that a text does not have
    counts as 0 there.
    """
    sums, rows = 0, 0
    for run in traces(model, texts):
        weight = torch.cat([run.attention, stage_map(run, "Attn-W")[:, None]], dim=1)
        norm = torch.cat([weighted_norms(run), stage_map(run, "Attn-N")[:, None]], dim=1)
        share = norm / norm.sum(dim=-1, keepdim=True)
        member = _membership(categories(run.keys))
        stacked = torch.stack([weight, share, norm])
        sums = sums + torch.einsum("mlhts,sc->mlhc", stacked, member)
        rows += len(run.tokens)
    means = (sums / rows).numpy()
    heads = [*range(1, means.shape[2]), "all"]
    index = pd.MultiIndex.from_product(
        [range(1, means.shape[1] + 1), heads, CATEGORIES], names=["layer", "head", "category"]
    )
    columns = dict(zip(("weight", "norm", "norm_sum"), means.reshape(3, -1), strict=True))
    table = pd.DataFrame(columns, index=index).reset_index()
    return table[table.groupby("category")["weight"].transform("max") > 0].reset_index(drop=True)


def mixing_table(
    model: Model, texts: list[str], masked: float = 0.0, seed: int = 0
) -> pd.DataFrame:
    """One row for each text, stage, layer and position: the mixing ratio, with all stages.

    Columns: text, stage, layer, position, token, category, rank, ratio. `masked` is the share of
    non-special tokens that are replaced by the mask token, at least one a text (K21 masks 0.12);
    the choice depends on `seed` and on the text alone, not on the order of the texts.
    """
    frames = []
    for number, text in enumerate(progress(_some(texts))):
        run = read(model, _mask(model, encode(model, text), text, masked, seed))
        for stage in run.stages:
            columns = {"ratio": mixing_ratio(run, stage)}
            frame = _tidy(model, run, number, columns, ("layer", "position"))
            frame.insert(1, "stage", stage)
            frames.append(frame)
    return _join(frames)


def _mask(model: Model, inputs: dict, text: str, masked: float, seed: int) -> dict:
    """Replace a share of the tokens by the mask token, in place."""
    if not check_number("masked", masked, 0, 1):
        return inputs
    if model.tokenizer.mask_token_id is None:
        raise ValueError(f"masked={masked}, but model {model.name!r} has no mask token; use 0.")
    ids = inputs["input_ids"][0]
    marks = set(model.tokenizer.all_special_ids) - {model.tokenizer.unk_token_id}
    special = torch.isin(ids, torch.tensor(sorted(marks)))
    candidates = (~special).nonzero().flatten().tolist()
    if not candidates:
        raise ValueError(f"text {text!r} has only special tokens, so there is nothing to mask.")
    chosen = random.Random(f"{seed} {text}").sample(
        candidates, max(1, int(masked * len(candidates)))
    )
    ids[chosen] = model.tokenizer.mask_token_id
    return inputs


def _some(texts: list[str]) -> list[str]:
    if not isinstance(texts, list | tuple) or not texts:
        raise ValueError(f"texts must be a list of one text or more, got {str(texts)[:60]!r}.")
    return texts


def _membership(names: list[str]) -> Tensor:
    """One-hot categories: (S, C)."""
    return torch.tensor([[name == category for category in CATEGORIES] for name in names]).float()


def _tidy(model: Model, run: Trace, number: int, columns: dict, axes: tuple) -> pd.DataFrame:
    """Tensors of one shape, ending in the keys' axis, as columns of a tidy table."""
    shape = next(iter(columns.values())).shape
    table = {"text": np.full(np.prod(shape), number)}
    for name, index in zip(axes, np.indices(shape).reshape(len(shape), -1), strict=True):
        table[name] = index if name == "position" else index + 1
    position = table["position"]
    names = pd.Categorical(categories(run.keys), categories=CATEGORIES)
    table["token"] = np.array(run.keys, dtype=object)[position]
    table["category"] = names[position]
    table["rank"] = frequency_ranks(model, run.ids)[position]
    return pd.DataFrame(table | {k: v.flatten().numpy() for k, v in columns.items()})


def _join(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)
