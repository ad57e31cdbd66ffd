"""Compare an answer with the right one, and with the answers that the usual mistakes lead to."""

import operator
from collections.abc import Callable

import torch
from torch import Tensor


def judge(
    answer,
    correct: Tensor,
    mistakes: dict[str, Tensor],
    close: str = "the shape is right, but the numbers differ",
) -> None:
    """Print "Correct", or the likely reason why the answer is not right yet.

    answer: anything at all; a tensor may be on any device and of any real type.
    correct: the right answer.
    mistakes: what an answer would be after each usual mistake, by the sentence that names the
        mistake; a stack of tensors where several answers show the same one.
    close: how the sentence begins for an answer that differs only in its numbers.
    """
    shape = tuple(correct.shape)
    if not isinstance(answer, Tensor):
        print(f"Not yet: expected a tensor of shape {shape}, got {kind(answer)}.")
        return
    real = answer.layout == torch.strided and not (answer.is_complex() or answer.is_quantized)
    if not real or answer.dtype == torch.bool or answer.is_meta:
        print(f"Not yet: expected a tensor of real numbers, got {answer.dtype}, {answer.layout}.")
        return
    answer = answer.detach().to(correct.device, torch.float32)
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
    """What the student's function returns; None, after printing the error, where it raises one."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  the student's code can fail in any way
        reason = str(error).splitlines()[0] if str(error) else "no message"
        print(f"Not yet: the function raises {type(error).__name__}: {reason}.")
    return None


def whole(answer, count: int) -> tuple[int, ...] | None:
    """The answer as `count` whole numbers, or None if it is something else."""
    try:
        numbers = tuple(operator.index(number) for number in (answer if count > 1 else [answer]))
    except Exception:  # noqa: BLE001  an answer can be any object
        return None
    return numbers if len(numbers) == count else None


def kind(answer) -> str:
    """How a sentence names an answer that cannot be right: "None", "nothing yet", or its type."""
    if answer is ...:
        return "nothing yet"
    return "None" if answer is None else f"a value of type {type(answer).__name__}"


def _any_same(answer: Tensor, wrong: Tensor) -> bool:
    """Whether the answer equals a wrong one, or one tensor of a stack of wrong ones."""
    stack = wrong if wrong.ndim == answer.ndim + 1 else [wrong]
    return any(_same(answer, one) for one in stack)


def _same(answer: Tensor, other: Tensor) -> bool:
    """Whether shapes are equal, and values differ by at most 1e-4 of the largest."""
    if answer.shape != other.shape:
        return False
    return bool((answer - other).abs().max() <= 1e-4 * other.abs().max())
