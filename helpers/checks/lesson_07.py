"""Checks of lesson 7, which map to trust."""

from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from helpers import _validate
from helpers.checks.judge import attempt, judge, kind
from helpers.tables import rank_correlation

# Pairs of vectors with equal values among them, in more than one order.
PAIRS = (
    ([0.5, 0.1, 0.3], [0.5, 0.0, 0.0]),
    ([0.1, 0.5, 0.3, 0.2, 0.4], [0.0, 1.0, 3.0, 0.0, 1.0]),
    ([4.0, 4.0, 1.0, 2.0, 9.0, 4.0], [1.0, 2.0, 3.0, 3.0, 8.0, 9.0]),
    ([1.0, 2.0, 3.0, 4.0], [9.0, 4.0, 1.0, 0.0]),
)

# Rows, each with the position of [MASK]. There stands the largest entry, or NaN, except in the last
# row, so that a function which takes the second largest is found out.
ROWS = (
    ([0.2, 0.5, 0.9, 0.1], 2),
    ([0.3, 0.1, 0.9, 0.4, 0.8], 2),
    ([0.9, 0.2, 0.3, 0.1], 0),
    ([0.2, float("nan"), 0.1, 0.5], 1),
    ([0.2, 0.4, 0.1, 0.7], 2),
)


def check_spearman(answer: Callable) -> None:
    """The student's spearman(a, b), one number for two vectors (n,) that may have equal values."""

    def over_pairs(correlate: Callable) -> Tensor:
        pairs = [[np.array(v) for v in pair] for pair in PAIRS]
        return _cpu([float(correlate(a, b)) for a, b in pairs])

    mistakes = {
        "equal values got different ranks, by their order in the text; give them their mean rank": (
            over_pairs(lambda a, b: _pearson(_in_order(a), _in_order(b)))
        ),
        "dense ranks: after two equal values the next rank must skip one": (
            over_pairs(lambda a, b: _pearson(*(rankdata(v, "dense") for v in (a, b))))
        ),
        "equal values got the smallest of their ranks; give them their mean rank": (
            over_pairs(lambda a, b: _pearson(*(rankdata(v, "min") for v in (a, b))))
        ),
        "this is the correlation of the values; correlate their ranks": over_pairs(_pearson),
        "argsort gives the positions in order of value; it takes two to get ranks": (
            over_pairs(lambda a, b: _pearson(*(np.argsort(v, kind="stable") for v in (a, b))))
        ),
        "the formula with squared differences of ranks holds only without equal values": (
            over_pairs(_by_squared_differences)
        ),
    }
    found = attempt(lambda: [answer(*map(_cpu, pair)) for pair in PAIRS])
    if found is not None:
        _judge_numbers(found, over_pairs(rank_correlation), mistakes)


def check_gradient_times_input(answer, gradient: Tensor, x: Tensor) -> None:
    """|Σ_d x_td ∂score/∂x_td| per token, (T,), from the gradient and the embeddings, (T, D)."""
    _validate.instance("gradient", gradient, Tensor, "take it from embedding_gradient")
    _validate.instance("x", x, Tensor, "take it from embedding_gradient")
    if gradient.ndim != 2 or gradient.shape != x.shape:
        raise ValueError(
            "gradient and x must both have the shape (T, D), got "
            f"{tuple(gradient.shape)} and {tuple(x.shape)}."
        )
    product = gradient * x
    mistakes = {
        "take the absolute value of the sum, not the sum of absolute values": (
            product.abs().sum(dim=-1)
        ),
        "only the size counts here: take the absolute value": product.sum(dim=-1),
        "this is the length of the product; add its entries": product.norm(dim=-1),
        "this is the length of the gradient; multiply by x and add": gradient.norm(dim=-1),
        "this is the mean over the entries; take their sum": product.mean(dim=-1).abs(),
        "you summed over the tokens; sum over the entries d, the last axis": product.sum(0).abs(),
    }
    judge(answer, product.sum(dim=-1).abs(), mistakes)


