"""Blank-out, input gradients and value zeroing: by hand, against loops, and what they leave behind.

float32 is held to 1e-5 of the largest value; value zeroing to 1e-4: its distances are small.
"""

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from oracle import cut
from oracle.compare import close, refused
from oracle.tiny_models import POSITIONS, config, randomise, tokenizer
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
from helpers.saliency import blank, embedding_gradient, zeroing
from helpers.tokens import encode
from helpers.tracing import Block

SENTENCE, SHORT = "The keys, she saw them.", "she saw"
BLANK = 9  # the id of a token that is not in them
POST_LN = ("bert", "roberta", "electra", "distilbert", "albert", "albert, 2 groups of 2")
SHARED = POST_LN[-2:]  # few layers, called again and again
HEADS = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "electra": "ElectraForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
}


def first_entry(output):
    """A score that every network has: one entry at position 1 of the last states, or the logits."""
    return output[0][0, 1, 3]


def squares(output):
    return output[0].square().sum()


def changed(model: Model, change=lambda network: None) -> Model:
    """A copy of the model whose network was changed."""
    network = copy.deepcopy(model.network)
    change(network)
    return replace(model, network=network)


def headed(family: str, head: str, **settings) -> Model:
    """A tiny model of this class of transformers."""
    words = tokenizer(family)
    network = getattr(transformers, head)(config(family, words, **settings))
    network.set_attn_implementation("eager")
    randomise(network, seed=7)
    return Model(network.eval(), words, head)


MEASURES = {
    "blank_out": lambda model, text: blank_out(model, text, first_entry, BLANK),
    "input_gradients": lambda model, text: input_gradients(model, text, first_entry),
    "value_zeroing": value_zeroing,
}


@pytest.fixture(params=MEASURES)
def measure(request):
    return MEASURES[request.param]


@pytest.fixture(params=(*POST_LN, "gpt2"))
def model(request, tiny):
    return tiny(request.param)


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


def test_three_words_by_hand():
    words = tokenizer("bert")
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A:0")
    model = Model(Sum(transformers.PretrainedConfig(), words.get_vocab()).eval(), words)

    def measured(function, *options):
        return function(model, "she saw them", lambda out: out[0].sum(), *options).tolist()

    # 2 x₁ − x₂:  she 0, saw 1, them 5, [MASK] 2, [UNK] −5; the whole is 0 + 10 + 500
    assert measured(blank_out) == [2, 10, 300]
    assert measured(blank_out, "[UNK]") == [5, 60, 1000]
    # the gradient at place p is p · (2, −1)
    close(measured(input_gradients), [p * math.sqrt(5) for p in (1, 10, 100)])
    assert measured(input_gradients, "dot") == [0, 10, 500]


def test_value_zeroing_by_hand():
    """Three tokens; a layer that adds context and input: f(x) = x, W_V = W_O = 1, no bias."""
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    alpha = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]])
    weights = {"W_V": torch.eye(2)[None], "b_V": torch.zeros(1, 2)}
    weights |= {"W_O": torch.eye(2)[None], "b_O": torch.zeros(2)}

    class Layer(torch.nn.Module):
        project = torch.nn.Identity()

        def forward(self, hidden, *, twice):
            return (twice * (hidden + self.project(alpha @ hidden)),)

    layer = Layer()
    taps = dict.fromkeys(("x", "residual"), (layer, "input")) | {"output": (layer, "output")}
    part = anatomy.Anatomy(**weights, **taps, norm=None, project=layer.project, layer=layer)
    block = Block(alpha, x, x, *weights.values(), None, None, None, x)
    true = layer(x[None], twice=2)
    # a: (1, 0) + (.5, .5) = (1.5, .5); without a (1, .5), without b (1.5, 0), c is not read
    a = [1 - 1.75 / math.sqrt(2.5 * 1.25), 1 - 1.5 / math.sqrt(2.5), 0]
    # b: (0, 2); without b (0, 1): shorter and not turned
    # c: (1, 1) + (.5, 1) = (1.5, 2); without b (1.5, 1.5), without c (1, 1.5)
    c = [0, 1 - 5.25 / math.sqrt(6.25 * 4.5), 1 - 4.5 / math.sqrt(6.25 * 3.25)]
    rounded = true[0].clone()
    rounded[0, 1, 0] = 4e-7  # b turned by rounding: still no turn to make a share of
    for output in (true, (rounded,)):
        found = zeroing._turns(part, block, (x[None],), {"twice": 2}, output)
        close(found, [[v / sum(a) for v in a], [0, 0, 0], [v / sum(c) for v in c]])


