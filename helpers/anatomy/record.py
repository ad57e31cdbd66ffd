"""What is known of one attention block, and how its weights are split into heads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

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
    # The LayerNorm that ends the layer, if the feed-forward network follows `norm`.
    second_norm: nn.LayerNorm | None = None
    # Gemma 2 and 3: an RMSNorm between W_O and the residual connection.
    inner_norm: nn.Module | None = None
    # GPT-NeoX: no tensor of the model holds x + attention, and `output` is the attention alone.
    parallel: bool = False


def anatomy(
    layer: nn.Module,
    value: nn.Module,
    project: nn.Module,
    heads: int,
    norm: nn.LayerNorm | None = None,
    second_norm: nn.LayerNorm | None = None,
    *,
    residual: Tap | None = None,
    end: Tap | None = None,
    columns: Callable[[Tensor], Tensor] | None = None,
    inner_norm: nn.Module | None = None,
    parallel: bool = False,
) -> Anatomy:
    """Split the weights into heads; values that several heads share are repeated.

    `value` reads what f reads; `columns` picks W_V and b_V where it makes queries and keys too. The
    residual is the layer's input, and the block ends after `norm`, unless told otherwise.
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
        layer=layer,
        second_norm=second_norm,
        inner_norm=inner_norm,
        parallel=parallel,
    )


def last_third(matrix: Tensor) -> Tensor:
    """The values' columns where query, key and value are in one matrix."""
    return matrix.chunk(3, dim=-1)[2]


def _linear(module: nn.Module) -> tuple[Tensor, Tensor]:
    """A module's matrix (in, out) and bias (out,); a missing bias is 0."""
    # A Linear stores (out, in), GPT-2's Conv1D (in, out).
    matrix = module.weight.T if isinstance(module, nn.Linear) else module.weight
    bias = matrix.new_zeros(matrix.shape[1]) if module.bias is None else module.bias
    return matrix.detach(), bias.detach()
