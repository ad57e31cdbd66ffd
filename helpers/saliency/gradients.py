"""Gradients: how steeply the score changes with each token's vector (AZ20)."""

from contextlib import ExitStack

import torch
from torch import Tensor, nn

from helpers import _validate, anatomy
from helpers.models import Model
from helpers.saliency.scored import Score, inputs_of, output_of
from helpers.tokens import Text

KINDS = ("norm", "dot", "sum")


def input_gradients(
    model: Model, text: Text, score: Score, kind: str = "norm", *, pair: Text | None = None
) -> Tensor:
    """How steeply the score changes with each token's input vector x_t: (T,), ≥ 0.

    model, text, score, pair: as in `blank_out`.
    kind: "norm" is ‖∂score/∂x_t‖ and "dot" is gradient × input, |Σ_d x_td ∂score/∂x_td|, both at
        the word embeddings. "sum" is |Σ_d ∂score/∂e_td| at e_t, what enters the first layer: the
        embeddings after their LayerNorm (AZ20). Where only LayerNorms read a vector, the sum is 0
        up to rounding, because they subtract its mean: before that LayerNorm, and in GPT-2.

    Raises ValueError for an unknown kind, and as `embedding_gradient` does.

    Example: input_gradients(model, text, score, kind="dot") has one entry per token.
    """
    _validate.choice("kind", kind, KINDS)
    gradient, x = embedding_gradient(model, text, score, pair=pair, after_norm=kind == "sum")
    if kind == "norm":
        return gradient.norm(dim=-1)
    return (gradient * x if kind == "dot" else gradient).sum(dim=-1).abs()


@torch.inference_mode(False)  # where no gradient exists
def embedding_gradient(
    model: Model,
    text: Text,
    score: Score,
    *,
    pair: Text | None = None,
    after_norm: bool = False,
) -> tuple[Tensor, Tensor]:
    """∂score/∂x_t and the vectors x_t themselves: (T, D) each. No parameter's .grad changes.

    model, text, score, pair: as in `blank_out`.
    after_norm: whether x_t is what enters the first layer, after the LayerNorm of the embeddings
        where there is one, instead of the word embedding.

    Raises ValueError as `blank_out` does, and for a score without a finite gradient.

    Example: gradient, x = embedding_gradient(model, text, score)
    """
    inputs, seen = inputs_of(model, text, pair, score), []

    def start_here(x: Tensor) -> Tensor:
        seen.append(x.detach().requires_grad_())
        return seen[-1]

    def enter(_layer, args):  # layers can be shared: only the first time counts
        return args if seen else (start_here(args[0]), *args[1:])

    with torch.enable_grad(), ExitStack() as hooks:
        if after_norm:
            layer = anatomy.blocks(model.network)[0].layer
            hooks.enter_context(layer.register_forward_pre_hook(enter))
        for table in [] if after_norm else _tables(model.network):
            hooks.enter_context(table.register_forward_hook(lambda *call: start_here(call[-1])))
        value = _validate.score(score(output_of(model, inputs)), model)
    x, gradient = seen[0], None
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, x, allow_unused=True)
    if gradient is None:
        raise ValueError(
            "score does not depend on the embeddings as far as gradients can tell; compute it from "
            "the model's output, without .item(), .detach() or torch.no_grad()."
        )
    if not gradient.isfinite().all():
        raise ValueError("The gradient of score is NaN or infinite; choose a smoother score.")
    return gradient[0], x.detach()[0]


def _tables(network: nn.Module) -> list[nn.Module]:
    """The network's embedding tables: T5's encoder has one of its own with the same weights."""
    if not isinstance(network.get_input_embeddings(), nn.Embedding):  # an adapter around one
        return [network.get_input_embeddings()]
    weight = network.get_input_embeddings().weight
    tables = [module for module in network.modules() if isinstance(module, nn.Embedding)]
    return [table for table in tables if table.weight is weight]
