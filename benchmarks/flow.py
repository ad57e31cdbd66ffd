"""Attention flow against networkx's Edmonds–Karp, the way of the paper's authors.

    python -m benchmarks.flow

networkx is timed on a few pairs and extrapolated to all; its graph is built once, outside the
clock. Ours is timed whole: checks, graph and every pair.
"""

import random
import time

import networkx as nx
import torch
from torch import Tensor

from helpers import flow, load_model, stage_map, trace
from helpers.rollout import with_residual

TEXT = "The keys to the cabinet, which was locked yesterday, are on the table. She saw them."
PAIRS = 6  # timed with networkx
WANTED = 500  # times faster, at least


def rows() -> list[dict]:
    """One dictionary a measurement: what, ours_seconds, naive_seconds, ratio, note."""
    maps = stage_map(trace(load_model(), TEXT), "Attn-W")
    L, T, _ = maps.shape
    ours, values = _best(lambda: flow(maps, normalize=False), repeats=3)
    naive, difference = _edmonds_karp(maps, values)
    large = torch.softmax(torch.randn(12, 64, 64, generator=torch.Generator().manual_seed(0)), -1)
    one, _ = _best(lambda: flow(large, query=0), repeats=2)
    every, _ = _best(lambda: flow(large), repeats=1)
    note = f"networkx extrapolated from {PAIRS} pairs, values differ by at most {difference:.0e}"
    return [
        _row(f"flow, {L} layers × {T} tokens, all pairs", ours, note, naive * T * T),
        _row("flow, 12 layers × 64 tokens, one query", one, "wanted: under a second"),
        _row("flow, 12 layers × 64 tokens, all pairs", every, "wanted: about half a minute"),
    ]


def _edmonds_karp(maps: Tensor, values: Tensor) -> tuple[float, float]:
    """Mean seconds a pair, and the largest difference from `values`, over a few pairs."""
    A = with_residual(maps.double())
    L, T, _ = A.shape
    graph = nx.DiGraph()
    for n, i, j in A.nonzero().tolist():
        graph.add_edge((n + 1, i), (n, j), capacity=A[n, i, j].item())
    method = nx.algorithms.flow.edmonds_karp
    draw, seconds, differences = random.Random(0), 0.0, []
    for i, j in ((draw.randrange(T), draw.randrange(T)) for _ in range(PAIRS)):
        start = time.perf_counter()
        value = nx.maximum_flow_value(graph, (L, i), (0, j), flow_func=method)
        seconds += time.perf_counter() - start
        differences.append(abs(value - values[i, j].item()))
    return seconds / PAIRS, max(differences)


def _best(function, repeats: int) -> tuple[float, Tensor]:
    """Seconds of the fastest run, which other programs disturbed least, and the result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def _row(what: str, ours: float, note: str, naive: float | None = None) -> dict:
    ratio = None if naive is None else naive / ours
    if ratio is not None:
        note = f"wanted: at least {WANTED}×; {note}"
    return {
        "what": what,
        "ours_seconds": ours,
        "naive_seconds": naive,
        "ratio": ratio,
        "note": note,
    }


def main() -> None:
    """Print the measurements as a small table."""
    print(f"{'what':42} {'ours s':>8} {'naive s':>8} {'ratio':>7}  note")
    for row in rows():
        naive = "" if row["ratio"] is None else f"{row['naive_seconds']:.1f}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.0f}×"
        print(f"{row['what']:42} {row['ours_seconds']:8.3f} {naive:>8} {ratio:>7}  {row['note']}")


if __name__ == "__main__":
    main()
