"""K21: the whole attention block. Residual connection and LayerNorm beside the attention.

Kobayashi et al. 2021 (arXiv 2109.07152). Row = query i, column = key j. With the parts of K20,
F_ij = Σ_h α^h_ij f^h(x_j), the block of a post-LN model is a sum of exact parts:

    y_i = Σ_j F_ij + x_i + b_O                              x̃_i = LN(y_i) = g(y_i) / s(y_i) + β
    x̃_i = (Σ_j g(F_ij) + g(x_i) + g(b_O)) / s(y_i) + β      g(v) = (v − m(v)) · γ, which is linear

A stage takes in more or less of this, and makes two things of it: a map, and a mixing ratio, which
compares what comes from other positions, Σ_{j≠i} F_ij, with what is kept, F_ii + x_i.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from helpers import _validate, anatomy
from helpers.models import Model
from helpers.norms import gram_norms, own, pair_norms, values, weight, whole
from helpers.tracing import Block, Trace, probe


def mix(block: Block) -> Tensor:
    """Σ_{j≠i} F_ij, the sum of what other positions give: (T, D)."""
    return whole(block) - own(block)


def keep(block: Block) -> Tensor:
    """F_ii + x_i, what position i keeps: (T, D)."""
    return own(block) + block.residual


def before_norm(block: Block) -> Tensor:
    """y_i = Σ_j F_ij + x_i + b_O, what the LayerNorm reads: (T, D)."""
    return whole(block) + block.residual + block.b_O


def g(v: Tensor, gamma: Tensor) -> Tensor:
    """g(v) = (v − m(v)) · γ, LayerNorm of one part without the division by s(y_i): (..., D)."""
    return (v - v.mean(dim=-1, keepdim=True)) * gamma


def s(y: Tensor, eps: float) -> Tensor:
    """s(y) = sqrt(var(y) + eps), the standard deviation of each row: (T, 1)."""
    centred = y - y.mean(dim=-1, keepdim=True)
    return (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt()


def diagonal(norms: Tensor, kept: Tensor) -> Tensor:
    """‖F_ij‖, and ‖kept_i‖ where j = i: (T, T)."""
    return norms.diagonal_scatter(kept.norm(dim=-1))


def share(mix: Tensor, keep: Tensor) -> Tensor:
    """The mixing ratio ‖mix‖ / (‖mix‖ + ‖keep‖), with 0/0 = 0: (T,)."""
    mix, keep = mix.norm(dim=-1), keep.norm(dim=-1)
    return torch.where(mix == 0, 0.0, mix / (mix + keep))


@dataclass(frozen=True)
class Stage:
    """The two equations of a stage, and the facts about it."""

    map: Callable[[Block], Tensor]
    ratio: Callable[[Block], Tensor]
    norms: bool = True  # whether it measures vectors, or weights alone
    residual: bool = False  # whether the map holds the residual connection
    needs: tuple[str, ...] = ()  # some of _validate.LACKS


TABLE = {
    "Attn-W": Stage(
        map=lambda b: weight(b),  # (T, S)  mean_h α^h_ij
        ratio=lambda b: 1 - weight(b).diagonal(),  # (T,)  1 − mean_h α^h_ii
        norms=False,
    ),
    "Attn-N": Stage(
        map=lambda b: pair_norms(b),  # (T, S)  ‖F_ij‖
        ratio=lambda b: share(mix(b), own(b)),  # (T,)
        needs=("values",),
    ),
    "AttnRes-W": Stage(
        map=lambda b: 0.5 * weight(b) + torch.diag(0.5 * torch.ones_like(b.x[:, 0])),  # (T, T)
        ratio=lambda b: 0.5 * (1 - weight(b).diagonal()),  # (T,)
        norms=False,
        residual=True,
        needs=("own key",),
    ),
    "AttnRes-N": Stage(
        map=lambda b: diagonal(pair_norms(b), keep(b)),  # (T, T)  ‖F_ij + [i=j] x_i‖
        ratio=lambda b: share(mix(b), keep(b)),  # (T,)
        residual=True,
        needs=("values", "own key"),
    ),
    "AttnResLn-N": Stage(  # (T, T)  ‖g(F_ij + [i=j] x_i)‖ / s(y_i)
        map=lambda b: (
            diagonal(gram_norms(b.attention, _g_of_f(b, b.gamma)), g(keep(b), b.gamma))
            / s(before_norm(b), b.eps)
        ),
        ratio=lambda b: share(g(mix(b), b.gamma), g(keep(b), b.gamma)),  # (T,)  s divides both
        residual=True,
        needs=("values", "own key", "norm"),
    ),
}
STAGES = tuple(TABLE)
MEASURED = ("AttnResLn-N", "AttnRes-N")  # whose 1 − r is the measured residual: the first there is


def stage_map(run: Trace, stage: str) -> Tensor:
    """Map of one stage, heads combined, raw values: (L, T, S), ≥ 0 (K21).

    run: what `trace` returned. stage: one of `run.stages`; `TABLE` has its equation. Raises
    ValueError for a stage that is unknown or does not exist here, and for lengths not finite.

    Example: stage_map(run, "Attn-N")[2, 5, 1] is what the sixth token reads of the second, layer 3.
    """
    row = _row(run, stage)
    return _stack(row.map, run, row)


def mixing_ratio(run: Trace, stage: str) -> Tensor:
    """How much of each position's new vector comes from other positions: (L, T), in [0, 1] (K21).

    The norm of the *summed* vectors of other positions, not the sum of their norms, against that of
    what the position keeps; 0/0 counts as 0. Cross-attention has none, because its queries and keys
    are different tokens. Parameters and errors are those of `stage_map`.
    Example: mixing_ratio(run, "AttnResLn-N").mean(dim=1) is one number per layer.
    """
    row = _row(run, stage, "own key")
    return _stack(row.ratio, run, row)


def globenc(run: Trace) -> Tensor:
    """Length of each part after the layer's second LayerNorm, raw values: (L, T, T), ≥ 0.

    The local maps of GlobEnc (Modarressi et al. 2022, arXiv 2205.03286), whose map of the whole
    model is rollout(globenc(run), residual=0). Raises ValueError where no second LayerNorm follows.
    Example: globenc(run)[-1] is the local map of the last layer.
    """
    _validate.has(run, "globenc", *_validate.LACKS)
    return _stack(_globenc, run)


def reconstruction_error(run: Trace) -> Tensor:
    """How far what is read, g(b_O), the residual and β are from the block's own output: (L,), ≥ 0.

    In each row the largest absolute difference is divided by the largest absolute value of what
    attention adds there, so that one very long vector hides nothing; the worst row counts. float32
    leaves about 3e-5. How what is read splits over keys is not looked at. run: as in `stage_map`.
    Example: reconstruction_error(run).max() < 1e-4 says that the block has no other part.
    """
    _validate.run(run)
    return _stack(_error, run)


def expansion_rate(model: Model, attention: anatomy.Attention | None = None) -> Tensor:
    """How much attention's linear maps stretch a vector, from the weights alone: (L,), > 0 (K21).

    All heads as one (D+1)×(D+1) map, [[Σ_h W_V W_O, 0], [Σ_h b_V W_O + b_O, 1]]; its Frobenius norm
    over sqrt(D+1). 1 means that a vector keeps its length on average.

    model, attention: as in `trace`. Raises ValueError for weights that are not finite or too large,
    and where a layer computes something else than its weights say.
    Example: expansion_rate(load_model()) has one number per layer.
    """
    run = probe(model, attention)
    _validate.has(run, "expansion_rate", "values")
    return _stack(_rate, run)


def stages_of(run: Trace) -> tuple[str, ...]:
    """Those of STAGES that a run has."""
    return tuple(name for name, row in TABLE.items() if not _validate.lacks(run, *row.needs))


def _rate(b: Block) -> Tensor:
    """The expansion rate of one layer: ()."""
    W = torch.einsum("hde,hek->dk", b.W_V, b.W_O)  # (D, D)
    bias = torch.einsum("he,hek->k", b.b_V, b.W_O) + b.b_O  # (D,)
    return ((W.square().sum() + bias.square().sum() + 1) / (len(bias) + 1)).sqrt()


def _g_of_f(b: Block, gamma: Tensor) -> Tensor:
    """g(f^h(x_j)) = v_j^h g(W_O^h), because g is linear: (S, H, D)."""
    return torch.einsum("hse,hed->shd", values(b), g(b.W_O, gamma))


def _globenc(b: Block) -> Tensor:
    """g twice; the feed-forward output counts only in the second s: (T, T)."""
    f = g(_g_of_f(b, b.gamma), b.second_gamma)  # (S, H, D)
    kept = g(g(keep(b), b.gamma), b.second_gamma)  # (T, D)
    divisor = s(before_norm(b), b.eps) * s(b.before_second_norm, b.second_eps)  # (T, 1)
    return diagonal(gram_norms(b.attention, f), kept) / divisor


def _error(block: Block) -> Tensor:
    """One layer's reconstruction error: ()."""
    block = _normed(block)
    added, kept, beta = whole(block) + block.b_O, block.residual, 0.0  # (T, D)
    if block.gamma is not None:
        s_i, beta = s(before_norm(block), block.eps), block.beta  # (T, 1), (D,)
        added, kept = g(added, block.gamma) / s_i, g(kept, block.gamma) / s_i  # (T, D)
    gap = (added + kept + beta - block.output).abs().amax(dim=-1)  # (T,)
    size = added.abs().amax(dim=-1)  # (T,)
    # A row to which attention adds nothing at all is measured by its own size.
    size = torch.where(size > 0, size, block.output.abs().amax(dim=-1))  # (T,)
    return torch.where(gap == 0, 0.0, gap / size).max()


