"""Checks that several modules share. Each raises one sentence that names the argument.

They know no model and no picture, so that every module can use them.
"""

from difflib import get_close_matches
from numbers import Integral, Real
from operator import index
from pathlib import Path

import numpy as np
import torch


def shown(value) -> str:
    """A value as a sentence can quote it: short, and on one line."""
    return " ".join(repr(value).split())[:60]


def check_type(name: str, value, kind: type, remedy: str) -> None:
    """Raise TypeError, naming the remedy, unless the value is of this kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}; {remedy}.")


def check_text(name: str, value: str) -> None:
    """Raise TypeError unless the value is one string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one string, got {type(value).__name__}.")


def check_strings(name: str, value: list[str]) -> None:
    """Raise ValueError unless the value is a list (or tuple) of strings."""
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{name} must be a list of strings, got {shown(value)}.")


def check_choice(name: str, value, choices: tuple) -> None:
    """Raise ValueError, with the list, unless the value is one of the choices."""
    if not isinstance(value, type(choices[0])) or value not in choices:
        *others, last = (f'"{c}"' if isinstance(c, str) else str(c) for c in choices)
        options = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{name} must be {options}, got {shown(value)}.")


def is_link(value) -> bool:
    """Whether this is a pair of whole numbers ≥ 0, such as (source word, target word)."""
    whole = isinstance(value, tuple | list) and all(isinstance(i, Integral) for i in value)
    return whole and len(value) == 2 and min(value) >= 0


def is_links(value) -> bool:
    """Whether this is a set of links."""
    return isinstance(value, set | frozenset) and all(map(is_link, value))


def check_exact() -> None:
    """Raise ValueError where torch computes in 16 bits, whatever the tensors are in."""
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda", "mps")):
        raise ValueError(
            "torch.autocast is on, which is too coarse for exact parts; call this outside of it."
        )


def check_index(name: str, value: int, size: int, first: int = 0, from_end: bool = True) -> int:
    """The index from 0 of a number that counts from `first`, or as in Python from the end.

    Raises ValueError for what is no whole number or not one of the `size`.
    """
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is not None and first <= number < first + size:
        return number - first
    if number is not None and from_end and -size <= number < 0:
        return number + size
    end = f", or from {-size} to -1 counted from the end" if from_end else ""
    raise ValueError(
        f"{name} must be a whole number from {first} to {first + size - 1}{end}, got {shown(value)}."
    )


def real_array(name: str, values) -> np.ndarray:
    """The values as a float array of any shape, or a ValueError if they are no real numbers."""
    try:
        array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError, RuntimeError):  # ragged lists, tensors that numpy can not hold
        array = np.array(None)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be an array of real numbers, got {shown(values)}.")
    return array.astype(float)


def check_array(name: str, values, shape: tuple[int, ...], reason: str, missing=False):
    """The values as a float array of this shape, all finite; NaN may stand for `missing` ones.

    Raises ValueError for another shape, saying the reason for this one, and for other values.
    """
    array = real_array(name, values)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, but {reason}.")
    for where in np.argwhere(~np.isfinite(array) & ~(missing & np.isnan(array)))[:1].tolist():
        raise ValueError(
            f"{name} must hold finite numbers, got {array[tuple(where)]} at position {where} "
            "(counted from 0); look where it comes from."
        )
    return array


def check_number(name: str, value: float, low: float = -np.inf, high: float = np.inf) -> float:
    """The value as a float; ValueError unless it is one finite number from `low` to `high`."""
    size = getattr(value, "ndim", 0)
    number = float("nan")
    if not isinstance(value, str | bytes | complex) and not size:
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            pass
    if not (np.isfinite(number) and low <= number <= high):
        span = "".join(
            f" {word} {bound:g}"
            for word, bound in (("from", low), ("to", high))
            if np.isfinite(bound)
        )
        raise ValueError(f"{name} must be one finite number{span}, got {shown(value)}.")
    return number