# --- blank-out -------------------------------------------------------------------------------


def one_by_one(model: Model, text: str, score, blank: int) -> torch.Tensor:
    """Blank-out as it is defined: one pass of the network per token."""
    inputs = model.tokenizer(text, return_tensors="pt")

    @torch.no_grad()
    def scored(ids):
        cache = {} if "Bert" in type(model.network).__name__ else {"use_cache": False}
        return score(model.network(**inputs | {"input_ids": ids}, **cache))

    ids = inputs["input_ids"]
    texts = [ids.masked_fill(torch.arange(ids.shape[1]) == t, blank) for t in range(ids.shape[1])]
    return torch.stack([(scored(text) - scored(ids)).abs() for text in texts])


def test_blank_out_is_what_a_loop_finds(model):
    found = blank_out(model, SENTENCE, first_entry, BLANK)
    close(found, one_by_one(model, SENTENCE, first_entry, BLANK))


@pytest.mark.parametrize("family", HEADS)
def test_blank_out_with_a_language_model(family):
    model = headed(family, HEADS[family]).double()

    def log_probability(output):
        return output.logits[0, 2].log_softmax(-1)[7]

    found = blank_out(model, SENTENCE, log_probability, BLANK)
    close(found, one_by_one(model, SENTENCE, log_probability, BLANK), 1e-9)


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


@pytest.mark.parametrize("head", WHOLE_NETWORKS)
def test_networks_with_a_cache_without_padding_or_with_two_tables(head):
    family, settings = WHOLE_NETWORKS[head]
    model = headed(family, head, **settings)
    model.tokenizer.model_input_names = ["input_ids"]
    close(blank_out(model, SHORT, squares, BLANK), one_by_one(model, SHORT, squares, BLANK), 1e-4)
    for kind in saliency.KINDS:
        found = input_gradients(model, SHORT, squares, kind)
        assert found.isfinite().all() and found.ndim == 1


@pytest.mark.parametrize("tokens", [1, 20, 37])
def test_other_chunks_give_the_same(tiny, monkeypatch, tokens):
    before = [measure(tiny("roberta"), SENTENCE) for measure in MEASURES.values()]
    for room in (blank, zeroing):
        monkeypatch.setattr(room, "TOKENS", tokens)
    for measure, whole in zip(MEASURES.values(), before, strict=True):
        close(measure(tiny("roberta"), SENTENCE), whole, 1e-4)


def test_the_passes_are_few_and_bounded(tiny, monkeypatch):
    model, sizes = tiny("bert"), []
    table = model.network.get_input_embeddings()
    look_up = table.forward
    monkeypatch.setattr(
        table, "forward", lambda ids: sizes.append(tuple(ids.shape)) or look_up(ids)
    )
    blank_out(model, SENTENCE, first_entry)
    blank_out(model, "a " * (POSITIONS - 2), first_entry)
    assert sizes[0] == (10, 9), "the text and a copy per token, in one pass"
    assert sizes[1:] == [(24, 42), (19, 42)] and 24 * 42 <= blank.TOKENS


