"""Checks of lesson 2, norm-based analysis."""

import torch

from helpers import _validate
from helpers.block import stage_map
from helpers.checks.judge import judge
from helpers.norms import transformed_norms, weighted_norms
from helpers.tables import categories
from helpers.tracing import Trace


def check_transformed_norms(answer, run: Trace, layer: int) -> None:
    """The lengths of the transformed vectors of one layer, (H, S)."""
    _validate.run(run)
    layer = _validate.index("layer", layer, len(run.blocks))
    block = run.blocks[layer]
    values = torch.einsum("sd,hde->hse", block.x, block.W_V)
    output = torch.einsum("hse,hed->hsd", values, block.W_O)
    mistakes = {
        "W_O is missing: f multiplies by the head's part of W_O too": (
            values + block.b_V[:, None]
        ).norm(dim=-1),
        "b_V is missing: it belongs inside f": output.norm(dim=-1),
        "b_O is inside f; it belongs to no head": (
            torch.einsum("hse,hed->hsd", values + block.b_V[:, None], block.W_O) + block.b_O
        ).norm(dim=-1),
        "heads and keys are swapped: heads come first, then keys": transformed_norms(run)[layer].T,
    }
    judge(answer, transformed_norms(run)[layer], mistakes)


def check_attn_n(answer, run: Trace, layer: int) -> None:
    """The map Attn-N of one layer, (T, S), the norm of the sum over heads."""
    _validate.run(run)
    layer = _validate.index("layer", layer, len(run.blocks))
    norms = weighted_norms(run)[layer]
    correct = stage_map(run, "Attn-N")[layer]
    mistakes = {
        "this is the sum of the heads' norms; add the vectors first, then take the norm": (
            norms.sum(dim=0)
        ),
        "this is the mean of the heads' norms; add the vectors first, then take the norm": (
            norms.mean(dim=0)
        ),
        "rows and columns are swapped: row = query, column = key": correct.T,
        "each row is divided by its sum; the raw norms are wanted": (
            correct / correct.sum(dim=-1, keepdim=True)
        ),
    }
    judge(answer, correct, mistakes)


def check_norm_share(answer, run: Trace, category: str) -> None:
    """The share of norm that goes to one token category, per layer, (L,)."""
    _validate.run(run)
    if category not in categories(run):
        print(f"Not yet: the text has no token of category {category!r}; choose another category.")
        return
    member = [n for n, name in enumerate(categories(run)) if name == category]
    norm, weight = stage_map(run, "Attn-N"), stage_map(run, "Attn-W")
    total = norm.sum(dim=-1)
    mistakes = {
        "this is the share of weight; use the map Attn-N": weight[..., member].sum(-1).mean(-1),
        "divide each row by its own sum first, then take the mean over rows": (
            norm[..., member].sum(dim=(-2, -1)) / total.sum(dim=-1)
        ),
        "this is not divided by the sum over all keys": norm[..., member].sum(-1).mean(-1),
        "this is the mean over the category's tokens; add them up": (
            (norm / total[..., None])[..., member].mean(dim=(-2, -1))
        ),
    }
    judge(answer, (norm[..., member].sum(-1) / total).mean(dim=-1), mistakes)


def check_disagreement(answer, run: Trace) -> None:
    """How far apart the rows of weights and of norms are, per head, (L, H), in [0, 1]."""
    _validate.run(run)
    norm = weighted_norms(run)
    share = norm / norm.sum(dim=-1, keepdim=True)
    gap = (run.attention - share).abs()
    mistakes = {
        "half of the sum is wanted, so that 1 is the largest possible": gap.sum(-1).mean(-1),
        "divide each row of norms by its sum before the comparison": (
            0.5 * (run.attention - norm).abs().sum(-1).mean(-1)
        ),
        "sum over the keys first, then take the mean over the queries": 0.5 * gap.mean((-2, -1)),
    }
    judge(answer, 0.5 * gap.sum(-1).mean(-1), mistakes)
