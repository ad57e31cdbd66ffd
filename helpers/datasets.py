"""The course's passages, sentences and gold links, and how to read your own files."""

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from helpers import _validate

Link = tuple[int, int]  # (source word, target word), counted from 0


class Gold(NamedTuple):
    """The reference links of one sentence pair; `possible` holds the sure ones too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


class AlignedPair(NamedTuple):
    """Two sentences, words separated by spaces, and the links between their words."""

    source: str
    target: str
    gold: Gold


def read_passages(path: str | Path | None = None) -> list[str]:
    """Texts, one per line; without a path, the 200 passages written for this course.

    path: a text file in UTF-8, with one text per line. Empty lines are left out.

    Raises ValueError if nothing is left or the file cannot be read.

    Example: read_passages()[:50]
    """
    file = files("helpers") / "data" / "passages.txt"
    remedy = "give a file with one text per line"
    text = file.read_text(encoding="utf-8") if path is None else _read(path, remedy)
    texts = [line.strip() for line in text.splitlines() if line.strip()]
    if not texts:
        raise ValueError(f"path {str(path)!r} holds no text; {remedy}.")
    return texts


def read_agreement() -> pd.DataFrame:
    """The agreement sentences made for this course: [MASK] is in the verb's place, once per text.

    Columns: text; number, "singular" or "plural", the subject's and so the verb's; template, the
    name of the sentence's frame; attractors, how many other nouns stand before the verb, 0 to 2;
    opposite, how many of these have the other number; split, "train" or "test", which share no
    noun; noun, the subject's singular. Rows 2n and 2n + 1 differ in the subject alone. See
    helpers/data/agreement.card.md for how the sentences were made.

    Example: read_agreement().query("split == 'test'")["text"]
    """
    with (files("helpers") / "data" / "agreement.tsv").open(encoding="utf-8") as file:
        return pd.read_csv(file, sep="\t")


def read_alignments() -> list[AlignedPair]:
    """The 160 German–English pairs with gold links that were made for this course.

    Links are (German word, English word), counted from 0; see helpers/data/alignments.card.md.

    Example: trace(model, pair.source, target=pair.target) for a pair of read_alignments()
    """
    file = files("helpers") / "data" / "alignments.tsv"
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    lengths = [(len(source.split()), len(target.split())) for source, target, _ in rows]
    gold = read_gold([links for *_, links in rows], one_indexed=True, lengths=lengths)
    return [AlignedPair(row[0], row[1], links) for row, links in zip(rows, gold, strict=True)]


def read_gold(
    path: str | Path | Iterable[str],
    *,
    one_indexed: bool,
    lengths: Sequence[tuple[int, int]] | None = None,
    skip_blank: bool = False,
) -> list[Gold]:
    """Gold links, one record per line such as "1-1 2p3": "-" is sure, "p" is only possible.

    path: a file, or its lines.
    one_indexed: whether the file counts words from 1; the records count from 0 in any case.
    lengths: a list of (source words, target words), against which each link is checked.
    skip_blank: whether blank lines only separate; otherwise each is a sentence without links, at
        the end of the file as far as `lengths` goes.

    Raises ValueError for a file that is missing or has no link, for an item that is not a link, for
    more or fewer sentences than lengths, and where links show that `one_indexed` is wrong: word 0
    counted from 1, a word after the end, or (without lengths) 5 sentences or more and never word 0.

    Example: read_gold(["1-1 2p3"], one_indexed=True)[0].sure is {(0, 0)}.
    """
    _validate.choice("one_indexed", one_indexed, (True, False))
    if lengths is not None and np.shape(lengths)[1:] != (2,):
        wanted = "a list of (source words, target words), one pair per sentence"
        raise ValueError(f"lengths must be {wanted}, got {_validate.shown(lengths)}.")
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
        got = "path, line {}: neither link {} nor any other has word 0".format(*linked[0])
        raise ValueError(f"{got}; is the file 1-indexed? Pass one_indexed=True, or else lengths.")
    return gold


def _lines(path: str | Path | Iterable[str]) -> list[str]:
    """The lines of a file, or those that were read already."""
    if not isinstance(path, str | Path):
        lines = list(path) if isinstance(path, Iterable) else [path]
        if not all(isinstance(line, str) for line in lines):
            got = _validate.shown(path)
            raise ValueError(f"path must be a file or its lines as strings, got {got}.")
        return lines
    # Links are ASCII. Latin-1 reads every byte, so old files do no harm.
    remedy = "give a file of gold links, or a list of its lines"
    text = _read(path, remedy, encoding="latin-1").removeprefix("ï»¿")  # UTF-8's byte order mark
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


def _read(path: str | Path, remedy: str, encoding: str = "utf-8-sig") -> str:
    """A file's text; TypeError for what is not a path, ValueError for no file or no UTF-8."""
    if not isinstance(path, str | Path):
        raise TypeError(f"path must be a string or a path, got {type(path).__name__}.")
    try:
        text = Path(path).expanduser().read_text(encoding=encoding)  # -sig: a mark at the start
    except UnicodeDecodeError:
        text = "\0"
    except OSError as error:
        raise ValueError(
            f"path {str(path)[:200]!r} cannot be read ({error.strerror}); {remedy}."
        ) from error
    if "\0" in text or text.startswith("ÿþ"):  # what UTF-16 looks like
        raise ValueError(f"path {str(path)!r} is not in UTF-8; save it as UTF-8 text.")
    return text