@pytest.mark.parametrize("family", HEADS)
def test_a_score_sees_the_whole_output_of_one_text(family):
    """The same class, and in every field what the network gives for that text alone."""
    model, seen = headed(family, HEADS[family]), []
    model.network.config.output_hidden_states = model.network.config.output_attentions = True
    blank_out(model, SENTENCE, lambda output: seen.append(output) or output.logits.sum(), BLANK)
    inputs = model.tokenizer(SENTENCE, return_tensors="pt")
    inputs["input_ids"][0, 2] = BLANK
    with torch.no_grad():
        alone = model.network(**inputs)
    found = seen[3]  # after the text itself and positions 0 and 1
    assert type(found) is type(alone)
    assert set(found) == set(alone) - {"cache"} >= {"logits", "hidden_states", "attentions"}
    for name in found:
        both = [[v] if isinstance(v, torch.Tensor) else v for v in (found[name], alone[name])]
        for mine, own in zip(*both, strict=True):
            close(mine, own)


def test_positions_that_are_not_measured(tiny):
    text = "the [MASK] are on the table ♥"  # ♥ is [UNK]
    tokens = trace(tiny("bert"), text).tokens
    mask, unknown = tokens.index("[MASK]"), tokens.index("[UNK]")
    measured = partial(blank_out, tiny("bert"), text, first_entry)

    def missing(**options):
        return measured(**options).isnan().nonzero().flatten().tolist()

    assert missing() == [mask]
    assert missing(blank="[UNK]") == [mask, unknown], "a blank cannot be blanked"
    assert missing(blank="[UNK]", exclude=()) == [unknown]
    assert missing(exclude=()) == [mask], "the blank itself"
    assert missing(exclude=4) == [mask, 4]
    assert missing(exclude=[0, -1]) == [0, mask, len(tokens) - 1]
    kept, default = measured("[UNK]", exclude=()), measured("[UNK]")
    assert kept[mask] > 0
    assert torch.equal(kept[~default.isnan()], default[~default.isnan()])


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_ways_to_name_the_blank(tiny, family):
    model, words = tiny(family), tiny(family).tokenizer
    for ways in (
        (None, "[MASK]", words.mask_token, words.mask_token_id, np.int64(words.mask_token_id)),
        ("[UNK]", words.unk_token, words.unk_token_id),
        ("z", words.get_vocab()["z"]),
    ):
        results = [blank_out(model, SENTENCE, first_entry, way) for way in ways]
        assert all(torch.equal(result, results[0]) for result in results)
    without = tokenizer(family)
    without.mask_token = None
    found = blank_out(replace(model, tokenizer=without), SENTENCE, first_entry)
    assert torch.equal(found, blank_out(model, SENTENCE, first_entry, "[UNK]"))


# --- input gradients -------------------------------------------------------------------------


def finite_differences(model: Model, text: str, score, step: float = 1e-5):
    """∂score/∂x_td by moving one entry at a time, (T, D), and the word embeddings themselves."""
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


def test_norm_and_dot_are_those_of_finite_differences(model):
    exact = model.double()
    gradient, x = finite_differences(exact, SHORT, first_entry)
    length, times = gradient.norm(dim=-1), (gradient * x).sum(dim=-1).abs()
    close(input_gradients(exact, SHORT, first_entry), length, 1e-6)
    close(input_gradients(exact, SHORT, first_entry, "dot"), times, 1e-6)
    found = embedding_gradient(exact, SHORT, first_entry)
    for mine, naive in zip(found, (gradient, x), strict=True):
        close(mine, naive, 1e-6)
    for kind, expected in (("norm", length), ("dot", times)):
        found = input_gradients(model, SHORT, first_entry, kind)
        assert found.dtype == torch.float32 and not found.requires_grad
        close(found, expected, 1e-4)


@pytest.mark.parametrize("family", [*POST_LN, "llama"])
def test_sum_is_taken_at_the_first_layer_s_input(tiny, family):
    """What autograd finds at the first hidden states, which transformers itself gives."""
    model = tiny(family).double()
    output = model.network(
        **model.tokenizer(SENTENCE, return_tensors="pt"), output_hidden_states=True
    )
    entering = output.hidden_states[0]
    (gradient,) = torch.autograd.grad(first_entry(output), entering)
    found = input_gradients(model, SENTENCE, first_entry, "sum")
    close(found, gradient[0].sum(dim=-1).abs(), 1e-9)
    assert found.max() > 0.01 * gradient.norm(dim=-1).max()
    at_layer, e = embedding_gradient(model, SENTENCE, first_entry, after_norm=True)
    close(at_layer, gradient[0], 1e-9)
    close(e, entering[0], 1e-9)


