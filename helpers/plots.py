"""Pure drawing: arrays and labels in, a matplotlib Axes out. Knows no model and no widget.

Row = query, column = key, on every heatmap. Labels are real text: they are drawn as they are,
never read as mathematics, in the first installed font of FONTS that has their letters.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from helpers.alignment import Gold

FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Emoji")
WEIGHTS_CMAP = "cividis"
DIFFERENCE_CMAP = "RdBu_r"
LONGEST = 16  # characters of a token that a label shows
THINNEST = 0.03  # capacity of the thinnest pipe that is drawn
WIDEST = 8  # points, the width of a pipe of capacity 1


def heatmap(
    values,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    title: str = "",
    label: str = "attention weight",
    vmax: float | None = None,
    center: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a (T, S) map: rows are queries, columns are keys, colours start at 0.

    Give the same `vmax` to maps that shall be compared. `center=0` switches to a diverging map
    for differences. Raises ValueError where the labels do not fit the shape.
    """
    values = np.asarray(values, dtype=float)
    keys = queries if keys is None else keys
    if values.shape != (len(queries), len(keys)):
        raise ValueError(
            f"values has shape {values.shape}, but there are {len(queries)} queries and "
            f"{len(keys)} keys; give one label a row and one a column."
        )
    ax = plt.subplots(figsize=_size(*values.shape), layout="constrained")[1] if ax is None else ax
    top = float(np.abs(values).max()) if vmax is None else vmax
    mesh = ax.pcolormesh(
        values,
        cmap=WEIGHTS_CMAP if center is None else DIFFERENCE_CMAP,
        vmin=0 if center is None else center - top,
        vmax=top if center is None else center + top,
    )
    ax.set_aspect("equal")
    ax.invert_yaxis()
    ax.figure.colorbar(mesh, ax=ax, label=label, shrink=0.8)
    _token_ticks(ax.xaxis, keys)
    _token_ticks(ax.yaxis, queries)
    ax.tick_params(axis="x", rotation=90)
    ax.tick_params(axis="y", rotation=0)
    ax.set(xlabel="key (read from)", ylabel="query (reads)")
    _title(ax, title)
    return ax


def links(ax: Axes, predicted: set[tuple[int, int]], gold: Gold) -> Axes:
    """Draw links over a heatmap of words: rows are target words, columns are source words.

    Links are pairs (source, target) from 0. A sure gold link is a solid frame, a possible one is
    dotted, a predicted one is a dot.
    """
    for source, target in gold.possible:
        line = "-" if (source, target) in gold.sure else ":"
        frame = Rectangle((source + 0.1, target + 0.1), 0.8, 0.8, fill=False, ls=line, lw=2)
        frame.set_edgecolor("C3")
        ax.add_patch(frame)
    where = np.array(sorted(predicted)).reshape(-1, 2) + 0.5
    ax.plot(*where.T, "o", color="white", markeredgecolor="black", ms=7)
    handles = [
        Line2D([], [], color="C3", ls="-", lw=2, label="gold, sure"),
        Line2D([], [], color="C3", ls=":", lw=2, label="gold, possible"),
        Line2D([], [], color="white", marker="o", markeredgecolor="black", ls="", label="found"),
    ]
    handles = handles if gold.possible else handles[2:]
    ax.legend(handles=handles, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=8)
    ax.set_title(ax.get_title(), pad=26, parse_math=False, fontfamily=_fonts())
    ax.set(xlabel="source word (read from)", ylabel="target word (reads)")
    return ax


