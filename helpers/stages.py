"""From attention weights to the whole attention block, one layer at a time.

The five stages are those of Kobayashi et al. 2021 (K21), built on the norms of Kobayashi et al.
2020 (K20). Row = query i, column = key j. With F_ij = Σ_h α^h_ij f^h(x_j), none of the functions
holds a vector for every pair (i, j): the norm of F_ij comes from the Gram matrix of the heads,
‖F_ij‖² = α_ij^T G_j α_ij with G_j[h, g] = <f^h(x_j), f^g(x_j)>.
"""

import difflib
from collections.abc import Callable
from functools import wraps
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from helpers import anatomy
from helpers.models import Model, check_model
from helpers.trace import STAGES, Block, Trace, check_run


def transformed_norms(run: Trace) -> Tensor:
    """Length of each transformed vector, ‖f^h(x_j)‖: (L, H, S), ≥ 0 (K20, section 3)."""
    check_run(run)
    return torch.stack([transform(block).norm(dim=-1).T for block in run.blocks])


def weighted_norms(run: Trace) -> Tensor:
    """Length of each weighted vector, ‖α^h_ij f^h(x_j)‖: (L, H, T, S), ≥ 0 (K20, section 3).

    It equals α^h_ij ‖f^h(x_j)‖ because α is never negative.
    """
    norms = transformed_norms(run)
    return run.attention * norms[:, :, None, :]


def stage_map(run: Trace, stage: str) -> Tensor:
    """Map of one stage, heads combined, raw values: (L, T, S), ≥ 0 (K21).

    Weights: "Attn-W" is the mean of α over heads, "AttnRes-W" is half of it plus half of the
    identity. Norms: "Attn-N" is ‖Σ_h α f(x_j)‖, "AttnRes-N" adds the residual x_i where j = i,
    "AttnResLn-N" passes the same sum through LayerNorm, split over its parts.

    Raises ValueError for an unknown stage and for one that the architecture does not have.
    """
    check_stage(run, stage)
    if stage == "Attn-W":
        return run.attention.mean(dim=1)
    if stage == "AttnRes-W":
        weights = run.attention.mean(dim=1)
        return 0.5 * weights + 0.5 * torch.eye(weights.shape[-1])
    return torch.stack([_norm_map(block, stage) for block in run.blocks])


def mixing_ratio(run: Trace, stage: str) -> Tensor:
    """How much of each position's new vector comes from other positions: (L, T), in [0, 1].

    ‖Σ_{j≠i} F_i(x_j)‖ / (‖Σ_{j≠i} F_i(x_j)‖ + ‖F_i(x_i)‖), the norm of the summed context vector
    against the norm of what the position keeps (K21). The weight stages use
    1 − α_ii, and half of it with the residual. 0/0 counts as 0.

    Raises ValueError for an unknown stage and for one that the architecture does not have.
    """
    check_stage(run, stage)
    if stage in ("Attn-W", "AttnRes-W"):
        own = run.attention.mean(dim=1).diagonal(dim1=-2, dim2=-1)
        return (1 - own) * (1.0 if stage == "Attn-W" else 0.5)
    return torch.stack([_ratio(block, stage) for block in run.blocks])


def reconstruction_error(run: Trace) -> Tensor:
    """How far the parts are from adding up to the model's own block output: (L,), ≥ 0.

    All parts are summed, g(b_O), β and the residual included; the largest absolute difference
    is divided by the largest absolute value of the output. float32 leaves about 1e-6.
    """
    check_run(run)
    errors = []
    for block in run.blocks:
        whole = _sums(block)[0] + block.residual
        parts = whole + block.b_O
        if block.gamma is not None:
            s = _deviation(block, whole)
            parts = _g(whole, block) / s + _g(block.b_O, block) / s + block.beta
        errors.append((parts - block.output).abs().max() / block.output.abs().max())
    return torch.stack(errors)


def expansion_rate(model: Model) -> Tensor:
    """How much attention's linear maps stretch a vector, from the weights alone: (L,), > 0.

    All heads as one (D+1)×(D+1) map, [[Σ_h W_V W_O, 0], [Σ_h b_V W_O + b_O, 1]]; its Frobenius
    norm over sqrt(D+1) (K21). 1 means that a vector keeps its length on average.
    """
    check_model(model)
    rates = []
    for part in anatomy.blocks(model.network):
        W = torch.einsum("hde,hek->dk", part.W_V, part.W_O)
        b = torch.einsum("he,hek->k", part.b_V, part.W_O) + part.b_O
        squares = W.square().sum() + b.square().sum() + 1
        rates.append((squares / (len(b) + 1)).sqrt())
    return torch.stack(rates)


