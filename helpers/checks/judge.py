"""Compare an answer with the right one, and with those that the usual mistakes lead to."""

import operator
from collections.abc import Callable

import torch
from torch import Tensor


def judge(
    answer,
    correct: Tensor,
    mistakes: dict[str, Tensor],
    close: str = "the shape is right, but numbers differ",
) -> None:
    """Print "Correct" or what stands between the answer and the right one.

    `close` begins the sentence about an answer that differs in its numbers alone.
    """
    shape = tuple(correct.shape)
    if not isinstance(answer, Tensor):
        print(f"Not yet: expected a tensor of shape {shape}, got {kind(answer)}.")
        return
    real = answer.layout == torch.strided and not (answer.is_complex() or answer.is_quantized)
    if not real or answer.dtype == torch.bool or answer.is_meta:
        print(f"Not yet: expected a tensor of real numbers, got {answer.dtype}, {answer.layout}.")
        return
    found = [reason for reason, wrong in mistakes.items() if _any_same(answer, wrong)]
    if _same(answer, correct):
        print("Correct.")
    elif found:
        print(f"Not yet: {found[0]}.")
    elif tuple(answer.shape) != shape:
        print(f"Not yet: expected a tensor of shape {shape}, got {tuple(answer.shape)}.")
    elif not torch.isfinite(answer).all():
        print("Not yet: the answer holds NaN or infinite numbers.")
    else:
        gap = (answer - correct).abs().max().item()
        print(f"Not yet: {close} by up to {gap:.2g}.")


def attempt(ask: Callable) -> list | None:
    """What the student's function gives; None after a line about the error that it raised."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  the student's own code can fail in any way
        reason = str(error).splitlines()[0] if str(error) else "no message"
        print(f"Not yet: the function raises {type(error).__name__}: {reason}.")
    return None


def whole(answer, count: int) -> tuple[int, ...] | None:
    """An answer as so many whole numbers, or None if it is something else."""
    try:
        numbers = tuple(operator.index(number) for number in (answer if count > 1 else [answer]))
    except Exception:  # noqa: BLE001  an answer can be any object
        return None
    return numbers if len(numbers) == count else None


def kind(answer) -> str:
    """What an answer is that can not be right: "None", "nothing yet", or its type."""
    if answer is ...:
        return "nothing yet"
    return "None" if answer is None else f"a {type(answer).__name__}"


def _any_same(answer: Tensor, wrong: Tensor) -> bool:
    """Equal to a wrong answer, or to one tensor of a stack of wrong answers."""
    stack = wrong if wrong.ndim == answer.ndim + 1 else [wrong]
    return any(_same(answer, one) for one in stack)


def _same(answer: Tensor, other: Tensor) -> bool:
    """Equal in shape, and in value within 1e-4 of the largest one."""
    if answer.shape != other.shape:
        return False
    return bool((answer.float() - other).abs().max() <= 1e-4 * other.abs().max())