@pytest.mark.parametrize("family", POST_LN)
def test_before_the_embeddings_layer_norm_the_sum_is_rounding(tiny, family):
    gradient, _ = embedding_gradient(tiny(family), SENTENCE, first_entry)
    assert gradient.sum(dim=-1).abs().max() < 1e-5 * gradient.norm(dim=-1).max()
    assert input_gradients(tiny(family), SENTENCE, first_entry).max() > 0, "the default is not"


def test_in_gpt2_even_what_enters_the_first_layer_sums_to_rounding(tiny):
    found = input_gradients(tiny("gpt2"), SENTENCE, first_entry, "sum")
    assert found.max() < 1e-5 * input_gradients(tiny("gpt2"), SENTENCE, first_entry).max()


def test_gradients_are_taken_where_they_are_switched_off(tiny):
    model = tiny("bert")
    frozen = changed(model, lambda network: network.requires_grad_(False))
    for kind in saliency.KINDS:
        expected = input_gradients(model, SENTENCE, first_entry, kind)
        for switch in (torch.no_grad, torch.inference_mode):
            with switch():
                read = load_model(model.name)
                for same in (model, frozen, read):
                    assert torch.equal(input_gradients(same, SENTENCE, first_entry, kind), expected)
        assert torch.equal(input_gradients(read, SENTENCE, first_entry, kind), expected)


def test_gradients_that_somebody_else_has_collected_stay(tiny):
    model = changed(tiny("bert"))
    kept = next(model.network.parameters())
    kept.grad = torch.ones_like(kept)
    for kind in saliency.KINDS:
        input_gradients(model, SENTENCE, first_entry, kind)
    assert torch.equal(kept.grad, torch.ones_like(kept))
    assert sum(p.grad is not None for p in model.network.parameters()) == 1


# --- value zeroing ---------------------------------------------------------------------------


def zero_by_zero(model: Model, text: str, attention: str | None = None) -> torch.Tensor:
    """Value zeroing as it is defined: one pass of the network per layer and token."""
    ids = cut.inputs(model, text, target=text if attention else None)
    place = cut.place(model.network.config.model_type, attention)
    return cut.value_zeroing(model.network, place, ids)


def test_value_zeroing_is_what_a_loop_finds(model):
    naive = zero_by_zero(model.double(), SENTENCE)
    for same, tolerance in ((model, 1e-4), (model.double(), 1e-9)):
        found = value_zeroing(same, SENTENCE)
        assert found.dtype == same.network.dtype and not found.requires_grad
        close(found, naive, tolerance)
        assert (found >= 0).all() and rollout(found, residual=0).isfinite().all()
        close(found.sum(dim=-1), torch.ones(found.shape[:2]))


def test_value_zeroing_of_minilm_of_a_headed_network_and_of_an_encoder(minilm, tiny):
    for model in (minilm, headed("bert", HEADS["bert"])):
        close(value_zeroing(model, SHORT), zero_by_zero(model, SHORT), 1e-4)
    for family in ("marian", "t5"):
        found = value_zeroing(tiny(family), "the keys")
        close(found, zero_by_zero(tiny(family), "the keys", "encoder"), 1e-4)


def test_values_that_are_zero_already_turn_nothing(tiny):
    """A row of zeros stays one, in the layer where it is so, and rollout says where."""

    def silence(network):
        for parameter in network.encoder.layer[1].attention.self.value.parameters():
            torch.nn.init.zeros_(parameter)

    maps = value_zeroing(changed(tiny("bert"), silence), SENTENCE)
    assert maps.any(dim=-1).all(dim=-1).tolist() == [True, False, True]
    assert not maps[1].any()
    assert torch.equal(maps[0], value_zeroing(tiny("bert"), SENTENCE)[0]), "below, nothing changes"
    refused(lambda: rollout(maps, residual=0), "layer 1, row 0")


