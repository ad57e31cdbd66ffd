"""Blank-out, input gradients and value zeroing, against loops and by hand.

float32 tolerance: 1e-5 of the largest value; value zeroing 1e-4, because its distances are small.
"""

import copy
import math
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import FAMILIES, POSITIONS, config, randomise, save_marian, tokenizer
from tokenizers import processors

from helpers import (
    Model,
    anatomy,
    blank_out,
    input_gradients,
    load_model,
    rollout,
    saliency,
    trace,
    value_zeroing,
)
from helpers.saliency import rank_correlation
from helpers.trace import Block

SENTENCE = "The keys, she saw them."
SHORT = "she saw"
HEADS = {
    "bert": transformers.BertForMaskedLM,
    "roberta": transformers.RobertaForMaskedLM,
    "xlm-roberta": transformers.XLMRobertaForMaskedLM,
    "camembert": transformers.CamembertForMaskedLM,
    "electra": transformers.ElectraForMaskedLM,
    "gpt2": transformers.GPT2LMHeadModel,
}


def first_entry(output):
    """A score that every network has: one entry of the last states, of position 1."""
    states = output[0]  # last states, or logits where there is a head
    return states[0, 1, 3]


def _close(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape
    assert torch.isfinite(found).all()
    difference = (found.double() - expected.double()).abs().max()
    assert difference <= tolerance * expected.abs().max(), difference / expected.abs().max()


def _changed(model: Model, change) -> Model:
    network = copy.deepcopy(model.network)
    change(network)
    return Model("changed", network, model.tokenizer)


def _double(model: Model) -> Model:
    return _changed(model, lambda network: network.double())


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def model(family, tiny):
    return tiny(family)


@pytest.fixture(scope="module")
def with_head(family):
    """The family's language model: logits over the vocabulary."""
    words = tokenizer(family)
    network = HEADS[family](config(family, words))
    network.set_attn_implementation("eager")
    randomise(network, seed=9)
    return Model(f"{family} with a head", network.eval(), words)


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    save_marian(folder)
    return load_model(folder)


def _blank_for(model) -> str | None:
    """GPT-2's tiny tokenizer has neither a mask nor an unknown token: a letter stands in."""
    words = getattr(model, "tokenizer", None)
    return "z" if words is not None and words.mask_token is None else None


MEASURES = {
    "blank_out": lambda model, text: blank_out(model, text, first_entry, _blank_for(model)),
    "input_gradients": lambda model, text: input_gradients(model, text, first_entry, length=True),
    "value_zeroing": value_zeroing,
}


@pytest.fixture(params=MEASURES)
def measure(request):
    return MEASURES[request.param]


# --- blank-out -------------------------------------------------------------------------------


def _one_by_one(model, text, score, blank_id):
    """Blank-out as it is defined: one pass of the network a token."""
    inputs = model.tokenizer(text, return_tensors="pt")

    def scored(ids):
        with torch.no_grad():
            return score(model.network(**{**inputs, "input_ids": ids})).item()

    whole, values = scored(inputs["input_ids"]), []
    for t in range(inputs["input_ids"].shape[1]):
        ids = inputs["input_ids"].clone()
        ids[0, t] = blank_id
        values.append(abs(whole - scored(ids)))
    return torch.tensor(values)


def _blank_id(model) -> int:
    blank = _blank_for(model)
    return model.tokenizer.mask_token_id if blank is None else model.tokenizer.get_vocab()[blank]


def test_blank_out_is_what_a_loop_finds(model):
    found = blank_out(model, SENTENCE, first_entry, _blank_for(model))
    _close(found, _one_by_one(model, SENTENCE, first_entry, _blank_id(model)))


def test_blank_out_with_a_language_model(with_head):
    def log_probability(output):
        return output.logits[0, 2].log_softmax(-1)[7]

    found = blank_out(with_head, SENTENCE, log_probability, _blank_for(with_head))
    _close(found, _one_by_one(with_head, SENTENCE, log_probability, _blank_id(with_head)))


@pytest.mark.parametrize("tokens", [1, 20, 37, 10**6])
def test_blank_out_in_other_chunks(tiny, monkeypatch, tokens):
    model = tiny("roberta")
    whole = blank_out(model, SENTENCE, first_entry)
    monkeypatch.setattr(saliency, "TOKENS", tokens)
    _close(blank_out(model, SENTENCE, first_entry), whole)


def test_the_passes_are_few_and_bounded(tiny):
    model, sizes = tiny("bert"), []
    table = model.network.get_input_embeddings()
    with table.register_forward_hook(lambda _m, _a, out: sizes.append(out.shape[:2])):
        blank_out(model, SENTENCE, first_entry)
        blank_out(model, "a " * (POSITIONS - 2), first_entry)
    assert sizes[0] == (10, 9), "the text and a copy a token, in one pass"
    assert [tuple(size) for size in sizes[1:]] == [(24, 42), (19, 42)]
    assert all(rows * length <= saliency.TOKENS for rows, length in sizes)


def test_a_score_sees_the_whole_output_of_one_text(with_head):
    """The same class, and in every field what the network gives for that text alone."""

    def say_all(network):
        network.config.output_hidden_states = network.config.output_attentions = True

    model = _changed(with_head, say_all)
    seen = []

    def score(output):
        seen.append(output)
        return output.logits.sum()

    blank_out(model, SENTENCE, score, _blank_for(model))
    inputs = model.tokenizer(SENTENCE, return_tensors="pt")
    inputs["input_ids"][0, 2] = _blank_id(model)
    with torch.no_grad():
        alone = model.network(**inputs)
    found = seen[3]  # after the text itself and positions 0 and 1
    assert type(found) is type(alone)
    assert set(found) == set(alone) - {"cache"} >= {"logits", "hidden_states", "attentions"}
    for name in found:
        if isinstance(found[name], torch.Tensor):
            _close(found[name], alone[name])
        else:
            for mine, own in zip(found[name], alone[name], strict=True):
                _close(mine, own)


def test_positions_that_are_not_measured(tiny):
    model = tiny("bert")
    text = "the [MASK] are on the table ♥"  # ♥ is [UNK]
    tokens = trace(model, text).tokens
    mask, unknown = tokens.index("[MASK]"), tokens.index("[UNK]")

    def missing(**options):
        return blank_out(model, text, first_entry, **options).isnan().nonzero().flatten().tolist()

    assert missing() == [mask]
    assert missing(blank="[UNK]") == [mask, unknown], "a blank can not be blanked"
    assert missing(blank="[UNK]", exclude=()) == [unknown]
    assert missing(exclude=()) == [mask], "the blank itself"
    assert missing(exclude=4) == [mask, 4]
    assert missing(exclude=[0, -1]) == [0, mask, len(tokens) - 1]
    kept = blank_out(model, text, first_entry, "[UNK]", exclude=())
    default = blank_out(model, text, first_entry, "[UNK]")
    assert kept[mask] > 0
    assert torch.equal(kept[~default.isnan()], default[~default.isnan()])


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_ways_to_name_the_blank(tiny, family):
    model = tiny(family)
    words = model.tokenizer
    for ways in (
        (None, "[MASK]", words.mask_token, words.mask_token_id, np.int64(words.mask_token_id)),
        ("[UNK]", words.unk_token, words.unk_token_id),
        ("z", words.get_vocab()["z"]),
    ):
        results = [blank_out(model, SENTENCE, first_entry, way) for way in ways]
        assert all(torch.equal(result, results[0]) for result in results)


def test_the_unknown_token_where_there_is_no_mask(tiny):
    model = tiny("bert")
    words = tokenizer("bert")
    words.mask_token = None
    expected = blank_out(model, SENTENCE, first_entry, "[UNK]")
    found = blank_out(Model("no mask", model.network, words), SENTENCE, first_entry)
    assert torch.equal(found, expected)


def test_a_causal_model_does_not_see_what_comes_later(tiny):
    found = blank_out(tiny("gpt2"), SENTENCE, first_entry, "z")
    assert (found[:2] > 1e-3).all() and (found[2:] < 1e-6).all()


# --- input gradients -------------------------------------------------------------------------


def _finite_differences(model, text, score, step=1e-5):
    """∂score/∂x_td by moving one entry at a time, (T, D), and the embeddings themselves."""
    inputs = model.tokenizer(text, return_tensors="pt")
    table = model.network.get_input_embeddings()
    with torch.no_grad():
        x = table(inputs["input_ids"])

    def scored(embedded):
        with torch.no_grad(), table.register_forward_hook(lambda *_: embedded):
            return score(model.network(**inputs))

    gradient = torch.zeros_like(x[0])
    for place in np.ndindex(gradient.shape):
        moved = torch.zeros_like(x)
        moved[0][place] = step
        gradient[place] = (scored(x + moved) - scored(x - moved)) / (2 * step)
    return gradient, x[0]


def test_input_gradients_are_finite_differences(model):
    exact = _double(model)
    gradient, x = _finite_differences(exact, SHORT, first_entry)
    _close(input_gradients(exact, SHORT, first_entry, length=True), gradient.norm(dim=-1), 1e-6)
    times = (gradient * x).sum(dim=-1).abs()
    _close(input_gradients(exact, SHORT, first_entry, times_input=True), times, 1e-6)
    # In these networks the plain sum is 0: LayerNorm takes the mean away.
    largest = gradient.norm(dim=-1).max()
    assert gradient.sum(dim=-1).abs().max() < 1e-7 * largest
    assert input_gradients(exact, SHORT, first_entry).max() < 1e-7 * largest


@pytest.mark.parametrize("way", ["times_input", "length"])
def test_input_gradients_in_float32(model, way):
    found = input_gradients(model, SENTENCE, first_entry, **{way: True})
    expected = input_gradients(_double(model), SENTENCE, first_entry, **{way: True})
    assert found.dtype == torch.float32 and not found.requires_grad
    _close(found, expected, 1e-4)


def test_gradients_are_taken_where_they_are_switched_off(tiny):
    model = tiny("bert")
    expected = input_gradients(model, SENTENCE, first_entry, length=True)
    frozen = _changed(model, lambda network: network.requires_grad_(False))
    with torch.no_grad():
        for same in (model, frozen):
            found = input_gradients(same, SENTENCE, first_entry, length=True)
            assert torch.equal(found, expected)


def test_gradients_that_somebody_else_has_collected_stay(tiny):
    model = _changed(tiny("bert"), lambda network: None)
    kept = next(model.network.parameters())
    kept.grad = torch.ones_like(kept)
    input_gradients(model, SENTENCE, first_entry)
    assert torch.equal(kept.grad, torch.ones_like(kept))
    assert sum(p.grad is not None for p in model.network.parameters()) == 1


def test_a_causal_model_has_no_gradient_from_later_tokens(tiny):
    found = input_gradients(tiny("gpt2"), SENTENCE, first_entry, length=True)
    assert (found[:2] > 0).all() and not found[2:].any()


# --- by hand: three words, a network that only adds up ---------------------------------------


class Sum(transformers.PreTrainedModel):
    """Score per position: 1, 10, 100 times 2 x₁ − x₂."""

    config_class = transformers.PretrainedConfig

    def __init__(self, settings, vocabulary):
        super().__init__(settings)
        self.table = torch.nn.Embedding(len(vocabulary), 2)
        torch.nn.init.zeros_(self.table.weight)
        rows = {"she": (1, 2), "saw": (0, -1), "them": (3, 1), "[MASK]": (1, 0), "[UNK]": (0, 5)}
        with torch.no_grad():
            for word, row in rows.items():
                self.table.weight[vocabulary[word]] = torch.tensor(row, dtype=torch.float32)

    def get_input_embeddings(self):
        return self.table

    def forward(self, input_ids, **_):
        place = torch.tensor([1.0, 10.0, 100.0])
        states = self.table(input_ids) @ torch.tensor([2.0, -1.0]) * place
        return transformers.modeling_outputs.BaseModelOutput(last_hidden_state=states)


@pytest.fixture
def adding_up():
    words = tokenizer("bert")
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A:0")
    network = Sum(transformers.PretrainedConfig(), words.get_vocab())
    return Model("sum", network.eval(), words)


def total(output):
    return output.last_hidden_state.sum()


def test_three_words_by_hand(adding_up):
    # 2 x₁ − x₂:  she 0, saw 1, them 5, [MASK] 2, [UNK] −5; the whole is 0 + 10 + 500
    text = "she saw them"
    assert blank_out(adding_up, text, total).tolist() == [2, 10, 300]
    assert blank_out(adding_up, text, total, "[UNK]").tolist() == [5, 60, 1000]
    # the gradient at place p is p · (2, −1)
    lengths = [p * math.sqrt(5) for p in (1, 10, 100)]
    assert input_gradients(adding_up, text, total).tolist() == [1, 10, 100]
    found = input_gradients(adding_up, text, total, length=True)
    assert found.tolist() == pytest.approx(lengths)
    assert input_gradients(adding_up, text, total, times_input=True).tolist() == [0, 10, 500]
    with pytest.raises(ValueError, match="exclude each other"):
        input_gradients(adding_up, text, total, times_input=True, length=True)
    # minus the score: the same sizes
    assert blank_out(adding_up, text, lambda out: -total(out)).tolist() == [2, 10, 300]


# --- value zeroing ---------------------------------------------------------------------------


def _layers(model):
    """Each layer, with a module whose output holds its value vectors, and in which columns."""
    base = model.network.base_model
    if model.network.config.is_encoder_decoder:
        return [(layer, layer.self_attn.v_proj, slice(None)) for layer in base.encoder.layers]
    if model.network.config.model_type == "gpt2":
        D = model.network.config.n_embd
        return [(layer, layer.attn.c_attn, slice(2 * D, None)) for layer in base.h]
    return [(layer, layer.attention.self.value, slice(None)) for layer in base.encoder.layer]


def _zero_by_zero(model, text):
    """Value zeroing as it is defined: one call of the layer a token, cosines from the library."""
    inputs = dict(model.tokenizer(text, return_tensors="pt"))
    if model.network.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([[0]])
    maps = []
    for layer, value, columns in _layers(model):
        call = []

        def keep(*seen, call=call):
            call.extend(seen)

        with torch.no_grad(), layer.register_forward_hook(keep, with_kwargs=True):
            model.network(**inputs, use_cache=False)
        _, args, kwargs, true = call
        C = torch.zeros(true.shape[1], true.shape[1], dtype=torch.float64)
        for j in range(len(C)):

            def zero(_module, _args, result, j=j, columns=columns):
                result = result.clone()
                result[0, j, columns] = 0
                return result

            with torch.no_grad(), value.register_forward_hook(zero):
                new = layer(*args, **kwargs)
            C[:, j] = 1 - torch.cosine_similarity(new[0].double(), true[0].double(), dim=-1)
        maps.append(C / C.sum(dim=-1, keepdim=True))
    return torch.stack(maps)


@pytest.mark.parametrize(("exact", "tolerance"), [(False, 1e-4), (True, 1e-9)])
def test_value_zeroing_is_what_a_loop_finds(model, exact, tolerance):
    model = _double(model) if exact else model
    found = value_zeroing(model, SENTENCE)
    assert found.dtype == model.network.dtype
    _close(found, _zero_by_zero(model, SENTENCE), tolerance)


def test_value_zeroing_of_minilm(minilm):
    _close(value_zeroing(minilm, SENTENCE), _zero_by_zero(minilm, SENTENCE), 1e-4)


def test_value_zeroing_of_the_encoder_of_an_encoder_decoder(marian):
    text = "Die Schlüssel liegen im Schrank ."
    _close(value_zeroing(marian, text), _zero_by_zero(marian, text), 1e-4)


def test_value_zeroing_looks_through_a_head(with_head):
    _close(value_zeroing(with_head, SENTENCE), _zero_by_zero(with_head, SENTENCE), 1e-4)


def test_rows_are_shares(model):
    maps = value_zeroing(model, SENTENCE)
    T = maps.shape[-1]
    assert maps.shape == (3, T, T)
    assert (maps >= 0).all() and not maps.requires_grad
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(3, T))
    assert torch.isfinite(rollout(maps, residual=0)).all()


