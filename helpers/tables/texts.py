"""Many texts at once: token categories, and tidy tables.

In every table, what a row is about has columns of the same name, type and order: `text_id`, the
index of the text in the list, from 0; `stage`; `layer` and `head`, from 1, as in the papers;
`position`, the index of the token in the text, from 0; `token`; `category`, one of CATEGORIES; and
`rank`, as `frequency_ranks` says. A missing head stands for all heads together. Stages and
categories keep their own order, which is not alphabetical. What was measured comes last.
"""

import random
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from transformers import BatchEncoding

from helpers import _validate
from helpers._progress import progress
from helpers.block import mixing_ratio, stage_map
from helpers.models import Model
from helpers.norms import transformed_norms, weighted_norms
from helpers.tokens import Text, encode, special_ids
from helpers.tracing import Trace, read, trace

# "[BOS]" and "[EOS]" are the first and last token of models without "[CLS]" and "[SEP]"; "special"
# is any other special token, such as the marks of a chat.
CATEGORIES = ("[CLS]", "[BOS]", "[SEP]", "[EOS]", "[MASK]", "special", "punctuation", "other")


def categories(run: Trace) -> list[str]:
    """One of CATEGORIES for each key, (S,); comma and full stop are the punctuation, as in K20.

    run: what `trace` returned. Which tokens are special, and what for, is what the tokenizer says.

    Raises TypeError for anything else.

    Example: categories(trace(load_model(), "Keys.")) is ["[CLS]", "other", "punctuation", "[SEP]"].
    """
    _validate.run(run)
    text = [
        "punctuation" if key.lstrip("Ġ▁").removesuffix("</w>") in (",", ".") else "other"
        for key in run.keys
    ]
    return [role or category for role, category in zip(run.key_roles, text, strict=True)]


def frequency_ranks(model: Model, ids: list[int]) -> np.ndarray:
    """Rank of each word by frequency, (n,), 1996 = most frequent; NaN for all but whole words.

    The ids of BERT's uncased vocabulary are ordered by frequency, so that the id is the rank. That
    holds for whole alphabetic words from id 1996 ("the") on, and for this vocabulary only: under
    another one every rank is NaN.

    model: whose vocabulary it is.
    ids: of tokens, such as `run.ids`.

    Raises ValueError for an id that is not in the vocabulary.

    Example: frequency_ranks(model, run.ids) has one entry per token.
    """
    _validate.model(model)
    ids = _validate.ids(ids, len(model.tokenizer))
    if model.tokenizer.convert_tokens_to_ids(["the", "of"]) != [1996, 1997]:
        return np.full(len(ids), np.nan)
    tokens = model.tokenizer.convert_ids_to_tokens(ids)
    words = [i >= 1996 and token.isalpha() for i, token in zip(ids, tokens, strict=True)]
    return np.where(words, ids, np.nan)


def traces(model: Model, texts: list[str]) -> Iterator[Trace]:
    """Trace one text after the other, with a progress bar that disappears.

    model: what `load_model` returned; an encoder-decoder, which needs a target, cannot be read.
    texts: a list of texts as `trace` takes them, or a pandas column of them; a tuple is a text with
        its pair, two segments.

    All texts are checked before the first is read. Raises ValueError for anything but such a list,
    and as `trace` does, naming the text.

    Example: [run.attention.shape for run in traces(model, texts)]
    """
    return (trace(model, *text) for text in _each(model, texts))


