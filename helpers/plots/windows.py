"""Parts of long texts: which positions a picture shows, and what stands for too many of them."""

from collections.abc import Sequence
from math import ceil, prod

import numpy as np
from matplotlib.axes import Axes

from helpers import _validate

Window = range | slice | Sequence[int] | None
FEW = 250  # rows, columns or bars that are always drawn one by one
MOST_NUMBERS = 4000  # numbers written into cells


def positions(name: str, window: Window, size: int) -> np.ndarray:
    """The positions of a window from 0, in its order; all of them without a window.

    Raises TypeError for anything but a range, a slice or a list, and ValueError for a position that
    does not exist or comes twice and for a window that shows nothing.
    """
    if window is None:
        return np.arange(size)
    if hasattr(window, "tolist"):  # of an array or a tensor
        window = window.tolist()
    if not isinstance(window, range | slice | list | tuple):
        raise TypeError(
            f"{name} must be a range, a slice or a list of positions counted from 0, such as "
            f"range(0, {min(size, 60)}), got {_validate.shown(window)}."
        )
    if isinstance(window, slice):
        try:
            found = list(range(size)[window])
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} must be a slice of whole numbers with a step other than 0, got {window}."
            ) from None
    else:
        found = [_validate.index(f"every position in {name}", n, size) for n in window]
    if not found:
        raise ValueError(
            f"{name} shows nothing, got {_validate.shown(window)}; choose positions from 0 to "
            f"{size - 1}."
        )
    if len(set(found)) < len(found):
        raise ValueError(
            f"{name} must name each position once, got {_validate.shown(window)}; leave out what "
            "comes twice."
        )
    return np.array(found)


def span(places: np.ndarray, size: int, unit: str = "token") -> str:
    """What a window shows, counted from 1, such as "tokens 201 to 260 of 512"; "" if it is all."""
    first, last = places[0] + 1, places[-1] + 1
    if (np.diff(places) != 1).any():
        return f"{len(places)} of {size} {unit}s"
    if len(places) == size:
        return ""
    if len(places) == 1:
        return f"{unit} {first} of {size}"
    return f"{unit}s {first} to {last} of {size}"


def part(values, shape: tuple[int, int], places: Sequence[np.ndarray]):
    """The part of an option that holds a value for every cell; any other option as it is."""
    is_whole = not isinstance(values, str) and np.shape(values) == shape
    return np.asarray(values)[np.ix_(*places)] if is_whole else values


def pooled(
    values: np.ndarray, ax: Axes, center: float | None = None
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Values of a picture whose cells, or bars, would be narrower than the pixels of these Axes.

    The largest value of a block stands for it, so that none disappears between two pixels; around
    a center, it is the one furthest from it. NaN stays where a block holds nothing else. Returns
    the values and the size of a block along each of their axes, 1 where nothing was changed.
    """
    box = ax.get_window_extent()  # before the layout, which leaves at least four fifths of it
    pixels = (box.height, box.width)[: values.ndim]
    most = [max(FEW, int(0.8 * side * 100 / ax.figure.dpi)) for side in pixels]
    blocks = tuple(max(1, ceil(n / limit)) for n, limit in zip(values.shape, most, strict=True))
    if prod(blocks) == 1:
        return values, blocks
    low = high = values
    for axis, block in enumerate(blocks):
        starts = np.arange(0, values.shape[axis], block)
        high = np.fmax.reduceat(high, starts, axis=axis)
        low = np.fmin.reduceat(low, starts, axis=axis) if center is not None else high
    if center is None:
        return high, blocks
    return np.where(high - center >= center - low, high, low), blocks