def test_causal_models_are_not_turned_from_the_future(tiny):
    maps = value_zeroing(tiny("gpt2"), SENTENCE)
    assert not maps.triu(1).any()
    assert maps[:, 0, 0].tolist() == [1, 1, 1]


def test_one_token(tiny):
    assert value_zeroing(tiny("gpt2"), "z").flatten().tolist() == [1, 1, 1]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("tokens", [1, 20, 10**6])
def test_value_zeroing_in_other_chunks(tiny, monkeypatch, family, tokens):
    model = tiny(family)
    whole = value_zeroing(model, SENTENCE)
    monkeypatch.setattr(saliency, "TOKENS", tokens)
    _close(value_zeroing(model, SENTENCE), whole, 1e-4)


def test_values_that_are_zero_already_turn_nothing(tiny):
    """A row of zeros stays one, in the layer where it is so, and rollout says where."""

    def silence(network):
        for parameter in network.encoder.layer[1].attention.self.value.parameters():
            torch.nn.init.zeros_(parameter)

    model = tiny("bert")
    maps = value_zeroing(_changed(model, silence), SENTENCE)
    assert maps.any(dim=-1).all(dim=-1).tolist() == [True, False, True]
    assert not maps[1].any()
    assert torch.equal(maps[0], value_zeroing(model, SENTENCE)[0]), "layers below do not notice"
    with pytest.raises(ValueError, match="layer 1, row 0"):
        rollout(maps, residual=0)


