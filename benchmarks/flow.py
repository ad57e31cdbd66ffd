"""Attention flow against networkx's Edmonds–Karp, the way of the paper's authors.

networkx is timed on a few pairs and extrapolated to all; its graph is built once, outside the
clock. Ours is timed whole: checks, graph and every pair.
"""

import random
from collections.abc import Iterator

import networkx as nx
import torch

from benchmarks.measure import row, seconds
from helpers import flow, load_model, stage_map, trace
from helpers.paths import with_residual

TEXT = "The keys to the cabinet, which was locked yesterday, are on the table. She saw them."
PAIRS = 6  # timed with networkx


def rows() -> Iterator[dict]:
    maps = stage_map(trace(load_model(), TEXT), "Attn-W")
    L, T, _ = maps.shape
    what = f"flow, {L} layers × {T} tokens, all pairs"
    yield row(what, seconds(flow, maps), edmonds_karp(maps) * T * T, "≥ 500")
    large = torch.softmax(torch.randn(12, 64, 64, generator=torch.Generator().manual_seed(0)), -1)
    one, every = seconds(lambda: flow(large, query=0)), seconds(flow, large)
    yield row("flow, 12 layers × 64 tokens, one query", one, None, "under a second")
    yield row("flow, 12 layers × 64 tokens, all pairs", every, None, "about half a minute")


def edmonds_karp(maps: torch.Tensor) -> float:
    """Mean seconds per pair of networkx, whose values must be ours."""
    A = with_residual(maps.double())
    L, T, _ = A.shape
    graph = nx.DiGraph()
    for n, i, j in A.nonzero().tolist():
        graph.add_edge((n + 1, i), (n, j), capacity=A[n, i, j].item())
    draw = random.Random(0)
    pairs = [(draw.randrange(T), draw.randrange(T)) for _ in range(PAIRS)]

    def values() -> list[float]:
        method = nx.algorithms.flow.edmonds_karp
        return [nx.maximum_flow_value(graph, (L, i), (0, j), flow_func=method) for i, j in pairs]

    found = flow(maps.double(), normalize=False)[tuple(zip(*pairs, strict=True))]
    torch.testing.assert_close(found, torch.tensor(values(), dtype=torch.float64))
    return seconds(values) / PAIRS
