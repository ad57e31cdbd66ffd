"""The picture of a network of pipes: maps as lines, as wide as what can flow through them."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from helpers import _validate
from helpers.plots import labels, windows
from helpers.plots.style import PALETTE, WIDEST, inches, styled

THINNEST = 0.03  # capacity of the thinnest pipe that is drawn
THICKEST = 8  # points, the width of a pipe of capacity 1
NODES = "0.25"
MOST_ROWS = 128  # tokens between which pipes can still be followed
TALLEST = 19.0  # inches


@styled()
def pipes(
    data,
    tokens: Sequence[str],
    *,
    query: int | None = None,
    result=None,
    title: str = "",
    label: str = "",
    vmax: float | None = None,
    color: str = PALETTE["weights"],
    rows: windows.Window = None,
    figsize: tuple[float, float] | None = None,
    ax: Axes | None = None,
    **kwargs,
) -> Axes:
    """Draw a stack of maps as a network of pipes, the input on the left, layers side by side.

    A line is as wide as its pipe; pipes below THINNEST are left out.

    data: (L, T, T) capacities from 0 to 1, first layer first, such as `with_residual` gives.
    tokens: T names.
    query: a position, from 0 or negative from the end; only what it can reach is drawn.
    result: (T,) values ≥ 0, each a bar and a number beside its input token.
    label, vmax: the name of the result, and the longest bar (the largest result if not given).
    color: of pipes and bars.
    rows: the tokens that are shown: a range, a slice or a list of positions, from 0 or negative
        from the end. Only pipes between them are drawn, as wide as in the whole.
    figsize: inches, of a figure of its own.
    ax: where to draw; without it, in a new pyplot figure that fits the tokens.
    **kwargs: go to `LineCollection`: alpha=0.3, …

    Raises ValueError where tokens, result, query or rows do not fit the shape, for NaN and infinite
    values, for capacities outside [0, 1], and for more than MOST_ROWS tokens.

    Example: `plots.pipes(with_residual(maps), tokens)`.
    """
    tokens = list(tokens)
    T = len(tokens)
    L = len(data) or 1
    data = _validate.array("data", data, (L, T, T), f"there are {T} tokens; give (L, T, T)")
    _validate.within("data", data, 1, "see helpers.paths.with_residual")
    query = None if query is None else _validate.index("query", query, T)
    if result is not None:
        _validate.colours(0, vmax)
        result = _validate.array("result", result, (T,), f"there are {T} tokens")
        _validate.within("result", result, np.inf, "a bar begins at 0")
    labels.axes(ax)
    places = _places(rows, T, query)
    names, n = [tokens[place] for place in places], len(places)
    if ax is None:
        height = min(TALLEST, 1.7 + 0.26 * n)
        size = min(WIDEST, 1.4 + 1.1 * L + 2 * labels.room(names)), height
        ax = plt.subplots(figsize=inches(figsize, size))[1]
    heights = np.arange(n) + 0.5
    reached = np.arange(T) == query if query is not None else np.full(T, True)
    for layer in range(L, 0, -1):  # from the query down to the input
        drawn = np.where(reached[:, None], data[layer - 1], 0)
        reached = (drawn > 0).any(axis=0)
        shown = drawn[np.ix_(places, places)]
        upper, lower = (shown >= THINNEST).nonzero()
        ends = [[(layer, i + 0.5), (layer - 1, j + 0.5)] for i, j in zip(upper, lower, strict=True)]
        look = {"colors": color, "alpha": 0.6, "linewidths": THICKEST * shown[upper, lower]}
        ax.add_collection(LineCollection(ends, **look | kwargs))
        ax.plot(np.full(n, layer), heights, "o", color=NODES, ms=3.5)
    ax.plot(np.zeros(n), heights, "o", color=NODES, ms=3.5)
    if query is not None:
        place = heights[places == query]
        ax.plot([L], place, "D", color="white", markeredgecolor="black", ms=8)
    if result is not None:
        _ends(ax, result[places], result.max() if vmax is None else vmax, color)
    _axes(ax, names, L, None if result is None else label)
    if span := windows.span(places, T):
        labels.token_ticks(ax.yaxis, names, shown=f"{span} and the pipes between them")
    key = [Line2D([], [], color=color, alpha=0.6, lw=THICKEST * c, label=c) for c in (0.1, 0.5, 1)]
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 4}
    ax.legend(handles=key, title="capacity of a pipe", ncols=3, frameon=False, **below)
    labels.write_title(ax, title)
    return ax


def _places(rows: windows.Window, T: int, query: int | None) -> np.ndarray:
    """The positions that are shown, the query among them, and not too many."""
    places = windows.positions("rows", rows, T)
    if len(places) > MOST_ROWS:
        raise ValueError(
            f"pipes can be followed between at most {MOST_ROWS} tokens, got {len(places):,}; "
            f"choose some of them with rows=, such as rows=range({min(T, 40)}), or draw one layer "
            "as a heatmap."
        )
    if query is not None and query not in places:
        raise ValueError(
            f"rows must show the query, which is position {query} (counted from 0), got "
            f"{_validate.shown(rows)}."
        )
    return places


def _ends(ax: Axes, result: np.ndarray, top: float, color: str) -> None:
    """A bar that grows to the left of each input, and its number."""
    lengths = np.minimum(result / (top or 1), 1) * 0.8
    rows = np.arange(len(result)) + 0.5
    ax.barh(rows, -lengths, left=-0.1, height=0.6, color=color)
    for row, length, value in zip(rows, lengths, result, strict=True):
        look = {"ha": "right", "va": "center", "fontsize": labels.SIZE}
        ax.text(-0.15 - length, row, f"{value:.2f}", **look)


def _axes(ax: Axes, tokens: Sequence[str], L: int, label: str | None) -> None:
    """Layers below, the tokens on both sides; `label` names the result, None if there is none."""
    bars = [] if label is None else [(-0.5, label)]
    places = *bars, (0, "input"), *((n, n) for n in range(1, L + 1))
    labels.write_ticks(ax.xaxis, *zip(*places, strict=True), fontsize=8)
    ax.set(xlim=(-0.2 if label is None else -1.5, L + 0.2), ylim=(len(tokens), 0))
    ax.set(xlabel="layer", ylabel="position")
    ax.spines[:].set_visible(False)
    labels.token_ticks(ax.yaxis, tokens)
    ax.tick_params("y", right=True, labelright=True)
    ax.tick_params("both", length=0)