def test_value_zeroing_by_hand():
    """Three tokens; a layer that adds context and input: f(x) = x, W_V = W_O = 1, no bias."""
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    alpha = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]])
    eye, none = torch.eye(2)[None], torch.zeros(1, 2)

    class Layer(torch.nn.Module):
        project = torch.nn.Identity()

        def forward(self, hidden, *, twice):
            return (twice * (hidden + self.project(alpha @ hidden)),)

    layer = Layer()
    part = anatomy.Anatomy(
        W_V=eye,
        b_V=none,
        W_O=eye,
        b_O=none[0],
        x=(layer, "input"),
        residual=(layer, "input"),
        norm=None,
        output=(layer, "output"),
        project=layer.project,
        layer=layer,
        second_norm=None,
    )
    block = Block(alpha, x, x, eye, none, eye, none[0], None, None, None, x)
    args, kwargs = (x[None],), {"twice": 2}
    found = saliency._turns(part, block, args, kwargs, layer(*args, **kwargs))
    # a: (1, 0) + (.5, .5) = (1.5, .5); without a (1, .5), without b (1.5, 0), c is not read
    a = [1 - 1.75 / math.sqrt(2.5 * 1.25), 1 - 1.5 / math.sqrt(2.5), 0]
    # b: (0, 2); without b (0, 1): shorter and not turned
    # c: (1, 1) + (.5, 1) = (1.5, 2); without b (1.5, 1.5), without c (1, 1.5) + … = (1, 1.5)
    c = [0, 1 - 5.25 / math.sqrt(6.25 * 4.5), 1 - 4.5 / math.sqrt(6.25 * 3.25)]
    expected = [[v / sum(a) for v in a], [0, 0, 0], [v / sum(c) for v in c]]
    torch.testing.assert_close(found, torch.tensor(expected))
    # A true output of b that rounding has turned by 1e-7: still no turn to make a share of.
    rounded = layer(*args, **kwargs)[0].clone()
    rounded[0, 1, 0] = 4e-7
    found = saliency._turns(part, block, args, kwargs, (rounded,))
    torch.testing.assert_close(found, torch.tensor(expected))


