"""From attention weights to the whole attention block, one layer at a time.

The five stages are those of Kobayashi et al. 2021 (K21), built on the norms of Kobayashi et al.
2020 (K20); `globenc` goes on to the layer's end. Row = query i, column = key j. The algebra of one
block is in `parts`.
"""

import torch
from torch import Tensor

from helpers import anatomy, parts
from helpers.arguments import check_exact, nearest, shown
from helpers.fitness import check_weights
from helpers.models import Model, check_model
from helpers.trace import STAGES, Block, Trace, check_run


def transformed_norms(run: Trace) -> Tensor:
    """Length of each transformed vector, ‖f^h(x_j)‖: (L, H, S), ≥ 0 (K20, section 3)."""
    check_run(run)
    return _stack([parts.transform(block).norm(dim=-1).T for block in run.blocks])


def weighted_norms(run: Trace) -> Tensor:
    """Length of each weighted vector, ‖α^h_ij f^h(x_j)‖: (L, H, T, S), ≥ 0 (K20, section 3).

    It equals α^h_ij ‖f^h(x_j)‖ because α is never negative.
    """
    check_run(run)
    return run.attention * transformed_norms(run)[:, :, None, :]


def stage_map(run: Trace, stage: str) -> Tensor:
    """Map of one stage, heads combined, raw values: (L, T, S), ≥ 0 (K21).

    Weights: "Attn-W" is the mean of α over heads, "AttnRes-W" is half of it plus half of the
    identity. Norms: "Attn-N" is ‖Σ_h α f(x_j)‖, "AttnRes-N" adds the residual x_i where j = i,
    "AttnResLn-N" passes the same sum through LayerNorm, split over its parts.

    Raises ValueError for an unknown stage and for one that the architecture does not have.
    """
    check_stage(run, stage)
    if stage in ("Attn-W", "AttnRes-W"):
        weights = run.attention.mean(dim=1)
        return weights if stage == "Attn-W" else 0.5 * weights + 0.5 * torch.eye(len(run.tokens))
    return _stack([_norm_map(block, stage) for block in run.blocks])


def globenc(run: Trace) -> Tensor:
    """Length of each part after the layer's second LayerNorm, raw values: (L, T, T), ≥ 0.

    The parts of "AttnResLn-N" are split once more: centred, divided by s of the real sum before the
    second LayerNorm, times its γ; the feed-forward output counts in s only (Modarressi et al. 2022,
    arXiv 2205.03286). Their map of the whole model is rollout(globenc(run), residual=0).

    Raises ValueError where no such LayerNorm follows: pre-LN, cross-attention, Marian's decoder.
    """
    check_run(run)
    if "AttnResLn-N" not in run.stages or any(b.second_gamma is None for b in run.blocks):
        raise ValueError(f"globenc does not exist {_reason(run)}.")
    return _stack([parts.split(block, second=True) for block in run.blocks])


def mixing_ratio(run: Trace, stage: str) -> Tensor:
    """How much of each position's new vector comes from other positions: (L, T), in [0, 1].

    ‖Σ_{j≠i} F_i(x_j)‖ / (‖Σ_{j≠i} F_i(x_j)‖ + ‖F_i(x_i)‖), the norm of the summed context vector
    against the norm of what the position keeps (K21). The weight stages use 1 − α_ii, and half of
    it with the residual. 0/0 counts as 0.

    Raises ValueError for an unknown stage, for one that the architecture does not have, and for
    cross-attention.
    """
    check_stage(run, stage)
    if run.is_cross:
        raise ValueError(
            "Cross-attention has no mixing ratio: its queries and keys are different tokens, so no "
            "part of the output is a position's own."
        )
    if stage in ("Attn-W", "AttnRes-W"):
        own = run.attention.mean(dim=1).diagonal(dim1=-2, dim2=-1)
        return (1 - own) * (1.0 if stage == "Attn-W" else 0.5)
    return _stack([_ratio(block, stage) for block in run.blocks])


