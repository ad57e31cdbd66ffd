"""The stages: equal to the naive reference, exact on paper, and able to notice a missing term."""

import math
from dataclasses import replace

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import random_block

from helpers import (
    STAGES,
    Trace,
    anatomy,
    expansion_rate,
    mixing_ratio,
    reconstruction_error,
    stage_map,
    trace,
    transformed_norms,
    weighted_norms,
)
from helpers.trace import Block

NORM_STAGES = STAGES[1], *STAGES[3:]
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "gpt2")


def _close(map_, expected, tolerance=1e-5):
    """Within a tolerance of the largest value, as float32 rounds."""
    assert map_.shape == expected.shape
    assert torch.isfinite(map_).all()
    difference = (map_.double() - expected.double()).abs().max()
    assert difference <= tolerance * expected.abs().max(), difference / expected.abs().max()


def _with(run: Trace, change) -> Trace:
    """The same run with every block replaced by change(block)."""
    blocks = [change(block) for block in run.blocks]
    return replace(run, blocks=blocks, attention=torch.stack([b.attention for b in blocks]))


# --- against the naive reference -------------------------------------------------------------


def test_transformed_norms(any_run, parts):
    expected = torch.stack([reference.transformed_norms(parts(b)) for b in any_run.blocks])
    _close(transformed_norms(any_run), expected)


def test_weighted_norms(any_run, parts):
    expected = torch.stack([reference.weighted_norms(parts(b)) for b in any_run.blocks])
    _close(weighted_norms(any_run), expected)


@pytest.mark.parametrize("stage", STAGES)
def test_stage_map(any_run, parts, stage):
    if stage not in any_run.stages:
        pytest.skip("this architecture does not have the stage")
    result = stage_map(any_run, stage)
    for layer, block in enumerate(any_run.blocks):
        _close(result[layer], reference.stage_map(parts(block), stage))


@pytest.mark.parametrize("stage", STAGES)
def test_mixing_ratio(any_run, parts, stage):
    if stage not in any_run.stages:
        pytest.skip("this architecture does not have the stage")
    expected = torch.stack([reference.mixing_ratio(parts(b), stage) for b in any_run.blocks])
    result = mixing_ratio(any_run, stage)
    assert result.shape == expected.shape
    assert (result - expected).abs().max() < 1e-5


def test_expansion_rate(any_model):
    expected = [
        reference.expansion_rate(*(w.double() for w in (part.W_V, part.W_O, part.b_V, part.b_O)))
        for part in anatomy.blocks(any_model.network)
    ]
    rates = expansion_rate(any_model)
    assert rates.shape == (len(expected),)
    torch.testing.assert_close(rates.double(), torch.tensor(expected).double(), rtol=1e-5, atol=0)


def test_expansion_rate_by_hand(tiny):
    """The whole map written as one matrix from the modules' own weights, layer by layer."""
    model = tiny("electra")
    for rate, layer in zip(expansion_rate(model), model.network.encoder.layer, strict=True):
        value, dense = layer.attention.self.value, layer.attention.output.dense
        D = value.weight.shape[0]
        M = torch.zeros(D + 1, D + 1)
        M[:D, :D] = value.weight.T @ dense.weight.T
        M[D, :D] = value.bias @ dense.weight.T + dense.bias
        M[D, D] = 1
        assert rate == pytest.approx((M.norm() / math.sqrt(D + 1)).item(), rel=1e-5)


def test_two_segments(tiny, parts):
    run = trace(tiny("bert"), "she saw", pair="the keys")
    assert reconstruction_error(run).max() < 1e-5
    for stage in STAGES:
        _close(stage_map(run, stage)[1], reference.stage_map(parts(run.blocks[1]), stage))


def test_one_token(tiny):
    """A position with nobody to read from keeps everything."""
    run = trace(tiny("gpt2"), "key")
    for stage in run.stages:
        assert mixing_ratio(run, stage).flatten().tolist() == pytest.approx([0] * 3, abs=1e-6)
    assert reconstruction_error(run).max() < 1e-5