def check_stage(run: Trace, stage: str) -> None:
    """Raise ValueError, naming the remedy, unless this run has the stage."""
    check_run(run)
    if not isinstance(stage, str) or stage not in STAGES:
        names = {name.lower(): name for name in STAGES}
        near = difflib.get_close_matches(str(stage).lower(), names, n=1, cutoff=0.5)
        guess = f"; did you mean {names[near[0]]!r}?" if near else "."
        raise ValueError(f"stage {stage!r} is unknown{guess} Stages: {', '.join(STAGES)}.")
    if stage not in run.stages:
        raise ValueError(
            f"stage {stage!r} does not exist in this architecture, which has no LayerNorm after "
            f"the residual connection; this run has: {', '.join(run.stages)}."
        )


def transform(block: Block) -> Tensor:
    """The transformed vectors f^h(x_j) = (x_j W_V^h + b_V^h) W_O^h: (S, H, D) (K20, section 2.2)."""
    return torch.einsum("hse,hed->shd", _values(block), block.W_O)


def _once(function: Callable) -> Callable:
    """Remember a block's result while the block lives: the stages share their sums and norms."""
    results = WeakKeyDictionary()

    @wraps(function)
    def remembered(block: Block):
        if block not in results:
            results[block] = function(block)
        return results[block]

    return remembered


def _values(block: Block) -> Tensor:
    """x_j W_V^h + b_V^h: (H, S, d)."""
    return torch.einsum("sd,hde->hse", block.x, block.W_V) + block.b_V[:, None]


@_once
def _sums(block: Block) -> tuple[Tensor, Tensor]:
    """Σ_j F_ij over all keys, and F_ii alone, both without b_O: two (T, D)."""
    values = _values(block)
    own = block.attention.diagonal(dim1=1, dim2=2)[..., None] * values
    W_O = block.W_O.flatten(0, 1)  # (H d, D): all heads in one matrix product
    whole, own = (
        context.transpose(0, 1).flatten(1) @ W_O for context in (block.attention @ values, own)
    )
    return whole, own


@_once
def _pair_norms(block: Block) -> Tensor:
    """‖Σ_h α^h_ij f^h(x_j)‖: (T, S)."""
    return _gram_norms(block.attention, transform(block))


@_once
def _pair_norms_after_norm(block: Block) -> Tensor:
    """‖g(Σ_h α^h_ij f^h(x_j))‖, divided by s(y): (T, S). g moves inside the sum over heads."""
    whole, _ = _sums(block)
    lengths = _gram_norms(block.attention, _g(transform(block), block))
    return lengths / _deviation(block, whole + block.residual)


def _gram_norms(attention: Tensor, f: Tensor) -> Tensor:
    """Norm of the attention-weighted sum over heads, by Gram matrices: (T, S)."""
    gram = torch.einsum("shd,sgd->shg", f, f)
    alpha = attention.permute(2, 1, 0).contiguous()  # (S, T, H)
    squares = ((alpha @ gram) * alpha).sum(dim=-1)
    return squares.T.clamp(min=0).sqrt()  # rounding can leave a tiny negative square


def _norm_map(block: Block, stage: str) -> Tensor:
    """One layer's map of a norm stage: (T, S)."""
    if stage == "Attn-N":
        return _pair_norms(block)
    whole, own = _sums(block)
    kept = own + block.residual
    if stage == "AttnRes-N":
        return _pair_norms(block).diagonal_scatter(kept.norm(dim=-1))
    s = _deviation(block, whole + block.residual)
    kept = _g(kept, block) / s
    return _pair_norms_after_norm(block).diagonal_scatter(kept.norm(dim=-1))


def _ratio(block: Block, stage: str) -> Tensor:
    """One layer's mixing ratio of a norm stage: (T,)."""
    whole, own = _sums(block)
    mix, kept = whole - own, own if stage == "Attn-N" else own + block.residual
    if stage == "AttnResLn-N":
        # s(y) divides both alike, so it does not change the ratio.
        mix, kept = _g(mix, block), _g(kept, block)
    mixed, kept = mix.norm(dim=-1), kept.norm(dim=-1)
    return torch.where(mixed > 0, mixed / (mixed + kept), 0.0)


def _g(v: Tensor, block: Block) -> Tensor:
    """(v − mean(v)) · γ: LayerNorm of one part, before the division by s (K21)."""
    return (v - v.mean(dim=-1, keepdim=True)) * block.gamma


def _deviation(block: Block, whole: Tensor) -> Tensor:
    """s(y), the standard deviation in LayerNorm, from the whole sum y: (T, 1)."""
    y = whole + block.b_O
    return (y.var(dim=-1, correction=0, keepdim=True) + block.eps).sqrt()
