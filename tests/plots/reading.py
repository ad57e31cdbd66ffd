"""What can be read off a picture once it is drawn."""

import io

import numpy as np
from IPython.core.pylabtools import print_figure
from matplotlib.image import imread
from matplotlib.text import Text

COLUMN = 848  # pixels of JupyterLab's text column in a window 1280 pixels wide

# Tokens of real texts and unreal ones, by kind.
ODD = {
    "mathematics": ["$x$", "_a_b", "\\alpha", "$", "x^2", "$\\frac{1}$"],
    "marks": ["<", ">", "&", "#", "^", "%", "~", "{", "}", "'", '"', "`", "@"],
    "white space": ["\n", "\t", " ", "\xa0", "a\nb", "\r"],
    "empty": ["", "a"],
    "long": ["x" * 60, "Donaudampfschifffahrtsgesellschaft" * 2],
    "Chinese": ["中", "文", "你好", "##字"],
    "Arabic": ["مرحبا", "السلام", "ا"],
    "emoji": ["😀", "👨‍👩‍👧", "🏳️‍🌈", "👍🏽"],
    "combining": ["e\u0301", "n\u0303o", "\u0301", "Z\u0351\u0343\u0352"],
    "byte level": ["Ġthe", "Ċ", "▁the", "âĢľ"],
    "control": ["\x00", "\u200b", "\ufeff", "\x1b"],
}


def many(n: int) -> list[str]:
    """Odd tokens, again and again."""
    tokens = [token for kind in ODD.values() for token in kind]
    return [tokens[i % len(tokens)] for i in range(n)]


def sink(n: int) -> np.ndarray:
    """A map whose rows sum to 1: half of each at the first key, the rest at the token itself."""
    A = np.eye(n) / 2
    A[:, 0] += 0.5
    return A


def names(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def title(ax) -> str:
    return ax.get_title(loc="left")


def drawn(ax) -> np.ndarray:
    """The numbers behind a map's colours."""
    return np.asarray(ax.collections[0].get_array())


def bars(ax) -> list[float]:
    return [bar.get_width() for bar in ax.patches]


def colours(ax) -> tuple[float, float]:
    """Where the colours of a map begin and end."""
    return ax.collections[0].get_clim()


def png(figure) -> np.ndarray:
    """The picture as a notebook stores it without retina, (height, width, 4)."""
    return imread(io.BytesIO(print_figure(figure)))


def smallest_letters(figure) -> float:
    """Pixels of the smallest words in JupyterLab's text column; checks that the picture fits it."""
    width = png(figure).shape[1]
    assert figure.get_figwidth() <= 8.4 and figure.dpi == 100
    shrunk = min(1, COLUMN / width)
    words = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return min(text.get_fontsize() for text in words) / 72 * 100 * shrunk