def token_table(model: Model, texts: list[str]) -> pd.DataFrame:
    """One row for each text, layer, head and token: how much it is read, and how long it is.

    Columns: text_id, layer, head, position, token, category, rank; `weight`, α averaged over the
    queries; `norm`, ‖f(x)‖; `weighted_norm`, ‖αf(x)‖ averaged over the queries; `input_norm`, ‖x‖,
    the same in all heads.

    model, texts: as in `traces`, whose errors these are.

    Example: token_table(model, texts).groupby(["layer", "category"])["norm"].mean()
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
    return pd.concat(frames, ignore_index=True)


def category_shares(model: Model, texts: list[str]) -> pd.DataFrame:
    """How much weight and how much norm go to each category, per layer and head.

    One row for each layer, head and category. Columns: layer; head, Int64, missing (<NA>) where all
    heads are combined, as Attn-W and Attn-N do; category; `weight` and `norm`, shares averaged over
    all rows (queries) of all texts: the sum over the keys of the category divided by the sum over
    all keys; `norm_sum`, the same sum of norms, not divided: the quantity of K20, section 4. A
    category that a text does not have counts as 0 there; one that no text has gets no row.

    model, texts: as in `traces`, whose errors these are.

    Example: category_shares(model, texts).query("head.isna()")
    """
    sums, rows = 0, 0
    for run in traces(model, texts):
        weight = torch.cat([run.attention, stage_map(run, "Attn-W")[:, None]], dim=1)
        norm = torch.cat([weighted_norms(run), stage_map(run, "Attn-N")[:, None]], dim=1)
        total = norm.sum(dim=-1, keepdim=True)
        share = norm / total.where(total > 0, 1.0)
        member = [[name == category for category in CATEGORIES] for name in categories(run)]
        stacked = torch.stack([weight, share, norm])  # (3, L, H + 1, T, S)
        sums = sums + torch.einsum("mlhts,sc->mlhc", stacked, stacked.new_tensor(member))
        rows += len(run.tokens)
    means = (sums / rows).cpu().numpy()
    layers, heads = range(1, means.shape[1] + 1), [*range(1, means.shape[2]), pd.NA]
    index = pd.MultiIndex.from_product(
        [layers, range(len(heads)), CATEGORIES], names=["layer", "head", "category"]
    )
    columns = dict(zip(("weight", "norm", "norm_sum"), means.reshape(3, -1), strict=True))
    table = pd.DataFrame(columns, index=index).reset_index()
    table["head"] = pd.array(heads, dtype="Int64")[table["head"]]
    table["category"] = pd.Categorical(table["category"], categories=CATEGORIES)
    largest = table.groupby("category", observed=True)["weight"].transform("max")
    return table[largest > 0].reset_index(drop=True)


def mixing_table(
    model: Model, texts: list[str], masked: float = 0.0, seed: int = 0
) -> pd.DataFrame:
    """One row for each text, stage, layer and position: the mixing ratio, with all stages (K21).

    Columns: text_id, stage, layer, position, token, category, rank; `ratio`, in [0, 1].

    model, texts: as in `traces`; what is masked of a pair may stand in either text.
    masked: the share of non-special tokens that are replaced by the mask token, at least one per
        text (K21 masks 0.12).
    seed: the choice of tokens depends on it and on the text itself, not on the other texts.

    Raises ValueError as `traces` does, for a share outside [0, 1], for a model without a mask
    token, and for a text of special tokens alone.

    Example: mixing_table(model, texts, masked=0.12).groupby("stage")["ratio"].mean()
    """
    _validate.model(model)
    masked, frames = _validate.number("masked", masked, 0, 1), []
    if masked and model.tokenizer.mask_token_id is None:
        raise ValueError(f"masked is {masked:g}, but {model.name!r} has no mask token; use 0.")
    for number, text in enumerate(_each(model, texts, mask=masked > 0)):
        inputs = encode(model, *text)
        if masked:
            _mask(model, inputs, text[0] if text[1] is None else text, masked, seed)
        run = read(model, inputs)
        for stage in run.stages:
            columns = {"ratio": mixing_ratio(run, stage)}
            frame = _tidy(model, run, number, columns, ("layer", "position"))
            frame.insert(1, "stage", pd.Categorical([stage] * len(frame), categories=run.stages))
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _each(model: Model, texts: list, mask: bool = False) -> Iterator[tuple[Text, Text | None]]:
    """The texts and their pairs, one after the other, with a progress bar; all are checked first.

    `mask`: whether each must have a token that can be masked.
    """
    _validate.model(model)
    texts = texts.tolist() if isinstance(texts, pd.Series) else texts
    if not isinstance(texts, list | tuple) or not texts:
        got = _validate.shown(texts)
        raise ValueError(f"texts must be a list of one text or more, got {got}.")
    texts = [text if isinstance(text, tuple) else (text, None) for text in texts]
    for number, text in enumerate(texts):
        try:
            if len(text) != 2:
                raise ValueError(f"a tuple is a text with its pair, got {len(text)} entries.")
            inputs = encode(model, *text)
            if mask:
                _maskable(model, inputs)
        except (TypeError, ValueError) as error:
            where = f"texts[{number}] of {len(texts)} (counted from 0)"
            raise type(error)(f"{where} cannot be read: {error}") from error
    return iter(progress(texts, "texts"))


def _maskable(model: Model, inputs: BatchEncoding) -> list[int]:
    """The positions of tokens that are not special; ValueError if there are none."""
    special = special_ids(model.tokenizer)
    ids = inputs["input_ids"][0].tolist()
    if not set(ids) - special:
        raise ValueError("the text has only special tokens, so there is nothing to mask.")
    return [place for place, number in enumerate(ids) if number not in special]


def _mask(model: Model, inputs: BatchEncoding, text: Text, masked: float, seed: int) -> None:
    """Replace a share of the tokens by the mask token, in place."""
    ids, candidates = inputs["input_ids"][0], _maskable(model, inputs)
    count = max(1, int(masked * len(candidates)))
    ids[random.Random(f"{seed} {text}").sample(candidates, count)] = model.tokenizer.mask_token_id


def _tidy(model: Model, run: Trace, number: int, columns: dict, axes: tuple) -> pd.DataFrame:
    """Tensors of one shape, ending in the keys' axis, as columns of a tidy table."""
    shape = next(iter(columns.values())).shape
    table = {"text_id": np.full(np.prod(shape), number)}
    for name, index in zip(axes, np.indices(shape).reshape(len(shape), -1), strict=True):
        table[name] = index if name == "position" else index + 1
    position = table["position"]
    table["token"] = np.array(run.keys, dtype=object)[position]
    table["category"] = pd.Categorical(categories(run), categories=CATEGORIES)[position]
    table["rank"] = frequency_ranks(model, run.ids)[position]
    return pd.DataFrame(table | {k: v.flatten().cpu().numpy() for k, v in columns.items()})
