"""AZ20: rollout and flow on paper, in closed form, and against a naive product and Edmonds–Karp."""

import random
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference
from oracle.compare import close, refused
from oracle.examples import models, stacks, stacks_and_residuals, texts

from helpers import (
    flow,
    globenc,
    mixing_ratio,
    paths,
    rollout,
    stage_map,
    trace,
    value_zeroing,
)
from helpers.paths import even_causal, with_residual

few = settings(max_examples=40)

# Two layers × three tokens, by hand, c = 0.5.
HAND = torch.tensor(
    [
        [[0.0, 0.8, 0.2], [0.4, 0.4, 0.2], [0.2, 0.2, 0.6]],
        [[0.2, 0.2, 0.6], [0.0, 0.6, 0.4], [0.8, 0.0, 0.2]],
    ],
    dtype=torch.float64,
)


def random_stack(L: int, T: int, seed: int, sharp: float = 1.0) -> torch.Tensor:
    scores = torch.randn(L, T, T, generator=torch.Generator().manual_seed(seed)).double()
    return torch.softmax(sharp * scores, dim=-1)


def random_ratios(L: int, T: int) -> torch.Tensor:
    return torch.rand(L, T, generator=torch.Generator().manual_seed(1)).double()


def edmonds_karp(maps, residual) -> torch.Tensor:
    """The flow of every pair, from the last layer."""
    L, T, _ = maps.shape
    rows = [[reference.max_flow(maps, L, i, j, residual) for j in range(T)] for i in range(T)]
    return torch.tensor(rows, dtype=torch.float64)


# --- by hand ------------------------------------------------------------------------------------


def test_by_hand():
    # Â_1 = 0.5 A_1 + 0.5 I = [.5 .4 .1]      Â_2 = 0.5 A_2 + 0.5 I = [.6 .1 .3]
    #                         [.2 .7 .1]                              [ 0 .8 .2]
    #                         [.1 .1 .8]                              [.4  0 .6]
    first = [[0.5, 0.4, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]]
    # R_2 = Â_2 Â_1, row by row:
    # .6 [.5 .4 .1] + .1 [.2 .7 .1] + .3 [.1 .1 .8] = [.30+.02+.03  .24+.07+.03  .06+.01+.24]
    #                 .8 [.2 .7 .1] + .2 [.1 .1 .8] = [.16+.02      .56+.02      .08+.16]
    # .4 [.5 .4 .1]                 + .6 [.1 .1 .8] = [.20+.06      .16+.06      .04+.48]
    second = [[0.35, 0.34, 0.31], [0.18, 0.58, 0.24], [0.26, 0.22, 0.52]]
    close(rollout(HAND), [first, second], 1e-7)
    # Flow through two layers: one path per middle position k, and no two paths share a pipe, so
    # that it is Σ_k min(Â_2[i, k], Â_1[k, j]).
    # i=0: .5+.1+.1 = .7   .4+.1+.1 = .6   .1+.1+.3 = .5   together 1.8
    # i=1:  0+.2+.1 = .3    0+.7+.1 = .8    0+.1+.2 = .3   together 1.4
    # i=2: .4+ 0+.1 = .5   .4+ 0+.1 = .5   .1+ 0+.6 = .7   together 1.7
    wanted = torch.tensor([[0.7, 0.6, 0.5], [0.3, 0.8, 0.3], [0.5, 0.5, 0.7]]).double()
    close(flow(HAND, normalize=False), wanted, 1e-7)
    close(flow(HAND), wanted / torch.tensor([[1.8], [1.4], [1.7]]), 1e-7)
    close(flow(HAND, query=1), wanted[1] / 1.4, 1e-7)
    close(flow(HAND, query=-1, normalize=False), wanted[2], 1e-7)
    close(flow(HAND, layer=0), first, 1e-7)