# --- all three -------------------------------------------------------------------------------


def test_tokens_in_another_order(tiny, measure):
    """Without positions a model can not tell the order: the result is permuted with the text."""

    def forget(network):
        torch.nn.init.zeros_(network.embeddings.position_embeddings.weight)

    model = _changed(tiny("bert"), forget)
    score = {"score": lambda output: output[0][0, 0, 3]}  # [CLS], which stays where it is
    if measure is value_zeroing:
        first, second = (value_zeroing(model, t) for t in ("she saw keys", "keys she saw"))
    else:
        blank = measure is MEASURES["blank_out"]
        function = blank_out if blank else partial(input_gradients, length=True)
        first, second = (function(model, t, **score) for t in ("she saw keys", "keys she saw"))
    order = [0, 2, 3, 1, 4]  # [CLS] she saw keys [SEP]: where each stands in the second text
    second = second[..., order]
    _close(second[:, order] if second.ndim == 3 else second, first, 1e-4)


def test_the_model_is_as_before(model, measure):
    model = _changed(model, lambda network: None)
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    run = trace(model, SENTENCE)  # the library adds hooks of its own in the first pass

    def hooks():
        return [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.network.modules()]

    count, flags = hooks(), [p.requires_grad for p in model.network.parameters()]
    first = measure(model, SENTENCE)
    assert torch.equal(measure(model, SENTENCE), first)
    assert hooks() == count
    assert [p.requires_grad for p in model.network.parameters()] == flags
    assert all(p.grad is None for p in model.network.parameters())
    assert all(torch.equal(before[n], t) for n, t in model.network.state_dict().items())
    assert not model.network.training and torch.is_grad_enabled()
    assert torch.equal(trace(model, SENTENCE).attention, run.attention)


