"""Checks of single arguments: numbers, texts, choices, columns of a table."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from numbers import Real
from operator import index as as_index

import numpy as np


def shown(value) -> str:
    """A value, short enough to quote in a message: on one line."""
    return " ".join(repr(value).split())[:60]


def nearest(value, choices: Sequence[str], cutoff: float = 0.6) -> str:
    """The choice that was probably meant, as the end of a sentence; "" where none is near.

    `cutoff`, from 0 to 1, is how similar the two must be.
    """
    if not isinstance(value, str) or value in choices:
        return ""
    names = {choice.lower(): choice for choice in choices}
    near = get_close_matches(value.lower(), names, n=1, cutoff=cutoff)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def instance(name: str, value, kind: type, remedy: str) -> None:
    """Raise TypeError, naming the remedy, unless the value is of this kind."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        got = type(value).__name__
        raise TypeError(f"{name} must be {article} {kind.__name__}, got {got}; {remedy}.")


def text(name: str, value: str) -> None:
    """Raise TypeError unless the value is one string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one string, got {type(value).__name__}.")


def text_or_words(name: str, value: str | list[str]) -> None:
    """Raise unless the value is one string, or a list of words without spaces inside."""
    if isinstance(value, str):
        return
    if not isinstance(value, list):
        remedy = "; call .tolist() on token ids" if hasattr(value, "tolist") else ""
        raise TypeError(
            f"{name} must be one string, a list of words or a list of token ids, got "
            f"{type(value).__name__}{remedy}."
        )
    if not value or not all(isinstance(word, str) for word in value):
        raise ValueError(
            f"{name} must be one string, or a list of words or of token ids, of one kind and not "
            f"empty, got {shown(value)}."
        )
    for word in (word for word in value if len(word.split()) != 1 or word != word.strip()):
        raise ValueError(
            f"{name} as a list must hold one word in each entry, without spaces, got {word!r}; "
            "split it, or give the text as one string."
        )


def strings(name: str, value: Sequence[str]) -> None:
    """Raise ValueError unless the value is a list (or tuple) of strings."""
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{name} must be a list of strings, got {shown(value)}.")


def colours(vmin: float, vmax: float | None, center: float | None = None) -> None:
    """Raise ValueError unless colours, or bars, can run from vmin to vmax, which may be equal."""
    low = number("vmin", vmin)
    if center is not None:
        low = min(low, number("center", center))
    if vmax is not None:
        number("vmax", vmax, low)


def choice(name: str, value, choices: Sequence) -> None:
    """Raise ValueError, naming all choices and the nearest, unless the value is one of them."""
    if not isinstance(value, type(choices[0])) or value not in choices:
        *others, last = (f'"{c}"' if isinstance(c, str) else str(c) for c in choices)
        options = f"{', '.join(others)} or {last}" if others else last
        strings_only = all(isinstance(c, str) for c in choices)
        guess = nearest(value, choices) if strings_only else ""
        raise ValueError(f"{name} must be {options}, got {shown(value)}{guess or '.'}")


def index(name: str, value: int, size: int) -> int:
    """The index from 0 of a whole number that may count from the end, as in Python.

    Raises ValueError for anything that is not one of the `size` indices.
    """
    try:
        number = None if isinstance(value, bool) else as_index(value)
    except TypeError:
        number = None
    if number is not None and -size <= number < size:
        return number % size
    raise ValueError(
        f"{name} must be a whole number from 0 to {size - 1}, or from {-size} to -1 counted from "
        f"the end, got {shown(value)}."
    )


def ids(value, size: int) -> list[int]:
    """Token ids as whole numbers; ValueError unless each is in a vocabulary of this size."""
    try:
        found = [as_index(number) for number in value]
    except TypeError:
        found = [-1]
    outside = [number for number in found if not 0 <= number < size]
    if outside:
        raise ValueError(
            f"ids must be whole numbers from 0 to {size - 1}, got {shown(value)}; take run.ids."
        )
    return found


def number(name: str, value: float, low: float = -np.inf, high: float = np.inf) -> float:
    """The value as a float; ValueError unless it is one finite number from `low` to `high`."""
    try:
        found = float("nan") if isinstance(value, str | bytes | complex) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = float("nan")
    if not (np.isfinite(found) and low <= found <= high):
        bounds = (("from", low), ("to", high))
        span = "".join(f" {word} {bound:g}" for word, bound in bounds if np.isfinite(bound))
        raise ValueError(f"{name} must be one finite number{span}, got {shown(value)}.")
    return found


def function(name: str, value: Callable, of: str) -> None:
    """Raise TypeError unless the value can be called; `of` says what it takes and returns."""
    if not callable(value):
        raise TypeError(f"{name} must be a function {of}, got {type(value).__name__}.")


def column(table: str, data, name: str, of: str, missing: bool = False):
    """One column of a pandas table, with its rows counted from 0.

    `of` is the argument that names the column. Raises ValueError for no such column or several, for
    infinite values, and for missing ones; where some may be `missing`, only if all of them are.
    """
    count = list(data.columns).count(name) if isinstance(name, str) else 0
    if count != 1:
        there = ", ".join(map(str, data.columns))
        kind = "a column" if not count else "only one column"
        raise ValueError(f"{of} must be {kind} of {table} ({there}), got {shown(name)}.")
    found = data[name].reset_index(drop=True)
    there = f"{of}, the column {shown(name)} of {table},"
    if any(isinstance(value, Real) and value in (np.inf, -np.inf) for value in found.dropna()):
        raise ValueError(f"{there} holds infinite numbers; check where they come from.")
    absent = found.isna()
    if absent.all() if missing else absent.any():
        kind = "holds nothing but missing values" if missing else "has missing values"
        raise ValueError(f"{there} {kind}; leave these rows out or fill them.")
    return found
