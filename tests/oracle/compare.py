"""What many tests assert: tensors that differ by rounding only; a call refused in one sentence."""

import pytest
import torch


def close(found, expected, tolerance: float = 1e-5) -> None:
    """Assert the same shape and finite numbers that differ by little.

    `tolerance` is relative to the largest absolute value that is expected. Takes tensors, arrays,
    lists and numbers.
    """
    found, expected = (torch.as_tensor(v).detach().cpu().double() for v in (found, expected))
    assert found.shape == expected.shape, f"{tuple(found.shape)} is not {tuple(expected.shape)}"
    assert found.isfinite().all()
    error, largest = (
        (v.abs().max().item() if v.numel() else 0) for v in (found - expected, expected)
    )
    assert error <= tolerance * largest, f"off by {error:.2e} where the largest is {largest:.2e}"


def refused(call, *words: str) -> str:
    """Assert that the call raises ValueError or TypeError in one sentence that holds all the words.

    Returns the sentence. Example: `refused(lambda: trace(model, ""), "text is empty")`.
    """
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    text = str(caught.value)
    assert text.strip() and "\n" not in text and len(text) < 600, text
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"
    return text
