"""One bar per token."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from helpers import _validate
from helpers.plots import labels
from helpers.plots.maps import AROUND, map_height
from helpers.plots.style import PALETTE, styled


@styled()
def token_bars(
    data,
    tokens: Sequence[str],
    *,
    title: str = "",
    label: str = "",
    vmax: float | None = 1.0,
    figsize: tuple[float, float] | None = None,
    ax: Axes | None = None,
    **kwargs,
) -> Axes:
    """Draw one horizontal bar per token, the first token on top.

    data: (T,) values from 0 to `vmax`; NaN, which means not measured, gets no bar.
    tokens: T names.
    label: the name of the axis, with its unit.
    vmax: where the axis ends; None lets the longest bar fill it.
    figsize: inches, of a figure of its own.
    ax: where to draw; without it, in a new pyplot figure that fits the tokens.
    **kwargs: go to `Axes.barh`: color=plots.PALETTE["norms"], hatch="//", …

    Raises ValueError where the tokens do not fit the shape, and for values that are infinite or
    outside the axis.

    Example: `plots.token_bars(mixing_ratio(run, "Attn-N")[0], run.tokens)`.
    """
    there = f"there are {len(tokens)} tokens"
    data = _validate.array("data", data, (len(tokens),), there, missing=True)
    _validate.colours(0, vmax)
    end = np.inf if vmax is None else vmax
    _validate.within("data", data, end, "bars begin at 0; give a larger vmax, or vmax=None")
    labels.axes(ax)
    if ax is None:
        size = 3 + AROUND + labels.room(tokens), map_height(tokens, [])
        ax = plt.subplots(figsize=figsize or size)[1]
    ax.barh(np.arange(len(tokens)) + 0.5, data, **{"color": PALETTE["weights"]} | kwargs)
    ax.set(xlim=(0, vmax or None), ylim=(len(tokens), 0))
    ax.spines[["top", "right"]].set_visible(False)
    labels.token_ticks(ax.yaxis, tokens)
    ax.tick_params("x", labelsize=8)
    ax.tick_params("y", length=0)
    labels.write(ax.xaxis.label, label)
    labels.write_title(ax, title)
    return ax