def test_a_measured_residual_by_hand():
    # Row [.5 .3 .2] keeps .8 and mixes .2: .3 and .2 share it as 3 to 2, so .12 and .08.
    # Row [.5 .5 0] keeps .25: .75 goes to the first token. Row [0 0 1] has no other to read.
    maps = torch.tensor([[[0.5, 0.3, 0.2], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]])
    kept = torch.tensor([[0.8, 0.25, 0.3]])
    wanted = [[[0.8, 0.12, 0.08], [0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]]
    close(with_residual(maps, kept), wanted)
    close(rollout(5 * maps, kept), wanted)


def test_a_measured_residual_where_a_row_almost_reads_itself_alone():
    # In float32, 1 + 3e-9 is 1: one minus the diagonal is 0, the sum of the others is not.
    maps = torch.tensor([[[1.0, 1e-9, 2e-9], [1e-9, 1.0, 0.0], [1e-30, 3e-30, 1e9]]])
    wanted = [[[0.4, 0.2, 0.4], [0.6, 0.4, 0.0], [0.15, 0.45, 0.4]]]
    close(with_residual(maps, torch.full((1, 3), 0.4)), wanted)


def test_a_bottleneck_in_the_middle_by_hand():
    # No residual. Two positions x in layer 2 above two positions y in layer 1; from y to either
    # input leads a pipe of .5. From query 0, pipes of .9 and .1 lead to x0 and x1.
    # x0 reaches only y0, so y0 passes its .5 on; y1 hears of x1 alone, which has .1: together .6.
    # From query 1 all goes to x1: .25 to y0, .75 to y1, which passes .5 on: together .75.
    maps = torch.tensor([[[0.5, 0.5], [0.5, 0.5]], [[1, 0], [0.25, 0.75]], [[0.9, 0.1], [0, 1]]])
    close(flow(maps, residual=0, normalize=False), [[0.6, 0.6], [0.75, 0.75]])


def test_rows_of_one_entry_are_followed_like_pointers():
    # Layer 1 reads token i + 1, layer 2 reads i + 2: together i + 3, all modulo 5, nothing else.
    own = torch.eye(5)
    maps = torch.stack([own.roll(1, dims=1), own.roll(2, dims=1)])
    assert torch.equal(rollout(maps, residual=0)[1], own.roll(3, dims=1))
    assert torch.equal(flow(maps, residual=0), own.roll(3, dims=1))


# --- against the naive oracle -------------------------------------------------------------------


@few
@given(stacks_and_residuals())
def test_rollout(example):
    close(with_residual(*example), reference.with_residual(*example), 1e-12)
    close(rollout(*example), reference.rollout(*example), 1e-12)


@few
@given(stacks_and_residuals(tokens=4))
def test_flow(example):
    close(flow(*example, normalize=False), edmonds_karp(*example), 1e-6)


@pytest.mark.parametrize(("L", "T", "sharp"), [(2, 6, 1), (4, 5, 3), (6, 4, 6)])
def test_flow_of_random_stacks(L, T, sharp):
    maps = random_stack(L, T, seed=L, sharp=sharp)
    for residual in (0.5, 0, random_ratios(L, T)):
        close(flow(maps, residual, normalize=False), edmonds_karp(maps, residual), 1e-6)


@pytest.mark.parametrize(
    ("stage", "residual"),
    [("Attn-W", 0.5), ("AttnRes-N", 0), ("AttnResLn-N", 0), ("AttnResLn-N", "measured")],
)
def test_minilm(minilm, stage, residual):
    """Five pairs of the flow, because the oracle is slow."""
    short = trace(minilm, "The keys to the cabinet are here.")
    maps, draw = stage_map(short, stage).double(), random.Random(0)
    if residual == "measured":
        residual = 1 - mixing_ratio(short, stage).double()
    close(rollout(maps, residual), reference.rollout(maps, residual), 1e-12)
    values, (L, T, _) = flow(maps, residual, normalize=False), maps.shape
    for i, j in [(draw.randrange(T), draw.randrange(T)) for _ in range(5)]:
        close(values[i, j], reference.max_flow(maps, L, i, j, residual), 1e-6)
    cap = with_residual(maps, residual)[0].sum(dim=0).clamp(max=1)
    assert (values < cap - 1e-3).any(), "not every pair is at the cap"


# --- closed forms and properties ----------------------------------------------------------------


@pytest.mark.parametrize("T", [1, 2, 5])
@pytest.mark.parametrize("c", [0, 0.3, 0.5, 1])
def test_rollout_of_uniform_attention(T, c):
    # With U = 1/T everywhere, U U = U. So Â = c I + (1 − c) U and, by induction,
    # R_l = c^l I + (1 − c^l) U: the own token's extra share shrinks by c at each layer.
    own, uniform = torch.eye(T), torch.full((T, T), 1 / T)
    wanted = torch.stack([c**n * own + (1 - c**n) * uniform for n in range(1, 6)])
    close(rollout(torch.ones(5, T, T), residual=c), wanted)


@pytest.mark.parametrize("T", [2, 3, 6])
@pytest.mark.parametrize("c", [0.5, 0.7, 0.9])
def test_flow_of_uniform_attention(T, c):
    # Off the diagonal every pipe holds u = (1 − c)/T, on it c + u.
    # i = j: u or c + u from one layer; from two layers on 1, all that leaves i: it spreads over
    # all positions in the first step, runs straight down, and gathers in the last step.
    # i ≠ j: let S be the nodes (l, i), …, (1, i). Out of S lead T − 1 pipes a layer from l to 2,
    # and one, to the input j, from layer 1: ((l − 1)(T − 1) + 1) u, a cut. Each of these pipes
    # can be filled: leave i at one step for k, enter j at the next. The straight pipes of i
    # and j hold it for c ≥ 1/2, as long as no more than 1 leaves i or reaches j.
    L, u = 7, (1 - c) / T
    maps = torch.full((L, T, T), 3.0, dtype=torch.float64)
    for l in range(1, L + 1):
        apart = min(1.0, ((l - 1) * (T - 1) + 1) * u)
        wanted = torch.full((T, T), apart).fill_diagonal_(c + u if l == 1 else 1.0)
        close(flow(maps, residual=c, layer=l - 1, normalize=False), wanted, 1e-6)


@few
@given(stacks_and_residuals())
def test_every_layer_of_both(example):
    """Rows sum to 1, layer 1 is Â_1, and the flow lies between rollout and the cap."""
    A, R = with_residual(*example), rollout(*example)
    close(R.sum(dim=-1), torch.ones(R.shape[:2]), 1e-12)
    assert torch.equal(R[0], A[0])
    for layer in range(len(R)):
        values, shares = (flow(*example, layer=layer, normalize=n) for n in (False, True))
        assert (values >= R[layer] - 1e-12).all()
        assert (values <= A[0].sum(dim=0).clamp(max=1) + 1e-12).all()
        close(shares, values / values.sum(dim=1, keepdim=True), 1e-12)
        if layer == 0:
            close(values, A[0], 1e-12)
    for query in range(-len(shares), len(shares)):
        assert torch.equal(flow(*example, query=query), shares[query])
        assert torch.equal(flow(*example, query=query, normalize=False), values[query])


@few
@given(stacks_and_residuals(), st.randoms(use_true_random=False))
def test_tokens_in_another_order(example, random):
    maps, residual = example
    p = random.sample(range(maps.shape[-1]), maps.shape[-1])
    moved = residual[:, p] if isinstance(residual, torch.Tensor) else residual
    close(rollout(maps[:, p][:, :, p], moved), rollout(maps, residual)[:, p][:, :, p], 1e-9)
    close(flow(maps[:, p][:, :, p], moved), flow(maps, residual)[p][:, p], 1e-9)


@few
@given(stacks())
def test_who_keeps_all_reads_nothing(maps):
    L, T, _ = maps.shape
    for residual in (1, torch.ones(L, T)):
        close(rollout(maps, residual), torch.eye(T).expand(L, T, T), 1e-12)
        close(flow(maps, residual), torch.eye(T), 1e-12)


@pytest.mark.parametrize("residual", [0.5, torch.full((4, 5), 0.3).double()])
def test_causal_maps_stay_causal(residual):
    """The first position reads only itself, so it keeps everything, whatever the ratio says."""
    maps = random_stack(4, 5, seed=2).tril()
    R, values = rollout(maps, residual), flow(maps, residual, normalize=False)
    assert not R.triu(1).any() and not values.triu(1).any()
    close(torch.stack([R[-1, 0, 0], values[0, 0]]), [1, 1], 1e-12)
    close(R, reference.rollout(maps, residual), 1e-12)
    close(values, edmonds_karp(maps, residual), 1e-6)


@settings(max_examples=50)
@given(models(), texts(), st.data())
def test_maps_of_any_model(model, text, data):
    """Whatever the maps are made of: rollout and flow give shares of the tokens."""
    run = trace(
        model, text, attention="encoder" if model.network.config.is_encoder_decoder else None
    )
    stage = data.draw(st.sampled_from(run.stages))
    maps, kept = stage_map(run, stage), 1 - mixing_ratio(run, stage)
    shares, flows = rollout(maps, kept), flow(maps, kept)
    assert (flow(maps, kept, normalize=False) >= shares[-1] - 1e-6).all()
    zeroed, ones = value_zeroing(model, text), torch.ones(maps.shape[:2])
    whole = [rollout(globenc(run), 0)] if run.blocks[0].second_gamma is not None else []
    whole += [rollout(zeroed, 0)] if (zeroed.sum(dim=-1) > 0).all() else []
    for result in (shares, *whole):
        assert (result >= 0).all()
        close(result.sum(dim=-1), ones)
    close(flows.sum(dim=-1), ones[0])


# --- the layer, the graph, types, devices -------------------------------------------------------


def test_layers_above_change_nothing():
    maps, kept = random_stack(5, 6, seed=3, sharp=3), random_ratios(5, 6)
    for layer in range(5):
        below = flow(maps[: layer + 1], kept[: layer + 1])
        assert torch.equal(flow(maps, kept, layer=layer), below)
        assert torch.equal(flow(maps, kept, layer=layer - 5), below)
    assert torch.equal(flow(maps, kept), flow(maps, kept, layer=4))
    assert (flow(maps, kept, layer=3) - flow(maps, kept, layer=4)).abs().max() > 1e-3


def test_the_graph_ends_at_the_layer_and_has_no_empty_pipes(monkeypatch):
    built = []

    class Graph(paths.igraph.Graph):
        def maxflow_value(self, *args):
            built.append((self.vcount(), self.ecount()))
            return super().maxflow_value(*args)

    monkeypatch.setattr(paths, "igraph", SimpleNamespace(Graph=Graph))
    flow(random_stack(5, 4, seed=0).tril(), layer=1)
    assert set(built) == {(3 * 4, 2 * 10)} and len(built) == 16
    built.clear()
    flow(random_stack(5, 4, seed=0), query=2)
    assert set(built) == {(6 * 4, 5 * 16)} and len(built) == 4


@pytest.mark.parametrize("function", [rollout, flow])
def test_types_and_gradients(function):
    """float64 stays; all else is computed in float32, flow in float64: no more than 1 flows."""
    maps = torch.tensor([[[200, 200], [0, 200]]] * 30)
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        found = function(maps.to(dtype))
        assert found.dtype == torch.float32 and torch.equal(found, function(maps.float()))
    assert function(HAND, torch.full((2, 3), 0.5)).dtype == torch.float64
    assert torch.equal(function(HAND.clone().requires_grad_()).detach(), function(HAND))
    assert flow(random_stack(3, 30, seed=0, sharp=0.1).float(), normalize=False).max() <= 1


@pytest.mark.parametrize("residual", [0.5, torch.full((2, 3), 0.3)], ids=["number", "tensor"])
def test_all_is_made_on_the_device_of_the_maps(residual, monkeypatch):
    """Whatever were made without a device would be "meta" here. numpy is not needed either."""
    monkeypatch.setattr(torch.Tensor, "numpy", None, raising=False)
    before = HAND.clone()
    with torch.device("meta"):
        found = rollout(HAND, residual), flow(HAND, residual), flow(HAND, residual, query=1)
    close(found[0], reference.rollout(HAND, residual))
    close(found[1], flow(HAND, residual))
    assert torch.equal(found[2], found[1][1]) and torch.equal(HAND, before)


def test_short_runs_print_nothing(capfd):
    flow(HAND)
    assert capfd.readouterr() == ("", "")


# Two causal layers × three tokens, by hand.
CAUSAL = torch.tensor(
    [
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.2, 0.6]],
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.4, 0.2, 0.4]],
    ],
    dtype=torch.float64,
)


