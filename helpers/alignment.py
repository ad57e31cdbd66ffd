"""Word alignment: which source word belongs to which target word, and how often a map finds it.

A link is a pair (source word, target word), both counted from 0. Links from a map: section 5 of
Kobayashi et al. 2020 (K20). Sure and possible links and their score: Och & Ney 2003 (ON03).
"""

import re
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from helpers.arguments import (
    check_choice,
    check_strings,
    check_text,
    is_link,
    is_links,
    read_file,
    shown,
)

SETTINGS = ("AWO", "AWI")
SPECIAL = ("<s>", "</s>", "<pad>", "[CLS]", "[SEP]", "[PAD]")
Link = tuple[int, int]


class Gold(NamedTuple):
    """The links that people drew in one sentence pair; `possible` holds the sure ones too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


class AlignmentScore(NamedTuple):
    """How well predicted links agree with gold links, each in [0, 1]; a low AER is good."""

    aer: float
    precision: float
    recall: float


def words(text: str) -> list[str]:
    """The words of a text: letters and digits, joined by - or '; each other sign stands alone.

    Raises TypeError for what is no string, and ValueError for a text without a word.
    """
    check_text("text", text)
    found = re.findall(r"\w+(?:[-'’]\w+)*|[^\w\s]", text)
    if not found:
        raise ValueError(f"text must hold at least one word, got {text!r}; leave out empty lines.")
    return found


def read_gold(
    path: str | Path | Iterable[str], *, one_indexed: bool, lengths=None, skip_blank: bool = False
) -> list[Gold]:
    """Gold links, one record a line such as "1-1 2p3": "-" is sure, "p" is only possible.

    `path` is a file or its lines; `one_indexed` says whether it counts words from 1. A blank line
    is a sentence without links, or nothing if `skip_blank`. `lengths`, a list of (source words,
    target words), checks each link. Blank lines at the end count only as far as `lengths` goes.

    Raises ValueError for a file that is missing or has no link, for what is no link, for more or
    fewer sentences than lengths, and where links show that `one_indexed` is wrong: word 0 counted
    from 1, a word after the end, or (without lengths) 5 sentences or more and never word 0.
    """
    check_choice("one_indexed", one_indexed, (True, False))
    check_choice("skip_blank", skip_blank, (True, False))
    if lengths is not None and not (isinstance(lengths, list) and all(map(is_link, lengths))):
        wanted = "a list of (source words, target words), one pair a sentence"
        raise ValueError(f"lengths must be {wanted}, got {shown(lengths)}.")
    rows = [(number, line.split()) for number, line in enumerate(_lines(path), start=1)]
    rows = [row for row in rows if row[1] or not skip_blank]
    while rows and not rows[-1][1] and len(rows) > len(lengths or ()):
        rows.pop()
    linked = [(number, items[0]) for number, items in rows if items]
    if not linked:
        raise ValueError("path must hold links such as 1-1 2p3, got none; give a file of links.")
    if lengths is not None and len(lengths) != len(rows):
        got = f"{len(rows)} and {len(lengths)}; if blank lines only separate, pass skip_blank=True"
        raise ValueError(f"path and lengths must have the same sentences, got {got}.")
    gold = []
    for (number, items), length in zip(rows, lengths or [None] * len(rows), strict=True):
        links = {item: _link(item, number, one_indexed, length) for item in items}
        sure = frozenset(link for item, link in links.items() if "-" in item)
        gold.append(Gold(sure, frozenset(links.values())))
    first = any(0 in link for record in gold for link in record.possible)
    if not (one_indexed or lengths or first or len(linked) < 5):
        got = "path, line {}: neither link {} nor any other is with word 0".format(*linked[0])
        raise ValueError(f"{got}; is the file 1-indexed? Pass one_indexed=True, or else lengths.")
    return gold


def alignment_error_rate(predicted: list[set[Link]], gold: list[Gold]) -> AlignmentScore:
    """AER, precision and recall of the links A of all sentences together, each in [0, 1].

    With S sure and P possible: precision |A∩P| / |A|, recall |A∩S| / |S|, and
    AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|) (ON03). `predicted` has a set for each sentence. With
    no predicted link at all nothing is wrong and nothing is found: precision 1, recall 0, AER 1.

    Raises ValueError for what is no such list, other sentences, and gold without a sure link.
    """
    sets = predicted if isinstance(predicted, list | tuple) else [None]
    if not all(map(is_links, sets)):
        wanted = "a list, one set of pairs (source, target) a sentence, words counted from 0"
        raise ValueError(f"predicted must be {wanted}, got {shown(predicted)}.")
    records = gold if isinstance(gold, list | tuple) else [None]
    if not all(
        isinstance(record, Gold) and all(map(is_links, record)) and record.sure <= record.possible
        for record in records
    ):
        wanted = "a list of records from read_gold, each sure link possible too"
        raise ValueError(f"gold must be {wanted}, got {shown(gold)}.")
    if len(sets) != len(records):
        got = f"{len(sets)} and {len(records)} of them"
        raise ValueError(f"predicted and gold must have the same sentences, got {got}.")
    size, sure = sum(map(len, sets)), sum(len(record.sure) for record in records)
    if not sure:
        raise ValueError("gold must hold at least one sure link, got none; recall divides by them.")
    pairs = list(zip(sets, records, strict=True))
    in_sure = sum(len(links & record.sure) for links, record in pairs)
    in_possible = sum(len(links & record.possible) for links, record in pairs)
    aer = 1 - (in_sure + in_possible) / (size + sure)
    return AlignmentScore(aer, in_possible / size if size else 1.0, in_sure / sure)


def word_of(pieces: list[str], special: tuple[str, ...] = SPECIAL) -> list[int | None]:
    """The number of each piece's word, from 0; None for a piece in `special`, which is no word.

    A word starts at "▁" (SentencePiece) or "Ġ" (byte-level), after a special piece and at the
    beginning. A lone "▁" belongs to the next piece. Where neither mark occurs but "##" does
    (WordPiece), a word starts at each piece without it. With no mark at all there is one word.

    Raises ValueError for what is no list of strings.
    """
    check_strings("pieces", pieces)
    check_strings("special", special)
    marks = [m for m in ("▁", "Ġ", "##") if any(piece.startswith(m) for piece in pieces)]
    mark = marks[0] if marks else "▁"
    numbers, word, before = [], -1, None
    for piece in pieces:
        last, before = before, None if piece in special else piece
        starts = piece.startswith(mark) != (mark == "##")
        if before is not None and (last is None or (starts and last != mark)):
            word += 1
        numbers.append(None if before is None else word)
    return numbers


def to_words(scores: Tensor, target_word: list, source_word: list) -> Tensor:
    """Scores of pieces, (T, S), to scores of words, (target words, source words + 1), float64.

    Sum over the pieces of a source word, mean over those of a target word (K20, section 5). The
    last column is the sum of all special source pieces. The two lists are T and S long, from
    `word_of`; rows without a word are left out.

    Raises ValueError for scores as `score_words` does, and for words not numbered 0, 1, 2, ….
    """
    target = _membership("target_word", target_word)[:, :-1]
    source = _membership("source_word", source_word)
    scores = _check_scores(scores, len(target), len(source))
    return torch.einsum("ti,ts,sj->ij", target, scores, source) / target.sum(dim=0)[:, None]


def score_words(scores: Tensor, tokens: list[str], keys: list[str], setting: str) -> Tensor:
    """One cross-attention map (T, S), ≥ 0, by words: (target words, source words + 1), float64.

    `tokens` are the T tokens fed to the decoder: the start symbol, then those of the target.
    `keys` are the S source pieces. "AWO" gives a token the row whose *output* it is, one row
    earlier than "AWI", which gives it the row whose *input* it is (K20, section 5). The last
    column is that of `to_words`, all special source pieces.

    Raises ValueError for scores that are no (T, S) map or negative, NaN or infinite, for another
    setting, and for tokens with an end symbol or, as far as a "▁" shows it, without a start symbol.
    """
    check_choice("setting", setting, SETTINGS)
    check_strings("tokens", tokens)
    check_strings("keys", keys)
    target, source = word_of(tokens[1:]), word_of(keys)  # whatever the start symbol, it is no word
    if not tokens or tokens[0].startswith(("▁", "Ġ")) or target[-1:] == [None]:
        wanted = "those fed to the decoder, the start symbol first and no end symbol"
        raise ValueError(f"tokens must be {wanted}, got {' '.join(tokens)[:60]!r}; shift them.")
    scores = _check_scores(scores, len(tokens), len(keys))
    return to_words(scores[:-1] if setting == "AWO" else scores[1:], target, source)


def align(scores: Tensor, tokens: list[str], keys: list[str], setting: str) -> set[Link]:
    """Link each target word to its highest source word in `score_words`, whose arguments these are.

    A word that scores highest at </s> or another special piece gets no link; of equal scores the
    first wins (K20, section 5). Raises ValueError as `score_words` does.
    """
    by_word = score_words(scores, tokens, keys, setting)
    no_word = by_word.shape[1] - 1
    return {(s, t) for t, s in enumerate(by_word.argmax(dim=1).tolist()) if s != no_word}


def _lines(path: str | Path | Iterable[str]) -> list[str]:
    """The lines of a file, or those that were read already."""
    if not isinstance(path, str | Path):
        # A tensor of no dimension says that it is iterable, and is not.
        lines = list(path) if isinstance(path, Iterable) and getattr(path, "ndim", 1) else [path]
        if not all(isinstance(line, str) for line in lines):
            raise ValueError(f"path must be a file or its lines as strings, got {shown(path)}.")
        return lines
    # Links are ASCII. Latin-1 reads every byte, so old files do no harm.
    text = read_file(path, "give a file of gold links", encoding="latin-1").removeprefix("ï»¿")
    return text.removesuffix("\n").split("\n")


def _link(item: str, line: int, one_indexed: bool, length: tuple[int, int] | None) -> Link:
    """One item of a line, such as 1-1, as a link; ValueError as in `read_gold`."""
    found = re.fullmatch("([0-9]{1,9})[-p]([0-9]{1,9})", item)
    if not found:
        raise ValueError(f"path, line {line}: a link looks like 1-1 or 1p1, got {item[:40]!r}.")
    link = int(found[1]) - one_indexed, int(found[2]) - one_indexed
    if min(link) < 0:
        fault = "has word 0; is the file 0-indexed? Then pass one_indexed=False"
    elif length and (link[0] >= length[0] or link[1] >= length[1]):
        fault = f"is outside its {length[0]} source and {length[1]} target words"
        fault += "" if one_indexed else "; is the file 1-indexed? Then pass one_indexed=True"
    else:
        return link
    raise ValueError(f"path, line {line}: link {item} {fault}.")


def _membership(name: str, numbers: list[int | None]) -> Tensor:
    """Which piece is of which word, (pieces, words + 1); the last column is for no word."""
    whole = isinstance(numbers, list | tuple) and all(
        number is None or isinstance(number, Integral) and not isinstance(number, bool)
        for number in numbers
    )
    known = set(numbers) - {None} if whole else None
    if known is None or known != set(range(len(known))):
        raise ValueError(
            f"{name} must be a list of word numbers 0, 1, 2, … from word_of, got {shown(numbers)}."
        )
    columns = [len(known) if number is None else number for number in numbers]
    return torch.eye(len(known) + 1, dtype=torch.float64)[columns]


def _check_scores(scores: Tensor, T: int, S: int) -> Tensor:
    """The scores in float64, or a ValueError that says why not."""
    got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if got != (T, S) or scores.is_complex():
        several = isinstance(scores, Tensor) and scores.ndim > 2
        remedy = "choose a layer" if several else "rows are tokens, columns are keys"
        raise ValueError(f"scores must be one real map, (T, S) = {(T, S)}, got {got}; {remedy}.")
    scores = scores.to("cpu", torch.float64)
    for t, s in (~(scores.isfinite() & (scores >= 0))).nonzero()[:1].tolist():
        got = f"{scores[t, s].item():g} in row {t}, column {s} (counted from 0)"
        raise ValueError(f"scores must be finite numbers ≥ 0, got {got}; use weights or norms.")
    return scores
