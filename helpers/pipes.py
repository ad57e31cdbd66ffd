"""The picture of a network of pipes: maps as lines, as wide as what can flow through them."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from helpers.arguments import (
    check_array,
    check_bars,
    check_index,
    check_range,
    check_strings,
    plain,
    real_array,
)
from helpers.labels import check_look, room, token_ticks, write_ticks, write_title

THINNEST = 0.03  # capacity of the thinnest pipe that is drawn
WIDEST = 8  # points, the width of a pipe of capacity 1


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
    and for values that are NaN or infinite, not from 0 to 1, or as a result not from 0 to `vmax`.
    """
    check_strings("tokens", tokens)
    if not tokens:
        raise ValueError("tokens is empty; give one token or more.")
    capacities = real_array("capacities", plain(capacities))
    T, L = len(tokens), max(1, len(capacities) if capacities.ndim else 0)
    there = f"there are {T} tokens"
    capacities = check_array("capacities", capacities, (L, T, T), f"{there}; give (L, T, T)")
    check_range("capacities", capacities, 1, "see helpers.rollout.with_residual")
    query = None if query is None else check_index("query", query, T)
    check_look(ax, vmax, title=title, label=label)
    if result is not None:
        result = check_array("result", plain(result), (T,), there)
        check_bars("result", result, vmax)
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
    write_ticks(ax.xaxis, places, names)
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