# --- against the model itself ----------------------------------------------------------------


def test_the_parts_add_up_to_the_model_s_own_output(any_run):
    errors = reconstruction_error(any_run)
    assert errors.shape == (len(any_run.blocks),)
    assert (errors >= 0).all()
    assert errors.max() < 1e-5


def test_the_reference_adds_up_too(any_run, parts):
    for block in any_run.blocks:
        _close(block.output, reference.block_output(parts(block)))


def test_the_output_is_the_model_s_own_tensor(any_model):
    """Captured by hooks of the test's own, at places named here and not by `helpers`."""
    seen = []

    def keep(module, args, result):
        seen.append(result[0] if isinstance(result, tuple) else result)

    def keep_sum(module, args):
        seen.append(args[0])

    base = any_model.network
    if base.config.model_type == "gpt2":  # the sum after attention enters the second LayerNorm
        handles = [layer.ln_2.register_forward_pre_hook(keep_sum) for layer in base.h]
    else:
        norms = [layer.attention.output.LayerNorm for layer in base.encoder.layer]
        handles = [norm.register_forward_hook(keep) for norm in norms]
    run = trace(any_model, "she saw them")
    for handle in handles:
        handle.remove()
    assert len(seen) == len(run.blocks)
    for block, tensor in zip(run.blocks, seen, strict=True):
        assert torch.equal(block.output, tensor[0])


def test_the_numbers_on_record_for_minilm(run):
    """Computed once with the authors' own code on these weights and this sentence."""
    recorded = {
        "Attn-N": (0.8243, 0.7987, 0.8219, 0.8328, 0.8324, 0.8714),
        "AttnRes-N": (0.2739, 0.2774, 0.2797, 0.2634, 0.2396, 0.3694),
        "AttnResLn-N": (0.2544, 0.2397, 0.2279, 0.2090, 0.1794, 0.3241),
    }
    for stage, expected in recorded.items():
        means = mixing_ratio(run, stage).mean(dim=1).tolist()
        assert means == pytest.approx(expected, abs=5.1e-5), stage


def test_the_first_token_draws_the_weight_and_not_the_norm(run):
    """[CLS]: 42–49 % of the weight in layers 2–5, and 4–7 % of the norm."""
    weight, norm = stage_map(run, "Attn-W")[1:5], stage_map(run, "Attn-N")[1:5]
    share_of_weight = (weight[..., 0] / weight.sum(-1)).mean(-1)
    share_of_norm = (norm[..., 0] / norm.sum(-1)).mean(-1)
    assert 0.415 < share_of_weight.min() and share_of_weight.max() < 0.495
    assert 0.035 < share_of_norm.min() and share_of_norm.max() < 0.075


# --- sabotage: a wrong term must be noticed --------------------------------------------------


def _swapped(W_O):
    return W_O[[1, 0, *range(2, len(W_O))]]


SABOTAGE = {
    "no b_V": lambda b: replace(b, b_V=torch.zeros_like(b.b_V)),
    "no b_O": lambda b: replace(b, b_O=torch.zeros_like(b.b_O)),
    "no residual": lambda b: replace(b, residual=torch.zeros_like(b.residual)),
    "two heads' W_O swapped": lambda b: replace(b, W_O=_swapped(b.W_O)),
    "two heads' W_V swapped": lambda b: replace(b, W_V=_swapped(b.W_V)),
    "attention turned": lambda b: replace(b, attention=b.attention.transpose(1, 2)),
    "no gamma": lambda b: replace(b, gamma=torch.ones_like(b.gamma)),
    "no beta": lambda b: replace(b, beta=torch.zeros_like(b.beta)),
    "no eps": lambda b: replace(b, eps=0.0),
}
NO_LAYERNORM = ("no b_V", "no b_O", "no residual", "two heads' W_O swapped")
# b_O and beta are in no map, the residual only in those that name it.
IN_MAP = {
    "Attn-N": ("no b_V", "two heads' W_O swapped", "two heads' W_V swapped", "attention turned"),
    "AttnRes-N": ("no b_V", "no residual", "two heads' W_O swapped"),
    "AttnResLn-N": ("no b_V", "no b_O", "no residual", "two heads' W_O swapped", "no gamma"),
}


