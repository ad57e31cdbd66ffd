"""Exercises of lesson 5, as in lesson_01.py."""

from dataclasses import replace
from functools import reduce

import torch

from helpers import checks, mixing_ratio, rollout, stage_map
from helpers.paths import with_residual


def exercises(model, run):
    A = stage_map(run, "Attn-W")
    mixed = with_residual(A, 0.3)
    yield (
        checks.check_rollout,
        (run, 0.3),
        rollout(A, 0.3),
        {
            "reversed": torch.stack([reduce(torch.matmul, mixed[: n + 1]) for n in range(len(A))]),
            "identity is missing": rollout(A, 0),
            "not of the map": rollout(A, 0.7),
            "single layers": mixed,
            "not only the last": rollout(A, 0.3)[-1],
            "not 0.5": rollout(A, 0.5),
        },
    )
    r, identity = mixing_ratio(run, "AttnResLn-N"), torch.eye(A.shape[-1])
    others, keep = A * (1 - identity), torch.diag_embed(1 - r)
    yield (
        checks.check_measured_residual,
        (run,),
        with_residual(A, 1 - r),
        {
            "counted twice": r[..., None] * A + keep,
            "swapped": with_residual(A, r),
            "divided by their sum": r[..., None] * others + keep,
            "r belongs to rows": r[:, None] * others / others.sum(dim=-1, keepdim=True) + keep,
        },
    )
    mistakes = {
        "from 0": 2,
        "not the last": 5,
        "column 0": 0,
        "got None": None,
        "type float": 2.7,
        "type str": "2",
    }
    yield checks.check_takeover, (run, 2), 1, mistakes
    identity = identity.expand_as(run.blocks[0].attention)
    alone = replace(run, blocks=[replace(block, attention=identity) for block in run.blocks])
    yield checks.check_takeover, (alone, 2), None, {"column 0": 5}
