"""K21: the stages on paper, against a naive oracle and the model itself, and short of a term."""

import copy
import math
from dataclasses import fields, replace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import reference
from oracle.compare import close, refused
from oracle.examples import blocks, by_hand, changed, models, run_of, texts

from helpers import (
    STAGES,
    Model,
    Trace,
    anatomy,
    expansion_rate,
    globenc,
    mixing_ratio,
    reconstruction_error,
    stage_map,
    trace,
    transformed_norms,
    weighted_norms,
)
from helpers import block as block_room
from helpers.block import TABLE
from helpers.tracing import Block

TEXT = "The keys, she saw them."
POST_LN = ("minilm", "bert", "roberta", "albert")
# Beside them: pre-LN, the attention normalised before the residual, no tensor x + attention.
RUNS = (*POST_LN, "gpt2", "llama", "gemma2", "gpt_neox")


@pytest.fixture(scope="module")
def model(minilm, tiny):
    """A function: the name of an architecture gives a model."""
    return lambda name: minilm if name == "minilm" else tiny(name)


@pytest.fixture(scope="module", params=RUNS)
def each_run(request, model):
    return trace(model(request.param), TEXT)


@pytest.fixture(scope="module", params=POST_LN)
def post_ln(request, model):
    return trace(model(request.param), TEXT)


def naive(run: Trace) -> list[reference.Parts]:
    return [reference.Parts.of(block) for block in run.blocks]


def naive_globenc(block: Block) -> torch.Tensor:
    second = block.before_second_norm.double(), block.second_gamma.double(), block.second_eps
    return reference.whole_layer_vectors(reference.Parts.of(block), *second).norm(dim=-1)


def everything(run: Trace) -> dict[str, torch.Tensor]:
    """All that the room gives for one run."""
    results = {f"map {stage}": stage_map(run, stage) for stage in run.stages}
    results |= {f"ratio {stage}": mixing_ratio(run, stage) for stage in run.stages}
    results["reconstruction"] = reconstruction_error(run)
    return results | ({"GlobEnc": globenc(run)} if run.blocks[0].second_gamma is not None else {})


# --- by hand: three tokens, one head, D = 2 -----------------------------------------------------


def test_three_tokens_by_hand():
    run = run_of(by_hand())
    assert run.stages == STAGES[:-1]
    # with x_i on the diagonal:
    #   a: 0.5 (0, 2) + (1, 0) = (1, 1)        ‖·‖ = √2
    #   b: 0.5 (2, 1) + (0, 2) = (1, 2.5)      ‖·‖ = √7.25
    #   c: 0.5 (2, 3) + (2, 2) = (3, 3.5)      ‖·‖ = √21.25
    kept = [math.sqrt(2), math.sqrt(7.25), math.sqrt(21.25)]
    close(stage_map(run, "AttnRes-N")[0].diagonal(), kept)
    close(stage_map(run, "AttnRes-N")[0, 2, :2], [0.25 * 2, 0.25 * math.sqrt(5)])
    # what is read from others, as one vector:
    #   a: 0.5 (2, 1) = (1, 0.5)               ‖·‖ = √1.25
    #   b: 0.5 (2, 3) = (1, 1.5)               ‖·‖ = √3.25
    #   c: 0.25 (0, 2) + 0.25 (2, 1) = (0.5, 0.75)   ‖·‖ = √0.8125, less than 0.5 + 0.559
    mixed = [math.sqrt(1.25), math.sqrt(3.25), math.sqrt(0.8125)]
    close(mixing_ratio(run, "AttnRes-N"), [[m / (m + k) for m, k in zip(mixed, kept, strict=True)]])
    own = [0.5 * 2, 0.5 * math.sqrt(5), 0.5 * math.sqrt(13)]
    close(mixing_ratio(run, "Attn-N"), [[m / (m + k) for m, k in zip(mixed, own, strict=True)]])
    # weights: all three positions give half of their attention to themselves
    close(mixing_ratio(run, "Attn-W"), [[0.5] * 3])
    close(mixing_ratio(run, "AttnRes-W"), [[0.25] * 3])
    close(stage_map(run, "AttnRes-W")[0, 0], [0.75, 0.25, 0])