@pytest.mark.parametrize("sabotage", SABOTAGE)
@pytest.mark.parametrize("family", FAMILIES[:-1])
def test_the_error_notices(tiny, family, sabotage):
    run = trace(tiny(family), "The keys, she saw them.")
    assert reconstruction_error(_with(run, SABOTAGE[sabotage])).min() > 1e-3


@pytest.mark.parametrize("sabotage", NO_LAYERNORM)
def test_the_error_notices_in_gpt2(tiny, sabotage):
    run = trace(tiny("gpt2"), "The keys, she saw them.")
    assert reconstruction_error(_with(run, SABOTAGE[sabotage])).min() > 1e-3


@pytest.mark.parametrize("sabotage", [s for s in SABOTAGE if s != "no eps"])
def test_the_error_notices_in_minilm(run, sabotage):
    """Its eps is 1e-12, too small to be noticed."""
    assert reconstruction_error(_with(run, SABOTAGE[sabotage])).min() > 1e-3


@pytest.mark.parametrize(("stage", "sabotage"), [(k, s) for k, v in IN_MAP.items() for s in v])
@pytest.mark.parametrize("name", ["minilm", "bert"])
def test_the_map_differs_from_the_reference(name, run, tiny, parts, stage, sabotage):
    run = run if name == "minilm" else trace(tiny(name), "The keys, she saw them.")
    wrong = stage_map(_with(run, SABOTAGE[sabotage]), stage)
    for layer, block in enumerate(run.blocks):
        expected = reference.stage_map(parts(block), stage)
        assert (wrong[layer] - expected).abs().max() > 1e-4 * expected.max()


@pytest.mark.parametrize("stage", NORM_STAGES)
@pytest.mark.parametrize("sabotage", ["no b_O", "no beta"])
def test_what_is_in_no_map_changes_no_ratio(run, stage, sabotage):
    changed = mixing_ratio(_with(run, SABOTAGE[sabotage]), stage)
    torch.testing.assert_close(changed, mixing_ratio(run, stage), rtol=0, atol=1e-6)


# --- properties ------------------------------------------------------------------------------


def test_weighted_norm_is_weight_times_norm(any_run):
    product = any_run.attention * transformed_norms(any_run)[:, :, None]
    torch.testing.assert_close(weighted_norms(any_run), product)


def test_heads_are_summed_before_the_norm(any_run):
    """The norm of the sum is at most the sum of the norms, and here clearly less."""
    of_sum, sum_of = stage_map(any_run, "Attn-N"), weighted_norms(any_run).sum(dim=1)
    assert (of_sum <= sum_of * (1 + 1e-5)).all()
    assert of_sum.mean() < 0.9 * sum_of.mean()


def test_residual_weights_are_half_and_half(any_run):
    weights, residual = stage_map(any_run, "Attn-W"), stage_map(any_run, "AttnRes-W")
    half = weights / 2 + torch.eye(weights.shape[-1]) / 2
    torch.testing.assert_close(residual, half)
    torch.testing.assert_close(
        mixing_ratio(any_run, "AttnRes-W"), mixing_ratio(any_run, "Attn-W") / 2
    )
    assert mixing_ratio(any_run, "AttnRes-W").max() <= 0.5


def test_the_residual_changes_the_diagonal_alone(any_run):
    without, with_ = stage_map(any_run, "Attn-N"), stage_map(any_run, "AttnRes-N")
    diagonal = torch.eye(without.shape[-1], dtype=torch.bool).expand_as(without)
    assert torch.equal(without[~diagonal], with_[~diagonal])
    assert (without[diagonal] - with_[diagonal]).abs().min() > 1e-3