@pytest.mark.parametrize("function", [blank_out, input_gradients])
def test_a_score_that_fails_leaves_no_hook(tiny, function):
    model = tiny("bert")
    table = model.network.get_input_embeddings()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        function(model, SENTENCE, lambda output: output.nothing)
    assert not table._forward_hooks


# --- mistakes --------------------------------------------------------------------------------

SCORES = {
    "a vector": (
        lambda out: out[0][0, 0],
        r"one finite number, .* got a tensor of .* shape \(24,\)",
    ),
    "a number of Python": (lambda out: out[0][0, 0, 0].item(), "one finite number, .* got float"),
    "nothing": (lambda out: None, "one finite number, .* got NoneType"),
    "an argmax": (lambda out: out[0][0, 0].argmax(), "one finite number, .* torch.int64"),
    "NaN": (lambda out: out[0].sum() * torch.nan, "one finite number, .* got nan"),
    "infinity": (lambda out: (0 * out[0].sum()).log(), "one finite number, .* got -inf"),
}


@pytest.mark.parametrize("function", [blank_out, input_gradients])
@pytest.mark.parametrize("wrong", SCORES)
def test_scores_that_are_no_number(tiny, function, wrong):
    score, message = SCORES[wrong]
    with pytest.raises(ValueError, match=f"^score must return {message}") as caught:
        function(tiny("bert"), SENTENCE, score)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda out: out[0][0, 0, 0].detach(), "score does not depend on the embeddings"),
        (lambda out: torch.tensor(1.0), "score does not depend on the embeddings"),
        (lambda out: torch.ones((), requires_grad=True) * 2, "score does not depend on the embed"),
        (lambda out: (0 * out[0].sum()).sqrt(), "gradient of score is NaN or infinite"),
    ],
)
def test_scores_without_a_gradient(tiny, score, message):
    with pytest.raises(ValueError, match=message) as caught:
        input_gradients(tiny("bert"), SENTENCE, score)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"blank": "[BLANK]"}, ValueError, r"blank '\[BLANK\]' is no token .* or '\[MASK\]', or"),
        ({"blank": ""}, ValueError, "blank '' is no token of this model"),
        ({"blank": -1}, ValueError, "blank -1 is no token of this model"),
        ({"blank": 10**6}, ValueError, "blank 1000000 is no token .* below"),
        ({"blank": True}, ValueError, "blank True is no token of this model"),
        ({"blank": 1.0}, ValueError, "blank 1.0 is no token of this model"),
        ({"exclude": 9}, ValueError, "exclude, each .* from 0 to 8, .* got 9"),
        ({"exclude": [0, -10]}, ValueError, "exclude, each position of it, must be .* got -10"),
        ({"exclude": "she"}, ValueError, "exclude, each position of it, must be .* got 'she'"),
        ({"exclude": 1.5}, ValueError, "exclude, each position of it, must be .* got 1.5"),
        ({"exclude": [True]}, ValueError, "exclude, each position of it, must be .* got True"),
        ({"score": None}, TypeError, "score must be a function .* got NoneType"),
    ],
)
def test_wrong_arguments_of_blank_out(tiny, change, error, message):
    arguments = {"model": tiny("bert"), "text": SENTENCE, "score": first_entry} | change
    with pytest.raises(error, match=message) as caught:
        blank_out(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", ValueError, "text is empty; give at least one word."),
        ("  ", ValueError, "text is empty"),
        (None, TypeError, "text must be one string, got NoneType"),
        (["she"], TypeError, "text must be one string, got list"),
        ("a " * 41, ValueError, "text has 43 tokens .* reads at most 42"),
    ],
)
def test_wrong_texts(tiny, measure, text, error, message):
    with pytest.raises(error, match=message) as caught:
        measure(tiny("bert"), text)
    assert "\n" not in str(caught.value)


