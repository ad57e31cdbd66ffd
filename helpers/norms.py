"""K20: attention is more than its weights. The norm of the vector that each weight multiplies.

Kobayashi et al. 2020 (arXiv 2004.10102), sections 2 and 3. Row = query i, column = key j, h = head.

    f^h(x) = (x W_V^h + b_V^h) W_O^h                      the transformed vector
    attention output at i = Σ_h Σ_j α^h_ij f^h(x_j) + b_O

No vector is built for every pair (i, j): with the Gram matrices G_j[h, g] = <f^h(x_j), f^g(x_j)>,
‖Σ_h α^h_ij f^h(x_j)‖² = α_ij^T G_j α_ij.
"""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from helpers import _validate
from helpers.tracing import Block, Trace


def _once(function: Callable[[Block], Tensor]) -> Callable[[Block], Tensor]:
    """Compute once what several terms of an equation share, if the block is `sharing`.

    Nothing outlives a call, so that an edit of a block's tensors reaches whatever is asked next.
    """

    @wraps(function)
    def shared(block: Block) -> Tensor:
        if block.parts is None:
            return function(block)
        if function not in block.parts:
            block.parts[function] = function(block)
        return block.parts[function]

    return shared


def weight(block: Block) -> Tensor:
    """mean_h α^h_ij, the weights of all heads together: (T, S)."""
    return block.attention.mean(dim=0)


@_once
def values(block: Block) -> Tensor:
    """The value vectors x_j W_V^h + b_V^h: (H, S, d)."""
    return torch.einsum("sd,hde->hse", block.x, block.W_V) + block.b_V[:, None]


def transform(block: Block) -> Tensor:
    """The transformed vectors f^h(x_j) = (x_j W_V^h + b_V^h) W_O^h: (S, H, D) (K20, section 2)."""
    return torch.einsum("hse,hed->shd", values(block), block.W_O)


@_once
def whole(block: Block) -> Tensor:
    """Σ_j Σ_h α^h_ij f^h(x_j), all that attention reads, without b_O: (T, D) (K20, section 2)."""
    return _project(block.attention @ values(block), block)


@_once
def own(block: Block) -> Tensor:
    """Σ_h α^h_ii f^h(x_i), what attention reads of the position itself: (T, D)."""
    return _project(block.attention.diagonal(dim1=1, dim2=2)[..., None] * values(block), block)


def _project(context: Tensor, block: Block) -> Tensor:
    """All heads' context vectors, (H, T, d), through W_O in one matrix product: (T, D)."""
    return context.transpose(0, 1).flatten(1) @ block.W_O.flatten(0, 1)


def transformed_norms(run: Trace) -> Tensor:
    """Length of each transformed vector, ‖f^h(x_j)‖: (L, H, S), ≥ 0 (K20, section 3).

    run: what `trace` returned. Raises TypeError for anything else, and ValueError where a layer
    computes something else than its weights say, or a length is not finite.

    Example: transformed_norms(run)[2, 0] is one number per key, for head 1 of layer 3.
    """
    _validate.values(run)
    return _validate.finite(torch.stack([transform(b).norm(dim=-1).T for b in run.blocks]))


def weighted_norms(run: Trace) -> Tensor:
    """Length of each weighted vector, ‖α^h_ij f^h(x_j)‖: (L, H, T, S), ≥ 0 (K20, section 3).

    It equals α^h_ij ‖f^h(x_j)‖ because α is never negative. Parameters and errors are those of
    `transformed_norms`.

    Example: weighted_norms(run)[2, 0, 5] is what the sixth token reads, in head 1 of layer 3.
    """
    norms = transformed_norms(run)
    return _validate.finite(run.attention.abs() * norms[:, :, None, :])


def gram_norms(attention: Tensor, f: Tensor) -> Tensor:
    """‖Σ_h α^h_ij f^h(x_j)‖ = sqrt(α_ij^T G_j α_ij): (T, S), from α (H, T, S) and f (S, H, D)."""
    G = torch.einsum("shd,sgd->shg", f, f)  # (S, H, H)
    alpha = attention.permute(2, 1, 0).contiguous()  # (S, T, H)
    squares = ((alpha @ G) * alpha).sum(dim=-1)  # (S, T)
    return squares.T.clamp(min=0).sqrt()  # rounding can leave a tiny negative square


@_once
def pair_norms(block: Block) -> Tensor:
    """‖Σ_h α^h_ij f^h(x_j)‖, heads summed before the norm: (T, S) (K20, section 3)."""
    return gram_norms(block.attention, transform(block))