def test_the_receptive_field_by_hand():
    """No residual: R_2 = A_2 A_1; even maps give E_2 E_1 = [1], [3/4, 1/4], [11, 5, 2] / 18."""
    R = torch.tensor([[1, 0, 0], [0.5, 0.5, 0], [0.58, 0.18, 0.24]], dtype=torch.float64)
    close(rollout(CAUSAL, residual=0)[-1], R, 1e-12)
    even = torch.tensor([[1, 0, 0], [3 / 4, 1 / 4, 0], [11 / 18, 5 / 18, 2 / 18]]).double()
    close(rollout(even_causal(CAUSAL), residual=0)[-1], even, 1e-7)
    share = R / even.where(even > 0, 1.0)
    expected = share / share.sum(dim=-1, keepdim=True)
    close(rollout(CAUSAL, residual=0, receptive_field=True)[-1], expected, 1e-7)
    close(expected[1], [0.25, 0.75, 0], 1e-7)


@few
@given(stacks_and_residuals())
def test_even_maps_reach_every_token_alike(drawn):
    """What the position alone explains is gone: each row is even over the tokens it can reach."""
    maps, residual = drawn
    maps = maps.tril() + torch.eye(maps.shape[-1])
    E = even_causal(maps)
    close(E.sum(dim=-1), torch.ones(maps.shape[:2]))
    found = rollout(E, residual, receptive_field=True)
    reached = (rollout(E, residual) > 0).double()
    close(found, reached / reached.sum(dim=-1, keepdim=True), 1e-9)
    raw, even = rollout(maps, residual), rollout(E, residual)
    expected = torch.where(even > 0, raw / even, 0.0)
    expected = expected / expected.sum(dim=-1, keepdim=True)
    close(rollout(maps, residual, receptive_field=True), expected, 1e-9)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("residual", [0.0, 0.5, torch.full((2, 3), 0.3)])
