"""Checks of lesson 5, attention rollout."""

import torch

from helpers.arguments import check_index
from helpers.checks.judge import judge, kind, whole
from helpers.rollout import rollout, with_residual
from helpers.stages import mixing_ratio, stage_map
from helpers.trace import Trace, check_run


def check_rollout(answer, run: Trace, residual: float) -> None:
    """Rollout over Attn-W with one number as residual, all layers, (L, T, T)."""
    maps = stage_map(run, "Attn-W")
    correct = rollout(maps, residual)
    mixed = with_residual(maps, residual)
    reverse = [mixed[0]]
    for one in mixed[1:]:
        reverse.append(reverse[-1] @ one)
    mistakes = {
        "the order is turned: the later layer stands on the left": torch.stack(reverse),
        "the identity is missing": rollout(maps, 0.0),
        "residual is the share of the identity, not of the map": rollout(maps, 1 - residual),
        "these are the maps of single layers; multiply them": mixed,
        "all layers are wanted, (L, T, T), not only the last": correct[-1:].squeeze(0),
        "use the given residual, not 0.5": rollout(maps, 0.5),
    }
    judge(answer, correct, mistakes)


def check_measured_residual(answer, run: Trace) -> None:
    """Attn-W with 1 − r on the diagonal and the rest of each row sharing r, (L, T, T)."""
    maps, r = stage_map(run, "Attn-W"), mixing_ratio(run, "AttnResLn-N")
    identity = torch.eye(maps.shape[-1])
    mistakes = {
        "a_ii is counted twice: take the map's own diagonal out first": (
            r[..., None] * maps + torch.diag_embed(1 - r)
        ),
        "r and 1 − r are exchanged: 1 − r is what is kept": with_residual(maps, r),
        "the other entries must be divided by their sum, so that a row sums to 1": (
            r[..., None] * maps * (1 - identity) + torch.diag_embed(1 - r)
        ),
        "r belongs to rows: r[..., None], not r[:, None]": _by_columns(maps, r),
    }
    judge(answer, with_residual(maps, 1 - r), mistakes)


def check_takeover(answer, run: Trace, position: int) -> None:
    """The layer, from 1, after which the first token has more of a position than itself.

    `position` is that of another token than the first.
    """
    check_run(run)
    position = 1 + check_index("position", position, len(run.tokens) - 1, 1, from_end=False)
    rows = rollout(stage_map(run, "Attn-W"))[:, position]
    over = (rows[:, 0] > rows[:, position]).tolist()
    layer = over.index(True) + 1 if True in over else None
    if answer is None and layer is None:
        print("Correct: it never happens here.")
        return
    number = whole(answer, 1)
    if number is None:
        print(f"Not yet: expected the number of a layer, got {kind(answer)}.")
        return
    (number,) = number
    if number == layer:
        print("Correct.")
    elif layer is not None and number == layer - 1:
        print("Not yet: count the layers from 1, or compare with > and not before it holds.")
    elif number == over.count(False) + 1 or number == len(over):
        print("Not yet: the first layer where it holds is wanted, not the last.")
    else:
        print(
            "Not yet: compare column 0 with the column of the position, in the row of the position."
        )


def _by_columns(maps: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    others = maps * (1 - torch.eye(maps.shape[-1]))
    shares = others / others.sum(dim=-1, keepdim=True)
    return r[:, None] * shares + torch.diag_embed(1 - r)
