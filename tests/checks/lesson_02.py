"""Exercises of lesson 2, as in lesson_01.py."""

import torch

from helpers import checks, stage_map, transformed_norms, weighted_norms
from helpers.norms import transform, values


def exercises(model, run):
    block, f = run.blocks[2], transform(run.blocks[2])
    yield (
        checks.check_transformed_norms,
        (run, 2),
        transformed_norms(run)[2],
        {
            "W_O is missing": values(block).norm(dim=-1),
            "b_V is missing": (f - torch.einsum("he,hed->hd", block.b_V, block.W_O)).norm(dim=-1).T,
            "b_O is inside": (f + block.b_O).norm(dim=-1).T,
            "heads and keys are swapped": transformed_norms(run)[2].T,
        },
    )
    norms, maps = weighted_norms(run), stage_map(run, "Attn-N")
    yield (
        checks.check_attn_n,
        (run, 2),
        maps[2],
        {
            "sum of the heads' norms": norms[2].sum(dim=0),
            "mean of the heads' norms": norms[2].mean(dim=0),
            "swapped": maps[2].T,
            "divided by its sum": maps[2] / maps[2].sum(dim=-1, keepdim=True),
        },
    )
    member = torch.tensor([token in ",." for token in run.tokens])
    of_member, of_all = maps[..., member].sum(dim=-1), maps.sum(dim=-1)
    right = (of_member / of_all).mean(dim=-1)
    yield (
        checks.check_norm_share,
        (run, "punctuation"),
        right,
        {
            "share of weight": run.attention.mean(dim=1)[..., member].sum(dim=-1).mean(dim=-1),
            "divide each row": of_member.sum(dim=-1) / of_all.sum(dim=-1),
            "not divided": of_member.mean(dim=-1),
            "add them up": right / member.sum(),
        },
    )
    gap = (run.attention - norms / norms.sum(dim=-1, keepdim=True)).abs()
    yield (
        checks.check_disagreement,
        (run,),
        0.5 * gap.sum(dim=-1).mean(dim=-1),
        {
            "half": gap.sum(dim=-1).mean(dim=-1),
            "before the comparison": 0.5 * (run.attention - norms).abs().sum(dim=-1).mean(dim=-1),
            "sum over the keys": 0.5 * gap.mean(dim=(-2, -1)),
        },
    )
