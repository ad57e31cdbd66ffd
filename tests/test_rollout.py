"""Rollout: the product of maps against the naive reference, its properties, and bad input."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import flow, mixing_ratio, rollout, stage_map
from helpers.rollout import with_residual

fixed = settings(max_examples=40)
close = torch.testing.assert_close

# Two layers × three tokens, by hand, c = 0.5.
HAND = torch.tensor(
    [
        [[0.0, 0.8, 0.2], [0.4, 0.4, 0.2], [0.2, 0.2, 0.6]],
        [[0.2, 0.2, 0.6], [0.0, 0.6, 0.4], [0.8, 0.0, 0.2]],
    ],
    dtype=torch.float64,
)


@st.composite
def stacks(draw, layers=4, tokens=5):
    """(L, T, T) float64, small whole numbers: zeros and ties are frequent, no row is empty."""
    L, T = draw(st.integers(1, layers)), draw(st.integers(1, tokens))
    row = st.lists(st.integers(0, 6), min_size=T, max_size=T).filter(any)
    rows = draw(st.lists(row, min_size=L * T, max_size=L * T))
    return torch.tensor(rows, dtype=torch.float64).reshape(L, T, T)


@st.composite
def stacks_and_residuals(draw, **sizes):
    """A stack with a number, or with a tensor (L, T) of what each position keeps."""
    maps = draw(stacks(**sizes))
    share = st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0])
    if draw(st.booleans()):
        return maps, draw(share)
    L, T, _ = maps.shape
    kept = draw(st.lists(share, min_size=L * T, max_size=L * T))
    return maps, torch.tensor(kept, dtype=torch.float64).reshape(L, T)


# --- the values ------------------------------------------------------------------------------


def test_by_hand():
    # Â_1 = 0.5 A_1 + 0.5 I = [.5 .4 .1]      Â_2 = 0.5 A_2 + 0.5 I = [.6 .1 .3]
    #                         [.2 .7 .1]                              [ 0 .8 .2]
    #                         [.1 .1 .8]                              [.4  0 .6]
    # R_2 = Â_2 Â_1, row by row:
    # .6 [.5 .4 .1] + .1 [.2 .7 .1] + .3 [.1 .1 .8] = [.30+.02+.03  .24+.07+.03  .06+.01+.24]
    #                 .8 [.2 .7 .1] + .2 [.1 .1 .8] = [.16+.02      .56+.02      .08+.16]
    # .4 [.5 .4 .1]                 + .6 [.1 .1 .8] = [.20+.06      .16+.06      .04+.48]
    first = [[0.5, 0.4, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]]
    second = [[0.35, 0.34, 0.31], [0.18, 0.58, 0.24], [0.26, 0.22, 0.52]]
    close(rollout(HAND), torch.tensor([first, second], dtype=torch.float64))


def test_measured_residual_by_hand():
    # Row [.5 .3 .2] keeps .8 and mixes .2: .3 and .2 share it as 3 to 2, so .12 and .08.
    # Row [.5 .5 0] keeps .25: .75 goes to the first token. Row [0 0 1] has no other to read.
    maps = torch.tensor([[[0.5, 0.3, 0.2], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]])
    kept = torch.tensor([[0.8, 0.25, 0.3]])
    wanted = torch.tensor([[[0.8, 0.12, 0.08], [0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]])
    close(rollout(maps, residual=kept), wanted)


@fixed
@given(stacks_and_residuals())
def test_equals_reference(example):
    close(rollout(*example), reference.rollout(*example), rtol=0, atol=1e-12)
    close(with_residual(*example), reference.with_residual(*example), rtol=0, atol=1e-12)


@pytest.mark.parametrize("stage", ["Attn-W", "Attn-N", "AttnRes-N", "AttnResLn-N"])
def test_equals_reference_on_minilm(run, stage):
    maps = stage_map(run, stage)
    measured = 1 - mixing_ratio(run, stage)
    for residual in (0, measured):
        close(rollout(maps, residual), reference.rollout(maps, residual), rtol=0, atol=1e-5)


@fixed
@given(stacks_and_residuals())
def test_rows_sum_to_one_and_first_layer_is_the_mixed_map(example):
    R = rollout(*example)
    assert R.shape == example[0].shape and (R >= 0).all()
    close(R.sum(dim=-1), torch.ones(R.shape[:2], dtype=torch.float64))
    close(R[0], with_residual(*example)[0], rtol=0, atol=0)


@pytest.mark.parametrize("T", [1, 2, 5])
@pytest.mark.parametrize("c", [0, 0.3, 0.5, 1])
def test_uniform_attention_has_a_closed_form(T, c):
    # With U = 1/T everywhere, U U = U. So Â = c I + (1 − c) U and, by induction,
    # R_l = c^l I + (1 − c^l) U: the own token's extra share shrinks by c at each layer.
    L = 5
    own, uniform = torch.eye(T), torch.full((T, T), 1 / T)
    wanted = torch.stack([c**n * own + (1 - c**n) * uniform for n in range(1, L + 1)])
    close(rollout(torch.ones(L, T, T), residual=c), wanted)


@fixed
@given(stacks_and_residuals(), st.randoms(use_true_random=False))
def test_permuting_tokens_permutes_the_result(example, random):
    maps, residual = example
    p = list(range(maps.shape[-1]))
    random.shuffle(p)
    moved = residual[:, p] if isinstance(residual, torch.Tensor) else residual
    close(rollout(maps[:, p][:, :, p], moved), rollout(maps, residual)[:, p][:, :, p])


@fixed
@given(stacks())
def test_residual_of_one_is_the_identity(maps):
    L, T, _ = maps.shape
    for residual in (1, torch.ones(L, T)):
        close(rollout(maps, residual), torch.eye(T, dtype=torch.float64).expand(L, T, T))


def test_rows_of_one_entry_are_followed_like_pointers():
    # Layer 1 reads token i + 1, layer 2 reads i + 2: together i + 3, all modulo 5.
    own = torch.eye(5)
    maps = torch.stack([own.roll(1, dims=1), own.roll(2, dims=1)])
    close(rollout(maps, residual=0)[1], own.roll(3, dims=1))


def test_causal_maps_stay_causal():
    # The first position reads only itself, so it is its own share alone, whatever it keeps.
    maps = torch.rand(4, 6, 6, generator=torch.Generator().manual_seed(0)).tril()
    for residual in (0.5, torch.full((4, 6), 0.3)):
        R = rollout(maps, residual)
        assert (R.triu(1) == 0).all() and (R[:, 0, 0] == 1).all()
        close(R, reference.rollout(maps, residual))


# --- precision, types ------------------------------------------------------------------------


def test_measured_residual_of_a_row_that_almost_reads_itself_alone():
    # In float32, 1 + 3e-9 is 1: one minus the diagonal is 0, the sum of the others is not.
    maps = torch.tensor([[[1.0, 1e-9, 2e-9], [1e-9, 1.0, 0.0], [1e-30, 3e-30, 1e9]]])
    kept = torch.tensor([[0.4, 0.4, 0.4]])
    wanted = torch.tensor([[[0.4, 0.2, 0.4], [0.6, 0.4, 0.0], [0.15, 0.45, 0.4]]])
    close(with_residual(maps, kept), wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.uint8])
def test_other_types_are_computed_in_float32(dtype):
    maps = torch.tensor([[[200, 200], [0, 200]]] * 300).to(dtype)
    close(rollout(maps), rollout(maps.float()))
    assert rollout(maps).dtype == torch.float32


def test_float64_stays_float64():
    assert rollout(HAND).dtype == torch.float64
    assert rollout(HAND, torch.full((2, 3), 0.5)).dtype == torch.float64


@pytest.mark.parametrize("residual", [1, 0.5, np.float32(0.5), np.float64(0.5), np.int64(0)])
def test_numbers_of_any_kind(residual):
    close(rollout(HAND, residual), rollout(HAND, float(residual)))


def test_inputs_are_not_modified():
    maps, kept = 3 * HAND, torch.full((2, 3), 0.5)
    before = maps.clone(), kept.clone()
    rollout(maps, kept), rollout(maps), flow(maps, kept), flow(maps)
    assert torch.equal(maps, before[0]) and torch.equal(kept, before[1])


# --- bad input, for rollout and flow alike ----------------------------------------------------


def _changed(value: float) -> torch.Tensor:
    maps = torch.ones(2, 3, 3)
    maps[1, 2, 0] = value
    return maps


def _row(value: float) -> torch.Tensor:
    maps = torch.ones(2, 3, 3)
    maps[1, 2] = value
    return maps


ONES = torch.ones(2, 3, 3)
BAD = {
    "a list": ([[[1.0]]], 0.5, ["maps", "list", "(L, T, T)"]),
    "an array": (np.ones((2, 3, 3)), 0.5, ["maps", "ndarray", "tensor"]),
    "complex": (ONES.to(torch.complex64), 0.5, ["maps", "real"]),
    "one map": (ONES[0], 0.5, ["maps", "(L, T, T)", "(3, 3)", "stack"]),
    "all heads": (torch.ones(2, 4, 3, 3), 0.5, ["maps", "(2, 4, 3, 3)", "combine the heads"]),
    "not square": (torch.ones(2, 3, 4), 0.5, ["maps", "(2, 3, 4)", "square"]),
    "no layer": (torch.ones(0, 3, 3), 0.5, ["maps", "(0, 3, 3)", "at least 1"]),
    "no token": (torch.ones(2, 0, 0), 0.5, ["maps", "(2, 0, 0)", "at least 1"]),
    "negative": (_changed(-0.5), 0.5, ["maps", "-0.5", "layer 1, row 2, column 0", "≥ 0"]),
    "NaN": (_changed(torch.nan), 0.5, ["maps", "nan", "layer 1, row 2, column 0"]),
    "infinite": (_changed(torch.inf), 0.5, ["maps", "inf", "layer 1, row 2, column 0"]),
    "empty row": (_row(0), 0.5, ["maps", "layer 1, row 2", "sums to 0"]),
    "empty row, measured": (_row(0), torch.ones(2, 3), ["maps", "layer 1, row 2", "sums to 0"]),
    "huge row": (_row(3e38), 0.5, ["maps", "layer 1, row 2", "sums to inf"]),
    "below 0": (ONES, -0.1, ["residual", "-0.1", "[0, 1]"]),
    "above 1": (ONES, 1.5, ["residual", "1.5", "[0, 1]"]),
    "not a number": (ONES, float("nan"), ["residual", "nan", "[0, 1]"]),
    "text": (ONES, "0.5", ["residual", "str", "number"]),
    "bool": (ONES, True, ["residual", "bool", "number"]),
    "none": (ONES, None, ["residual", "NoneType", "number"]),
    "list of numbers": (ONES, [0.5, 0.5], ["residual", "list", "tensor"]),
    "one ratio a layer": (ONES, torch.ones(2), ["residual", "(2,)", "(2, 3)"]),
    "ratios turned": (ONES, torch.ones(3, 2), ["residual", "(3, 2)", "(2, 3)"]),
    "ratio above 1": (ONES, torch.full((2, 3), 1.25), ["residual", "1.25", "[0, 1]"]),
    "ratio below 0": (ONES, torch.full((2, 3), -0.25), ["residual", "-0.25", "[0, 1]"]),
    "ratio NaN": (ONES, torch.full((2, 3), torch.nan), ["residual", "nan", "[0, 1]"]),
}


@pytest.mark.parametrize("function", [rollout, flow])
@pytest.mark.parametrize(("maps", "residual", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named_in_one_sentence(function, maps, residual, words):
    with pytest.raises(ValueError) as error:
        function(maps, residual=residual)
    text = str(error.value)
    assert text.startswith(words[0]) and text.endswith(".") and "\n" not in text
    assert all(word in text for word in words), text
