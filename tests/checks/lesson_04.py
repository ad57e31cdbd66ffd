"""Exercises of lesson 4, as in lesson_01.py."""

from helpers import checks, expansion_rate, mixing_ratio, stage_map
from helpers.norms import whole


def exercises(model, run):
    block = run.blocks[4]

    def s(y):
        return (y.var(dim=-1, correction=0, keepdim=True) + block.eps).sqrt()

    def centred(v):
        return v - v.mean(dim=-1, keepdim=True)

    yield (
        checks.check_layernorm_part,
        (run, 4),
        lambda v, y, g, e: centred(v) / s(y) * g,
        {
            "comes from the part": lambda v, y, g, e: centred(v) / s(v) * g,
            "not centred": lambda v, y, g, e: v / s(y) * g,
            "mean of y": lambda v, y, g, e: (v - y.mean(dim=-1, keepdim=True)) / s(y) * g,
            "γ is missing": lambda v, y, g, e: centred(v) / s(y),
            "β belongs to no part": lambda v, y, g, e: centred(v) / s(y) * g + block.beta,
            "raises TypeError": lambda v, y: v,
        },
    )

    def normed(y):
        return centred(y) / s(y) * block.gamma + block.beta

    y = whole(block) + block.b_O + block.residual
    yield (
        checks.check_block_output,
        (run, 4),
        normed(y),
        {
            "residual connection is missing": normed(y - block.residual),
            "b_O is missing": normed(y - block.b_O),
            "β is missing": normed(y) - block.beta,
            "LayerNorm is missing": y,
            "γ is missing": centred(y) / s(y) + block.beta,
        },
    )
    ratio, norms = mixing_ratio(run, "AttnRes-N")[4], stage_map(run, "AttnRes-N")[4]
    yield (
        checks.check_mixing_ratio,
        (run, 4),
        ratio,
        {
            "sums of norms": 1 - norms.diagonal() / norms.sum(dim=-1),
            "that is kept": 1 - ratio,
            "residual is missing": mixing_ratio(run, "Attn-N")[4],
            "AttnResLn-N": mixing_ratio(run, "AttnResLn-N")[4],
            "alone": ratio / (1 - ratio),
        },
    )
    rate, D = expansion_rate(model)[0], 384
    yield (
        checks.check_expansion_rate,
        (model, 0),
        rate,
        {
            "D + 1": rate * (D + 1) ** 0.5,
            "square root": rate**2,
            "lower right": (rate**2 - 1 / (D + 1)) ** 0.5,
        },
    )