def lines(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    title: str = "",
    ylabel: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one line for each value of column `by`, told apart by colour, dash and marker."""
    ax = plt.subplots(figsize=(6, 3.6), layout="constrained")[1] if ax is None else ax
    sns.lineplot(
        table, x=x, y=y, hue=by, style=by, markers=True, dashes=True, palette="colorblind", ax=ax
    )
    ax.set(xticks=sorted(table[x].unique()), ylabel=ylabel or y)
    ax.autoscale(axis="y")  # axes that share y may have been fixed by an earlier call
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    sns.move_legend(ax, "upper left", bbox_to_anchor=(1, 1))
    _title(ax, title)
    return ax


def token_bars(values, tokens: Sequence[str], *, title="", label="", vmax=1.0, ax=None) -> Axes:
    """Draw one horizontal bar for each token, first token on top: (T,) values from 0 to `vmax`."""
    values = np.asarray(values, dtype=float)
    if values.shape != (len(tokens),):
        raise ValueError(f"values has shape {values.shape}, but there are {len(tokens)} tokens.")
    if ax is None:
        ax = plt.subplots(figsize=_size(len(tokens), 5), layout="constrained")[1]
    ax.barh(np.arange(len(tokens)) + 0.5, values, color=sns.color_palette("colorblind")[0])
    ax.set(xlim=(0, vmax), ylim=(len(tokens), 0), xlabel=label)
    _token_ticks(ax.yaxis, tokens)
    _title(ax, title)
    return ax


def pipes(
    capacities,
    tokens: Sequence[str],
    *,
    query: int | None = None,
    result=None,
    title="",
    label="",
    vmax=None,
    ax=None,
) -> Axes:
    """Draw maps as a network of pipes: (L, T, T) capacities from 0 to 1, first layer first.

    Columns are layers, the input on the left; a line is as wide as its pipe, and pipes below
    THINNEST are left out. With a `query`, counted from 0, only what it can reach is drawn.
    `result` (T,) becomes a bar and a number for each input token: `label` names it, `vmax` is
    the longest bar. Raises ValueError where labels, result or query do not fit the shape.
    """
    capacities = np.asarray(capacities, dtype=float)
    T, L = len(tokens), len(capacities)
    if capacities.shape != (L, T, T) or not capacities.size:
        raise ValueError(
            f"capacities has shape {capacities.shape}, but there are {T} tokens; give (L, T, T)."
        )
    if query is not None and not 0 <= query < T:
        raise ValueError(f"query must be from 0 to {T - 1}, got {query}.")
    if result is not None and np.shape(result) != (T,):
        raise ValueError(f"result has shape {np.shape(result)}, but there are {T} tokens.")
    if ax is None:
        ax = plt.subplots(figsize=(3.5 + 1.2 * L, 2.2 + 0.34 * T), layout="constrained")[1]
    reached = np.arange(T) == query if query is not None else np.full(T, True)
    for layer in range(L, 0, -1):  # from the query down to the input
        drawn = np.where(reached[:, None], capacities[layer - 1], 0)
        upper, lower = (drawn >= THINNEST).nonzero()
        ends = [[(layer, i + 0.5), (layer - 1, j + 0.5)] for i, j in zip(upper, lower, strict=True)]
        widths = WIDEST * drawn[upper, lower]
        ax.add_collection(LineCollection(ends, linewidths=widths, colors="0.3", alpha=0.7))
        ax.plot(np.full(T, layer), np.arange(T) + 0.5, "o", color="C0", ms=4)
        reached = (drawn > 0).any(axis=0)
    ax.plot(np.zeros(T), np.arange(T) + 0.5, "o", color="C0", ms=4)
    if query is not None:
        ax.plot(L, query + 0.5, "D", color="C1", markeredgecolor="black", ms=9)
    if result is not None:
        _pipe_ends(ax, np.asarray(result, dtype=float), vmax)
    bars = [] if result is None else [(-0.75, label)]
    places, names = zip(*bars, (0, "input"), *((n, str(n)) for n in range(1, L + 1)), strict=True)
    ax.set_xticks(places, names, parse_math=False)
    ax.set(xlim=(-0.2 if result is None else -1.5, L + 0.2), ylim=(T, 0), xlabel="layer")
    ax.set_ylabel("position")
    _token_ticks(ax.yaxis, tokens)
    ax.tick_params(axis="y", right=True, labelright=True)
    key = [
        Line2D([], [], color="0.3", alpha=0.7, lw=WIDEST * c, label=f"{c}") for c in (0.1, 0.5, 1)
    ]
    ax.legend(
        handles=key,
        title="capacity of a pipe",
        ncols=3,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        borderaxespad=4.2,  # letter heights below the axis, clear of its name
    )
    _title(ax, title)
    return ax


def _pipe_ends(ax: Axes, result: np.ndarray, vmax: float | None) -> None:
    """A bar that grows to the left of each input, and its number."""
    top = (result.max() if vmax is None else vmax) or 1
    lengths = np.minimum(result / top, 1) * 0.8
    where = np.arange(len(result)) + 0.5
    ax.barh(where, -lengths, left=-0.1, height=0.6, color=sns.color_palette("colorblind")[0])
    for y, length, value in zip(where, lengths, result, strict=True):
        ax.text(-0.15 - length, y, f"{value:.2f}", ha="right", va="center", fontsize=9)


def _title(ax: Axes, text: str) -> None:
    fonts = _fonts()
    ax.set_title(_shown(text, fonts), parse_math=False, fontfamily=fonts)


def _token_ticks(axis, tokens: Sequence[str]) -> None:
    fonts = _fonts()
    axis.set_ticks(np.arange(len(tokens)) + 0.5)
    short = [t if len(t) <= LONGEST else t[: LONGEST - 1] + "…" for t in tokens]
    labels = [_shown(token, fonts) for token in short]
    axis.set_ticklabels(labels, parse_math=False, fontfamily=fonts, fontsize=9)


def _fonts() -> list[str]:
    """Those of FONTS that are installed; asking for a missing one would print a warning."""
    installed = set(font_manager.get_font_names())
    return [name for name in FONTS if name in installed]


def _shown(text: str, fonts: list[str]) -> str:
    """A text as a label: a letter that no installed font has is written as its code."""
    faces = [font_manager.get_font(font_manager.findfont(name)) for name in fonts]
    return "".join(
        c if any(face.get_char_index(ord(c)) for face in faces) else f"<{ord(c):X}>" for c in text
    )


def _size(rows: int, columns: int) -> tuple[float, float]:
    """Inches that keep 9-point labels apart."""
    return max(4.0, 2.4 + 0.22 * columns), max(3.2, 1.6 + 0.22 * rows)