def test_a_constant_gamma_and_parts_without_mean_leave_the_ratio(any_run):
    """Then LayerNorm only divides all parts of a row by one number."""
    if "AttnResLn-N" not in any_run.stages:
        pytest.skip("this architecture does not have the stage")

    def centred(block):
        return replace(
            block,
            W_O=block.W_O - block.W_O.mean(dim=-1, keepdim=True),
            residual=block.residual - block.residual.mean(dim=-1, keepdim=True),
            gamma=torch.full_like(block.gamma, 1.7),
        )

    plain, even = mixing_ratio(any_run, "AttnRes-N"), _with(any_run, centred)
    torch.testing.assert_close(
        mixing_ratio(even, "AttnResLn-N"), mixing_ratio(even, "AttnRes-N"), rtol=0, atol=1e-5
    )
    assert (mixing_ratio(any_run, "AttnResLn-N") - plain).abs().max() > 1e-2, "not so in general"


def test_vectors_of_length_zero_mix_nothing(any_run):
    """f = 0: the norm stages keep all, also where 0 is divided by 0; weights do not notice."""

    def silent(block):
        return replace(block, W_V=torch.zeros_like(block.W_V), b_V=torch.zeros_like(block.b_V))

    zero = _with(any_run, silent)
    assert not transformed_norms(zero).any()
    assert not stage_map(zero, "Attn-N").any()
    for stage in any_run.stages:
        ratio = mixing_ratio(zero, stage)
        assert torch.isfinite(stage_map(zero, stage)).all()
        if stage.endswith("W"):
            assert torch.equal(ratio, mixing_ratio(any_run, stage))
            assert torch.equal(stage_map(zero, stage), stage_map(any_run, stage))
        else:
            assert torch.equal(ratio, torch.zeros_like(ratio)), stage


def test_gamma_scales_the_map_and_leaves_the_ratio(any_run):
    if "AttnResLn-N" not in any_run.stages:
        pytest.skip("this architecture does not have the stage")
    larger = _with(any_run, lambda block: replace(block, gamma=block.gamma * 3))
    _close(stage_map(larger, "AttnResLn-N"), 3 * stage_map(any_run, "AttnResLn-N"))
    torch.testing.assert_close(
        mixing_ratio(larger, "AttnResLn-N"),
        mixing_ratio(any_run, "AttnResLn-N"),
        rtol=0,
        atol=1e-5,
    )


def test_causal_models_read_nothing_from_the_future(tiny):
    run = trace(tiny("gpt2"), "The keys, she saw them.")
    for stage in run.stages:
        assert not stage_map(run, stage).triu(1).any()
        assert mixing_ratio(run, stage)[:, 0].tolist() == pytest.approx([0, 0, 0], abs=1e-6)


# --- by hand: three tokens, one or two heads, D = 2 ------------------------------------------


def _block(**changes) -> Block:
    """One head, D = d = 2. x = (1,0) (0,2) (2,2); f(x) = x turned to (x₂, x₁), plus (0, 1)."""
    values = {
        "attention": torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.25, 0.25, 0.5]]]),
        "x": torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]]),
        "residual": torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]]),
        "W_V": torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]),
        "b_V": torch.tensor([[0.0, 1.0]]),
        "W_O": torch.eye(2)[None],
        "b_O": torch.tensor([3.0, 0.0]),
        "gamma": None,
        "beta": None,
        "eps": None,
        "output": torch.zeros(3, 2),
    }
    return Block(**(values | changes))


def _run(*blocks: Block) -> Trace:
    names = list("abc")
    attention = torch.stack([block.attention for block in blocks])
    stages = STAGES if blocks[0].gamma is not None else STAGES[:-1]
    return Trace(names, names, [0, 1, 2], attention, list(blocks), stages)


