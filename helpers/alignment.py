"""Word alignment: which source word belongs to which target word, and how often a map finds it.

A link is a pair (source word, target word), both counted from 0. Links from a map: Kobayashi et al.
2020, section 5 (K20). Sure and possible links and their score: Och & Ney 2003 (ON03).
"""

from typing import NamedTuple

import regex
import torch
from torch import Tensor

from helpers import _validate
from helpers.datasets import AlignedPair, Gold, Link, read_gold
from helpers.models import Model
from helpers.tokens import Text
from helpers.tracing import Trace, trace

__all__ = [
    "SETTINGS",
    "AlignedPair",
    "AlignmentScore",
    "Gold",
    "align",
    "align_pair",
    "align_states",
    "alignment_error_rate",
    "read_gold",
    "score_words",
    "to_words",
    "words",
]
SETTINGS = ("AWO", "AWI")
Words = list[int | None]  # the word that each token belongs to; None for tokens of no word


class AlignmentScore(NamedTuple):
    """How well predicted links agree with gold links, each in [0, 1]; a low AER is good."""

    aer: float
    precision: float
    recall: float


def words(text: str) -> list[str]:
    """The words of a text: letters and digits, joined by - or '; every other mark stands alone.

    text: in any language that puts spaces between its words.

    Raises TypeError for anything but a string, and ValueError for a text without a word.

    Example: words("It's late.") is ["It's", "late", "."].
    """
    _validate.text("text", text)
    # A letter takes the accents and vowel signs after it; a number keeps its point or comma.
    letters = r"[\w\p{M}]+"
    found = regex.findall(rf"\d+(?:[.,]\d+)+|{letters}(?:[-'’]{letters})*|[^\w\s]", text)
    if not found:
        raise ValueError(f"text must hold at least one word, got {text!r}; leave out empty lines.")
    return found


def to_words(scores: Tensor, target_words: Words, source_words: Words) -> Tensor:
    """Scores of tokens, (T, S), to scores of words, (target words, source words + 1), float64.

    Sum over the tokens of a source word, mean over those of a target word (K20, section 5). Rows
    without a word are left out; the last column is the sum of all source tokens without one. A row
    that sums to 1 still does.

    scores: one map, ≥ 0.
    target_words, source_words: the word of each row and of each column, such as `run.words` and
        `run.key_words`. Where these do not exist, because the tokenizer cannot tell the words,
        number the words 0, 1, 2, … in lists of your own.

    Raises ValueError for anything but one map ≥ 0 of this shape, and for words that are not
    numbered 0, 1, 2, ….

    Example: to_words(stage_map(run, "Attn-N")[4], run.words, run.key_words)
    """
    scores = _validate.word_scores(scores, target_words, source_words)
    target = _membership(target_words, scores)[:, :-1]  # (T, target words)
    source = _membership(source_words, scores)  # (S, source words + 1)
    return torch.einsum("ti,ts,sj->ij", target, scores, source) / target.sum(dim=0)[:, None]


def score_words(scores: Tensor, words: Words, key_words: Words, setting: str) -> Tensor:
    """One cross-attention map (T, S), ≥ 0, by words: (target words, source words + 1), float64.

    scores: one map of a run, such as stage_map(run, "Attn-N")[layer].
    words: `run.words`, of the T tokens fed to the decoder: the start symbol, then the target's.
    key_words: `run.key_words`, of the S source tokens.
    setting: "AWO" gives a token the row whose *output* it is, one row earlier than "AWI", which
        gives it the row whose *input* it is (K20, section 5).

    The last column is that of `to_words`: what falls on the end symbol, which means no link. Raises
    ValueError as `to_words` does, for an unknown setting, and for words that do not begin with a
    start symbol or that end with an end symbol.

    Example: score_words(stage_map(run, "Attn-W")[4], run.words, run.key_words, "AWO")
    """
    _validate.choice("setting", setting, SETTINGS)
    listed = isinstance(words, list | tuple) and len(words) > 0
    if not listed or words[0] is not None or words[-1] is None:
        raise ValueError(
            "words must be those of the tokens fed to the decoder, the start symbol (None) first "
            f"and no end symbol, such as run.words, got {_validate.shown(words)}."
        )
    # Under AWO the start symbol's row is the first token's; the last row is the end's, no word.
    of_rows = [*words[1:], None] if setting == "AWO" else words
    return to_words(scores, of_rows, key_words)


def align(scores: Tensor, words: Words, key_words: Words, setting: str) -> set[Link]:
    """Link each target word to its highest source word: a set of (source, target), from 0.

    A word that scores highest at the end symbol, or at any other token that is not a word, gets no
    link; of equal scores the first wins (K20, section 5). Parameters and errors: see `score_words`.

    Example: align(stage_map(run, "Attn-N")[4], run.words, run.key_words, "AWO")
    """
    by_word = score_words(scores, words, key_words, setting)
    no_word = by_word.shape[1] - 1
    return {(s, t) for t, s in enumerate(by_word.argmax(dim=1).tolist()) if s != no_word}


