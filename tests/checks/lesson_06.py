"""Exercises of lesson 6, as in lesson_01.py."""

from itertools import pairwise

import torch

from helpers import checks, flow, rollout, stage_map, trace
from helpers.paths import with_residual

# In row 3 the bottlenecks of all paths add up to more than the pipes that these paths share.
HAND = torch.tensor([[1, 0, 0], [0.25, 0.75, 0], [0, 0.25, 0.75]]).expand(3, 3, 3)


def widths(A, path):
    return [A[-1 - n, i, j].item() for n, (i, j) in enumerate(pairwise(path))]


def bottleneck(A, path):
    return min(widths(A, path))


def flow_matrix(A, layer):
    return flow(A, residual=0, layer=layer, normalize=False)


def exercises(model, run):
    maps = stage_map(trace(model, "The keys are on the table."), "Attn-W")
    A = with_residual(maps, 0.5)
    yield (
        checks.check_bottleneck,
        (A,),
        bottleneck,
        {
            "product": lambda A, path: torch.tensor(widths(A, path), device="cpu").prod(),
            "added": lambda A, path: sum(widths(A, path)),
            "widest": lambda A, path: max(widths(A, path)),
            "last layer": lambda A, path: bottleneck(A.flip(0), path),
            "swapped": lambda A, path: bottleneck(A.mT, path),
            "raises IndexError": lambda A, path: A[len(path)],
            "raises KeyError: ": lambda A, path: {}["a"],
        },
    )
    yield (
        checks.check_flow_by_hand,
        (HAND, 2),
        [0.5, 0.75, 0.75],
        {
            "multiplies": rollout(HAND, 0)[-1, 2],
            "share a pipe": [0.75, 0.75, 0.75],
            "best single path": (0.25, 0.25, 0.75),
            "divided by its sum": [0.25, 0.375, 0.375],
            "differ by up to 0.25": [0.5, 0.5, 0.75],
        },
    )
    columns = A[0].sum(dim=0)
    yield (
        checks.check_cap,
        (maps, 0.5),
        columns.clamp(max=1),
        {
            "no more than 1": columns,
            "row sums": A[0].sum(dim=1),
            "last layer": A[-1].sum(dim=0).clamp(max=1),
            "residual is missing": maps[0].sum(dim=0).clamp(max=1),
        },
    )
    yield (
        checks.check_flow_matrix,
        (A, 2),
        flow_matrix,
        {
            "swapped": lambda A, layer: flow_matrix(A, layer).T,
            "from the last layer": lambda A, layer: flow_matrix(A, -1),
            "one layer too few": lambda A, layer: flow_matrix(A, layer - 1),
            "divided by their sums": lambda A, layer: flow(A, residual=0, layer=layer),
            "this is rollout": lambda A, layer: rollout(A, 0)[layer],
            "nothing flows": lambda A, layer: torch.zeros_like(A[0]),
            "raises ZeroDivisionError": lambda A, layer: 1 / 0,
            "expected a tensor of shape (9, 9)": lambda A, layer: A,
        },
    )