def test_three_tokens_by_hand():
    run = _run(_block())
    # f(x) = (x₂, x₁ + 1):  f(a) = (0, 2), f(b) = (2, 1), f(c) = (2, 3)
    lengths = [2, math.sqrt(5), math.sqrt(13)]
    assert transformed_norms(run).flatten().tolist() == pytest.approx(lengths)
    # α ‖f‖, one head, so that Attn-N is the same map
    table = [
        [0.5 * lengths[0], 0.5 * lengths[1], 0],
        [0, 0.5 * lengths[1], 0.5 * lengths[2]],
        [0.25 * lengths[0], 0.25 * lengths[1], 0.5 * lengths[2]],
    ]
    for found in (weighted_norms(run)[0, 0], stage_map(run, "Attn-N")[0]):
        torch.testing.assert_close(found, torch.tensor(table))
    # with x_i on the diagonal:
    #   a: 0.5 (0, 2) + (1, 0) = (1, 1)        ‖·‖ = √2
    #   b: 0.5 (2, 1) + (0, 2) = (1, 2.5)      ‖·‖ = √7.25
    #   c: 0.5 (2, 3) + (2, 2) = (3, 3.5)      ‖·‖ = √21.25
    kept = [math.sqrt(2), math.sqrt(7.25), math.sqrt(21.25)]
    assert stage_map(run, "AttnRes-N")[0].diagonal().tolist() == pytest.approx(kept)
    assert stage_map(run, "AttnRes-N")[0, 2, :2].tolist() == pytest.approx(table[2][:2])
    # what is read from others, as one vector:
    #   a: 0.5 (2, 1) = (1, 0.5)               ‖·‖ = √1.25
    #   b: 0.5 (2, 3) = (1, 1.5)               ‖·‖ = √3.25
    #   c: 0.25 (0, 2) + 0.25 (2, 1) = (0.5, 0.75)   ‖·‖ = √0.8125, less than 0.5 + 0.559
    mixed = [math.sqrt(1.25), math.sqrt(3.25), math.sqrt(0.8125)]
    ratio = [m / (m + k) for m, k in zip(mixed, kept, strict=True)]
    assert mixing_ratio(run, "AttnRes-N")[0].tolist() == pytest.approx(ratio)
    own = [table[i][i] for i in range(3)]
    ratio = [m / (m + k) for m, k in zip(mixed, own, strict=True)]
    assert mixing_ratio(run, "Attn-N")[0].tolist() == pytest.approx(ratio)
    # weights: all three positions give half of their attention to themselves
    assert mixing_ratio(run, "Attn-W")[0].tolist() == pytest.approx([0.5] * 3)
    assert mixing_ratio(run, "AttnRes-W")[0].tolist() == pytest.approx([0.25] * 3)
    assert stage_map(run, "AttnRes-W")[0, 0].tolist() == pytest.approx([0.75, 0.25, 0])


def test_reconstruction_by_hand():
    # position a: 0.5 (0,2) + 0.5 (2,1) = (1, 1.5); + x (1, 0) + b_O (3, 0) = (5, 1.5)
    # position b: 0.5 (2,1) + 0.5 (2,3) = (2, 2);   + (0, 2) + (3, 0)       = (5, 4)
    # position c: .25 (0,2) + .25 (2,1) + .5 (2,3) = (1.5, 2.25); + (2,2) + (3,0) = (6.5, 4.25)
    right = torch.tensor([[5, 1.5], [5, 4], [6.5, 4.25]])
    assert reconstruction_error(_run(_block(output=right))).tolist() == pytest.approx([0], abs=1e-7)
    # one entry off by 0.65, largest absolute output 6.5: a tenth; the sign does not matter
    wrong = right.clone()
    wrong[1, 1] += 0.65
    assert reconstruction_error(_run(_block(output=wrong))).tolist() == pytest.approx([0.1])
    assert reconstruction_error(_run(_block(output=2 * right - wrong))).item() == pytest.approx(0.1)