def check_strongest(answer: Callable) -> None:
    """The student's strongest(row, mask): the position with the largest value, [MASK] left out."""
    pairs = [(_cpu(row), mask) for row, mask in ROWS]
    rows = [row for row, _ in pairs]
    without = [torch.cat([row[:mask], row[mask + 1 :]]) for row, mask in pairs]
    others = [torch.cat([row[:mask], _cpu([-1.0]), row[mask + 1 :]]) for row, mask in pairs]
    mistakes = {
        "[MASK] itself is among the candidates; leave its position out": (
            torch.stack([row.argmax() for row in rows])
        ),
        "[MASK] was cut out of the row, and every position after it moved by one": (
            torch.stack([row.argmax() for row in without])
        ),
        "return the position, not the value": torch.stack([row.max() for row in others]),
    }
    correct = torch.stack([row.argmax() for row in others])
    found = attempt(lambda: [answer(row, mask) for row, mask in pairs])
    if found is not None:
        _judge_numbers(found, correct, mistakes)


def check_template_mean(answer: Callable, values: Tensor, templates: list[str]) -> None:
    """The student's template_mean(values, templates, drawn): the mean over whole templates."""
    _validate.instance("values", values, Tensor, "give one number per sentence")
    _validate.strings("templates", templates)
    real = values.is_floating_point() and values.isfinite().all()
    if not real or not len(templates) or values.shape != (len(templates),):
        raise ValueError(
            "values must hold one finite float for each of templates, got a tensor of "
            f"{values.dtype} and shape {tuple(values.shape)} for {len(templates)} templates."
        )
    names = sorted(set(templates))
    draw = np.random.default_rng(0)
    picks = [[names[n] for n in draw.integers(len(names), size=len(names))] for _ in range(5)]
    groups = {n: values[[t == n for t in templates]] for n in names}

    def over_draws(one: Callable) -> Tensor:
        return torch.stack([one(pick) for pick in picks])

    mistakes = {
        "a template that was drawn twice counts twice": (
            over_draws(lambda pick: torch.cat([groups[n] for n in sorted(set(pick))]).mean())
        ),
        "this is the mean of all sentences; take those of the templates that were drawn": (
            values.mean().expand(len(picks))
        ),
        "this is the sum; take the mean": (
            over_draws(lambda pick: torch.cat([groups[n] for n in pick]).sum())
        ),
        "one sentence of each template is not enough: take all of them": (
            over_draws(lambda pick: torch.stack([groups[n][0] for n in pick]).mean())
        ),
    }
    correct = over_draws(lambda pick: torch.cat([groups[n] for n in pick]).mean())
    found = attempt(lambda: [answer(values, templates, pick) for pick in picks])
    if found is not None:
        _judge_numbers(found, correct, mistakes)


def _judge_numbers(found: list, correct: Tensor, mistakes: dict[str, Tensor]) -> None:
    """Judge what the student's function returned; each result must be one number."""
    numbers = []
    for x in found:
        try:
            numbers.append(float("text" if isinstance(x, bool | str) else x))
        except Exception:  # noqa: BLE001  an answer can be any object
            got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else kind(x)
            print(f"Not yet: the function must return one number, got {got}.")
            return
    judge(_cpu(numbers), correct, mistakes, "the function's numbers differ")


def _cpu(values: list) -> Tensor:
    """The values as a tensor that numpy can read, whatever the default device is."""
    return torch.tensor(values, device="cpu")


def _pearson(a, b) -> float:
    return float(np.corrcoef(np.asarray(a), np.asarray(b))[0, 1])


def _in_order(v) -> np.ndarray:
    return np.argsort(np.argsort(v, kind="stable"), kind="stable")


def _by_squared_differences(a, b) -> float:
    n, d = len(a), rankdata(a) - rankdata(b)
    return 1 - 6 * float((d**2).sum()) / (n * (n * n - 1))
