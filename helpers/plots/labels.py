"""All words as they are written on a picture: real text, never read as mathematics.

Each letter is drawn in the first installed font that has it. A letter that no font has is written
as its code, such as <4E2D>, instead of an empty box and a warning. So are control letters, marks
that turn the direction of writing, and tokens that would be invisible.
"""

import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from weakref import WeakKeyDictionary

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
MOST_NAMED = 250  # labels of an axis at most
ORDINARY = 60  # tokens; in pictures of no more, what is left out is not worth a word
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
    # The reader's own font comes first, even if it has no bold letters and the title none either.
    is_bold = text.get_fontweight() == "bold" and names[:1] == bold[:1]
    if is_bold and letters == _letters(words, _faces(bold)):
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
    faces = _faces(fonts())
    names = ["".join(_visible(str(name), faces)) for name in names]
    axis.set_ticks(places, names, parse_math=False, fontfamily=fonts(), **look)


def number_ticks(ax: Axes, side: str, **look) -> None:
    """How the numbers of an axis, "x" or "y", look: matplotlib writes them when it draws."""
    ax.tick_params(side, labelsize=8, labelfontfamily=fonts(), **look)


def token_ticks(
    axis: Axis,
    tokens: Sequence[str],
    places: Sequence[float] | None = None,
    shown: str = "",
    more: str = "",
) -> None:
    """Write tokens in the middle of their rows or columns: all, or every n-th if they are many.

    Below the name of the axis stands what is `shown` of a long text, how many tokens have a label,
    and, on a line of its own, `more`.
    """
    places = np.arange(len(tokens)) + 0.5 if places is None else np.asarray(places)
    step = max(1, ceil(len(tokens) / MOST_NAMED))  # each tick costs time, drawn or not
    write_ticks(axis, places[::step], _shortened(tokens[::step]), fontsize=SIZE)
    locator = _EveryNth(places[::step])
    locator.step, locator.size, locator.shown, locator.more = step, len(tokens), shown, more
    axis.set_major_locator(locator)


def name_units(axis: Axis, unit: str, shown: str) -> None:
    """Say of an axis with `token_ticks` that it counts in something else, such as words."""
    locator = axis.get_major_locator()
    locator.unit, locator.shown = unit, shown


class _EveryNth(FixedLocator):
    """Places for as many labels as do not overlap in the final layout, known when it is drawn."""

    unit = "token"

    def __call__(self):
        box = self.axis.axes.get_window_extent()
        length = box.width if self.axis.axis_name == "x" else box.height
        needed = CLOSEST * self.axis.axes.figure.dpi * len(self.locs)
        every = max(1, ceil(needed / max(length, 1)))
        self._say(every * self.step)
        return self.locs[::every]

    def _say(self, step: int) -> None:
        """Write what these labels are below the name of the axis, on each panel that has them."""
        is_thin = step > 1 and (self.size > ORDINARY or self.shown)
        named = f"every {_ordinal(step)} {self.unit} is named" if is_thin else ""
        line = ", ".join(filter(None, [self.shown, named]))
        note = "\n".join(filter(None, [line, self.more]))
        x = self.axis.axis_name == "x"
        axes = self.axis.axes
        group = axes.get_shared_x_axes() if x else axes.get_shared_y_axes()
        for axis in (ax.xaxis if x else ax.yaxis for ax in group.get_siblings(axes)):
            if axis.get_tick_params()["labelbottom" if x else "labelleft"]:
                name = axis.label.get_text().removesuffix(_NOTES.get(axis.label, f"\n{note}"))
                _NOTES[axis.label] = f"\n{note}" if name and note else note
                axis.label.set_text(name + _NOTES[axis.label])


_NOTES: WeakKeyDictionary[Text, str] = WeakKeyDictionary()  # what was written below each name


def _ordinal(number: int) -> str:
    """A number as in "every 8th"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{ending or 'th'}"


def room(tokens: Sequence[str]) -> float:
    """Inches that the longest label of a token takes."""
    return COLUMN * max(map(_columns, _shortened(tokens)), default=0)


def short(token: str) -> str:
    """A token as a label or a title shows it: a long one is cut, with a "…"."""
    return _shortened([token])[0]


def _shortened(tokens: Sequence[str]) -> list[str]:
    faces = _faces(fonts())
    return [_short(str(token), faces) for token in tokens]


def _short(token: str, faces: list) -> str:
    letters = _visible(token, faces)
    # A code or an accented letter stays in one piece.
    ends = list(accumulate(map(_columns, letters)))
    if not ends or ends[-1] <= LONGEST:
        return "".join(letters)
    return "".join(letters[: max(1, sum(end < LONGEST for end in ends))]) + "…"


def visible(token: str) -> str:
    """A token in full, with ␣ or code points if it would be invisible."""
    return "".join(_visible(token, _faces(fonts())))


def _visible(token: str, faces: list) -> list[str]:
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
