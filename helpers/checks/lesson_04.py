"""Checks of lesson 4, residual connection and LayerNorm."""

from collections.abc import Callable

from torch import Tensor

from helpers import _validate
from helpers.block import before_norm, expansion_rate, mixing_ratio, s, stage_map
from helpers.checks.judge import attempt, judge
from helpers.models import Model
from helpers.tracing import Block, Trace


def check_layernorm_part(answer: Callable, run: Trace, layer: int) -> None:
    """The student's g(v, y, gamma, eps) on the residual of one block, (T, D)."""
    _validate.run(run)
    if not _has_norm(run):
        return
    layer = _validate.index("layer", layer, len(run.blocks))
    block = run.blocks[layer]
    v, y = block.residual, before_norm(block)

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
    found = attempt(lambda: [answer(v, y, block.gamma, block.eps)])
    if found is not None:
        judge(found[0], g(v, y), mistakes)


def check_block_output(answer, run: Trace, layer: int) -> None:
    """The output of one block, (T, D), rebuilt from its parts."""
    _validate.run(run)
    if not _has_norm(run):
        return
    layer = _validate.index("layer", layer, len(run.blocks))
    block = run.blocks[layer]
    y = before_norm(block)

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
    _validate.run(run)
    if not _has_norm(run):
        return
    layer = _validate.index("layer", layer, len(run.blocks))
    norms = stage_map(run, "AttnRes-N")[layer]
    ratio = mixing_ratio(run, "AttnRes-N")[layer]
    mistakes = {
        "these are sums of norms; add the vectors of the other tokens first": (
            1 - norms.diagonal() / norms.sum(dim=-1)
        ),
        "this is the share that is kept; the question is the share that is mixed in": 1 - ratio,
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
    rate = rates[_validate.index("layer", layer, len(rates))]
    D = model.network.config.hidden_size
    mistakes = {
        "the division by the square root of D + 1 is missing": rate * (D + 1) ** 0.5,
        "this is the square; take the square root": rate**2,
        "the lower right corner, 1, is missing": (rate**2 - 1 / (D + 1)).sqrt(),
    }
    judge(answer, rate, mistakes)


def _has_norm(run: Trace) -> bool:
    """Whether the run has a LayerNorm after its residual connection; prints one line if not."""
    if "AttnResLn-N" in run.stages:
        return True
    if run.is_cross:
        print("Not yet: this exercise needs self-attention, and this run is of cross-attention.")
        return False
    print("Not yet: this exercise needs a model with LayerNorm after the residual connection.")
    return False


def _scale(y: Tensor, block: Block) -> Tensor:
    """γ / s(y): (T, D)."""
    return block.gamma / s(y, block.eps)
