"""Checks of lesson 4, residual connection and LayerNorm."""

from collections.abc import Callable

import torch

from helpers.arguments import check_index
from helpers.checks.judge import judge
from helpers.models import Model
from helpers.stages import expansion_rate, mixing_ratio, stage_map
from helpers.trace import Block, Trace, check_run


def check_layernorm_part(answer: Callable, run: Trace, layer: int) -> None:
    """The student's g(v, y, gamma, eps) on the residual of one block, (T, D)."""
    check_run(run)
    if not _has_norm(run):
        return
    layer = check_index("layer", layer, len(run.blocks))
    block = run.blocks[layer]
    v, y = block.residual, _before_norm(block)

    def g(v, y):
        return (v - v.mean(dim=-1, keepdim=True)) * _scale(y, block)

    mistakes = {
        "s comes from the part v; it belongs to the whole sum y": g(v, v),
        "v is not centred: subtract its mean": v * _scale(y, block),
        "the mean of y is subtracted; subtract the mean of v": (
            (v - y.mean(dim=-1, keepdim=True)) * _scale(y, block)
        ),
        "γ is missing": g(v, y) / block.gamma,
        "β belongs to no part; leave it out": g(v, y) + block.beta,
    }
    try:
        found = answer(v, y, block.gamma, block.eps)
    except Exception as error:  # noqa: BLE001  the student's own code can fail in any way
        print(f"Not yet: the function raises {type(error).__name__}: {error}.")
        return
    judge(found, g(v, y), mistakes)


def check_block_output(answer, run: Trace, layer: int) -> None:
    """The output of one block, (T, D), rebuilt from its parts."""
    check_run(run)
    if not _has_norm(run):
        return
    layer = check_index("layer", layer, len(run.blocks))
    block = run.blocks[layer]
    y = _before_norm(block)

    def normed(y):
        centred = y - y.mean(dim=-1, keepdim=True)
        return centred * _scale(y, block) + block.beta

    mistakes = {
        "the residual connection is missing": normed(y - block.residual),
        "b_O is missing": normed(y - block.b_O),
        "β is missing": block.output - block.beta,
        "LayerNorm is missing: this is the sum before it": y,
        "γ is missing": (block.output - block.beta) / block.gamma + block.beta,
    }
    judge(answer, block.output, mistakes)


def check_mixing_ratio(answer, run: Trace, layer: int) -> None:
    """The mixing ratio of AttnRes-N of one layer, (T,)."""
    check_run(run)
    if not _has_norm(run):
        return
    layer = check_index("layer", layer, len(run.blocks))
    norms = stage_map(run, "AttnRes-N")[layer]
    ratio = mixing_ratio(run, "AttnRes-N")[layer]
    mistakes = {
        "these are sums of norms; add the vectors of the other tokens first": (
            1 - norms.diagonal() / norms.sum(dim=-1)
        ),
        "this is the share that is kept; the share that is mixed in is wanted": 1 - ratio,
        "the residual is missing in what is kept": mixing_ratio(run, "Attn-N")[layer],
        "this is the stage AttnResLn-N; AttnRes-N ends before LayerNorm": (
            mixing_ratio(run, "AttnResLn-N")[layer]
        ),
        "divide by ‖mix‖ + ‖keep‖, not by ‖keep‖ alone": ratio / (1 - ratio),
    }
    judge(answer, ratio, mistakes)


def check_expansion_rate(answer, model: Model, layer: int) -> None:
    """The expansion rate of one layer, a tensor with one number."""
    rates = expansion_rate(model)
    rate = rates[check_index("layer", layer, len(rates))]
    D = model.network.config.hidden_size
    mistakes = {
        "the division by the square root of D + 1 is missing": rate * (D + 1) ** 0.5,
        "this is the square; take the square root": rate**2,
        "the lower right corner, 1, is missing": (rate**2 - 1 / (D + 1)).sqrt(),
    }
    judge(answer, rate, mistakes)


def _has_norm(run: Trace) -> bool:
    """Whether the run has what these exercises are about; prints one line if not."""
    if "AttnResLn-N" in run.stages:
        return True
    if run.is_cross:
        print("Not yet: this exercise needs self-attention, and this run is of cross-attention.")
        return False
    print("Not yet: this exercise needs a model with LayerNorm after the residual connection.")
    return False


def _before_norm(block: Block) -> torch.Tensor:
    """y, the sum that LayerNorm reads: (T, D)."""
    values = torch.einsum("sd,hde->hse", block.x, block.W_V) + block.b_V[:, None]
    attended = torch.einsum("hts,hse,hed->td", block.attention, values, block.W_O)
    return attended + block.b_O + block.residual


def _scale(y: torch.Tensor, block: Block) -> torch.Tensor:
    """γ / s(y): (T, D)."""
    return block.gamma / (y.var(dim=-1, correction=0, keepdim=True) + block.eps).sqrt()