def align_states(model: Model, source: Text, target: Text, layer: int | None = None) -> set[Link]:
    """Link words of two sentences by the states of one multilingual encoder: (source, target).

    Each sentence is read alone. A word's vector is the mean of its tokens' states; two words are
    linked where each is the other's nearest by cosine (SimAlign's "argmax", Jalili Sabet et al.
    2020, arXiv 2004.08728). Of equal ones the first wins; special tokens take no part.

    model: an encoder, or the encoder of an encoder-decoder. source, target: as text in `trace`.
    layer: the states that this layer, from 0, reads; by default the one after two thirds of them.

    Raises ValueError as `trace` does, for a layer that does not exist, and for a text of no word.

    Example: align_states(model, "Das Haus ist klein.", "The house is small.")
    """
    _validate.model(model)
    kind = "encoder" if model.network.config.is_encoder_decoder else None
    runs = trace(model, source, attention=kind), trace(model, target, attention=kind)
    layers = len(runs[0].blocks)
    layer = layers * 2 // 3 if layer is None else _validate.index("layer", layer, layers)
    S, T = (_of_words(run.blocks[layer].residual, run.words) for run in runs)  # (words, D)
    cosines = torch.einsum("td,sd->ts", T, S)
    return _mutual(cosines, cosines.T)


def align_pair(scores: Tensor, run: Trace) -> set[Link]:
    """Link words of a text and its pair that read each other most: (source, target), from 0.

    A link stands where the target word reads the source word more than any other, and the source
    word that target word. A word reads by the mean of its tokens, and is read by their sum.

    scores: one map of the run, (T, T), ≥ 0, such as stage_map(run, "Attn-N")[layer].
    run: of a model that reads two texts at once, trace(model, source, pair=target).

    Raises ValueError for a run without a pair, and as `to_words` does.

    Example: align_pair(stage_map(run, "Attn-N")[4], run)
    """
    _validate.run(run)
    sides = [[w for w, n in zip(run.words, run.segments, strict=True) if n == k] for k in (0, 1)]
    if not all(set(side) - {None} for side in sides):
        raise ValueError("run must hold two texts with words; trace(model, source, pair=target).")
    first = len(set(sides[0]) - {None})
    by_word = to_words(scores, run.words, run.words)[:, :-1]  # (words, words)
    return _mutual(by_word[first:, :first], by_word[:first, first:])


def alignment_error_rate(predicted: list[set[Link]], gold: list[Gold]) -> AlignmentScore:
    """AER, precision and recall of the links A of all sentences together, each in [0, 1].

    With S sure and P possible: precision |A∩P| / |A|, recall |A∩S| / |S|, and
    AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|) (ON03). With no predicted link at all nothing is wrong
    and nothing is found: precision 1, recall 0, AER 1.

    predicted: one set of links per sentence, as from `align`.
    gold: one record per sentence, as from `read_gold`; its sure links are possible ones too.

    Raises ValueError for anything else, for unequal lengths, and for gold without a sure link.

    Example: alignment_error_rate([{(0, 0), (1, 2)}], gold).aer
    """
    for links in predicted:
        _validate.links("predicted, every set of it,", links)
    records = all(isinstance(record, Gold) and record.sure <= record.possible for record in gold)
    if not (records and len(predicted) == len(gold) and any(record.sure for record in gold)):
        raise ValueError(
            "gold must be a list of records from read_gold, one per set of predicted, with sure "
            "links that are possible too, at least one in all; got "
            f"{len(gold)} for {len(predicted)} sets, {_validate.shown(gold)}."
        )
    pairs = list(zip(predicted, gold, strict=True))
    size, sure = sum(len(A) for A, _ in pairs), sum(len(S) for _, (S, _) in pairs)
    in_sure = sum(len(A & S) for A, (S, _) in pairs)
    in_possible = sum(len(A & P) for A, (_, P) in pairs)
    aer = 1 - (in_sure + in_possible) / (size + sure)
    return AlignmentScore(aer, in_possible / size if size else 1.0, in_sure / sure)


def _mutual(forward: Tensor, backward: Tensor) -> set[Link]:
    """Pairs that are each other's highest: forward (target, source), backward (source, target)."""
    sources, targets = forward.argmax(dim=1).tolist(), backward.argmax(dim=1).tolist()
    return {(s, t) for t, s in enumerate(sources) if targets[s] == t}


def _of_words(states: Tensor, words: Words) -> Tensor:
    """Mean state of each word's tokens, at length 1: (words, D)."""
    member = _membership(words, states)[:, :-1]  # (T, words)
    if not member.numel():
        raise ValueError("source and target must hold a word each, got none; give a sentence.")
    mean = torch.einsum("tw,td->wd", member, states) / member.sum(dim=0)[:, None]
    return torch.nn.functional.normalize(mean, dim=-1)


def _membership(numbers: Words, like: Tensor) -> Tensor:
    """Which token belongs to which word, (tokens, words + 1); the last column is for no word."""
    count = len(set(numbers) - {None})
    columns = [count if number is None else number for number in numbers]
    return torch.eye(count + 1, dtype=like.dtype, device=like.device)[columns]
