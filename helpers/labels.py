"""Tokens and titles as they are written on a picture: real text, never read as mathematics.

Each letter is drawn in the first font of FONTS that is installed and has it. A letter that none of
them has is written as its code, such as <4E2D>, instead of an empty box and a warning.
"""

import unicodedata
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes

from helpers.arguments import check_number, check_text, check_type

# Outlines only: matplotlib draws no coloured letters, so no Apple Color Emoji, no Noto Color Emoji.
FONTS = (
    "DejaVu Sans",  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Symbola"),  # Debian: fonts-noto-cjk, fonts-symbola
    *("Noto Sans Arabic", "Noto Emoji"),
    *("PingFang SC", "Hiragino Sans GB", "Hiragino Sans", "Apple SD Gothic Neo"),  # macOS
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Segoe UI Emoji"),  # Windows
)
LONGEST = 16  # columns of a token that a label shows; a Chinese letter takes two
USUAL = 12  # columns that a figure has room for
COLUMN = 0.08  # inches


def check_look(ax: Axes | None, vmax: float | None = None, **texts: str) -> None:
    """Raise TypeError or ValueError unless these can be drawn, before a figure is opened."""
    if ax is not None:
        check_type("ax", ax, Axes, "leave it out for a new figure")
    if vmax is not None:
        check_number("vmax", vmax, low=0)
    for name, text in texts.items():
        check_text(name, text)


def write_title(ax: Axes, text: str, pad: float | None = None) -> None:
    """Write a title; `pad` are the points between it and the picture."""
    fonts = _fonts()
    ax.set_title("".join(_letters(text, fonts)), pad=pad, parse_math=False, fontfamily=fonts)


def token_ticks(axis, tokens: Sequence[str]) -> None:
    """Write one token in the middle of each row or column; a long one is cut, with a "…"."""
    fonts = _fonts()
    axis.set_ticks(np.arange(len(tokens)) + 0.5)
    labels = ["".join(_short(_letters(token, fonts))) for token in tokens]
    axis.set_ticklabels(labels, parse_math=False, fontfamily=fonts, fontsize=9)


def map_size(queries: Sequence[str], keys: Sequence[str]) -> tuple[float, float]:
    """Inches, width and height, of a map that keep its labels apart."""
    width, height = max(4.0, 2.4 + 0.22 * len(keys)), max(3.2, 1.6 + 0.22 * len(queries))
    return width + room(queries), height + room(keys)


def room(tokens: Sequence[str]) -> float:
    """Inches that the longest label needs beyond what a figure has for it anyway."""
    fonts = _fonts()
    longest = max(sum(map(_columns, _short(_letters(token, fonts)))) for token in tokens)
    return COLUMN * max(0, longest - USUAL)


def short(token: str) -> str:
    """A token as a title can quote it: a long one is cut, with a "…"."""
    return "".join(_short(_letters(token, _fonts())))


def _short(letters: list[str]) -> list[str]:
    """The letters of one label; a code or an accented letter is not cut apart."""
    ends = list(accumulate(map(_columns, letters)))
    if not ends or ends[-1] <= LONGEST:
        return letters
    return [*letters[: max(1, sum(end < LONGEST for end in ends))], "…"]


def _columns(letter: str) -> int:
    """How wide a letter is, or the code of one."""
    if len(letter) > 1:
        return len(letter)
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):  # accents and joiners
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _fonts() -> list[str]:
    """Those of FONTS that are installed; asking for a missing one would print a warning."""
    installed = set(font_manager.get_font_names())
    return [name for name in FONTS if name in installed]


def _letters(text: str, fonts: list[str]) -> list[str]:
    """The letters of a text, each that no installed font has written as its code."""
    faces = [font_manager.get_font(font_manager.findfont(name)) for name in fonts]
    return [
        c if any(face.get_char_index(ord(c)) for face in faces) else f"<{ord(c):X}>" for c in text
    ]