def test_flow_and_the_receptive_field(normalize, residual):
    raw, even = (flow(m, residual, normalize=False) for m in (CAUSAL, even_causal(CAUSAL)))
    expected = torch.where(even > 0, raw / even, 0.0)
    expected = expected / expected.sum(dim=-1, keepdim=True) if normalize else expected
    found = flow(CAUSAL, residual, normalize=normalize, receptive_field=True)
    close(found, expected, 1e-9)
    row = flow(CAUSAL, residual, query=1, normalize=normalize, receptive_field=True)
    close(row, expected[1], 1e-9)
    first = flow(CAUSAL, residual, layer=0, normalize=normalize, receptive_field=True)
    assert first.shape == (3, 3) and not torch.equal(first, found)


def test_the_receptive_field_is_for_causal_maps(tiny):
    for function in (rollout, flow):
        call = partial(function, HAND, receptive_field=True)
        refused(call, "receptive_field is for maps of a causal model", "0.8 in layer 0, row 0, col")
        maps = stage_map(trace(tiny("gpt2"), "the keys, she"), "Attn-W")
        assert function(maps, receptive_field=True).isfinite().all()


def test_arrays_and_lists_are_maps_too():
    """float64 stays float64; whole numbers and single precision become float32."""
    keep = torch.full((2, 3), 0.25, dtype=torch.float64)
    for function in (rollout, flow, with_residual):
        expected, measured = function(HAND), function(HAND, keep)
        for same in (HAND.numpy(), HAND.tolist(), list(HAND), list(HAND.numpy())):
            found = function(same)
            assert isinstance(found, torch.Tensor) and found.dtype == torch.float64
            assert torch.equal(found, expected)
            assert torch.equal(function(same, keep.numpy()), measured)
            assert torch.equal(function(same, keep.tolist()), measured)
        assert function(HAND.numpy().astype("float32")).dtype == torch.float32
        assert function([[[1, 0], [1, 1]]]).dtype == torch.float32
    frozen = HAND.numpy().copy()
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(rollout(frozen), rollout(HAND))