def read_file(path: str | Path, remedy: str, encoding: str = "utf-8-sig") -> str:
    """A file's text; TypeError for what is no path, ValueError for no file or another encoding."""
    if not isinstance(path, str | Path):
        raise TypeError(f"path must be a string or a path, got {type(path).__name__}.")
    file = Path(path).expanduser() if len(str(path)) < 1000 else None
    if file is None or not file.is_file():
        raise ValueError(f"path {str(path)[:200]!r} is not a file; {remedy}.")
    try:
        text = file.read_text(encoding=encoding)  # -sig: some editors put a mark first
    except UnicodeDecodeError:
        text = "\0"
    except OSError as error:
        raise ValueError(f"path {str(path)!r} can not be read: {error.strerror}.") from error
    if "\0" in text or text.startswith("ÿþ"):  # what UTF-16 looks like
        raise ValueError(f"path {str(path)!r} is not in UTF-8; save it as UTF-8 text.")
    return text


def nearest(value, choices: tuple[str, ...], cutoff: float = 0.6) -> str:
    """The choice that a text was meant to be, as the end of a sentence; "" for one of them or none.

    `cutoff`, from 0 to 1, is how alike the two must be.
    """
    if not isinstance(value, str) or value in choices:
        return ""
    names = {choice.lower(): choice for choice in choices}
    near = get_close_matches(value.lower(), names, n=1, cutoff=cutoff)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def check_range(name: str, values: np.ndarray, high: float, remedy: str) -> None:
    """Raise ValueError, naming the first that is not and its place, unless all are from 0 to `high`.

    NaN passes, and so does what is outside by no more than rounding.
    """
    largest = np.nanmax(np.abs(values), initial=0.0)
    slack = 1e-5 * min(high, largest)
    for where in np.argwhere((values < -slack) | (values > high + slack))[:1].tolist():
        span = f"from 0 to {high:g}" if np.isfinite(high) else "0 or more"
        raise ValueError(
            f"{name} must be {span}, got {values[tuple(where)]:g} at position {where} (counted from "
            f"0); {remedy}."
        )


def check_bars(name: str, values: np.ndarray, vmax: float | None) -> None:
    """Raise ValueError for a value that no bar from 0 to `vmax` can show."""
    check_range(name, values, np.inf, "a bar starts at 0")
    if vmax is not None:
        check_range(name, values, float(vmax), "give a larger vmax, or None for the longest bar")


def check_links(name: str, links: set[tuple[int, int]], sources: int, targets: int) -> None:
    """Raise ValueError, naming the first, if a link is outside so many words."""
    for source, target in sorted(links):
        if not (0 <= source < sources and 0 <= target < targets):
            raise ValueError(
                f"{name} has the link {source, target}, outside its {sources} source and {targets} "
                "target words; count from 0."
            )


def check_column(name: str, table, column: str, missing: bool = False):
    """One column of a pandas table, with rows counted from 0.

    Raises ValueError for no column or several, for infinite values, and for absent ones; where some
    may be `missing`, only if all are.
    """
    count = list(table.columns).count(column) if isinstance(column, str) else 0
    if not count:
        columns = ", ".join(map(str, table.columns))
        raise ValueError(f"{name} must be a column of table ({columns}), got {shown(column)}.")
    there = f"{name}, the column {shown(column)} of table,"
    if count > 1:
        raise ValueError(f"{there} is there {count} times; give each column a name of its own.")
    found = table[column].reset_index(drop=True)
    if any(isinstance(value, Real) and value in (np.inf, -np.inf) for value in found.dropna()):
        raise ValueError(f"{there} holds infinite numbers; look where they come from.")
    absent = found.isna()
    if absent.all() if missing else absent.any():
        kind = "holds nothing but missing values" if missing else "has missing values"
        raise ValueError(f"{there} {kind}; leave these rows out or fill them.")
    return found


def plain(values):
    """Tensors of floats in float64, since numpy has no bfloat16; all else as it is."""
    floating = getattr(values, "is_floating_point", None)
    return values.double() if floating is not None and floating() else values