def test_wrong_models(tiny, marian, measure):
    small = tiny("bert")
    with pytest.raises(TypeError, match="model must be a Model, got BertModel; make one with"):
        measure(small.network, SENTENCE)
    with pytest.raises(ValueError, match="training mode, where dropout"):
        measure(_changed(small, lambda network: network.train()), SENTENCE)
    with pytest.raises(ValueError, match="float16"):
        measure(_changed(small, lambda network: network.half()), SENTENCE)
    if measure is not value_zeroing:
        with pytest.raises(ValueError, match="is an encoder-decoder, whose output needs a second"):
            measure(marian, "Die Schlüssel .")


def test_a_model_without_mask_and_unknown_token(tiny):
    with pytest.raises(
        ValueError, match="^blank must be given: this model has no mask token and no"
    ):
        blank_out(tiny("gpt2"), SENTENCE, first_entry)


def _headed(family: str, head: str, **settings) -> Model:
    """A tiny model of this class of transformers."""
    words = tokenizer(family)
    network = getattr(transformers, head)(config(family, words, **settings))
    network.set_attn_implementation("eager")
    randomise(network, seed=7)
    return Model(head, network.eval(), words)


ALONE = {"is_decoder": True, "is_encoder_decoder": False}
WHOLE_NETWORKS = {
    "BartForCausalLM": ("bart", ALONE),
    "MarianForCausalLM": ("marian", ALONE),
    "T5ForTokenClassification": ("t5", {}),
    "T5EncoderModel": ("t5", {}),
    "MT5EncoderModel": ("mt5", {}),
    "GPT2ForSequenceClassification": ("gpt2", {"pad_token_id": None}),
    "GPTNeoXForSequenceClassification": ("gpt_neox", {"pad_token_id": None}),
    "LlamaForSequenceClassification": ("llama", {}),
    "GPT2DoubleHeadsModel": ("gpt2", {"num_labels": 1}),
    "BertLMHeadModel": ("bert", {"is_decoder": True}),
}


