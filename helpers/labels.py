"""All words as they are written on a picture: real text, never read as mathematics.

Each letter is drawn in the first font of FONTS that is installed and has it. A letter that none of
them has is written as its code, such as <4E2D>, instead of an empty box and a warning. So are
control letters and marks that turn the direction of writing, and tokens of which nothing is seen.
"""

import unicodedata
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text

from helpers.arguments import check_number, check_strings, check_text, check_type

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
TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def check_look(ax: Axes | None, vmax: float | None = None, **texts: str) -> None:
    """Raise TypeError or ValueError unless these can be drawn, before a figure is opened."""
    if ax is not None:
        check_type("ax", ax, Axes, "leave it out for a new figure")
    if vmax is not None:
        check_number("vmax", vmax, low=0)
    for name, text in texts.items():
        check_text(name, text)


def write(text: Text, words: str) -> None:
    """Write words, such as the label of an axis, in their place on a picture."""
    check_type("text", text, Text, "give one of an Axes, such as ax.xaxis.label")
    check_text("words", words)
    fonts = _fonts()
    text.set(text="".join(_letters(words, fonts)), parse_math=False, fontfamily=fonts)


def write_title(ax: Axes, text: str, pad: float | None = None) -> None:
    """Write a title; `pad` are the points between it and the picture."""
    check_type("ax", ax, Axes, "give the one that holds the picture")
    check_text("text", text)
    if pad is not None:
        check_number("pad", pad)
    write(ax.set_title("", pad=pad), text)


def write_names(texts: Sequence[Text], names: Sequence[str]) -> None:
    """Write the names of a legend in full; one of spaces alone is written as signs or codes."""
    check_strings("names", names)
    for text, name in zip(texts, names, strict=True):
        write(text, "".join(_token(name, _fonts())))


def write_ticks(axis: Axis, places: Sequence[float], names: Sequence[str]) -> None:
    """Write a name at each place of an axis."""
    check_type("axis", axis, Axis, "give ax.xaxis or ax.yaxis")
    check_strings("names", names)
    fonts = _fonts()
    labels = ["".join(_token(name, fonts)) for name in names]
    axis.set_ticks(places, labels, parse_math=False, fontfamily=fonts)


def token_ticks(axis: Axis, tokens: Sequence[str]) -> None:
    """Write one token in the middle of each row or column; a long one is cut, with a "…"."""
    check_type("axis", axis, Axis, "give ax.xaxis or ax.yaxis")
    check_strings("tokens", tokens)
    fonts = _fonts()
    labels = ["".join(_short(_token(token, fonts))) for token in tokens]
    places = np.arange(len(tokens)) + 0.5
    axis.set_ticks(places, labels, parse_math=False, fontfamily=fonts, fontsize=9)


def map_size(queries: Sequence[str], keys: Sequence[str]) -> tuple[float, float]:
    """Inches, width and height, of a map that keep its labels apart."""
    check_strings("queries", queries)
    check_strings("keys", keys)
    width, height = max(4.0, 2.4 + 0.22 * len(keys)), max(3.2, 1.6 + 0.22 * len(queries))
    return width + room(queries), height + room(keys)


def room(tokens: Sequence[str]) -> float:
    """Inches that the longest label needs beyond what a figure has for it anyway."""
    check_strings("tokens", tokens)
    fonts = _fonts()
    lengths = [sum(map(_columns, _short(_token(token, fonts)))) for token in tokens]
    longest = max(lengths, default=0)
    return COLUMN * max(0, longest - USUAL)


def short(token: str) -> str:
    """A token as a title can quote it: a long one is cut, with a "…"."""
    check_text("token", token)
    return "".join(_short(_token(token, _fonts())))


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


def _token(token: str, fonts: list[str]) -> list[str]:
    """The letters of a token; if nothing would be seen of it, a sign or the code of each."""
    letters = _letters(token, fonts)
    faces = _faces(fonts)
    if not all(len(letter) == 1 and _is_blank(letter, faces) for letter in letters):
        return letters
    space = "␣" if any(face.get_char_index(ord("␣")) for face in faces) else _code(" ")
    return [space if letter == " " else _code(letter) for letter in letters]


def _letters(text: str, fonts: list[str]) -> list[str]:
    """The letters of a text, each that can not be drawn as itself as its code."""
    faces = _faces(fonts)
    return [c if _is_drawn(c, faces) else _code(c) for c in text]


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


def _faces(fonts: list[str]) -> list:
    return [font_manager.get_font(font_manager.findfont(name)) for name in fonts]


def _code(letter: str) -> str:
    return f"<{ord(letter):X}>"
