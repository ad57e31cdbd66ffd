"""Exercises of lesson 6: stub, solution, and the hint for each mistake."""

from itertools import pairwise

import pytest
import torch
from exercises import NONSENSE, guides, passes_and_hints

from helpers import checks, flow, rollout, stage_map, trace
from helpers.rollout import with_residual

HAND = torch.tensor([[1, 0, 0], [0.25, 0.75, 0], [0, 0.25, 0.75]]).expand(3, 3, 3)


@pytest.fixture(scope="module")
def maps(minilm):
    return stage_map(trace(minilm, "The keys to the cabinet are on the table."), "Attn-W")


def widths(A, path):
    return [A[-1 - n, i, j].item() for n, (i, j) in enumerate(pairwise(path))]


def bottleneck(A, path):
    return min(widths(A, path))


def flow_matrix(A, layer):
    return flow(A, residual=0, layer=layer, normalize=False)


def exercises(maps):
    """(check, the arguments after the answer, right answer, {words of the hint: wrong answer})."""
    A = with_residual(maps, 0.5)
    yield (
        checks.check_bottleneck,
        (A,),
        bottleneck,
        {
            "product": lambda A, path: torch.tensor(widths(A, path)).prod(),
            "added": lambda A, path: sum(widths(A, path)),
            "widest": lambda A, path: max(widths(A, path)),
            "last layer": lambda A, path: bottleneck(A.flip(0), path),
            "exchanged": lambda A, path: bottleneck(A.mT, path),
            "raises IndexError": lambda A, path: A[len(path)],
            "raises KeyError: ": lambda A, path: {}["a"],
            "got None": lambda A, path: None,
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
            "exchanged": lambda A, layer: flow_matrix(A, layer).T,
            "from the last layer": lambda A, layer: flow_matrix(A, -1),
            "one layer too few": lambda A, layer: flow_matrix(A, layer - 1),
            "divided by their sums": lambda A, layer: flow(A, residual=0, layer=layer),
            "this is rollout": lambda A, layer: rollout(A, 0)[layer],
            "nothing flows": lambda A, layer: torch.zeros_like(A[0]),
            "raises ZeroDivisionError": lambda A, layer: 1 / 0,
            "expected a tensor of shape (12, 12)": lambda A, layer: None,
        },
    )


@pytest.mark.parametrize("number", range(4))
def test_the_solution_passes_and_each_mistake_gets_its_hint(capsys, maps, number):
    passes_and_hints(capsys, list(exercises(maps))[number])


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("answer", NONSENSE)
def test_nonsense_gets_one_line_of_guidance(capsys, maps, number, answer):
    guides(capsys, list(exercises(maps))[number], answer)


def test_the_example_of_the_exercise_by_hand():
    """Row 3 of three layers, and a sum of bottlenecks that is too large for the shared pipes."""
    torch.testing.assert_close(
        flow(HAND, residual=0, query=2, normalize=False), torch.tensor([0.5, 0.75, 0.75])
    )
