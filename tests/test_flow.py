"""Flow: igraph's values against networkx's Edmonds–Karp, the properties, and bad input."""

import importlib
import random
from types import SimpleNamespace

import pytest
import reference
import torch
from hypothesis import given
from test_rollout import HAND, close, fixed, stacks, stacks_and_residuals

from helpers import flow, mixing_ratio, rollout, stage_map, trace
from helpers.rollout import with_residual

module = importlib.import_module("helpers.flow")  # the package's own name `flow` is the function


def random_stack(L: int, T: int, seed: int, sharp: float = 1.0) -> torch.Tensor:
    scores = torch.randn(L, T, T, generator=torch.Generator().manual_seed(seed)).double()
    return torch.softmax(sharp * scores, dim=-1)


def every_pair(maps, residual, layer):
    """Edmonds–Karp for all pairs; `layer` counts from 1 here, as the reference does."""
    T = maps.shape[-1]
    rows = [[reference.max_flow(maps, layer, i, j, residual) for j in range(T)] for i in range(T)]
    return torch.tensor(rows, dtype=torch.float64)


# --- the values ------------------------------------------------------------------------------


def test_by_hand():
    # Â_1 = [.5 .4 .1]   Â_2 = [.6 .1 .3]   Through two layers, one path a middle position k,
    #       [.2 .7 .1]         [ 0 .8 .2]   and no two paths share a pipe: the flow is
    #       [.1 .1 .8]         [.4  0 .6]   Σ_k min(Â_2[i, k], Â_1[k, j]).
    # i=0: .5+.1+.1 = .7   .4+.1+.1 = .6   .1+.1+.3 = .5   together 1.8
    # i=1:  0+.2+.1 = .3    0+.7+.1 = .8    0+.1+.2 = .3   together 1.4
    # i=2: .4+ 0+.1 = .5   .4+ 0+.1 = .5   .1+ 0+.6 = .7   together 1.7
    wanted = torch.tensor([[0.7, 0.6, 0.5], [0.3, 0.8, 0.3], [0.5, 0.5, 0.7]]).double()
    close(flow(HAND, normalize=False), wanted, rtol=0, atol=1e-7)
    shares = torch.stack([wanted[0] / 1.8, wanted[1] / 1.4, wanted[2] / 1.7])
    close(flow(HAND), shares, rtol=0, atol=1e-7)
    close(flow(HAND, query=1), shares[1], rtol=0, atol=1e-7)
    close(flow(HAND, query=-1, normalize=False), wanted[2], rtol=0, atol=1e-7)


def test_a_bottleneck_in_the_middle_by_hand():
    # No residual. Two positions x in layer 2 above two positions y in layer 1; from y to either
    # input leads a pipe of .5. From query 0, pipes of .9 and .1 lead to x0 and x1.
    # x0 reaches only y0, so y0 passes its .5 on; y1 hears of x1 alone, which has .1: together .6.
    # From query 1 all goes to x1: .25 to y0, .75 to y1, which passes .5 on: together .75.
    maps = torch.tensor([[[0.5, 0.5], [0.5, 0.5]], [[1, 0], [0.25, 0.75]], [[0.9, 0.1], [0, 1]]])
    wanted = torch.tensor([[0.6, 0.6], [0.75, 0.75]])
    close(flow(maps, residual=0, normalize=False), wanted)


@fixed
@given(stacks_and_residuals(tokens=4))
def test_equals_edmonds_karp(example):
    layers = len(example[0])
    values = flow(*example, normalize=False)
    close(values, every_pair(*example, layers), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("L", "T", "sharp"), [(2, 6, 1), (4, 5, 3), (6, 4, 6)])
