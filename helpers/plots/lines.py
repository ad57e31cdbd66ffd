"""Lines with their names at their ends, where there is room for them; else with a legend."""

from numbers import Real

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from helpers import _validate
from helpers.plots import labels
from helpers.plots.style import appearance, inches, on_white, ramp, styled

OURS = "named line"  # marks what later calls on the same Axes must know about
SIZE = 8  # points, of names at the ends of lines; none moves further than this
MOST_NAMES = 100  # in a legend
TALLEST = 19.0  # inches


@styled()
def lines(
    data: pd.DataFrame,
    *,
    x: str,
    y: str,
    hue: str | None = None,
    title: str = "",
    xlabel: str | None = None,
    ylabel: str | None = None,
    legend: bool | None = None,
    figsize: tuple[float, float] | None = None,
    ax: Axes | None = None,
    **kwargs,
) -> Axes:
    """Draw one line per value of column `hue`, told apart by colour, dash and marker.

    Stages, weights, norms and [CLS] have their colours everywhere; numbers, such as layers, go
    from light to dark. Rows with the same x are averaged, with a band for the 95 % interval of
    the mean.

    data: a table in long form; NaN in `y`, which means not measured, gets no point.
    x, y, hue: names of its columns.
    xlabel, ylabel: names of the axes, with their units; the columns' names if not given.
    legend: None writes the names at the ends of the lines if they stay apart there, otherwise
        in a legend; True is always a legend, False writes no names (beside a panel that does).
    figsize: inches, of a figure of its own.
    ax: where to draw; without it, in a new pyplot figure.
    **kwargs: go to `seaborn.lineplot`: errorbar=None, estimator="median", linewidth=1, …

    Raises TypeError for anything but a table, and ValueError for a column that it does not have or
    that has missing (in `y`: only missing), infinite or (in `y`) other values than numbers, and for
    more than MOST_NAMES lines whose names would be written.

    Example: `plots.lines(table, x="layer", y="weight", hue="category")`.
    """
    _validate.instance("data", data, pd.DataFrame, "make one with helpers.tables or pandas")
    columns = {"x": x, "y": y} | ({} if hue is None else {"hue": hue})
    columns = {
        of: _validate.column("data", data, name, of, missing=of == "y")
        for of, name in columns.items()
    }
    measured = columns["y"].astype(object).where(columns["y"].notna(), np.nan)
    columns["y"] = _validate.real(f"y, the column {y!r} of data,", measured.tolist())
    names, rows = _groups(columns.get("hue", pd.Series([""] * len(data))))
    if len(names) > MOST_NAMES and legend is not False:
        raise ValueError(
            f"hue, the column {hue!r} of data, names {len(names):,} lines, of which at most "
            f"{MOST_NAMES} can be told apart; choose some rows of data, or give legend=False."
        )
    data = data.reset_index(drop=True).assign(**{y: columns["y"]})
    labels.axes(ax)
    if ax is None:
        height = min(TALLEST, max(3.4, 0.18 * len(names)))
        ax = plt.subplots(figsize=inches(figsize, (6.5, height)))[1]
    numbers = all(isinstance(name, Real) for name in names)
    colours = dict(zip(names, ramp(len(names)), strict=True)) if numbers else {}
    if (palette := kwargs.pop("palette", None)) is not None:
        listed = isinstance(palette, dict)
        chosen = palette.values() if listed else sns.color_palette(palette, len(names))
        colours |= dict(zip(palette if listed else names, chosen, strict=True))
    for n, (name, mine) in enumerate(zip(names, rows, strict=True)):
        before = len(ax.lines)
        colour, dash, marker = appearance(str(name), n)
        look = {
            "color": colours.get(name, colour),
            "dashes": {0: dash},
            "markers": {0: marker},
            "style": np.zeros(mine.sum(), int),
            "seed": 0,  # of the bootstrap that the band comes from
        }
        sns.lineplot(data[mine], x=x, y=y, ax=ax, legend=False, **look | kwargs)
        for line in ax.lines[before : before + 1]:
            line.set_gid(OURS)
            line.set_label(str(name))
    _axes(ax, columns["x"])
    if hue is not None:
        _write_names(ax, hue, legend)
    labels.write(ax.xaxis.label, x if xlabel is None else xlabel)
    labels.write(ax.yaxis.label, y if ylabel is None else ylabel)
    labels.write_title(ax, title)
    return ax


def _groups(column: pd.Series) -> tuple[list, list]:
    """What tells lines apart, and the rows of each: in its own order, or numbers sorted."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = [name for name in column.cat.categories if (column == name).any()]
    else:
        numbers = all(isinstance(name, Real) for name in column)
        column = column if numbers else column.astype(str)
        names = sorted(column.unique()) if numbers else list(column.unique())
    return names, [(column == name).to_numpy() for name in names]


def _axes(ax: Axes, column: pd.Series) -> None:
    """A tick per x, if they are few, and y from 0 on or from below it."""
    places = sorted(column.unique())
    names = list(column.unique())
    if all(isinstance(name, str) for name in names):
        where = ax.xaxis.convert_units(names)
        if len(names) <= 15:
            labels.write_ticks(ax.xaxis, where, names)
        else:
            labels.token_ticks(ax.xaxis, names, where)
            ax.tick_params("x", rotation=90)
    elif len(places) <= 15:
        ax.set_xticks(places)
    ax.autoscale(axis="y")  # axes that share y may have been fixed by an earlier call
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    ax.spines[["top", "right"]].set_visible(False)
    labels.number_ticks(ax, "both")


def _write_names(ax: Axes, hue: str, legend: bool | None) -> None:
    """The names of all lines so far, at their ends if those are apart, or in a legend."""
    for text in [text for text in ax.texts if text.get_gid() == OURS]:
        text.remove()
    if ax.get_legend():
        ax.get_legend().remove()
    named = [line for line in ax.lines if line.get_gid() == OURS]
    if legend is False or not named:
        return
    ends = np.array([_end(line) for line in named])
    shifts = _shifts(ax, ends)
    if legend is None and np.ptp(ends[:, 0]) == 0 and np.abs(shifts).max() <= SIZE:
        for line, end, shift in zip(named, ends, shifts, strict=True):
            look = {"color": on_white(line.get_color()), "va": "center", "fontsize": SIZE}
            text = ax.annotate("", end, (7, shift), textcoords="offset points", **look)
            text.set_gid(OURS)
            labels.write_names([text], [line.get_label()])
        return
    handles = {line.get_label(): line for line in named}
    place = {"loc": "upper left", "bbox_to_anchor": (1, 1), "frameon": False}
    numbers = [str(n) for n in range(len(handles))]  # a name may begin with "_", or hold a "$"
    box = ax.legend(handles.values(), numbers, title=hue, handlelength=3.5, **place)
    labels.write_names(box.get_texts(), list(handles))
    labels.write(box.get_title(), hue)


def _end(line: Line2D) -> np.ndarray:
    """The last point of a line that was measured."""
    points = line.get_xydata()
    return points[np.isfinite(points).all(axis=1)][-1]


def _shifts(ax: Axes, ends: np.ndarray) -> np.ndarray:
    """How far each name must move from the end of its line, in points, so that none overlap."""
    heights = ax.transData.transform(ends)[:, 1] * 72 / ax.figure.dpi
    order = heights.argsort()
    steps = 1.2 * SIZE * np.arange(len(ends))
    shifts = np.empty(len(ends))
    shifts[order] = isotonic_regression(heights[order] - steps).x + steps - heights[order]
    return shifts
