"""Pure drawing: arrays and labels in, a matplotlib Axes out. Knows no model and no widget.

Row = query, column = key, on every heatmap. How tokens are written is in `labels`.
"""

from collections.abc import Sequence
from numbers import Real

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from helpers.alignment import Gold
from helpers.arguments import (
    check_array,
    check_bars,
    check_column,
    check_links,
    check_number,
    check_range,
    check_strings,
    check_type,
    is_links,
    plain,
    real_array,
    shown,
)
from helpers.labels import (
    COLUMN,
    check_look,
    map_size,
    token_ticks,
    write,
    write_names,
    write_title,
)
from helpers.pipes import pipes

__all__ = ["heatmap", "lines", "links", "pipes", "token_bars"]
WEIGHTS_CMAP = "cividis"
DIFFERENCE_CMAP = "RdBu_r"


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

    Give the same `vmax` to maps that shall be compared; all above it get the last colour.
    `center=0` switches to a diverging map for differences, to `vmax` on both sides. Raises
    ValueError where the labels do not fit the shape, and for values that no colour stands for: NaN,
    infinite and, without `center`, negative ones.
    """
    keys = queries if keys is None else keys
    check_strings("queries", queries)
    check_strings("keys", keys)
    T, S = len(queries), len(keys)
    labels = f"there are {T} queries and {S} keys; give one label a row and one a column"
    values = check_array("values", plain(values), (T, S), labels)
    if not values.size:
        raise ValueError(f"values is empty, of shape {values.shape}; give one query and one key.")
    check_look(ax, vmax, title=title, label=label)
    if center is None:
        check_range("values", values, np.inf, "give center=0 for a map of differences")
    else:
        center = check_number("center", center)
    if ax is None:
        ax = plt.subplots(figsize=map_size(queries, keys), layout="constrained")[1]
    top = float(np.abs(values - (center or 0)).max() if vmax is None else vmax)
    mesh = ax.pcolormesh(
        values,
        cmap=WEIGHTS_CMAP if center is None else DIFFERENCE_CMAP,
        vmin=0 if center is None else center - top,
        vmax=top if center is None else center + top,
    )
    ax.set_aspect("equal")
    ax.invert_yaxis()
    bar = ax.figure.colorbar(mesh, ax=ax, shrink=0.8)
    write(bar.ax.yaxis.label, label)
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
    pairs or Gold, and for a link outside the map.
    """
    check_type("ax", ax, Axes, "give the one that heatmap returned")
    if not is_links(predicted):
        wanted = "a set of pairs (source, target) from 0"
        raise ValueError(
            f"predicted must be {wanted}, got {shown(predicted)}; take one of align()."
        )
    check_type("gold", gold, Gold, "take one of read_gold()")
    if not is_links(gold.sure) or not is_links(gold.possible):
        raise ValueError(f"gold must hold two sets of pairs, got {shown(gold)}; see read_gold().")
    accepted = gold.possible | gold.sure
    for name, there in (("predicted", predicted), ("gold", accepted)):
        check_links(name, there, int(max(ax.get_xlim())), int(max(ax.get_ylim())))
    for source, target in accepted:
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
    handles = handles if accepted else handles[2:]
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

    NaN in `y`, which means not measured, gets no point. Raises TypeError or ValueError for what is
    no table, an empty one, or one without the columns or with other values missing or infinite.
    """
    check_type("table", table, pd.DataFrame, "make one with helpers.corpus or pandas")
    if table.empty:
        raise ValueError("table has no rows; give one row or more.")
    columns = {"x": check_column("x", table, x), "y": check_column("y", table, y, missing=True)}
    group = _groups(check_column("by", table, by))
    measured = columns["y"].astype(object).where(columns["y"].notna(), np.nan).tolist()
    columns["y"] = real_array(f"y, the column {shown(y)} of table,", measured)
    try:
        places = sorted(columns["x"].unique())
    except TypeError as error:
        raise ValueError(f"x, the column {shown(x)}, can not be sorted; give numbers.") from error
    ylabel = y if ylabel is None else ylabel
    check_look(ax, title=title, ylabel=ylabel)
    names = [str(name) for name in group.categories]
    # Names of our own until all is drawn: in a legend "$" and a first "_" have a meaning.
    columns["by"] = group.rename_categories([str(n) for n in range(len(names))])
    if ax is None:
        size = (6 + COLUMN * max(0, max(map(len, names)) - 24), max(3.6, 0.8 + 0.22 * len(names)))
        ax = plt.subplots(figsize=size, layout="constrained")[1]
    older, xlabel = ax.get_legend_handles_labels()[0], ax.get_xlabel() or x
    look = {"markers": True, "dashes": True, "palette": "colorblind"}
    sns.lineplot(pd.DataFrame(columns), x="x", y="y", hue="by", style="by", **look, ax=ax)
    ax.set_xticks(places)
    ax.autoscale(axis="y")  # axes that share y may have been fixed by an earlier call
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    sns.move_legend(ax, "upper left", bbox_to_anchor=(1, 1))
    waiting, handles = iter(names), ax.get_legend_handles_labels()[0]
    for handle in (handle for handle in handles if handle not in older):
        handle.set_label(next(waiting))
    write_names(ax.get_legend().get_texts(), [handle.get_label() for handle in handles])
    legend = ax.get_legend().get_title()
    for text, words in ((ax.xaxis.label, xlabel), (ax.yaxis.label, ylabel), (legend, by)):
        write(text, words)
    write_title(ax, title)
    return ax


def _groups(column: pd.Series) -> pd.Categorical:
    """The values that tell lines apart: in their own order, or sorted numbers, or as they come."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return pd.Categorical(column)
    numbers = pd.api.types.is_numeric_dtype(column) or all(isinstance(n, Real) for n in column)
    column = column if numbers else column.astype(str)
    return pd.Categorical(column, sorted(column.unique()) if numbers else column.unique())


def token_bars(values, tokens: Sequence[str], *, title="", label="", vmax=1.0, ax=None) -> Axes:
    """Draw one horizontal bar for each token, first token on top: (T,) values from 0 to `vmax`.

    NaN, which means not measured, gets no bar; with `vmax=None` the longest bar fills the axis.
    Raises ValueError where the tokens do not fit the shape, and for values that are infinite or
    outside the axis.
    """
    check_strings("tokens", tokens)
    there = f"there are {len(tokens)} tokens"
    values = check_array("values", plain(values), (len(tokens),), there, missing=True)
    if not values.size:
        raise ValueError("tokens is empty; give one token or more.")
    check_look(ax, vmax, title=title, label=label)
    check_bars("values", values, vmax)
    if ax is None:
        ax = plt.subplots(figsize=map_size(tokens, [""] * 5), layout="constrained")[1]
    ax.barh(np.arange(len(tokens)) + 0.5, values, color=sns.color_palette("colorblind")[0])
    ax.set(xlim=(0, float(vmax or 0) or None), ylim=(len(tokens), 0))
    write(ax.xaxis.label, label)
    token_ticks(ax.yaxis, tokens)
    write_title(ax, title)
    return ax