# --- all three -------------------------------------------------------------------------------


def test_a_causal_model_does_not_see_what_comes_later(tiny):
    model = tiny("gpt2")
    for function in (partial(blank_out, blank="z"), input_gradients):
        found = function(model, SENTENCE, first_entry)
        assert (found[:2] > 1e-3).all() and (found[2:] < 1e-6).all()
    maps = value_zeroing(model, SENTENCE)
    assert not maps.triu(1).any() and maps[:, 0, 0].tolist() == [1, 1, 1]
    assert value_zeroing(model, "z").flatten().tolist() == [1, 1, 1]


def test_tokens_in_another_order(tiny):
    """Without positions a model cannot tell the order: the result is permuted with the text."""
    model = changed(
        tiny("bert"), lambda n: torch.nn.init.zeros_(n.embeddings.position_embeddings.weight)
    )
    order = [0, 2, 3, 1, 4]  # [CLS] she saw keys [SEP]: where each stands in the second text
    of_cls = {"score": lambda output: output[0][0, 0, 3]}  # which stays where it is
    gradients = [partial(input_gradients, kind=kind, **of_cls) for kind in saliency.KINDS]
    for function in (partial(blank_out, **of_cls), *gradients):
        first, second = (function(model, text) for text in ("she saw keys", "keys she saw"))
        close(second[order], first, 1e-4)
    first, second = (value_zeroing(model, text) for text in ("she saw keys", "keys she saw"))
    close(second[:, order][:, :, order], first, 1e-4)


def test_the_model_is_as_before(model, measure):
    model = changed(model)
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    run = trace(model, SENTENCE)  # the library adds hooks of its own in the first pass

    def hooks():
        return [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.network.modules()]

    count, flags = hooks(), [p.requires_grad for p in model.network.parameters()]
    assert torch.equal(measure(model, SENTENCE), measure(model, SENTENCE))
    assert hooks() == count
    assert [p.requires_grad for p in model.network.parameters()] == flags
    assert all(p.grad is None for p in model.network.parameters())
    assert all(torch.equal(before[n], t) for n, t in model.network.state_dict().items())
    assert not model.network.training and torch.is_grad_enabled()
    assert torch.equal(trace(model, SENTENCE).attention, run.attention)