def test_equals_edmonds_karp_on_random_stacks(L, T, sharp):
    maps = random_stack(L, T, seed=L, sharp=sharp)
    for residual in (0.5, 0, torch.rand(L, T, generator=torch.Generator().manual_seed(1))):
        values = flow(maps, residual, normalize=False)
        close(values, every_pair(maps, residual, L), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("stage", "residual"),
    [("Attn-W", 0.5), ("AttnResLn-N", 0), ("AttnResLn-N", "measured")],
)
def test_equals_edmonds_karp_on_minilm(minilm, stage, residual):
    short = trace(minilm, "The keys to the cabinet are here.")
    maps = stage_map(short, stage).double()
    if residual == "measured":
        residual = (1 - mixing_ratio(short, stage)).double()
    values = flow(maps, residual, normalize=False)
    draw, (L, T, _) = random.Random(0), maps.shape
    for i, j in [(draw.randrange(T), draw.randrange(T)) for _ in range(5)]:
        assert values[i, j].item() == pytest.approx(
            reference.max_flow(maps, L, i, j, residual), abs=1e-6
        )
    assert (values < with_residual(maps, residual)[0].sum(dim=0).clamp(max=1) - 1e-3).any()


def test_capacities_keep_their_precision():
    # float32 maps go through the network in float64: no row can let more than 1 through.
    values = flow(random_stack(3, 30, seed=0, sharp=0.1).float(), normalize=False)
    assert values.dtype == torch.float32 and values.max() <= 1


# --- properties ------------------------------------------------------------------------------


@fixed
@given(stacks_and_residuals())
def test_first_layer_equals_rollout(example):
    A = with_residual(*example)[0]
    for normalize in (False, True):
        close(flow(*example, layer=0, normalize=normalize), A, rtol=0, atol=1e-12)
    close(rollout(*example)[0], A)


@fixed
@given(stacks_and_residuals())
def test_between_rollout_and_the_cap(example):
    R, into_the_sink = rollout(*example), with_residual(*example)[0].sum(dim=0)
    for layer in range(len(R)):
        values = flow(*example, layer=layer, normalize=False)
        assert (values >= R[layer] - 1e-12).all()
        assert (values <= into_the_sink.clamp(max=1) + 1e-12).all()


@fixed
@given(stacks_and_residuals())
def test_normalize_divides_each_row_by_its_sum(example):
    values = flow(*example, normalize=False)
    shares = flow(*example)
    close(shares, values / values.sum(dim=1, keepdim=True))
    close(shares.sum(dim=1), torch.ones(len(shares), dtype=torch.float64))
    for query in range(-len(shares), len(shares)):
        close(flow(*example, query=query), shares[query])
        close(flow(*example, query=query, normalize=False), values[query])


@pytest.mark.parametrize("T", [2, 3, 6])
@pytest.mark.parametrize("c", [0.5, 0.7, 0.9])
def test_uniform_attention_has_a_closed_form(T, c):
    # Off the diagonal every pipe holds u = (1 − c)/T, on it c + u.
    # i = j: u or c + u from one layer; from two layers on 1, all that leaves i: it spreads over
    # all positions in the first step, runs straight down, and gathers in the last step.
    # i ≠ j: let S be the nodes (l, i), …, (1, i). Out of S lead T − 1 pipes a layer from l to 2,
    # and one, to the input j, from layer 1: ((l − 1)(T − 1) + 1) u, a cut. Each of these pipes
    # can be filled: leave i at one step for k, enter j at the next. The straight pipes of i
    # and j hold it for c ≥ 1/2, as long as no more than 1 leaves i or reaches j.
    L, u = 7, (1 - c) / T
    maps = torch.full((L, T, T), 3.0, dtype=torch.float64)
    own = torch.eye(T, dtype=torch.bool)
    for l in range(1, L + 1):
        apart = min(1.0, ((l - 1) * (T - 1) + 1) * u)
        wanted = torch.where(own, c + u if l == 1 else 1.0, apart).double()
        close(flow(maps, residual=c, layer=l - 1, normalize=False), wanted)


@fixed
@given(stacks_and_residuals())
def test_permuting_tokens_permutes_the_result(example):
    maps, residual = example
    p = random.Random(0).sample(range(maps.shape[-1]), maps.shape[-1])
    moved = residual[:, p] if isinstance(residual, torch.Tensor) else residual
    close(flow(maps[:, p][:, :, p], moved), flow(maps, residual)[p][:, p])


@fixed
@given(stacks())
def test_residual_of_one_is_the_identity(maps):
    L, T, _ = maps.shape
    for residual in (1, torch.ones(L, T)):
        close(flow(maps, residual), torch.eye(T, dtype=torch.float64))


