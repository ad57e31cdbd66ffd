"""Checks of lesson 6, attention flow."""

import random
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from helpers import _validate
from helpers.checks.judge import attempt, judge
from helpers.paths import flow, rollout, with_residual


def check_bottleneck(answer: Callable, capacities: Tensor) -> None:
    """The student's bottleneck(A, path), a number, on some paths from the top to the input."""
    capacities = _validate.maps(capacities)
    L, T, _ = capacities.shape
    draw = random.Random(0)
    paths = [[draw.randrange(T) for _ in range(L + 1)] for _ in range(5)]

    def along(combine: Callable, A: Tensor) -> Tensor:
        """One number per path, combined from its pipes' widths, from the last layer down."""
        widths = [A.flip(0)[range(L), path[:-1], path[1:]] for path in paths]
        return torch.stack([combine(one) for one in widths])

    mistakes = {
        "this is the product, which rollout uses; the bottleneck is the narrowest pipe": (
            along(torch.prod, capacities)
        ),
        "the widths are added; the bottleneck is the narrowest pipe": along(torch.sum, capacities),
        "this is the widest pipe of the path; the narrowest decides": along(torch.max, capacities),
        "the path starts at the top, so its first pipe belongs to the last layer": (
            along(torch.min, capacities.flip(0))
        ),
        "rows and columns are swapped: from position i to position j is A[layer, i, j]": (
            along(torch.min, capacities.mT)
        ),
    }
    found = attempt(lambda: [answer(capacities, path) for path in paths])
    if found is not None:
        numbers = all(isinstance(x, float) or getattr(x, "shape", None) == () for x in found)
        found = capacities.new_tensor([float(x) for x in found]) if numbers else found[0]
        judge(found, along(torch.min, capacities), mistakes)


def check_flow_by_hand(answer, capacities: Tensor, query: int) -> None:
    """The flow from one position through all layers to each input, not normalised, (T,)."""
    correct = flow(capacities, residual=0, query=query, normalize=False)
    mistakes = {
        "this is rollout, which multiplies; use the narrowest pipe of each path": (
            rollout(capacities, residual=0)[-1, query]
        ),
        "the bottlenecks of all paths are added, but some paths share a pipe and fill it": (
            _bottlenecks(capacities, query).sum(dim=0)
        ),
        "this is the best single path; several paths can carry water at the same time": (
            _bottlenecks(capacities, query).max(dim=0).values
        ),
        "the flow is divided by its sum; leave it as it is": correct / correct.sum(),
    }
    listed = isinstance(answer, (list, tuple)) and len(answer) == len(correct)
    if listed and all(isinstance(x, (int, float)) for x in answer):
        answer = correct.new_tensor(answer)
    judge(answer, correct, mistakes)


def check_cap(answer, maps: Tensor, residual: float) -> None:
    """The cap on the flow to each input token, (T,): at most 1, and at most what can reach it."""
    A = with_residual(maps, residual)
    into = A[0].sum(dim=0)
    mistakes = {
        "no more than 1 can leave the query: take the smaller of 1 and the column sum": into,
        "these are the row sums, which are all 1; what reaches input j is in column j": (
            A[0].sum(dim=1)
        ),
        "this is the last layer; the pipes that end at the input are those of layer 1": (
            A[-1].sum(dim=0).clamp(max=1)
        ),
        "the residual is missing in the capacities": (
            with_residual(maps, 0)[0].sum(dim=0).clamp(max=1)
        ),
    }
    judge(answer, into.clamp(max=1), mistakes)


def check_flow_matrix(answer: Callable, capacities: Tensor, layer: int) -> None:
    """The student's flow_matrix(A, layer): all pairs after a layer, not normalised, (T, T)."""

    def after(layer: int) -> Tensor:
        return flow(capacities, residual=0, layer=layer, normalize=False)

    correct = after(layer)
    mistakes = {
        "rows and columns are swapped: row = query, column = input token": correct.T,
        "this is the flow from the last layer; the layers above the wanted one do not count": (
            after(-1)
        ),
        "this is one layer too few: layer counts from 0, so layer 0 has one row of pipes": (
            after(max(layer - 1, 0))
        ),
        "the rows are divided by their sums; leave the flow as it is": (
            correct / correct.sum(dim=-1, keepdim=True)
        ),
        "this is rollout: a matrix product, not a maximum flow": (
            rollout(capacities, residual=0)[layer]
        ),
        "nothing flows: the edges must run from the upper layer to the lower one": (
            torch.zeros_like(correct)
        ),
    }
    found = attempt(lambda: [answer(capacities, layer)])
    if found is not None:
        judge(found[0], correct, mistakes)


def _bottlenecks(A: Tensor, query: int) -> Tensor:
    """The narrowest pipe of every path from the query: (paths, T), by the input that it ends at."""
    L, T, _ = A.shape
    rows = []
    for between in product(range(T), repeat=L - 1):
        i, width = query, A.new_tensor(float("inf"))
        for n, j in zip(range(L - 1, 0, -1), between, strict=True):
            i, width = j, torch.minimum(width, A[n, i, j])
        rows.append(torch.minimum(width, A[0, i]))
    return torch.stack(rows)
