"""Checks of arrays and tensors, and of links, which are pairs of indices."""

from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from helpers._validate.arguments import shown
from helpers._validate.networks import exact


def finite(values: Tensor) -> Tensor:
    """A measure stacked by layer, (L, ...), if all its values are finite; ValueError otherwise."""
    for where in [] if values.isfinite().all() else (~values.isfinite()).nonzero()[:1].tolist():
        raise ValueError(
            f"What is measured in layer {where[0]} (counted from 0) is NaN or infinite; check what "
            "you changed in the run, or the size of model.network's weights."
        )
    return values


def tensor(value) -> Tensor | None:
    """A tensor, or a numpy array or list as one; None where that is impossible."""
    if isinstance(value, Tensor):
        return value
    try:
        if isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
            return torch.stack(tuple(value))
        return torch.from_numpy(np.array(value))  # a copy, because some arrays cannot be written
    except (TypeError, ValueError, RuntimeError):  # ragged, or no numbers
        return None


def maps(value: Tensor) -> Tensor:
    """A stack of maps, (L, T, T), also of numpy arrays or lists.

    float64 stays float64, and anything else becomes float32.

    Raises ValueError for anything else, for entries that are negative or not finite, and for a row
    without a usable sum.
    """
    given, value = value, tensor(value)
    square = value is not None and value.ndim == 3 and value.shape[1] == value.shape[2]
    if not square or not value.numel() or value.is_complex():
        got = shown(given) if value is None else tuple(value.shape)
        remedy = "combine the heads first and stack one square map per layer"
        if value is not None and value.ndim == 3 and not square:
            remedy = "a map of cross-attention is not square and has neither rollout nor flow"
        raise ValueError(
            f"maps must be real numbers in the shape (L, T, T) with L and T at least 1, a tensor, "
            f"an array or a list, got {got}; {remedy}."
        )
    exact()
    value = value.to(torch.float64 if value.dtype == torch.float64 else torch.float32)
    for n, i, j in (~(value.isfinite() & (value >= 0))).nonzero()[:1].tolist():
        raise ValueError(
            f"maps must hold finite numbers ≥ 0, got {value[n, i, j].item():g} in layer {n}, row "
            f"{i}, column {j} (counted from 0); use weights or norms, not signed scores."
        )
    sums = value.sum(dim=-1)
    for n, i in (~(sums.isfinite() & (sums > 0))).nonzero()[:1].tolist():
        raise ValueError(
            f"maps cannot be normalised: layer {n}, row {i} (counted from 0) sums to "
            f"{sums[n, i].item():g}; every row needs a finite sum > 0."
        )
    return value


def causal(value: Tensor) -> Tensor:
    """Maps (L, T, T) in which no position reads a later one; ValueError, naming it, otherwise."""
    for n, i, j in value.triu(1).nonzero()[:1].tolist():
        raise ValueError(
            "receptive_field is for maps of a causal model, with zeros above the diagonal, got "
            f"{value[n, i, j].item():g} in layer {n}, row {i}, column {j} (counted from 0); leave "
            "it out."
        )
    return value


def residual(value: float | Tensor, like: Tensor) -> float | Tensor:
    """A residual for maps (L, T, T): one number in [0, 1], or (L, T) numbers as a tensor."""
    shape = tuple(like.shape[:2])
    got = shown(value)
    if isinstance(value, Real) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    if not isinstance(value, Real | str) and (value := tensor(value)) is not None:
        got = f"the shape {tuple(value.shape)}"
        if value.shape == shape and not value.is_complex():
            value = value.to(like)
            outside = value[~((value >= 0) & (value <= 1))]
            if not len(outside):
                return value
            got = f"{outside[0].item():g}"
    wanted = f"a number in [0, 1], or (L, T) = {shape} numbers 1 − r_i in [0, 1]"
    raise ValueError(f"residual must be {wanted}, got {got}.")


def links(name: str, value, sources: int | None = None, targets: int | None = None) -> None:
    """Raise ValueError unless this is a set of pairs (source, target) from 0, inside the sizes."""
    if not isinstance(value, set | frozenset) or not all(map(_is_link, value)):
        raise ValueError(
            f"{name} must be a set of pairs (source, target), counted from 0, got {shown(value)}."
        )
    for source, target in sorted(value):
        if sources is not None and not (source < sources and target < targets):
            raise ValueError(
                f"{name} has the link {source, target}, outside its {sources} source and {targets} "
                "target words; count from 0."
            )


def _is_link(value) -> bool:
    whole = isinstance(value, tuple | list) and all(isinstance(i, Integral) for i in value)
    return whole and len(value) == 2 and min(value) >= 0


def array(name: str, values, shape: tuple[int, ...], reason: str, missing: bool = False):
    """The values as a float array of this shape, all finite; NaN may stand for `missing` ones.

    Raises ValueError for a different shape, giving the reason for this one, and for other values.
    """
    found = real(name, values)
    if found.shape != shape:
        raise ValueError(f"{name} has shape {found.shape}, but {reason}.")
    for where in np.argwhere(~np.isfinite(found) & ~(missing & np.isnan(found)))[:1].tolist():
        raise ValueError(
            f"{name} must hold finite numbers, got {found[tuple(where)]} at position {where} "
            "(counted from 0); check where it comes from."
        )
    return found


def real(name: str, values) -> np.ndarray:
    """The values as a float array of any shape; ValueError if they are not real numbers."""
    if isinstance(values, Tensor):  # by way of float64, since numpy has no bfloat16
        values = values.detach().cpu().double() if values.is_floating_point() else values.cpu()
    try:
        found = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # ragged lists
        found = np.array(None)
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be an array of real numbers, got {shown(values)}.")
    return found.astype(float)


def within(name: str, values: np.ndarray, high: float, remedy: str) -> None:
    """Raise ValueError, naming the first value outside [0, high] and its position.

    NaN passes, and so does a value outside by no more than rounding.
    """
    largest = np.nanmax(np.abs(values), initial=0.0)
    slack = 1e-5 * min(high, largest)
    for where in np.argwhere((values < -slack) | (values > high + slack))[:1].tolist():
        span = f"from 0 to {high:g}" if np.isfinite(high) else "0 or more"
        raise ValueError(
            f"{name} must be {span}, got {values[tuple(where)]:g} at position {where} (counted "
            f"from 0); {remedy}."
        )


def word_scores(scores: Tensor, target_words: list, source_words: list) -> Tensor:
    """One map of real numbers ≥ 0, (T, S), in float64, with the word of each row and column."""
    for name, value in (("target_words", target_words), ("source_words", source_words)):
        known = None
        if isinstance(value, list | tuple) and all(n is None or type(n) is int for n in value):
            known = set(value) - {None}
        if known is None or known != set(range(len(known))):
            raise ValueError(
                f"{name} must be a list of word numbers 0, 1, 2, …, None for tokens of no word, "
                f"such as run.words, got {shown(value)}."
            )
    shape = len(target_words), len(source_words)
    got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if got != shape or scores.is_complex():
        several = isinstance(scores, Tensor) and scores.ndim > 2
        remedy = "choose a layer" if several else "rows are tokens, columns are keys"
        raise ValueError(f"scores must be one real map, (T, S) = {shape}, got {got}; {remedy}.")
    scores = scores.double()
    for t, s in (~(scores.isfinite() & (scores >= 0))).nonzero()[:1].tolist():
        got = f"{scores[t, s].item():g} in row {t}, column {s} (counted from 0)"
        raise ValueError(f"scores must be finite numbers ≥ 0, got {got}; use weights or norms.")
    return scores