def reconstruction_error(run: Trace) -> Tensor:
    """How far the parts are from adding up to the model's own block output: (L,), ≥ 0.

    All parts are summed, g(b_O), β and the residual included; the largest absolute difference
    is divided by the largest absolute value of the output. float32 leaves about 1e-6.
    """
    check_run(run)
    errors = []
    for block in run.blocks:
        mixed = parts.added(parts.whole(block), block) + block.residual
        bias = parts.added(block.b_O, block)
        if block.gamma is None:
            total = mixed + bias
        else:
            s = parts.deviation(block)
            total = (parts.g(mixed, block.gamma) + parts.g(bias, block.gamma)) / s + block.beta
        errors.append((total - block.output).abs().max() / block.output.abs().max())
    return _stack(errors)


def expansion_rate(model: Model, attention: anatomy.Attention | None = None) -> Tensor:
    """How much attention's linear maps stretch a vector, from the weights alone: (L,), > 0.

    All heads as one (D+1)×(D+1) map, [[Σ_h W_V W_O, 0], [Σ_h b_V W_O + b_O, 1]]; its Frobenius
    norm over sqrt(D+1) (K21). 1 means that a vector keeps its length on average. `attention` chooses
    the blocks of an encoder-decoder, as in `trace`. Raises ValueError for weights that are NaN or
    infinite, or too large to square.
    """
    check_model(model)
    check_exact()
    check_weights(model)
    rates = []
    for part in anatomy.blocks(model.network, attention):
        W = torch.einsum("hde,hek->dk", part.W_V, part.W_O)
        b = torch.einsum("he,hek->k", part.b_V, part.W_O) + part.b_O
        squares = W.square().sum() + b.square().sum() + 1
        rates.append((squares / (len(b) + 1)).sqrt())
    return _stack(rates)


def check_stage(run: Trace, stage: str) -> None:
    """Raise ValueError, naming the remedy, unless this run has the stage."""
    check_run(run)
    if not isinstance(stage, str) or stage not in STAGES:
        guess = nearest(stage, STAGES, cutoff=0.5) or "."
        raise ValueError(f"stage {shown(stage)} is unknown{guess} Stages: {', '.join(STAGES)}.")
    if stage not in run.stages:
        raise ValueError(
            f"stage {stage!r} does not exist {_reason(run)}; this run has: {', '.join(run.stages)}."
        )


def _stack(layers: list[Tensor]) -> Tensor:
    """The layers' values as one tensor, or a ValueError if some are no numbers."""
    values = torch.stack(layers)
    for where in (~values.isfinite()).nonzero()[:1].tolist():
        raise ValueError(
            f"The weights of layer {where[0]} (counted from 0) are so large that lengths become NaN "
            "or infinite; check the size of model.network's weights."
        )
    return values


def _reason(run: Trace) -> str:
    """Why a run lacks a stage."""
    if run.is_cross:
        return "in cross-attention, whose residual belongs to the queries and has no key"
    if "AttnResLn-N" not in run.stages:
        return "in this architecture, which has no LayerNorm after the residual connection"
    return "here, where no feed-forward network with a LayerNorm follows this attention"


def _norm_map(block: Block, stage: str) -> Tensor:
    """One layer's map of a norm stage: (T, S)."""
    if stage != "AttnRes-N":
        return parts.pair_norms(block) if stage == "Attn-N" else parts.after_norm(block)
    kept = parts.added(parts.own(block), block) + block.residual
    if block.inner_gamma is None:
        lengths = parts.pair_norms(block)
    else:
        f = parts.transform(block) * block.inner_gamma
        lengths = parts.gram_norms(block.attention, f) / parts.inner_deviation(block)
    return lengths.diagonal_scatter(kept.norm(dim=-1))


def _ratio(block: Block, stage: str) -> Tensor:
    """One layer's mixing ratio of a norm stage: (T,)."""
    mix, kept = parts.whole(block) - parts.own(block), parts.own(block)
    if stage != "Attn-N":
        mix, kept = parts.added(mix, block), parts.added(kept, block) + block.residual
    if stage == "AttnResLn-N":
        # s(y) divides both alike, so it does not change the ratio.
        mix, kept = parts.g(mix, block.gamma), parts.g(kept, block.gamma)
    mixed, kept = mix.norm(dim=-1), kept.norm(dim=-1)
    return torch.where(mixed == 0, 0.0, mixed / (mixed + kept))
