"""Value zeroing: a token's value vectors are set to zero, and a layer's output turns."""

from contextlib import ExitStack

import torch
from torch import Tensor, nn

from helpers import _validate, anatomy
from helpers.models import Model
from helpers.norms import values
from helpers.saliency.scored import TOKENS, is_hooked
from helpers.tokens import Text
from helpers.tracing import Block, trace


def value_zeroing(model: Model, text: Text, *, pair: Text | None = None) -> Tensor:
    """How far the output at i turns when token j's value vectors are zeroed: (L, T, T), in [0, 1].

    In one layer at a time the value vectors of token j are set to zero in all heads, and the whole
    layer, feed-forward network included, runs again on its true input: 1 − cosine(new output of i,
    true output of i), rows divided by their sums (Mohebbi et al. 2023, arXiv 2301.12971). Turns no
    larger than rounding count as 0; a row where nothing turns stays 0.

    model, text, pair: as in `trace`; in an encoder-decoder, the encoder is read.

    Raises ValueError as `trace` does, and where a layer is not what its weights say.

    Example: value_zeroing(load_model(), "The keys are here.")[0] is the map of the first layer.
    """
    _validate.model(model)
    attention = "encoder" if model.network.config.is_encoder_decoder else None
    parts = anatomy.blocks(model.network, attention)
    calls = []

    def keep(_layer, args, kwargs, output):  # first of all hooks: what the layer itself returns
        calls.append(((args[0].clone(), *args[1:]), kwargs, _states(output).clone()))

    with ExitStack() as hooks:
        for layer in dict.fromkeys(part.layer for part in parts):  # layers can be shared
            hooks.enter_context(layer.register_forward_hook(keep, with_kwargs=True, prepend=True))
        run = trace(model, text, pair, attention=attention)
    _validate.values(run)
    _validate.states(model, *(output for *_, output in calls))
    with torch.no_grad():
        layers = zip(parts, run.blocks, calls, strict=True)
        size = 1 if is_hooked(model.network) else TOKENS
        return torch.stack([_turns(part, block, *call, size) for part, block, call in layers])


def _turns(part: anatomy.Anatomy, block: Block, args, kwargs, output, size=TOKENS) -> Tensor:
    """One layer's map from its true call: (T, T)."""
    true, T = _unit(output), block.attention.shape[-1]
    columns = []
    # BLOOM's layers take the distances of tokens as a tensor that is made for one text.
    size = 1 if "alibi" in kwargs else max(1, size // T)
    for tokens in torch.arange(T, device=block.x.device).split(size):
        # Without j's values a context loses α_ij v_j: the same as α_ij = 0, not normalised again.
        alpha = block.attention.repeat(len(tokens), 1, 1, 1)  # (tokens, H, T, T)
        alpha[tokens - tokens[0], :, :, tokens] = 0
        context = (alpha @ values(block)).transpose(1, 2).flatten(2)  # (tokens, T, H d)
        with part.project.register_forward_pre_hook(lambda *_, context=context: context):
            # Not by way of its hooks, which did their part before the arguments were kept.
            new = part.layer.forward(args[0].expand(len(tokens), -1, -1), *args[1:], **kwargs)
        # 1 − cosine without its loss of digits: half the squared distance of the unit vectors.
        columns.append((_unit(new) - true).square().sum(dim=-1) / 2)
    turns = torch.cat(columns).T
    turns[turns < (16 * torch.finfo(block.x.dtype).eps) ** 2] = 0  # rounding
    total = turns.sum(dim=-1, keepdim=True)
    return (turns / total.where(total > 0, 1.0)).to(block.x)


def _unit(output: Tensor | tuple) -> Tensor:
    """A layer's output states at length 1, (batch, T, D), in float64, which not every GPU has."""
    return nn.functional.normalize(_states(output).to("cpu", torch.float64), dim=-1)


def _states(output: Tensor | tuple) -> Tensor:
    """The hidden states among what a layer returns: (batch, T, D)."""
    return output[0] if isinstance(output, tuple) else output
