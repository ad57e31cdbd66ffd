"""All words as they are written on a picture: real text, never read as mathematics.

Each letter is drawn in the first installed font that has it. A letter that no font has is written
as its code, such as <4E2D>, instead of an empty box and a warning. So are control letters, marks
that turn the direction of writing, and tokens that would be invisible.
"""

import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from math import ceil

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator
from wcwidth import wcswidth

from helpers import _validate
from helpers.plots.style import fonts

LONGEST = 16  # columns of a token that a label shows; a Chinese letter takes two
COLUMN = 0.064  # inches, for letters of SIZE
SIZE = 7.5  # points: 10.4 pixels at 100 dpi
PITCH, CLOSEST = 0.135, 0.1  # inches from one token to the next: usual, and hardly apart
TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def axes(ax: Axes | None) -> None:
    """Raise TypeError unless this is an Axes, or None for a new figure."""
    if ax is not None:
        _validate.instance("ax", ax, Axes, "give one of plt.subplots(), or leave it out")


def write(text: Text, words: str | None) -> None:
    """Write words, such as the name of an axis, in their place on a picture; None is nothing."""
    words = "" if words is None else str(words)
    names, bold = fonts(), fonts(bold=True)
    letters = _letters(words, _faces(names))
    if text.get_fontweight() == "bold" and letters == _letters(words, _faces(bold)):
        names = bold
    elif names != bold:  # some letters exist only in a font without bold ones
        text.set_fontweight("normal")
    text.set(text="".join(letters), parse_math=False, fontfamily=names)


def write_title(ax: Axes, words: str, pad: float | None = None) -> None:
    """Write a title, left-aligned and bold; `pad` is its distance from the picture in points."""
    write(ax.set_title("", loc="left", weight="bold", pad=pad), words)


def write_names(texts: Sequence[Text], names: Sequence[str]) -> None:
    """Write names of lines, in full; an invisible one shows ␣ or its code points."""
    for text, name in zip(texts, names, strict=True):
        write(text, visible(name))


def write_ticks(axis: Axis, places: Sequence[float], names: Sequence[str], **look) -> None:
    """Write a name at each place of an axis."""
    names = [visible(str(name)) for name in names]
    axis.set_ticks(places, names, parse_math=False, fontfamily=fonts(), **look)


def token_ticks(axis: Axis, tokens: Sequence[str]) -> None:
    """Write tokens in the middle of their rows or columns: all, or every n-th if they are many."""
    places = np.arange(len(tokens)) + 0.5
    write_ticks(axis, places, [short(token) for token in tokens], fontsize=SIZE)
    axis.set_major_locator(_EveryNth(places))


class _EveryNth(FixedLocator):
    """Places for as many labels as do not overlap in the final layout, known when it is drawn."""

    def __call__(self):
        box = self.axis.axes.get_window_extent()
        length = box.width if self.axis.axis_name == "x" else box.height
        needed = CLOSEST * self.axis.axes.figure.dpi * len(self.locs)
        return self.locs[:: max(1, ceil(needed / length))]


def room(tokens: Sequence[str]) -> float:
    """Inches that the longest label of a token takes."""
    return COLUMN * max((_columns(short(token)) for token in tokens), default=0)


def short(token: str) -> str:
    """A token as a label or a title shows it: a long one is cut, with a "…"."""
    letters = _visible(str(token))
    ends = list(
        accumulate(map(_columns, letters))
    )  # a code or an accented letter stays in one piece
    if not ends or ends[-1] <= LONGEST:
        return "".join(letters)
    return "".join(letters[: max(1, sum(end < LONGEST for end in ends))]) + "…"


def visible(token: str) -> str:
    """A token in full, with ␣ or code points if it would be invisible."""
    return "".join(_visible(token))


def _visible(token: str) -> list[str]:
    faces = _faces(fonts())
    letters = _letters(token, faces)
    if not all(len(letter) == 1 and _is_blank(letter, faces) for letter in letters):
        return letters
    space = "␣" if any(face.get_char_index(ord("␣")) for face in faces) else _code(" ")
    return [space if letter == " " else _code(letter) for letter in letters]


def _letters(text: str, faces: list) -> list[str]:
    """The letters of a text; each that cannot be drawn as itself is replaced by its code."""
    return [letter if _is_drawn(letter, faces) else _code(letter) for letter in text]


def _is_drawn(letter: str, faces: list) -> bool:
    """Whether an installed font has it, and it neither breaks the line nor turns its direction."""
    if letter in TURNS or unicodedata.category(letter) in ("Cc", "Zl", "Zp"):
        return False
    return any(face.get_char_index(ord(letter)) for face in faces)


def _is_blank(letter: str, faces: list) -> bool:
    """Whether a letter leaves no ink, such as a space or a joiner."""
    if unicodedata.category(letter) in ("Zs", "Cf"):
        return True
    face = next(face for face in faces if face.get_char_index(ord(letter)))
    return face.load_char(ord(letter)).width == 0


def _columns(letters: str) -> int:
    """How wide a letter is, or the code of one, or a label; accents and joiners take no room."""
    return max(0, wcswidth(letters))


def _faces(names: list[str]) -> list:
    return [font_manager.get_font(font_manager.findfont(name)) for name in names]


def _code(letter: str) -> str:
    return f"<{ord(letter):X}>"
