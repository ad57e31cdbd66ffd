"""What is known of one attention block, and how its weights are split into heads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

Tap = tuple[nn.Module, Literal["input", "output"]]  # where in the forward pass a tensor is read


@dataclass(frozen=True)
class Anatomy:
    """One attention block. H heads of width d, hidden size D, T queries, S keys."""

    W_V: Tensor  # (H, D, d)
    b_V: Tensor  # (H, d)
    W_O: Tensor  # (H, d, D)
    b_O: Tensor  # (D,)
    x: Tap  # what f reads, (S, D): the block's input, after LayerNorm where that comes first
    residual: Tap  # what the residual connection adds, (T, D)
    norm: nn.LayerNorm | None  # the LayerNorm after the residual connection; None if there is none
    output: Tap  # the block's own output, (T, D): after `norm`, or after the residual connection
    project: nn.Module  # the module of W_O and b_O; reads the contexts of all heads, (T, H d)
    layer: nn.Module  # the whole Transformer layer; called with the hidden states first
    # Picks the values in what the module of W_V returns, if it makes queries and keys too.
    columns: Callable[[Tensor], Tensor] | None = None
    # The LayerNorm that ends the layer, if the feed-forward network follows `norm`.
    second_norm: nn.LayerNorm | None = None
    # Gemma 2 and 3, OLMo 2 and 3: an RMSNorm between W_O and the residual connection.
    inner_norm: nn.Module | None = None
    inner_plus: float = 0.0  # Gemma keeps γ − 1
    # Where the output is read again after `norm`, if there is one.
    after: Tap | None = None
    # GPT-NeoX: no tensor of the model holds x + attention, and `output` is the attention alone.
    parallel: bool = False


def anatomy(
    layer: nn.Module,
    value: nn.Module,
    project: nn.Module,
    heads: int,
    norm: nn.LayerNorm | None = None,
    second_norm: nn.LayerNorm | None = None,
    after: nn.Module | None = None,
    *,
    residual: Tap | None = None,
    end: Tap | None = None,
    columns: Callable[[Tensor], Tensor] | None = None,
    inner_norm: nn.Module | None = None,
    inner_plus: float = 0.0,
    parallel: bool = False,
) -> Anatomy:
    """Split the weights into heads; values that several heads share are repeated.

    `value` reads what f reads; `columns` picks W_V and b_V where it makes queries and keys too. The
    residual is the layer's input, and the block ends after `norm`, whose output the module `after`
    reads, unless told otherwise.
    """
    W_V, b_V = (columns(part) if columns else part for part in _linear(value))
    W_O, b_O = _linear(project)
    d = len(W_O) // heads
    W_V, b_V = W_V.unflatten(1, (-1, d)).transpose(0, 1), b_V.unflatten(0, (-1, d))
    if len(W_V) < heads:  # grouped-query attention
        W_V, b_V = (part.repeat_interleave(heads // len(part), dim=0) for part in (W_V, b_V))
    return Anatomy(
        W_V=W_V,
        b_V=b_V,
        W_O=W_O.unflatten(0, (heads, d)),
        b_O=b_O,
        x=(value, "input"),
        residual=residual or (layer, "input"),
        norm=norm,
        output=end or (norm, "output"),
        project=project,
        columns=columns,
        layer=layer,
        second_norm=second_norm,
        inner_norm=inner_norm,
        inner_plus=inner_plus,
        after=after and (after, "input"),
        parallel=parallel,
    )


def third_of_each(heads: int) -> Callable[[Tensor], Tensor]:
    """Picks the values' columns where query, key and value are side by side in each head."""
    return lambda matrix: matrix.unflatten(-1, (heads, 3, -1))[..., 2, :].flatten(-2)


def last(width: int) -> Callable[[Tensor], Tensor]:
    """Picks the last columns, where values come after all queries and keys."""
    return lambda matrix: matrix[..., -width:]


def last_third(matrix: Tensor) -> Tensor:
    """The values' columns where query, key and value are in one matrix."""
    return matrix.chunk(3, dim=-1)[2]


def _linear(module: nn.Module) -> tuple[Tensor, Tensor]:
    """The matrix (in, out) and bias (out,) that a module holds; a missing bias is 0.

    An adapter or a wrapper holds them in a module inside; `trace` finds out what it does beside.
    """
    inside, kinds = getattr(module, "base_layer", module), (nn.Linear, Conv1D)  # peft's adapters
    if not isinstance(
        inside, kinds
    ):  # other adapters' own matrices are smaller than what they adapt
        held = [part for part in inside.modules() if isinstance(part, kinds)]
        inside = max(held, key=lambda part: part.weight.numel(), default=inside)
    weight, bias = getattr(inside, "weight", None), getattr(inside, "bias", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        kind = type(inside).__name__
        raise ValueError(
            f"model.network keeps weights of its attention in a {kind}, which does not show them "
            "as a matrix of floating-point numbers; load it unquantised, in float32."
        )
    # A Linear stores (out, in), GPT-2's Conv1D (in, out).
    matrix = (weight if isinstance(inside, Conv1D) else weight.T).detach()
    return matrix, matrix.new_zeros(matrix.shape[1]) if bias is None else bias.detach()