def test_both_layernorms_by_hand():
    """Centring (u, v) gives ±(u − v)/2, and ∓ the same with another γ."""
    gammas = {"gamma": torch.tensor([2.0, 1.0]), "second_gamma": torch.tensor([1.0, 3.0])}
    y2 = torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 1.0]])
    norms = gammas | {"beta": torch.tensor([0.1, 0.2]), "eps": 0.75, "second_eps": 5.0}
    run = run_of(by_hand(**norms, before_second_norm=y2))
    map_, whole = stage_map(run, "AttnResLn-N")[0], globenc(run)[0]
    # b: y = (5, 4), half difference 0.5, variance 0.25, s = √(0.25 + 0.75) = 1.
    # b reads c: 0.5 (2, 3) = (1, 1.5) → centred (−.25, .25) → times γ (−.5, .25) → over s = 1
    close(map_[1, 2], math.hypot(0.5, 0.25))
    # b keeps (1, 2.5) → centred (−.75, .75) → (−1.5, .75), so its ratio is 1 : 1 + 3
    close(map_[1, 1], math.hypot(1.5, 0.75))
    close(mixing_ratio(run, "AttnResLn-N")[0, 1], 0.25)
    # a: y = (5, 1.5), half difference 1.75. a reads b: (1, .5) → (.25, −.25) → (.5, −.25) → over s
    s = math.sqrt(1.75**2 + 0.75)
    close(map_[0, 1], math.hypot(0.5, 0.25) / s)
    # LN(y) at b: ±0.5 / 1 · (2, 1) + (0.1, 0.2) = (1.1, −0.3), and nothing is left over
    output = torch.nn.functional.layer_norm(
        run.blocks[0].output, (2,), gammas["gamma"], norms["beta"], eps=0.75
    )
    close(output[1], [1.1, -0.3])
    assert reconstruction_error(changed(run, lambda b: replace(b, output=output))).max() < 1e-6
    # The second LayerNorm, at b: y₂ = (4, 0) has variance 4, so s₂ = √(4 + 5) = 3. What b reads of
    # c, (−.5, .25), is centred to (−.375, .375), times γ₂ (−.375, 1.125); what it keeps is 3 times.
    close(whole[1], [0, math.hypot(0.375, 1.125), math.hypot(0.375, 1.125) / 3])
    # a reads b: (.5, −.25) → (.375, −.375) → (.375, −1.125), over s and s₂ = √5.
    close(whole[0, 1], math.hypot(0.375, 1.125) / s / math.sqrt(5))
    # c keeps (3, 3.5): half difference −.25, as where b reads c. Its y is (6.5, 4.25).
    close(whole[2, 2], math.hypot(0.375, 1.125) / math.sqrt(1.125**2 + 0.75) / math.sqrt(5))


def test_reconstruction_by_hand():
    right = by_hand().output
    assert reconstruction_error(run_of(by_hand(), by_hand())).tolist() == [0, 0]
    # a is off by 0.6, where attention and b_O add (4, 1.5): .15 of it, whatever the sign.
    # b is off by 0.65, where they add (5, 2): .13, which is less.
    off = torch.tensor([[0.6, 0], [0, 0.65], [0, 0]])
    for wrong in (right + off, right - off):
        close(reconstruction_error(run_of(by_hand(output=wrong))), [0.15])
    only_b = off * torch.tensor([[0.0], [1], [0]])
    close(reconstruction_error(run_of(by_hand(output=right + only_b))), [0.13])


@pytest.mark.parametrize(
    ("off", "error"), [([[0.6, 0], [0, 0], [0, 0]], 0.15), ([[0, 0], [0, 0], [0, 0.9]], 0.2)]
)
def test_a_very_long_vector_hides_no_error(off, error):
    """Such as that of a sink, 150 times longer than the rest: not in other rows, nor in its own."""
    block = by_hand(residual=by_hand().residual * torch.tensor([[1.0], [1], [150]]))
    output = by_hand().output - by_hand().residual + block.residual + torch.tensor(off)
    close(reconstruction_error(run_of(replace(block, output=output))), [error])


def test_a_row_to_which_attention_adds_nothing_is_measured_by_itself():
    silent = {name: torch.zeros_like(getattr(by_hand(), name)) for name in ("W_O", "b_O")}
    output = by_hand().residual + torch.tensor([[0.1, 0], [0, 0], [0, 0]])
    close(reconstruction_error(run_of(by_hand(**silent, output=output))), [0.1 / 1.1])


