"""Checks of runs: what they have, and why they lack what they do not have."""

from collections.abc import Callable

import torch

from helpers._validate.networks import exact

# What a stage can need, and why a run does not have it, as the error says it.
LACKS: dict[str, Callable[..., str | bool]] = {
    "values": lambda run: run.fault and f"in this run, because {run.fault}",
    "own key": lambda run: (
        run.is_cross and "in cross-attention, whose residual belongs to the queries and has no key"
    ),
    "norm": lambda run: (
        any(block.gamma is None for block in run.blocks)
        and "in this architecture, which has no LayerNorm after the residual connection"
    ),
    "second norm": lambda run: (
        any(block.second_gamma is None for block in run.blocks)
        and "here, where no feed-forward network with a LayerNorm follows this attention"
    ),
}


DIFFER = (
    "run.attention and the attention in run.blocks differ, which must hold the same; change "
    "run.attention in place, run.attention[...] = new, or dataclasses.replace one of the two."
)


def one(parts: list[torch.Tensor], whole: torch.Tensor) -> bool:
    """Whether these are the parts of the whole along its first axis, in the same memory."""

    def place(tensor: torch.Tensor) -> tuple:
        return tensor.data_ptr(), tensor.shape, tensor.stride()

    return list(map(place, parts)) == list(map(place, whole))


def run(value) -> None:
    """Raise TypeError, naming the remedy, unless this is a Trace, and it can be read exactly."""
    if not hasattr(value, "blocks") or not hasattr(value, "attention"):
        raise TypeError(
            f"run must be a Trace, got {type(value).__name__}; make one with trace(model, text)."
        )
    exact()
    own = [block.attention for block in value.blocks]
    if not one(own, value.attention) and not (
        len(own) == len(value.attention) and all(map(torch.equal, own, value.attention))
    ):
        raise ValueError(DIFFER)


def values(value) -> None:
    """Raise as `run` does, and ValueError where a layer is not what its weights say."""
    run(value)
    if value.fault:
        raise ValueError(f"Lengths cannot be measured in this run, because {value.fault}.")


def known_words(name: str, value: list[int | None] | None) -> list[int | None]:
    """A run's word numbers; ValueError where the tokenizer does not tell them."""
    if value is None:
        raise ValueError(
            f"run.{name} does not exist: this model's tokenizer does not say which tokens make a "
            "word; give trace a list of words, or number the words 0, 1, 2, … in a list of your "
            "own, with None for tokens of no word."
        )
    return value


def lacks(value, *needs: str) -> list[str]:
    """Why a run does not have some of these needs."""
    return [why for need in needs if (why := LACKS[need](value))]


def has(value, what: str, *needs: str) -> None:
    """Raise as `run` does, and ValueError, with the reason, where a run lacks one of the needs."""
    run(value)
    for why in lacks(value, *needs):
        there = ", ".join(value.stages)
        raise ValueError(f"{what} does not exist {why}; this run has: {there}.")
