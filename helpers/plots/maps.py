"""Maps as pictures: rows are queries, columns keys, on a white ground and a square-root scale."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm, Colormap, PowerNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Affine2D

from helpers import _validate
from helpers.datasets import Gold
from helpers.plots import labels, windows
from helpers.plots.style import CMAPS, DIFFERENCES, WIDEST, inches, styled

SMALLEST, TALLEST = 2.0, 11.0  # inches of the cells of a map together
BAR = 0.75  # inches: the colour bar with its numbers and its name
AROUND = 0.45  # inches: the name of an axis, or the title, and gaps
GOLD = "0.1"  # the frames of gold links, with a white edge that shows on dark cells


@styled()
def heatmap(
    data,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    title: str = "",
    label: str | None = None,
    vmin: float = 0.0,
    vmax: float | None = None,
    center: float | None = None,
    cmap: str | Colormap | None = None,
    rows: windows.Window = None,
    columns: windows.Window = None,
    figsize: tuple[float, float] | None = None,
    ax: Axes | None = None,
    **kwargs,
) -> Axes:
    """Draw a (T, S) map of values ≥ 0, or of differences around a center.

    Colours follow the square root of the value, so that small shares can be told apart too. An
    arrow on the colour bar says that some values lie beyond its end. The picture of a long text
    says which labels are left out. Where cells would be narrower than a pixel, each is the largest
    value of a block, or the one furthest from the center, and the picture says that too.

    data: (T, S), an array, tensor or table of finite numbers.
    queries: T names of the rows.
    keys: S names of the columns; without them, the queries.
    label: the name of the colour bar; without it "share of the row" if every row sums to 1,
        otherwise "difference" or "value".
    vmin, vmax: where the colours begin and end; vmax is the largest value if not given. Give
        the same to maps that are compared.
    center: give 0 for differences: a diverging map, to `vmax` on both sides of the center.
    cmap: a name in `plots.CMAPS`, such as "norms" or "Attn-N", or a colour map of matplotlib.
    rows, columns: the part that is shown: a range, a slice or a list of positions, from 0 or
        negative from the end. Its colours and the name of its bar are those of the whole map.
    figsize: inches, of a figure of its own.
    ax: where to draw; without it, in a new pyplot figure that fits the map.
    **kwargs: go to `seaborn.heatmap`: annot=True, cbar=False, square=True, …

    Raises ValueError where the names do not fit the shape, for values that are NaN, infinite or,
    without `center`, negative, for rows or columns that do not exist, and where `annot` would
    write more numbers than can be read.

    Example: `plots.heatmap(run.attention[0, 2], run.tokens, rows=range(10))`.
    """
    queries, keys = list(queries), list(queries if keys is None else keys)
    shape = len(queries), len(keys)
    reason = f"there are {shape[0]} queries and {shape[1]} keys; give one name per row and column"
    data = _validate.array("data", data, shape, reason)
    _validate.colours(vmin, vmax, center)
    if center is None and vmin >= 0:
        _validate.within("data", data, np.inf, "give center=0 for a map of differences")
    labels.axes(ax)
    norm = kwargs.pop("norm", None) or _norm(data, vmin, vmax, center)
    bar, name = _bar(data, norm), _name(data, center) if label is None else label
    places = _places(shape, rows, columns, kwargs)
    queries, keys = (
        [names[n] for n in p] for names, p in zip((queries, keys), places, strict=True)
    )
    for option in {"annot", "mask"} & kwargs.keys():
        kwargs[option] = windows.part(kwargs[option], shape, places)
    if ax is None:
        ax = plt.subplots(figsize=inches(figsize, map_size(queries, keys)))[1]
    cmap = cmap or ("weights" if center is None else DIFFERENCES)
    data = data[np.ix_(*places)]
    if max(data.shape) > windows.FEW and kwargs.get("mask") is not None:
        data = np.where(kwargs.pop("mask"), np.nan, data)  # seaborn leaves out NaN too
    cells, blocks = windows.pooled(data, ax, center)
    sns.heatmap(
        cells,
        norm=norm,
        cmap=CMAPS.get(cmap, cmap) if isinstance(cmap, str) else cmap,
        ax=ax,
        xticklabels=False,
        yticklabels=False,
        **{
            "linewidths": 0.5 if max(cells.shape) <= 50 else 0,
            # As tall as the map, wherever the layout puts the map.
            "cbar_ax": ax.inset_axes([1.03, 0, 0.04, 1]) if kwargs.get("cbar", True) else None,
            **kwargs,
            "cbar_kws": bar | kwargs.get("cbar_kws", {}),
        },
    )
    if max(blocks) > 1:  # rows and columns keep their numbers
        ax.collections[-1].set_transform(Affine2D().scale(*blocks[::-1]) + ax.transData)
        ax.set(xlim=(0, len(keys)), ylim=(len(queries), 0))
    ax.spines[:].set(visible=True, color="0.7")
    if max(data.shape) > labels.ORDINARY:  # or the frame hides the first column, often the sink
        ax.spines[:].set_zorder(0.5)
    which = "largest" if center is None else "most extreme"
    more = f"each cell is the {which} of {blocks[0]} × {blocks[1]}" if max(blocks) > 1 else ""
    labels.token_ticks(ax.xaxis, keys, shown=windows.span(places[1], shape[1]), more=more)
    labels.token_ticks(ax.yaxis, queries, shown=windows.span(places[0], shape[0]))
    ax.tick_params("x", rotation=90 * any(len(str(key)) > 2 for key in keys))
    ax.tick_params("both", length=0, pad=2)
    # Not where a map beside it, or below it, has the same rows or columns and names them.
    if ax.xaxis.get_tick_params()["labelbottom"]:
        ax.set_xlabel("key (read from)")
    if ax.yaxis.get_tick_params()["labelleft"]:
        ax.set_ylabel("query (reads)")
    if colours := ax.collections[-1].colorbar:
        labels.number_ticks(colours.ax, "both", length=2)
        labels.write(colours.ax.yaxis.label, name)
    labels.write_title(ax, title)
    return ax


def map_size(queries: Sequence[str], keys: Sequence[str]) -> tuple[float, float]:
    """Inches, width and height, of a figure of one map whose labels stay apart."""
    side = AROUND + labels.room(queries) + BAR
    return min(WIDEST, side + cells(len(keys))), map_height(queries, keys)


def map_height(queries: Sequence[str], keys: Sequence[str]) -> float:
    """Inches of the height of a figure with one row of maps."""
    return 2 * AROUND + labels.room(keys) + min(TALLEST, cells(len(queries)))


def cells(n: int) -> float:
    """Inches that n rows or columns take where each has its label."""
    return max(SMALLEST, labels.PITCH * n)


def _places(shape: tuple[int, int], rows, columns, options: dict) -> tuple:
    """The positions of the rows and of the columns that are shown."""
    places = (
        windows.positions("rows", rows, shape[0]),
        windows.positions("columns", columns, shape[1]),
    )
    numbers = len(places[0]) * len(places[1])
    if numbers > windows.MOST_NUMBERS and options.get("annot") not in (None, False):
        raise ValueError(
            f"annot must write at most {windows.MOST_NUMBERS:,} numbers, got a map of {numbers:,} "
            "cells; choose a part of it with rows= and columns=."
        )
    return places


def _norm(data, vmin: float, vmax: float | None, center: float | None):
    """From a value to its place in the colour map; a map of zeros has a range too."""
    if center is None:
        span = (data.max() if vmax is None else vmax) - vmin
        # Too little to tell colours apart, or nothing above vmin.
        return PowerNorm(0.5, vmin, vmin + (span if span > np.finfo("float32").tiny else 1))
    return CenteredNorm(center, (np.abs(data - center).max() if vmax is None else vmax) or 1)


def _beyond(data, low: float, high: float) -> str:
    slack = 1e-6 * (high - low)  # rounding needs no arrow
    below, above = (data < low - slack).any(), (data > high + slack).any()
    return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]


def _bar(data, norm) -> dict:
    """How the colour bar looks: an arrow where values lie beyond it, ticks at about equal gaps."""
    bar = {"extend": _beyond(data, norm.vmin, norm.vmax)}
    if isinstance(norm, PowerNorm):
        places = [float(f"{place:.1g}") for place in norm.inverse(np.linspace(0, 1, 5)[:-1])]
        bar |= {"ticks": sorted({*places, norm.vmax}), "format": "%.2g"}
    return bar


def _name(data, center: float | None) -> str:
    if center is not None:
        return "difference"
    return "share of the row" if np.allclose(data.sum(axis=1), 1, atol=1e-3) else "value"


def links(predicted: set[tuple[int, int]], gold: Gold, *, ax: Axes) -> Axes:
    """Draw links over a heatmap of words: rows are target words, columns are source words.

    Links are pairs (source, target), counted from 0. A sure gold link has a solid frame, a
    possible one a dotted frame, a predicted one a dot. `ax` is the Axes of the heatmap, which is
    returned. Raises ValueError for anything but sets of such pairs and for a link outside the map.

    Example: `plots.links(align(…), pair.gold, ax=ax)`.
    """
    _validate.instance("ax", ax, Axes, "give that of the heatmap")
    _validate.instance("gold", gold, Gold, "take one of read_gold()")
    size = int(max(ax.get_xlim())), int(max(ax.get_ylim()))
    _validate.links("predicted", predicted, *size)
    accepted = gold.possible | gold.sure
    _validate.links("gold", accepted, *size)
    for link in accepted:
        corner, line = (link[0] + 0.1, link[1] + 0.1), "-" if link in gold.sure else ":"
        frame = Rectangle(corner, 0.8, 0.8, fill=False, ls=line, lw=1.8, ec=GOLD)
        ax.add_patch(frame).set_path_effects([withStroke(linewidth=3.5, foreground="white")])
    where = np.array(sorted(predicted)).reshape(-1, 2) + 0.5
    dot = {"ls": "", "marker": "o", "color": "white", "markeredgecolor": "black", "ms": 5}
    ax.plot(*where.T, **dot)
    handles = [
        Line2D([], [], color=GOLD, lw=1.8, label="gold, sure"),
        Line2D([], [], color=GOLD, lw=1.8, ls=":", label="gold, possible"),
        Line2D([], [], label="found", **dot),
    ]
    handles = handles if accepted else handles[2:]
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    ax.legend(handles=handles, ncols=3, fontsize=8, frameon=False, **place)
    labels.write_title(ax, ax.get_title(loc="left"), pad=20)
    if ax.get_xlabel():
        ax.set_xlabel("source word (read from)")
    if ax.get_ylabel():
        ax.set_ylabel("target word (reads)")
    return ax
