"""K20: norms of vectors on paper, against an oracle that builds every vector, and in any order."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from oracle import reference
from oracle.compare import close, refused
from oracle.examples import blocks, by_hand, changed, run_of

from helpers import stage_map, trace, transformed_norms, weighted_norms
from helpers.norms import gram_norms, own, pair_norms, transform, values, whole

# --- by hand ---------------------------------------------------------------------------------


def test_three_tokens_by_hand():
    run = run_of(by_hand())
    # f(x) = (x₂, x₁ + 1):  f(a) = (0, 2), f(b) = (2, 1), f(c) = (2, 3)
    lengths = [2, math.sqrt(5), math.sqrt(13)]
    close(transformed_norms(run), [[lengths]])
    # α ‖f‖, row by row; one head, so that Attn-N is the same map
    table = [
        [0.5 * lengths[0], 0.5 * lengths[1], 0],
        [0, 0.5 * lengths[1], 0.5 * lengths[2]],
        [0.25 * lengths[0], 0.25 * lengths[1], 0.5 * lengths[2]],
    ]
    close(weighted_norms(run), [[table]])
    close(stage_map(run, "Attn-N"), [table])
    # what is read as a whole, and of the position itself
    close(whole(run.blocks[0]), [[1, 1.5], [2, 2], [1.5, 2.25]])
    close(own(run.blocks[0]), [[0, 1], [1, 0.5], [1, 1.5]])


def test_two_heads_that_cancel():
    """f of the second head is minus f of the first: equal weights leave nothing of the sum."""
    one, turn = by_hand(), torch.eye(2)[None]
    twice = {name: torch.cat([getattr(one, name)] * 2) for name in ("attention", "W_V", "b_V")}
    run = run_of(by_hand(**twice, W_O=torch.cat([turn, -turn])))
    assert not stage_map(run, "Attn-N").any()
    assert weighted_norms(run).sum(dim=1).max() > 1


def test_heads_that_almost_cancel_have_a_length():
    """The square can come out below 0 by rounding, and its root would be NaN."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(200, 1, 16, generator=generator)
    f = torch.cat([f, -f * (1 + 1e-7), f / 3], dim=1)  # (S, H, D)
    alpha = torch.tensor([3.0, 4.0, 3.0])[:, None, None].expand(3, 1, 200) / 10
    found = gram_norms(alpha, f)
    assert found.isfinite().all() and (found <= 1e-3 * f.norm(dim=-1).max()).all()


# --- against the naive oracle ------------------------------------------------------------------


def test_every_norm(any_run):
    naive = [reference.Parts.of(block) for block in any_run.blocks]
    close(transformed_norms(any_run), torch.stack([reference.transformed_norms(p) for p in naive]))
    close(weighted_norms(any_run), torch.stack([reference.weighted_norms(p) for p in naive]))


@given(blocks())
def test_any_block(block):
    parts = reference.Parts.of(block)
    vectors, summed = reference.transformed_vectors(parts), reference.summed_vectors(parts)
    largest = vectors.norm(dim=-1).max().item()
    for found, expected, slack in (
        (transform(block), vectors.transpose(0, 1), 1e-12),
        (transformed_norms(run_of(block))[0], vectors.norm(dim=-1), 1e-12),
        (whole(block), summed.sum(dim=1), 1e-12),
        (own(block), summed.diagonal().T, 1e-12),
        # Where heads cancel, the root keeps half of the digits.
        (gram_norms(block.attention, transform(block)), summed.norm(dim=-1), 1e-6),
    ):
        assert found.shape == expected.shape and found.dtype == torch.float64
        assert (found - expected).abs().max() <= slack * largest


def test_the_first_token_draws_the_weight_and_not_the_norm(run):
    """[CLS]: 42–49 % of the weight in layers 2–5, and 4–7 % of the norm."""
    weight, norm = stage_map(run, "Attn-W")[1:5], stage_map(run, "Attn-N")[1:5]
    share_of_weight = (weight[..., 0] / weight.sum(dim=-1)).mean(dim=-1)
    share_of_norm = (norm[..., 0] / norm.sum(dim=-1)).mean(dim=-1)
    assert 0.415 < share_of_weight.min() and share_of_weight.max() < 0.495
    assert 0.035 < share_of_norm.min() and share_of_norm.max() < 0.075


# --- what is shared, and for how long ----------------------------------------------------------

WAYS = {
    "in place": lambda tensor: tensor.mul_(2),
    ".data": lambda tensor: tensor.data.mul_(2),
    "numpy": lambda tensor: np.multiply(tensor.numpy(), 2, out=tensor.numpy()),
}


@pytest.mark.parametrize("function", [values, whole, own, pair_norms])
def test_one_call_computes_each_part_once(function):
    block = by_hand().sharing()
    assert function(block) is function(block)
    other = by_hand(b_V=torch.zeros(1, 2)).sharing()
    assert not torch.equal(function(other), function(block)), "each block has its own"
    changed = replace(block, b_V=torch.zeros(1, 2))
    assert torch.equal(function(changed), function(other)), "and so has a changed copy"


@pytest.mark.parametrize("function", [values, whole, own, pair_norms])
@pytest.mark.parametrize("field", ["attention", "x", "W_V", "b_V", "W_O"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
def test_nothing_outlives_a_call(function, field, way, inference):
    """Torch counts neither changes through .data and numpy, nor any in inference mode."""
    with torch.inference_mode(inference):
        block = by_hand()
        before = function(block).clone()
        WAYS[way](getattr(block, field))
        expected = function(by_hand(**{field: getattr(block, field).clone()}))
        assert torch.equal(function(block), expected)
        reads = field in ("x", "W_V", "b_V") or function is not values
        assert torch.equal(before, expected) != reads


# --- devices, and refusals -----------------------------------------------------------------------


def test_all_is_made_on_the_run_s_device_in_its_dtype(minilm):
    """Whatever were made without a device would be "meta" here, and hold no numbers."""
    exact = minilm.double()
    with torch.device("meta"):
        run = changed(trace(exact, "she saw them"))
        found = transformed_norms(run), weighted_norms(run)
    for tensor, expected in zip(found, (transformed_norms(run), weighted_norms(run)), strict=True):
        assert tensor.dtype == torch.float64 and torch.equal(tensor, expected)


@pytest.mark.parametrize("function", [transformed_norms, weighted_norms])
def test_refusals(minilm, function):
    refused(lambda: function(minilm), "run must be a Trace, got Model", "trace(model, text)")
    huge = by_hand(W_O=torch.full((1, 2, 2), 1e38))
    refused(lambda: function(run_of(by_hand(), huge)), "layer 1 (counted from 0)", "infinite")