def test_expansion_rate_by_hand(tiny, monkeypatch):
    """One head, D = 2: [[W_V W_O, 0], [b_V W_O + b_O, 1]] = [[0,1,0],[1,0,0],[3,1,1]]."""
    monkeypatch.setattr(block_room, "probe", lambda model, attention: run_of(by_hand()))
    # squares: 1 + 1 + 9 + 1 + 1 = 13, over D + 1 = 3
    close(expansion_rate(tiny("bert")), [math.sqrt(13 / 3)])


# --- against the naive oracle -------------------------------------------------------------------


def test_every_map_and_ratio(each_run):
    for stage in each_run.stages:
        expected = [reference.stage_map(parts, stage) for parts in naive(each_run)]
        close(stage_map(each_run, stage), torch.stack(expected))
        expected = [reference.mixing_ratio(parts, stage) for parts in naive(each_run)]
        close(mixing_ratio(each_run, stage), torch.stack(expected))


def test_globenc(post_ln):
    close(globenc(post_ln), torch.stack([naive_globenc(block) for block in post_ln.blocks]))


def test_expansion_rate(any_model):
    parts = [(b.W_V, b.W_O, b.b_V, b.b_O) for b in anatomy.blocks(any_model.network)]
    close(expansion_rate(any_model), [reference.expansion_rate(*weights) for weights in parts])


@settings(max_examples=60)
@given(blocks())
def test_any_block(block):
    """In float64: centring two numbers twice, or heads that cancel, leave few of the digits."""
    run, parts = run_of(block), reference.Parts.of(block)
    assert run.stages == STAGES
    lengths = reference.transformed_norms(parts).max()
    for stage in STAGES:
        expected, ratio = reference.stage_map(parts, stage), mixing_ratio(run, stage)
        scale = block.gamma.abs().max() / block.eps**0.5 if "Ln" in stage else 1
        slack = 1e-9 * expected.max() + 1e-6 * lengths * scale * (not stage.endswith("W"))
        assert (stage_map(run, stage)[0] - expected).abs().max() <= slack
        assert ratio.shape == (1, len(block.x)) and (ratio >= 0).all() and (ratio <= 1).all()
    close(globenc(run)[0], naive_globenc(block), 1e-6)


@settings(max_examples=150)
@given(models(), texts(), st.none() | texts(), st.data())
def test_any_model(model, text, second, data):
    """`second` is the second segment, or what an encoder-decoder is fed."""
    kind = None
    if model.network.config.is_encoder_decoder:
        kind = data.draw(st.sampled_from(get_args(anatomy.Attention)))
        run = trace(model, text, target=second or "she", attention=kind)
    else:
        run = trace(model, text, second)
    L, H, T, S = run.attention.shape
    close(run.attention.sum(dim=-1), torch.ones(L, H, T))
    assert transformed_norms(run).shape == (L, H, S) and weighted_norms(run).min() >= 0
    errors, rates = reconstruction_error(run), expansion_rate(model, kind)
    assert errors.shape == rates.shape == (L,) and errors.max() < 1e-4 and (rates > 0).all()
    assert run.stages[:2] == STAGES[:2]
    for stage in run.stages:
        maps = stage_map(run, stage)
        assert maps.shape == (L, T, S) and maps.isfinite().all() and (maps >= 0).all()
        if kind != "cross":
            ratios = mixing_ratio(run, stage)
            assert ratios.shape == (L, T) and (ratios >= 0).all() and (ratios <= 1).all()


# --- against the model itself -------------------------------------------------------------------


def test_the_parts_add_up_to_the_model_s_own_output(each_run):
    assert reconstruction_error(each_run).max() < 1e-4
    for block, parts in zip(each_run.blocks, naive(each_run), strict=True):
        close(block.output, reference.block_output(parts))