def test_what_can_not_be_reached_is_zero():
    # Layer 1 reads token i + 1, layer 2 reads i + 2: together i + 3, all modulo 5, nothing else.
    own = torch.eye(5)
    maps = torch.stack([own.roll(1, dims=1), own.roll(2, dims=1)])
    assert torch.equal(flow(maps, residual=0), own.roll(3, dims=1))


def test_causal_maps_stay_causal():
    # The first position reads only itself (a_00 = 1), so it keeps everything at any ratio.
    maps = random_stack(4, 5, seed=2).tril()
    for residual in (0.5, torch.full((4, 5), 0.3).double()):
        values = flow(maps, residual, normalize=False)
        assert (values.triu(1) == 0).all() and values[0, 0] == pytest.approx(1)
        close(values, every_pair(maps, residual, 4), rtol=0, atol=1e-6)


def test_one_token():
    assert flow(torch.full((3, 1, 1), 0.2)).tolist() == [[1.0]]


# --- the layer -------------------------------------------------------------------------------


def test_layers_above_change_nothing():
    maps = random_stack(5, 6, seed=3, sharp=3)
    kept = torch.rand(5, 6, generator=torch.Generator().manual_seed(4)).double()
    for layer in range(5):
        below = flow(maps[: layer + 1], kept[: layer + 1])
        assert torch.equal(flow(maps, kept, layer=layer), below)
        assert torch.equal(flow(maps, kept, layer=layer - 5), below)
    assert torch.equal(flow(maps, kept), flow(maps, kept, layer=4))
    assert not torch.allclose(flow(maps, kept, layer=3), flow(maps, kept, layer=4), atol=1e-3)


def test_the_graph_ends_at_the_layer_and_has_no_empty_pipes(monkeypatch):
    built = []

    class Graph(module.igraph.Graph):
        def maxflow_value(self, *args):
            built.append((self.vcount(), self.ecount()))
            return super().maxflow_value(*args)

    monkeypatch.setattr(module, "igraph", SimpleNamespace(Graph=Graph))
    flow(random_stack(5, 4, seed=0).tril(), layer=1)
    assert set(built) == {(3 * 4, 2 * 10)} and len(built) == 16
    built.clear()
    flow(random_stack(5, 4, seed=0), query=2)
    assert set(built) == {(6 * 4, 5 * 16)} and len(built) == 4


# --- types, bad input, the progress bar --------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32])
def test_other_types_are_computed_in_float32(dtype):
    maps = torch.tensor([[[3, 1], [0, 2]], [[1, 1], [2, 1]]]).to(dtype)
    assert torch.equal(flow(maps), flow(maps.float()))
    assert flow(maps).dtype == torch.float32 and flow(maps.double()).dtype == torch.float64


def test_maps_that_carry_gradients():
    assert torch.equal(flow(HAND.clone().requires_grad_()), flow(HAND))


BAD = {
    "layer too large": ({"layer": 2}, ["layer", "from 0 to 1, or from -2 to -1", "got 2"]),
    "layer too small": ({"layer": -3}, ["layer", "from 0 to 1, or from -2 to -1", "got -3"]),
    "layer no integer": ({"layer": 1.0}, ["layer", "whole number", "got 1.0"]),
    "layer text": ({"layer": "last"}, ["layer", "whole number", "'last'"]),
    "layer bool": ({"layer": True}, ["layer", "whole number", "True"]),
    "layer none": ({"layer": None}, ["layer", "whole number", "None"]),
    "query too large": ({"query": 3}, ["query", "from 0 to 2, or from -3 to -1", "got 3"]),
    "query too small": ({"query": -4}, ["query", "from 0 to 2, or from -3 to -1", "got -4"]),
    "query no integer": ({"query": 0.5}, ["query", "whole number", "got 0.5"]),
    "query a token": ({"query": "keys"}, ["query", "whole number", "'keys'"]),
    "query bool": ({"query": False}, ["query", "whole number", "False"]),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD.keys())
def test_bad_indices_are_named_in_one_sentence(arguments, words):
    with pytest.raises(ValueError) as error:
        flow(HAND, **arguments)
    text = str(error.value)
    assert text.startswith(words[0]) and text.endswith(".") and "\n" not in text
    assert all(word in text for word in words) and "0" in text, text


def test_short_runs_print_nothing(capfd):
    flow(HAND)
    assert capfd.readouterr() == ("", "")