def test_layernorm_by_hand():
    """With D = 2, centring (u, v) gives ±(u − v)/2."""
    block = _block(gamma=torch.tensor([2.0, 1.0]), beta=torch.tensor([0.1, 0.2]), eps=0.75)
    # a: y = (5, 1.5): half difference 1.75, variance 3.0625, s = √(3.0625 + 0.75)
    # b: y = (5, 4):   half difference 0.5,  variance 0.25,   s = √(0.25 + 0.75) = 1
    # b reads c: 0.5 (2, 3) = (1, 1.5) → centred (−.25, .25) → times γ (−.5, .25) → over s = 1
    run = _run(block)
    assert stage_map(run, "AttnResLn-N")[0, 1, 2].item() == pytest.approx(math.hypot(0.5, 0.25))
    # b keeps (1, 2.5) → centred (−.75, .75) → (−1.5, .75)
    assert stage_map(run, "AttnResLn-N")[0, 1, 1].item() == pytest.approx(math.hypot(1.5, 0.75))
    # a reads b: 0.5 (2, 1) = (1, .5) → (.25, −.25) → (.5, −.25) → over s
    s = math.sqrt(3.0625 + 0.75)
    assert stage_map(run, "AttnResLn-N")[0, 0, 1].item() == pytest.approx(math.hypot(0.5, 0.25) / s)
    # the ratio at b: ‖(−.5, .25)‖ : ‖(−1.5, .75)‖ = 1 : 3
    assert mixing_ratio(run, "AttnResLn-N")[0, 1].item() == pytest.approx(0.25)
    # LN(y) at b: ±0.5 / 1 · (2, 1) + (0.1, 0.2) = (1.1, −0.3)
    output = torch.nn.functional.layer_norm(
        torch.tensor([[5, 1.5], [5, 4], [6.5, 4.25]]), (2,), block.gamma, block.beta, block.eps
    )
    assert output[1].tolist() == pytest.approx([1.1, -0.3])
    assert reconstruction_error(_run(replace(block, output=output))).max() < 1e-6


def test_two_heads_that_cancel():
    """f of the second head is minus f of the first: equal weights leave nothing of the sum."""
    one = _block()
    two = replace(
        one,
        attention=one.attention.repeat(2, 1, 1),
        W_V=one.W_V.repeat(2, 1, 1),
        b_V=one.b_V.repeat(2, 1),
        W_O=torch.stack([torch.eye(2), -torch.eye(2)]),
    )
    run = _run(two)
    assert not stage_map(run, "Attn-N").any()
    assert not mixing_ratio(run, "Attn-N").any()
    assert weighted_norms(run).sum(dim=1).max() > 1
    assert stage_map(run, "Attn-W")[0, 0].tolist() == [0.5, 0.5, 0]


def test_expansion_rate_on_paper(tiny, monkeypatch):
    """One head, D = 2: [[W_V W_O, 0], [b_V W_O + b_O, 1]] = [[0,1,0],[1,0,0],[3,1,1]]."""
    block = _block()
    monkeypatch.setattr(anatomy, "blocks", lambda network, attention=None: [block])
    # squares: 1 + 1 + 9 + 1 + 1 = 13, over D + 1 = 3
    assert expansion_rate(tiny("bert")).tolist() == pytest.approx([math.sqrt(13 / 3)])


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [stage_map, mixing_ratio])
@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("Attn-n", "Attn-N"),
        ("attnres-n", "AttnRes-N"),
        ("AttnResLN-N", "AttnResLn-N"),
        ("AttnRes_W", "AttnRes-W"),
        ("Attn", "Attn-W"),
    ],
)
def test_an_unknown_stage(run, function, wrong, nearest):
    with pytest.raises(ValueError) as caught:
        function(run, wrong)
    text = str(caught.value)
    assert repr(wrong) in text and "\n" not in text
    assert f"did you mean {nearest!r}" in text
    assert all(stage in text for stage in STAGES)


@pytest.mark.parametrize("wrong", ["", "xyz", None, 3])
def test_a_stage_that_is_no_name_at_all(run, wrong):
    with pytest.raises(ValueError, match="Attn-W, Attn-N"):
        stage_map(run, wrong)


