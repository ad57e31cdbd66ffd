"""Pure drawing: arrays and labels in, a matplotlib Axes out. Knows no model and no widget.

Row = query, column = key, on every heatmap. How tokens are written is in `labels`.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from helpers.alignment import Gold
from helpers.arguments import (
    check_array,
    check_index,
    check_number,
    check_strings,
    check_type,
    is_links,
    shown,
)
from helpers.labels import check_look, map_size, room, token_ticks, write_title

WEIGHTS_CMAP = "cividis"
DIFFERENCE_CMAP = "RdBu_r"
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
    for differences. Raises ValueError where the labels do not fit the shape, and for values that
    are NaN or infinite, which no colour stands for.
    """
    keys = queries if keys is None else keys
    check_strings("queries", queries)
    check_strings("keys", keys)
    T, S = len(queries), len(keys)
    labels = f"there are {T} queries and {S} keys; give one label a row and one a column"
    values = check_array("values", values, (T, S), labels)
    if not values.size:
        raise ValueError(f"values is empty, of shape {values.shape}; give one query and one key.")
    check_look(ax, vmax, title=title, label=label)
    if center is not None:
        center = check_number("center", center)
    if ax is None:
        ax = plt.subplots(figsize=map_size(queries, keys), layout="constrained")[1]
    top = float(np.abs(values).max() if vmax is None else vmax)
    mesh = ax.pcolormesh(
        values,
        cmap=WEIGHTS_CMAP if center is None else DIFFERENCE_CMAP,
        vmin=0 if center is None else center - top,
        vmax=top if center is None else center + top,
    )
    ax.set_aspect("equal")
    ax.invert_yaxis()
    ax.figure.colorbar(mesh, ax=ax, label=label, shrink=0.8)
    token_ticks(ax.xaxis, keys)
    token_ticks(ax.yaxis, queries)
    ax.tick_params(axis="x", rotation=90)
    ax.tick_params(axis="y", rotation=0)
    ax.set(xlabel="key (read from)", ylabel="query (reads)")
    write_title(ax, title)
    return ax


def links(ax: Axes, predicted: set[tuple[int, int]], gold: Gold) -> Axes:
    """Draw links over a heatmap of words: rows are target words, columns are source words.

    Links are pairs (source, target) from 0. A sure gold link is a solid frame, a possible one is
    dotted, a predicted one is a dot. Raises TypeError or ValueError for what is no Axes, set of
    pairs or Gold.
    """
    check_type("ax", ax, Axes, "give the one that heatmap returned")
    if not is_links(predicted):
        wanted = "a set of pairs (source, target) from 0"
        raise ValueError(
            f"predicted must be {wanted}, got {shown(predicted)}; take one of align()."
        )
    check_type("gold", gold, Gold, "take one of read_gold()")
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
    columns = 3 if ax.get_xlim()[1] > 5 else 1  # a row of three is wider than a map of few words
    legend = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "fontsize": 8}
    ax.legend(handles=handles, ncols=columns, **legend)
    write_title(ax, ax.get_title(), pad=26 if columns == 3 else 8 + 18 * len(handles))
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
    """Draw one line for each value of column `by`, told apart by colour, dash and marker.

    Raises TypeError or ValueError for what is no table, an empty one, or one without the columns.
    """
    check_type("table", table, pd.DataFrame, "make one with helpers.corpus or pandas")
    for name, column in (("x", x), ("y", y), ("by", by)):
        if not isinstance(column, str) or column not in table:
            columns = ", ".join(map(str, table.columns))
            raise ValueError(f"{name} must be a column of table ({columns}), got {shown(column)}.")
    if table.empty:
        raise ValueError("table has no rows; give one row or more.")
    check_look(ax, title=title, ylabel=ylabel or y)
    ax = plt.subplots(figsize=(6, 3.6), layout="constrained")[1] if ax is None else ax
    sns.lineplot(
        table, x=x, y=y, hue=by, style=by, markers=True, dashes=True, palette="colorblind", ax=ax
    )
    ax.set(xticks=sorted(table[x].unique()), ylabel=ylabel or y)
    ax.autoscale(axis="y")  # axes that share y may have been fixed by an earlier call
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    sns.move_legend(ax, "upper left", bbox_to_anchor=(1, 1))
    write_title(ax, title)
    return ax


def token_bars(values, tokens: Sequence[str], *, title="", label="", vmax=1.0, ax=None) -> Axes:
    """Draw one horizontal bar for each token, first token on top: (T,) values from 0 to `vmax`.

    NaN, which means not measured, gets no bar; with `vmax=None` the longest bar fills the axis.
    Raises ValueError where the tokens do not fit the shape, and for infinite values.
    """
    check_strings("tokens", tokens)
    there = f"there are {len(tokens)} tokens"
    values = check_array("values", values, (len(tokens),), there, missing=True)
    if not values.size:
        raise ValueError("tokens is empty; give one token or more.")
    check_look(ax, vmax, title=title, label=label)
    if ax is None:
        ax = plt.subplots(figsize=map_size(tokens, [""] * 5), layout="constrained")[1]
    ax.barh(np.arange(len(tokens)) + 0.5, values, color=sns.color_palette("colorblind")[0])
    ax.set(xlim=(0, float(vmax or 0) or None), ylim=(len(tokens), 0), xlabel=label)
    token_ticks(ax.yaxis, tokens)
    write_title(ax, title)
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
    THINNEST are left out. With a `query`, counted from 0, negative from the end, only what it can
    reach is drawn. `result` (T,) becomes a bar and a number for each input token: `label` names it,
    `vmax` is the longest bar. Raises ValueError where labels, result or query do not fit the shape,
    and for values that are NaN or infinite or, as capacities, not from 0 to 1.
    """
    check_strings("tokens", tokens)
    T, L = len(tokens), max(1, len(capacities) if np.ndim(capacities) else 0)
    there = f"there are {T} tokens"
    capacities = check_array("capacities", capacities, (L, T, T), f"{there}; give (L, T, T)")
    if not T or capacities.min() < 0 or capacities.max() > 1 + 1e-5:
        raise ValueError("capacities must be from 0 to 1; see helpers.rollout.with_residual.")
    query = None if query is None else check_index("query", query, T)
    result = None if result is None else check_array("result", result, (T,), there)
    check_look(ax, vmax, title=title, label=label)
    if ax is None:
        size = (3.5 + 1.2 * L + 2 * room(tokens), 2.2 + 0.34 * T)
        ax = plt.subplots(figsize=size, layout="constrained")[1]
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
        _pipe_ends(ax, result, vmax)
    bars = [] if result is None else [(-0.75, label)]
    places, names = zip(*bars, (0, "input"), *((n, str(n)) for n in range(1, L + 1)), strict=True)
    ax.set_xticks(places, names, parse_math=False)
    ax.set(xlim=(-0.2 if result is None else -1.5, L + 0.2), ylim=(T, 0), xlabel="layer")
    ax.set_ylabel("position")
    token_ticks(ax.yaxis, tokens)
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
    write_title(ax, title)
    return ax


def _pipe_ends(ax: Axes, result: np.ndarray, vmax: float | None) -> None:
    """A bar that grows to the left of each input, and its number."""
    top = float(result.max() if vmax is None else vmax) or 1
    lengths = np.minimum(result / top, 1) * 0.8
    where = np.arange(len(result)) + 0.5
    ax.barh(where, -lengths, left=-0.1, height=0.6, color=sns.color_palette("colorblind")[0])
    for y, length, value in zip(where, lengths, result, strict=True):
        ax.text(-0.15 - length, y, f"{value:.2f}", ha="right", va="center", fontsize=9)