@pytest.mark.parametrize("name", ["minilm", "bert"])
def test_globenc_s_parts_add_up_to_the_layer_s_own_output(model, name):
    """Parts, g₂(g(b_O)), g₂(β), g₂(feed-forward output) and β₂: float64 leaves no room."""
    exact = model(name).double()
    layers, seen = exact.network.encoder.layer, []
    hooks = [
        module.register_forward_hook(lambda _module, _args, out: seen.append(out[0]))
        for layer in layers
        for module in (layer.output.dense, layer.output.LayerNorm)
    ]
    run = trace(exact, TEXT)
    for hook in hooks:
        hook.remove()
    for n, (layer, block, parts) in enumerate(zip(layers, run.blocks, naive(run), strict=True)):
        s = reference.scale(
            reference.before_norm(parts, reference.summed_vectors(parts)), parts.eps
        )
        norm, y2 = layer.output.LayerNorm, block.before_second_norm
        s2, gamma2 = reference.scale(y2, norm.eps), norm.weight.detach()
        biases = reference.g(parts.b_O.expand_as(y2), s, parts.gamma) + parts.beta
        terms = [
            reference.whole_layer_vectors(parts, y2, gamma2, norm.eps).sum(dim=1),
            reference.g(biases, s2, gamma2),
            reference.g(seen[2 * n], s2, gamma2),
            norm.bias.detach().expand_as(y2),
        ]
        close(sum(terms), seen[2 * n + 1], 1e-10)
        for term in terms:
            assert (term.abs().max() > 1e-3 * seen[2 * n + 1].abs().max()).all(), "each is needed"


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


# --- a wrong term is noticed --------------------------------------------------------------------


def zeroed(name):
    return lambda b: replace(b, **{name: torch.zeros_like(getattr(b, name))})


def turned(name):
    return lambda b: replace(b, **{name: getattr(b, name).roll(1, dims=0)})


# What is wrong, and the stages whose maps show it; b_O and β are in no map but by way of s.
SABOTAGE = {
    "no b_V": (zeroed("b_V"), "Attn-N AttnRes-N AttnResLn-N"),
    "heads' W_O turned": (turned("W_O"), "Attn-N AttnRes-N AttnResLn-N"),
    "heads' W_V turned": (turned("W_V"), "Attn-N"),
    "attention turned": (
        lambda b: replace(b, attention=b.attention.transpose(1, 2)),
        "Attn-W Attn-N",
    ),
    "no residual": (zeroed("residual"), "AttnRes-N AttnResLn-N"),
    "no b_O": (zeroed("b_O"), "AttnResLn-N"),
    "no beta": (zeroed("beta"), ""),
    "no gamma": (lambda b: replace(b, gamma=torch.ones_like(b.gamma)), "AttnResLn-N"),
}


@pytest.mark.parametrize("name", ["minilm", "bert", "gpt2"])
@pytest.mark.parametrize("sabotage", SABOTAGE)
def test_a_wrong_term_is_noticed(model, name, sabotage):
    if name == "gpt2" and sabotage in ("no beta", "no gamma"):
        pytest.skip("a pre-LN block has no LayerNorm after the residual connection")
    change, shown = SABOTAGE[sabotage]
    run = trace(model(name), TEXT)
    wrong = changed(run, change)
    assert reconstruction_error(wrong).min() > 1e-3
    for stage in run.stages:
        right = stage_map(run, stage)
        differs = (stage_map(wrong, stage) - right).abs().amax(dim=(1, 2)) > 1e-4 * right.max()
        assert differs.all() or stage not in shown.split(), stage
        if sabotage in ("no b_O", "no beta"):
            close(mixing_ratio(wrong, stage), mixing_ratio(run, stage))


def test_a_wrong_eps_is_noticed(tiny):
    run = trace(tiny("bert"), TEXT)
    assert reconstruction_error(changed(run, lambda b: replace(b, eps=0.0))).min() > 1e-3


# --- the table ----------------------------------------------------------------------------------


def test_a_new_stage_is_one_row_of_the_table(monkeypatch, run):
    """A stage that leaves γ out: map and ratio are those of the naive vectors with γ = 1."""
    row = replace(
        TABLE["AttnResLn-N"],
        map=lambda b: TABLE["AttnResLn-N"].map(replace(b, gamma=torch.ones_like(b.gamma))),
        ratio=lambda b: TABLE["AttnResLn-N"].ratio(replace(b, gamma=torch.ones_like(b.gamma))),
    )
    monkeypatch.setitem(TABLE, "AttnResLn-N without γ", row)
    new = run.stages[-1]
    assert run.stages == (*STAGES, "AttnResLn-N without γ")
    parts = [replace(parts, gamma=torch.ones_like(parts.gamma)) for parts in naive(run)]
    expected = [reference.stage_map(p, "AttnResLn-N") for p in parts]
    close(stage_map(run, new), torch.stack(expected))
    expected = [reference.mixing_ratio(p, "AttnResLn-N") for p in parts]
    close(mixing_ratio(run, new), torch.stack(expected))
    refused(lambda: stage_map(run, "AttnRes"), new)