def squares(output):
    return output[0].square().sum()


@pytest.mark.parametrize("head", WHOLE_NETWORKS)
def test_networks_with_a_cache_without_padding_or_with_two_tables(head):
    family, settings = WHOLE_NETWORKS[head]
    model = _headed(family, head, **settings)
    text = "she saw"
    ids = model.tokenizer(text, return_tensors="pt")["input_ids"]

    def score(ids):
        with torch.no_grad():
            return model.network(input_ids=ids, use_cache=False)[0].square().sum()

    found, whole = blank_out(model, text, squares, blank=9), score(ids)
    for t in range(ids.shape[1]):
        changed = ids.clone()
        changed[0, t] = 9
        torch.testing.assert_close(found[t], (score(changed) - whole).abs(), rtol=1e-4, atol=1e-4)
    gradient = input_gradients(model, text, squares, length=True)
    assert gradient.shape == (ids.shape[1],) and gradient.isfinite().all() and gradient.max() > 0


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
@pytest.mark.parametrize("function", [blank_out, input_gradients])
def test_a_head_that_compares_texts_is_refused(family, function):
    head = {"bert": "Bert", "electra": "Electra", "roberta": "Roberta"}[
        family
    ] + "ForMultipleChoice"
    with pytest.raises(ValueError, match=f"has the head {head}, which compares several texts"):
        function(_headed(family, head), SENTENCE, squares)


