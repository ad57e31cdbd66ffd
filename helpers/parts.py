"""What one attention block adds, part by part, in closed form.

With F_ij = Σ_h α^h_ij f^h(x_j), none of these functions holds a vector for every pair (i, j): the
norm of F_ij comes from the Gram matrix of the heads, ‖F_ij‖² = α_ij^T G_j α_ij with
G_j[h, g] = <f^h(x_j), f^g(x_j)>. K20 and K21 are Kobayashi et al. 2020 and 2021.
"""

from collections.abc import Callable
from functools import wraps
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from helpers.trace import Block


def transform(block: Block) -> Tensor:
    """The transformed vectors f^h(x_j) = (x_j W_V^h + b_V^h) W_O^h: (S, H, D) (K20, section 2.2)."""
    return torch.einsum("hse,hed->shd", values(block), block.W_O)


def _once(function: Callable) -> Callable:
    """Remember a block's result while the block lives: the stages share their sums and norms."""
    results = WeakKeyDictionary()

    @wraps(function)
    def remembered(block: Block):
        if block not in results:
            results[block] = function(block)
        return results[block]

    return remembered


@_once
def values(block: Block) -> Tensor:
    """x_j W_V^h + b_V^h: (H, S, d)."""
    return torch.einsum("sd,hde->hse", block.x, block.W_V) + block.b_V[:, None]


@_once
def whole(block: Block) -> Tensor:
    """Σ_j F_ij over all keys, without b_O: (T, D)."""
    return _project(block.attention @ values(block), block)


@_once
def own(block: Block) -> Tensor:
    """F_ii, what attention takes from the position itself, in self-attention: (T, D)."""
    return _project(block.attention.diagonal(dim1=1, dim2=2)[..., None] * values(block), block)


def _project(context: Tensor, block: Block) -> Tensor:
    """All heads' context vectors, (H, T, d), through W_O in one matrix product: (T, D)."""
    return context.transpose(0, 1).flatten(1) @ block.W_O.flatten(0, 1)


@_once
def pair_norms(block: Block) -> Tensor:
    """‖Σ_h α^h_ij f^h(x_j)‖: (T, S)."""
    return gram_norms(block.attention, transform(block))


@_once
def after_norm(block: Block) -> Tensor:
    """‖g(Σ_h α^h_ij f^h(x_j) + [i=j] x_i)‖: (T, T)."""
    return split(block, second=False)


def split(block: Block, second: bool) -> Tensor:
    """Norms after LayerNorm, or after both: (T, T). g is linear: it moves inside the sum over h."""
    f, kept = g(transform(block), block.gamma), g(own(block) + block.residual, block.gamma)
    s = deviation(block)
    if second:
        f, kept = g(f, block.second_gamma), g(kept, block.second_gamma)
        s = s * _standard(block.before_second_norm, block.second_eps)
    return gram_norms(block.attention, f).diagonal_scatter(kept.norm(dim=-1)) / s


def gram_norms(attention: Tensor, f: Tensor) -> Tensor:
    """Norm of the attention-weighted sum over heads, by Gram matrices: (T, S)."""
    gram = torch.einsum("shd,sgd->shg", f, f)
    alpha = attention.permute(2, 1, 0).contiguous()  # (S, T, H)
    squares = ((alpha @ gram) * alpha).sum(dim=-1)
    return squares.T.clamp(min=0).sqrt()  # rounding can leave a tiny negative square


def added(v: Tensor, block: Block) -> Tensor:
    """What the residual connection adds of one part; Gemma 2 and 3 normalise it first: (T, D)."""
    return v if block.inner_gamma is None else v * block.inner_gamma / inner_deviation(block)


def inner_deviation(block: Block) -> Tensor:
    """Root mean square of the attention's whole output, as in RMSNorm: (T, 1)."""
    y = whole(block) + block.b_O
    return (y.square().mean(dim=-1, keepdim=True) + block.inner_eps).sqrt()


def g(v: Tensor, gamma: Tensor) -> Tensor:
    """(v − mean(v)) · γ: LayerNorm of one part, before the division by s (K21)."""
    return (v - v.mean(dim=-1, keepdim=True)) * gamma


def deviation(block: Block) -> Tensor:
    """s(y) in LayerNorm, from the whole sum y: (T, 1)."""
    return _standard(whole(block) + block.residual + block.b_O, block.eps)


def _standard(y: Tensor, eps: float) -> Tensor:
    """Standard deviation of each row, as in LayerNorm: (T, 1)."""
    return (y.var(dim=-1, correction=0, keepdim=True) + eps).sqrt()