# --- what the definitions imply -----------------------------------------------------------------


def test_heads_are_summed_before_the_norm(each_run):
    """The norm of the sum is at most the sum of the norms, and here clearly less."""
    of_sum, sum_of = stage_map(each_run, "Attn-N"), weighted_norms(each_run).sum(dim=1)
    assert (of_sum <= sum_of * (1 + 1e-5)).all()
    assert of_sum.mean() < 0.9 * sum_of.mean()


def test_a_constant_gamma_and_parts_without_mean_leave_the_ratio(post_ln):
    """Then LayerNorm only divides all parts of a row by one number."""

    def centred(b):
        W_O, x = (v - v.mean(dim=-1, keepdim=True) for v in (b.W_O, b.residual))
        return replace(b, W_O=W_O, residual=x, gamma=torch.full_like(b.gamma, 1.7))

    even = changed(post_ln, centred)
    close(mixing_ratio(even, "AttnResLn-N"), mixing_ratio(even, "AttnRes-N"))
    differences = mixing_ratio(post_ln, "AttnResLn-N") - mixing_ratio(post_ln, "AttnRes-N")
    assert differences.abs().max() > 1e-2, "not so in general"


def test_vectors_of_length_zero_mix_nothing(each_run):
    """f = 0: the norm stages keep all, also where 0 is divided by 0; weights do not notice."""
    zero = changed(each_run, lambda b: zeroed("W_V")(zeroed("b_V")(b)))
    assert not transformed_norms(zero).any() and not stage_map(zero, "Attn-N").any()
    for stage in each_run.stages:
        ratio = mixing_ratio(zero, stage)
        weights = stage.endswith("W")
        assert torch.equal(ratio, mixing_ratio(each_run, stage) if weights else 0 * ratio), stage


def test_a_causal_model_reads_nothing_from_the_future(tiny):
    run = trace(tiny("gpt2"), TEXT)
    for stage in run.stages:
        assert not stage_map(run, stage).triu(1).any()
        assert mixing_ratio(run, stage)[:, 0].tolist() == pytest.approx([0] * 3, abs=1e-6)


@given(blocks(), st.randoms(use_true_random=False))
def test_tokens_in_another_order(block, random):
    p = random.sample(range(len(block.x)), len(block.x))
    rows = {name: getattr(block, name)[p] for name in ("x", "residual", "before_second_norm")}
    found = run_of(replace(block, attention=block.attention[:, p][:, :, p], **rows))
    for function in (lambda run: stage_map(run, "AttnResLn-N"), globenc):
        close(function(found), function(run_of(block))[:, p][:, :, p], 1e-6)


# --- edits, devices, refusals -------------------------------------------------------------------

TENSORS = [field.name for field in fields(Block) if field.init and "eps" not in field.name]


@pytest.mark.parametrize("name", [name for name in TENSORS if name != "inner_gamma"])
def test_an_edit_in_place_reaches_every_result(tiny, name):
    """Whatever was asked before, and no other run."""
    run, other = trace(tiny("bert"), TEXT), trace(tiny("bert"), TEXT)
    before = everything(run)
    for edited in run.blocks:
        getattr(edited, name)[..., 1] *= 0.5
    after, fresh = everything(run), everything(changed(run))
    assert all(torch.equal(after[key], fresh[key]) for key in after)
    assert not all(torch.equal(after[key], before[key]) for key in after)
    assert all(torch.equal(value, before[key]) for key, value in everything(other).items())


def test_an_edit_of_the_run_s_attention_is_one_of_its_blocks(tiny):
    run = trace(tiny("bert"), TEXT)
    stage_map(run, "AttnResLn-N")
    run.attention[:, :2] = 0
    expected = changed(run, lambda b: replace(b, attention=b.attention.clone()))
    for key, value in everything(expected).items():
        assert torch.equal(everything(run)[key], value), key
    assert not weighted_norms(run)[:, :2].any()