FUNCTIONS = [blank_out, *(partial(input_gradients, kind=kind) for kind in saliency.KINDS)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_score_that_fails_leaves_no_hook(tiny, function):
    network = tiny("bert").network
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        function(tiny("bert"), SENTENCE, lambda output: output.nothing)
    assert not network.get_input_embeddings()._forward_hooks
    assert not network.encoder.layer[0]._forward_pre_hooks


# --- mistakes --------------------------------------------------------------------------------

NOT_A_NUMBER = {
    "a tensor of torch.float32 and shape (24,)": lambda out: out[0][0, 0],
    "got float": lambda out: out[0][0, 0, 0].item(),
    "got NoneType": lambda out: None,
    "torch.int64": lambda out: out[0][0, 0].argmax(),
    "got nan": lambda out: out[0].sum() * torch.nan,
    "got -inf": lambda out: (0 * out[0].sum()).log(),
}


@pytest.mark.parametrize("words", NOT_A_NUMBER)
def test_scores_that_are_not_a_number(tiny, words):
    for function in (blank_out, input_gradients):
        call = partial(function, tiny("bert"), SENTENCE, NOT_A_NUMBER[words])
        assert refused(call, "one finite number", words).startswith("score must return")


def test_scores_without_a_gradient(tiny):
    for score in (
        lambda out: out[0][0, 0, 0].detach(),
        lambda out: torch.tensor(1.0),
        lambda out: torch.ones((), requires_grad=True) * 2,
    ):
        call = partial(input_gradients, tiny("bert"), SENTENCE, score)
        refused(call, "score does not depend on the embeddings", "without .item()")
    call = partial(input_gradients, tiny("bert"), SENTENCE, lambda out: (0 * out[0].sum()).sqrt())
    refused(call, "gradient of score is NaN or infinite")


BAD_ARGUMENTS = {
    "blank '[BLANK]' is not a token of this model": {"blank": "[BLANK]"},
    "blank -1 is not": {"blank": -1},
    "blank 1000000 is not": {"blank": 10**6},
    "blank 1.0 is not": {"blank": 1.0},
    "every position in exclude must be a whole number from 0 to 8": {"exclude": 9},
    "from -9 to -1 counted from the end, got -10": {"exclude": [0, -10]},
    "every position in exclude must be a whole number": {"exclude": "she"},
    "score must be a function from the model's output": {"score": None},
    "text must be one string, or a list of words": {"text": ["she", 3]},
}


@pytest.mark.parametrize("words", BAD_ARGUMENTS)
def test_wrong_arguments(tiny, words):
    good = {"model": tiny("bert"), "text": SENTENCE, "score": first_entry}
    refused(lambda: blank_out(**good | BAD_ARGUMENTS[words]), words)


def test_a_kind_that_does_not_exist(tiny):
    call = partial(input_gradients, tiny("bert"), SENTENCE, first_entry)
    refused(lambda: call(kind="length"), 'kind must be "norm", "dot" or "sum", got \'length\'')
    refused(lambda: call(kind=True), "kind must be")


def test_models_that_cannot_be_measured(tiny, measure):
    small = tiny("bert")
    refused(lambda: measure(small.network, SENTENCE), "Model(network, tokenizer)")
    training = changed(small, lambda network: network.train())
    refused(lambda: measure(training, SENTENCE), "training mode")
    half = changed(small, lambda network: network.half())
    refused(lambda: measure(half, SENTENCE), "float16")
    if measure is not value_zeroing:
        refused(lambda: measure(tiny("marian"), SENTENCE), "whose output needs a second text")
        choice = headed("bert", "BertForMultipleChoice")
        refused(lambda: measure(choice, SENTENCE), "BertForMultipleChoice, which compares several")
    # Nothing but the last layer's output shows it.
    spoilt = changed(tiny("gpt2"), lambda n: n.h[-1].mlp.c_proj.weight.data.fill_(torch.nan))
    refused(lambda: measure(spoilt, SENTENCE), "NaN or infinite weights, first in h.2.mlp.c_proj")


def test_a_model_without_mask_and_unknown_token(tiny):
    refused(lambda: blank_out(tiny("gpt2"), SENTENCE, first_entry), "blank None is not a token")


# --- two segments ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2"])
def test_pairs(tiny, name):
    """Each measure of a pair is that of the ids and segments that the tokenizer makes of it."""
    model, pair = tiny(name), ("the keys", "she saw")
    inputs = encode(model, *pair)
    T = inputs["input_ids"].shape[1]

    def by_hand(ids):
        with torch.no_grad():
            return squares(model.network(**(dict(inputs) | {"input_ids": ids})))

    expected = []
    for t in range(T):
        ids = inputs["input_ids"].clone()
        ids[0, t] = 5
        expected.append((by_hand(ids) - by_hand(inputs["input_ids"])).abs())
    found = blank_out(model, pair[0], squares, 5, pair=pair[1], exclude=())
    close(found[found.isfinite()], torch.stack(expected)[found.isfinite()], 1e-4)
    for kind in saliency.KINDS:
        found = input_gradients(model, pair[0], squares, kind, pair=pair[1])
        other = input_gradients(model, pair[0], squares, kind, pair="saw she")
        assert found.shape == (T,) and not torch.equal(found, other)
    gradient, x = embedding_gradient(model, pair[0], squares, pair=pair[1])
    table = model.network.get_input_embeddings().weight
    assert torch.equal(x, table[inputs["input_ids"][0]].detach()) and gradient.shape == x.shape
    maps = value_zeroing(model, pair[0], pair=pair[1])
    run = trace(model, *pair)
    assert maps.shape == run.attention[:, 0].shape
    if name == "bert":  # whose segments have embeddings
        ids = run.ids
        assert not torch.equal(value_zeroing(model, ids), maps)
