"""One bar per token."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from helpers import _validate
from helpers.plots import labels, windows
from helpers.plots.maps import AROUND, map_height
from helpers.plots.style import PALETTE, inches, styled


@styled()
def token_bars(
    data,
    tokens: Sequence[str],
    *,
    title: str = "",
    label: str = "",
    vmax: float | None = 1.0,
    rows: windows.Window = None,
    figsize: tuple[float, float] | None = None,
    ax: Axes | None = None,
    **kwargs,
) -> Axes:
    """Draw one horizontal bar per token, the first token on top.

    Where bars would be narrower than a pixel, each is the largest value of a few neighbours, and
    the picture says so.

    data: (T,) values from 0 to `vmax`; NaN, which means not measured, gets no bar.
    tokens: T names.
    label: the name of the axis, with its unit.
    vmax: where the axis ends; None lets the longest bar fill it.
    rows: the bars that are shown: a range, a slice or a list of positions, from 0 or negative from
        the end. The axis is that of all of them.
    figsize: inches, of a figure of its own.
    ax: where to draw; without it, in a new pyplot figure that fits the tokens.
    **kwargs: go to `Axes.barh`: color=plots.PALETTE["norms"], hatch="//", …

    Raises ValueError where the tokens do not fit the shape, for values that are infinite or outside
    the axis, and for rows that do not exist.

    Example: `plots.token_bars(mixing_ratio(run, "Attn-N")[0], run.tokens)`.
    """
    tokens = list(tokens)
    there = f"there are {len(tokens)} tokens"
    data = _validate.array("data", data, (len(tokens),), there, missing=True)
    _validate.colours(0, vmax)
    end = np.inf if vmax is None else vmax
    _validate.within("data", data, end, "bars begin at 0; give a larger vmax, or vmax=None")
    labels.axes(ax)
    places = windows.positions("rows", rows, len(tokens))
    each = {  # a list of colours, say
        option: [values[n] for n in places]
        for option, values in kwargs.items()
        if (isinstance(values, list) or np.ndim(values) == 1) and len(values) == len(tokens)
    }
    if vmax is None and rows is not None:
        vmax = float(np.nanmax(data, initial=0)) * 1.05
    shown, names = windows.span(places, len(tokens)), [tokens[n] for n in places]
    if ax is None:
        size = 3 + AROUND + labels.room(names), map_height(names, [])
        ax = plt.subplots(figsize=inches(figsize, size))[1]
    lengths, (block,) = windows.pooled(data[places], ax)
    if block > 1 and each:
        raise ValueError(
            f"{min(each)} has one entry per token, but {len(places):,} tokens share "
            f"{len(lengths):,} bars; choose some of them with rows=."
        )
    height = block if len(lengths) > 2 * labels.ORDINARY else 0.8  # no gaps narrower than a pixel
    look = {"color": PALETTE["weights"], "height": height} | kwargs | each
    ax.barh((np.arange(len(lengths)) + 0.5) * block, lengths, **look)
    ax.set(xlim=(0, vmax or None), ylim=(len(names), 0))
    ax.spines[["top", "right"]].set_visible(False)
    more = f"each bar is the largest of {block}" if block > 1 else ""
    labels.token_ticks(ax.yaxis, names, shown=shown, more=more)
    labels.number_ticks(ax, "x")
    ax.tick_params("y", length=0)
    labels.write(ax.xaxis.label, label)
    labels.write_title(ax, title)
    return ax