def test_a_result_is_the_caller_s_own(tiny):
    run = trace(tiny("bert"), TEXT)
    kept = {key: value.clone() for key, value in everything(run).items()}
    for value in everything(run).values():
        value.fill_(7)
    assert all(torch.equal(value, kept[key]) for key, value in everything(run).items())


@pytest.mark.parametrize("name", ["minilm", "gpt2", "gemma2"])
def test_all_is_made_on_the_run_s_device_in_its_dtype(model, name):
    """Whatever were made without a device would be "meta" here, and hold no numbers."""
    exact = model(name).double()
    run = trace(exact, TEXT)
    with torch.device("meta"):
        found, rates = everything(changed(run)), expansion_rate(exact)
    for key, expected in everything(run).items():
        assert found[key].dtype == torch.float64 and torch.equal(found[key], expected), key
    assert torch.equal(rates, expansion_rate(exact))


FUNCTIONS = {
    "stage_map": lambda run: stage_map(run, "Attn-N"),
    "mixing_ratio": lambda run: mixing_ratio(run, "Attn-N"),
    "globenc": globenc,
    "reconstruction_error": reconstruction_error,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_model_is_no_run(minilm, function):
    refused(lambda: function(minilm), "run must be a Trace, got Model", "trace(model, text)")


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_lengths_that_are_not_finite(function):
    norm = {name: torch.ones(2) for name in ("gamma", "beta", "second_gamma")}
    norm |= {"eps": 0.1, "second_eps": 0.1, "before_second_norm": torch.ones(3, 2)}
    run = run_of(by_hand(**norm), by_hand(**norm, W_O=torch.full((1, 2, 2), 3e38)))
    refused(lambda: function(run), "layer 1 (counted from 0)", "infinite", "weights")


@pytest.mark.parametrize("function", [stage_map, mixing_ratio])
@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("Attn-n", "Attn-N"), ("AttnRes_W", "AttnRes-W"), ("Attn", "Attn-W"), ("xyz", ""), (None, "")],
)
def test_an_unknown_stage(run, function, wrong, nearest):
    guess = f"did you mean {nearest!r}?" if nearest else f"got {wrong!r}."
    refused(lambda: function(run, wrong), "stage must be", *STAGES, repr(wrong), guess)


@pytest.mark.parametrize(
    ("name", "attention", "call", "sentence"),
    [
        ("gpt2", None, "AttnResLn-N", "stage 'AttnResLn-N' does not exist in this architecture"),
        (
            "gpt2",
            None,
            "globenc",
            "globenc does not exist in this architecture, which has no Layer",
        ),
        ("marian", "cross", "AttnRes-W", "stage 'AttnRes-W' does not exist in cross-attention"),
        ("marian", "cross", "AttnResLn-N", "stage 'AttnResLn-N' does not exist in cross-attention"),
        ("marian", "cross", "mixing", "a mixing ratio does not exist in cross-attention, whose"),
        ("marian", "cross", "globenc", "globenc does not exist in cross-attention"),
        ("marian", "decoder", "globenc", "globenc does not exist here, where no feed-forward"),
    ],
)
def test_what_a_run_does_not_have(tiny, name, attention, call, sentence):
    target = "she" if attention else None
    run = trace(tiny(name), "keys", target=target, attention=attention)
    calls = {"globenc": globenc, "mixing": lambda run: mixing_ratio(run, "Attn-W")}
    function = calls.get(call, lambda run: stage_map(run, call))
    refused(lambda: function(run), sentence, f"this run has: {', '.join(run.stages)}.")


def test_a_plain_network_and_weights_that_are_not_finite(minilm):
    refused(lambda: expansion_rate(minilm.network), "Model(network, tokenizer)")
    broken = minilm.to("cpu")
    broken.network.encoder.layer[2].attention.self.value.weight.data[0, 0] = torch.nan
    refused(lambda: expansion_rate(broken), "layer.2.attention.self.value.weight", "NaN")


def test_a_coarse_network_has_no_rate(minilm):
    half = Model(copy.deepcopy(minilm.network).half(), minilm.tokenizer)
    refused(lambda: expansion_rate(half), "float16", "too coarse")
