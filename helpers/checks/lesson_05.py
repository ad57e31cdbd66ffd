"""Checks of lesson 5, attention rollout."""

import torch

from helpers import _validate
from helpers.block import mixing_ratio, stage_map
from helpers.checks.judge import judge, kind, whole
from helpers.paths import rollout, with_residual
from helpers.tracing import Trace


def check_rollout(answer, run: Trace, residual: float) -> None:
    """Rollout over Attn-W with one number as residual, all layers, (L, T, T)."""
    maps = stage_map(run, "Attn-W")
    correct = rollout(maps, residual)
    mixed = with_residual(maps, residual)
    reverse = [mixed[0]]
    for one in mixed[1:]:
        reverse.append(reverse[-1] @ one)
    mistakes = {
        "the order is reversed: the later layer goes on the left": torch.stack(reverse),
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
    others = maps * (1 - torch.diag_embed(torch.ones_like(r)))
    mistakes = {
        "a_ii is counted twice: take the map's own diagonal out first": (
            r[..., None] * maps + torch.diag_embed(1 - r)
        ),
        "r and 1 − r are swapped: 1 − r is what is kept": with_residual(maps, r),
        "the other entries must be divided by their sum, so that a row sums to 1": (
            r[..., None] * others + torch.diag_embed(1 - r)
        ),
        "r belongs to rows: r[..., None], not r[:, None]": (
            r[:, None] * others / others.sum(dim=-1, keepdim=True) + torch.diag_embed(1 - r)
        ),
    }
    judge(answer, with_residual(maps, 1 - r), mistakes)


def check_takeover(answer, run: Trace, position: int) -> None:
    """The first layer after which a position holds more of the first token than of its own.

    The position, which is not that of the first token, and the layer count from 0. The answer is
    None where it never happens.
    """
    _validate.run(run)
    position = _validate.index("position", position, len(run.tokens))
    rows = rollout(stage_map(run, "Attn-W"))[:, position]
    over = (rows[:, 0] > rows[:, position]).tolist()
    layer = over.index(True) if True in over else None
    if answer is None and layer is None:
        print("Correct: it never happens here.")
        return
    number = whole(answer, 1)
    if number is None:
        print(f"Not yet: expected the index of a layer, got {kind(answer)}.")
        return
    late = (
        {}
        if layer is None
        else {
            len(over) - 1: "the first layer where it holds is wanted, not the last",
            layer + 1: "count the layers from 0, and take the first one where it holds",
        }
    )
    if number == (layer,):
        print(f"Correct: layer {layer + 1} in the papers' counting.")
    else:
        here = "compare column 0 with the column of the position, in the row of the position"
        print(f"Not yet: {late.get(number[0], here)}.")