def test_gradients_in_inference_mode(tiny):
    model = tiny("bert")
    expected = input_gradients(model, SENTENCE, first_entry, length=True)
    with torch.inference_mode():
        found = input_gradients(model, SENTENCE, first_entry, length=True)
        read = load_model(model.name)
        assert torch.equal(found, expected)
    assert torch.equal(input_gradients(read, SENTENCE, first_entry, length=True), expected)


# --- rank correlation ------------------------------------------------------------------------


def test_ties_share_a_mean_rank():
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, squares 4.5 and 5
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rank_correlation(torch.tensor([1.0, 5, 9]), np.array([3, 2, 1])) == -1


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 1, 1], [1, 2, 3]),
        ([1, 2, 3], [0.1, 0.1, 0.1]),
        ([1, 1, 1, 2], [1, 2, 3, float("nan")]),  # constant where both are there
        ([1, 2], [1, 2]),
        ([1, 2, float("nan"), 4], [1, float("inf"), 3, 4]),
        ([], []),
    ],
)
def test_no_correlation_is_missing_and_not_zero(a, b):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(rank_correlation(a, b))


def test_missing_values_are_dropped_in_pairs():
    nan = float("nan")
    a, b = [1, nan, 2, 3, 9, 4], [1, 100, 3, 2, nan, 4]
    assert rank_correlation(a, b) == pytest.approx(rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]))


@pytest.mark.parametrize(("a", "b"), [([1, 2, 3], [1, 2]), ([[1, 2, 3]], [[1, 2, 3]]), (1, 2)])
def test_shapes_that_do_not_fit(a, b):
    with pytest.raises(ValueError, match="^a and b must be vectors of one length, got"):
        rank_correlation(a, b)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=3, max_size=12))
def test_any_correlation_is_that_of_pandas(pairs):
    a, b = (list(side) for side in zip(*pairs, strict=True))
    found = rank_correlation(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert math.isnan(found)
        return
    expected = pd.Series(a).rank().corr(pd.Series(b).rank())
    assert found == pytest.approx(expected, abs=1e-12)
    assert found == pytest.approx(rank_correlation(b, a), abs=1e-12)
    assert found == pytest.approx(rank_correlation(np.exp(a), b), abs=1e-12), "only order counts"