def _normed(block: Block) -> Block:
    """The block as its residual connection meets it: Gemma 2 and 3 normalise the attention first.

    Their RMSNorm, v · γ / rms(Σ_j F_ij + b_O), is linear in v: γ moves into W_O, rms into α.
    """
    if block.inner_gamma is None:
        return block
    square = (whole(block) + block.b_O).square().mean(dim=-1, keepdim=True)  # (T, 1)
    rms, gamma = (square + block.inner_eps).sqrt(), block.inner_gamma
    scaled = {"W_O": block.W_O * gamma, "b_O": block.b_O * gamma / rms, "inner_gamma": None}
    return replace(block, attention=block.attention / rms, **scaled)


def _stack(equation: Callable[[Block], Tensor], run: Trace, row: Stage | None = None) -> Tensor:
    """An equation for each layer: (L, ...)."""
    meets_residual = row is not None and row.norms and row.residual
    blocks = map(_normed, run.blocks) if meets_residual else run.blocks
    return _validate.finite(torch.stack([equation(block.sharing()) for block in blocks]))


def _row(run: Trace, stage: str, *needs: str) -> Stage:
    """The row of a stage that this run has; `needs` are those of its mixing ratio."""
    _validate.choice("stage", stage, tuple(TABLE))
    _validate.has(run, f"stage {stage!r}", *TABLE[stage].needs)
    _validate.has(run, "a mixing ratio", *needs)
    return TABLE[stage]
