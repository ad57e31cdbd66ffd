"""What blank-out and gradients share: a text that the whole network reads, and a score of it."""

from collections.abc import Callable
from inspect import signature

from torch import Tensor, nn
from transformers.utils import ModelOutput

from helpers import _validate
from helpers.models import Model
from helpers.tokens import Text, encode

Score = Callable[[ModelOutput], Tensor]  # the output for one text, batch axis 1 → one number
TOKENS = 1024  # the most that one pass reads, which bounds the memory


def is_hooked(network: nn.Module) -> bool:
    """Whether somebody's hooks stand in the network, which may be meant for one text at a time."""
    hooks = [
        hook
        for module in network.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]
    return any(not hook.__module__.startswith(("transformers.", "torch.")) for hook in hooks)


def inputs_of(model: Model, text: Text, pair: Text | None, score: Score) -> dict[str, Tensor]:
    """The text as a batch of one, after the checks that blank-out and gradients share."""
    _validate.model(model)
    _validate.network(model)
    _validate.one_text(model)
    _validate.function("score", score, "from the model's output to one number")
    return dict(encode(model, text, pair))


def output_of(model: Model, inputs: dict[str, Tensor]) -> ModelOutput:
    """The network's whole output, with no cache for later calls."""
    caches = "use_cache" in signature(model.network.forward).parameters
    return model.network(**inputs, **{"use_cache": False} if caches else {})