@pytest.mark.parametrize("function", [stage_map, mixing_ratio])
def test_a_stage_that_gpt2_does_not_have(tiny, function):
    run = trace(tiny("gpt2"), "The keys")
    assert run.stages == ("Attn-W", "Attn-N", "AttnRes-W", "AttnRes-N")
    with pytest.raises(ValueError) as caught:
        function(run, "AttnResLn-N")
    text = str(caught.value)
    assert "'AttnResLn-N' does not exist" in text
    assert text.endswith("Attn-W, Attn-N, AttnRes-W, AttnRes-N.")


# --- results are the caller's own ------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_changing_a_result_changes_nothing_else(tiny, stage):
    run = trace(tiny("bert"), "she saw them")
    attention = run.attention.clone()
    results = {}
    for name, function in (("map", stage_map), ("ratio", mixing_ratio)):
        first = function(run, stage)
        results[name] = first.clone()
        first.fill_(7)
    for name, function in (("map", stage_map), ("ratio", mixing_ratio)):
        assert torch.equal(function(run, stage), results[name])
    assert torch.equal(run.attention, attention)


@pytest.mark.parametrize("function", [transformed_norms, weighted_norms, reconstruction_error])
def test_changing_the_norms_changes_nothing_else(tiny, function):
    run = trace(tiny("bert"), "she saw them")
    first = function(run)
    kept = first.clone()
    first.fill_(7)
    assert torch.equal(function(run), kept)


def test_changing_the_lengths_of_one_layer_keeps_the_others(tiny):
    """What is remembered belongs to one block: another block gets its own values."""
    run = trace(tiny("bert"), "she saw them")
    before = stage_map(run, "AttnResLn-N").clone()
    changed = replace(run, blocks=[*run.blocks[:-1], replace(run.blocks[-1], eps=9.0)])
    after = stage_map(changed, "AttnResLn-N")
    assert torch.equal(after[:-1], before[:-1])
    assert (after[-1] < before[-1]).all()


# --- for any block at all --------------------------------------------------------------------


@st.composite
def _any_block(draw):
    H, T, D = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    size = 10.0 ** draw(st.integers(-3, 3))
    sparse = draw(st.booleans())

    def random(*shape):
        values = torch.randn(shape, generator=generator) * size
        return values * (torch.rand(shape, generator=generator) > 0.5) if sparse else values

    scores = torch.randn((H, T, T), generator=generator) * 10.0 ** draw(st.integers(-1, 2))
    return random_block(scores.softmax(dim=-1), D, random)


@settings(max_examples=60)
@given(_any_block())
def test_maps_are_lengths_and_ratios_are_shares(block):
    T = len(block.x)
    run = Trace(["a"] * T, ["a"] * T, [0] * T, block.attention[None], [block], STAGES)
    for stage in STAGES:
        values, ratios = stage_map(run, stage), mixing_ratio(run, stage)
        assert values.shape == (1, T, T) and ratios.shape == (1, T)
        assert torch.isfinite(values).all() and (values >= 0).all()
        assert torch.isfinite(ratios).all()
        assert (ratios >= -1e-6).all() and (ratios <= 1 + 1e-6).all()


@settings(max_examples=40)
@given(_any_block())
def test_any_block_equals_the_reference(block):
    T = len(block.x)
    run = Trace(["a"] * T, ["a"] * T, [0] * T, block.attention[None], [block], STAGES)
    fields = ("attention", "x", "residual", "W_V", "b_V", "W_O", "b_O", "gamma", "beta")
    tensors = {name: getattr(block, name).double() for name in fields}
    naive = reference.Parts(**tensors, eps=block.eps)
    lengths = reference.transformed_norms(naive).max()
    for stage in ("Attn-W", "Attn-N", "AttnRes-W", "AttnRes-N"):
        expected = reference.stage_map(naive, stage)
        # Heads may cancel: rounding is relative to the single vectors, and a root magnifies it.
        slack = 1e-5 * expected.max() + 1e-3 * lengths * (stage != "Attn-W")
        assert (stage_map(run, stage)[0] - expected).abs().max() <= slack