# --- refusals -----------------------------------------------------------------------------------


def changed(value: float, where=(1, 2, 0)) -> torch.Tensor:
    maps = torch.ones(2, 3, 3)
    maps[where] = value
    return maps


ONES = torch.ones(2, 3, 3)
BAD = {
    "a ragged list": ([[[1.0], [1.0, 2.0]]], 0.5, ["maps must", "[[[1.0], [1.0", "(L, T, T)"]),
    "a list of texts": (["a"], 0.5, ["maps must", "['a']", "(L, T, T)"]),
    "nothing": (None, 0.5, ["maps must", "None", "(L, T, T)"]),
    "an array of one map": (np.ones((3, 3)), 0.5, ["maps must", "(3, 3)", "stack"]),
    "a negative array": (-np.ones((2, 3, 3)), 0.5, ["maps must", "-1", "layer 0, row 0"]),
    "an array of ratios": (ONES, np.ones(2), ["residual must", "(2,)", "(2, 3)"]),
    "one map": (ONES[0], 0.5, ["maps must", "(L, T, T)", "(3, 3)", "stack"]),
    "all heads": (torch.ones(2, 4, 3, 3), 0.5, ["maps must", "(2, 4, 3, 3)", "combine the heads"]),
    "cross-attention": (torch.ones(2, 3, 4), 0.5, ["maps must", "(2, 3, 4)", "cross-attention"]),
    "no layer": (torch.ones(0, 3, 3), 0.5, ["maps must", "(0, 3, 3)", "at least 1"]),
    "negative": (changed(-0.5), 0.5, ["maps must", "-0.5", "layer 1, row 2, column 0", "≥ 0"]),
    "NaN": (changed(torch.nan), 0.5, ["maps must", "nan", "layer 1, row 2, column 0"]),
    "empty row": (changed(0, (1, 2)), 0.5, ["maps cannot", "layer 1, row 2", "sums to 0"]),
    "below 0": (ONES, -0.1, ["residual must", "-0.1", "[0, 1]"]),
    "above 1": (ONES, 1.5, ["residual must", "1.5", "[0, 1]"]),
    "text": (ONES, "measured", ["residual must", "'measured'", "a number"]),
    "one ratio per layer": (ONES, torch.ones(2), ["residual must", "(2,)", "(2, 3)"]),
    "ratio above 1": (ONES, torch.full((2, 3), 1.25), ["residual must", "1.25", "[0, 1]"]),
    "ratio NaN": (ONES, torch.full((2, 3), torch.nan), ["residual must", "nan", "[0, 1]"]),
}


@pytest.mark.parametrize("function", [rollout, flow])
@pytest.mark.parametrize(("maps", "residual", "words"), BAD.values(), ids=BAD.keys())
def test_bad_maps_and_residuals(function, maps, residual, words):
    refused(lambda: function(maps, residual=residual), *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"layer": 2}, ["layer must", "from 0 to 1, or from -2 to -1", "got 2"]),
        ({"layer": -3}, ["layer must", "from 0 to 1, or from -2 to -1", "got -3"]),
        ({"layer": "last"}, ["layer must", "whole number", "'last'"]),
        ({"query": 3}, ["query must", "from 0 to 2, or from -3 to -1", "got 3"]),
        ({"query": -4}, ["query must", "from 0 to 2, or from -3 to -1", "got -4"]),
        ({"query": "keys"}, ["query must", "whole number", "'keys'"]),
    ],
)
def test_a_layer_or_query_that_does_not_exist(arguments, words):
    refused(lambda: flow(HAND, **arguments), *words)
