"""trace: what it reads is what the model computes, and what it refuses it refuses clearly."""

import copy
import math

import pytest
import torch
from tiny_models import byte_level
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import (
    AutoModel,
    GPT2Config,
    MPNetConfig,
    MPNetModel,
    PreTrainedTokenizerFast,
)

from helpers import Model, trace
from helpers.encode import encode, readable
from helpers.models import embedded_folder
from helpers.trace import STAGES

PUZZLE = "The keys to the cabinet, which was locked yesterday, are on the table. She saw them."
BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")


def _hooks(network, own: bool = False) -> int:
    """How many hooks the network has; `own`: those of the course, since transformers keeps some."""
    modules = list(network.modules())
    hooks = [h for m in modules for h in (m._forward_hooks | m._forward_pre_hooks).values()]
    return sum(h.__module__.startswith("helpers") for h in hooks) if own else len(hooks)


def _plain_outputs(model, text):
    """All hidden states of the model itself, with no code of `helpers`."""
    ids = model.tokenizer(text, return_tensors="pt", truncation=False, padding=False)
    with torch.no_grad():
        return model.network(**ids, output_hidden_states=True).hidden_states


def _attention_by_hand(model, text) -> list[torch.Tensor]:
    """softmax(Q K^T / sqrt(d)) of every layer, head by head, from the layer's hidden state."""
    states = _plain_outputs(model, text)
    base, config = model.network.base_model, model.network.config
    heads = config.num_attention_heads
    d = config.hidden_size // heads
    result = []
    for number in range(config.num_hidden_layers):
        x = states[number][0]
        if config.model_type == "gpt2":
            layer = base.h[number]
            x = layer.ln_1(x)
            Q, K, _ = (x @ layer.attn.c_attn.weight + layer.attn.c_attn.bias).chunk(3, dim=-1)
        else:
            attention = base.encoder.layer[number].attention.self
            Q = x @ attention.query.weight.T + attention.query.bias
            K = x @ attention.key.weight.T + attention.key.bias
        maps = []
        for head in range(heads):
            part = slice(head * d, (head + 1) * d)
            scores = Q[:, part] @ K[:, part].T / math.sqrt(d)
            if config.model_type == "gpt2":
                future = torch.ones_like(scores, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(future, -math.inf)
            maps.append(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))
        result.append(torch.stack(maps))
    return result


# --- what is read ----------------------------------------------------------------------------


def test_attention_is_the_softmax_of_queries_and_keys(any_model, any_run):
    text = PUZZLE if any_model.name == "minilm" else "The keys, she saw them."
    expected = _attention_by_hand(any_model, text)
    assert len(expected) == len(any_run.attention)
    for layer, maps in enumerate(expected):
        torch.testing.assert_close(any_run.attention[layer], maps, rtol=0, atol=2e-6)


def test_attention_depends_on_layer_and_head(any_run):
    """Otherwise the test above could compare one map with itself."""
    flat = any_run.attention.flatten(0, 1).flatten(1)
    distances = torch.cdist(flat, flat) + torch.eye(len(flat))
    assert distances.min() > 1e-3


def test_rows_sum_to_one(any_run):
    sums = any_run.attention.sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=2e-6)
    assert any_run.attention.min() >= 0


def test_shapes_and_types(any_model, any_run):
    config = any_model.network.config
    L, H, D = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    T, d = len(any_run.tokens), D // H
    assert any_run.attention.shape == (L, H, T, T)
    assert len(any_run.blocks) == L
    for number, block in enumerate(any_run.blocks):
        assert torch.equal(block.attention, any_run.attention[number])
        assert block.x.shape == block.residual.shape == block.output.shape == (T, D)
        assert (block.W_V.shape, block.b_V.shape) == ((H, D, d), (H, d))
        assert (block.W_O.shape, block.b_O.shape) == ((H, d, D), (D,))
        for value in vars(block).values():
            if isinstance(value, torch.Tensor):
                assert value.dtype == torch.float32 and not value.requires_grad


def test_layers_follow_each_other(any_model, any_run):
    """The residual of layer l is the hidden state that enters it."""
    text = PUZZLE if any_model.name == "minilm" else "The keys, she saw them."
    states = _plain_outputs(any_model, text)
    for number, block in enumerate(any_run.blocks):
        assert torch.equal(block.residual, states[number][0])


def test_only_gpt2_lacks_the_last_stage(any_model, any_run):
    pre_ln = any_model.network.config.model_type == "gpt2"
    assert any_run.stages == (STAGES[:-1] if pre_ln else STAGES)
    for block in any_run.blocks:
        assert (block.gamma is None) == (block.beta is None) == (block.eps is None) == pre_ln
        if not pre_ln:
            assert block.eps == any_model.network.config.layer_norm_eps


def test_tokens_and_ids(run, minilm):
    assert run.tokens == run.keys
    assert run.tokens[:4] == ["[CLS]", "the", "keys", "to"]
    assert run.tokens[-3:] == ["them", ".", "[SEP]"]
    assert len(run.tokens) == 22
    assert run.ids[:2] == [101, 1996] and run.ids[-1] == 102
    assert minilm.tokenizer.convert_ids_to_tokens(run.ids) == run.tokens


def test_a_gpt2_text_gets_no_marks(tiny):
    assert trace(tiny("gpt2"), "key").tokens == ["key"]
    assert trace(tiny("gpt2"), "key").attention.flatten().tolist() == [1.0] * 12


MERGES = [("Ã", "©"), ("Ġ", "Ã©"), ("ä", "½"), ("ä½", "ł"), ("Ġ", "ä½ł")]  # é, Ġé, 你, Ġ你
HALVES = [("å", "¥"), ("Ġ", "å¥"), ("½", "å¥")]  # two of the three bytes of 好, and beside others
MORE = [("Å", "Ĥ"), ("Ä", "ł"), ("Ċ", "Ċ"), ("â", "Ģ"), ("âĢ", "ĭ")]  # ł, Ġ, two lines, U+200B


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("café 你", ["c", "a", "f", "é", "Ġ你"]),
        ("é", ["é"]),
        ("你é你", ["你", "é", "你"]),
        ("好", ["<0xE5><0xA5>", "<0xBD>"]),
        ("x 好", ["x", "Ġ<0xE5><0xA5>", "<0xBD>"]),
        ("好好", ["<0xE5><0xA5>", "<0xBD><0xE5><0xA5>", "<0xBD>"]),
        ("🙂", ["<0xF0>", "<0x9F>", "<0x99>", "<0x82>"]),
        ("ł\n\n\nx y", ["ł", "ĊĊ", "Ċ", "x", "Ġ", "y"]),
        ("x\u200by\t", ["x", "âĢĭ", "y", "ĉ"]),
        ("aĠb", ["a", "Äł", "b"]),  # the letter, which would look like a space
        ("the<|endoftext|>", ["t", "h", "e", "<|endoftext|>"]),
        ("a«añb»", ["a", "«añb»"]),  # an added token is no bytes
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_byte_level_tokens_are_readable(text, tokens, inside):
    words = byte_level([*MERGES, *HALVES, *MORE])
    words.add_tokens(["«añb»"])
    if inside:  # as in LLaMA 3 and Qwen
        backend = words.backend_tokenizer
        backend.decoder = decoders.Sequence([backend.decoder])
        backend.pre_tokenizer = pre_tokenizers.Sequence([backend.pre_tokenizer])
    network = AutoModel.from_config(
        GPT2Config(vocab_size=len(words), n_embd=8, n_layer=1, n_head=2),
        attn_implementation="eager",
    ).eval()
    run = trace(Model("own", network, words), text)
    assert run.tokens == run.keys == tokens
    assert run.ids == words(text)["input_ids"]


def test_tokens_of_wordpiece_and_sentencepiece_are_those_of_the_vocabulary(minilm, tiny):
    """Even where such a vocabulary holds the signs of bytes: Ã© is no é there."""
    for model in (minilm, tiny("marian")):
        ids = list(range(len(model.tokenizer)))
        assert readable(model.tokenizer, ids) == model.tokenizer.convert_ids_to_tokens(ids)
    words = Tokenizer(WordLevel({"Ã©": 0, "ä½": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(tokenizer_object=words)
    assert readable(words, words("Ã© ä½")["input_ids"]) == ["Ã©", "ä½"]


def test_one_word_and_text_with_line_breaks(minilm):
    assert trace(minilm, "keys").tokens == ["[CLS]", "keys", "[SEP]"]
    assert trace(minilm, "keys\n\tto").tokens == ["[CLS]", "keys", "to", "[SEP]"]


# --- nothing in the model changes ------------------------------------------------------------


def test_the_model_gives_the_same_outputs_before_during_and_after(any_model):
    text = "she saw them, on the table."
    ids = any_model.tokenizer(text, return_tensors="pt", truncation=False, padding=False)
    during = []
    with torch.no_grad():
        before = any_model.network(**ids).last_hidden_state
        handle = any_model.network.register_forward_hook(
            lambda module, args, result: during.append(result.last_hidden_state)
        )
        trace(any_model, text)
        handle.remove()
        after = any_model.network(**ids).last_hidden_state
    assert len(during) == 1, "one forward pass a trace"
    assert torch.equal(before, after)
    assert torch.equal(before, during[0])


def test_no_hook_stays(any_model):
    trace(any_model, "she saw them")
    number = _hooks(any_model.network)
    trace(any_model, "she saw them")
    assert _hooks(any_model.network) == number
    assert _hooks(any_model.network, own=True) == 0


def test_no_hook_stays_after_a_failure(tiny, monkeypatch):
    model = tiny("bert")
    counted = []

    def fail(*args, **kwargs):
        counted.append(_hooks(model.network, own=True))
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model.network.pooler, "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        trace(model, "she saw them")
    assert counted[0] > 0, "the test looks where the hooks are"
    assert _hooks(model.network, own=True) == 0


def test_two_traces_are_equal_and_apart(any_model):
    first = trace(any_model, "she saw them")
    other = trace(any_model, "the table")
    second = trace(any_model, "she saw them")
    assert first.tokens == second.tokens != other.tokens
    assert torch.equal(first.attention, second.attention)
    for one, two in zip(first.blocks, second.blocks, strict=True):
        assert torch.equal(one.output, two.output)
        assert torch.equal(one.x, two.x)
        assert one.output.data_ptr() != two.output.data_ptr()


def test_no_gradient_is_recorded(tiny):
    model = tiny("bert")
    with torch.enable_grad():
        trace(model, "she saw them")
    assert all(parameter.grad is None for parameter in model.network.parameters())


# --- a second segment ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["minilm", "bert", "electra"])
def test_a_pair_uses_the_second_segment(name, minilm, tiny):
    model = minilm if name == "minilm" else tiny(name)
    run = trace(model, "she saw", pair="the keys")
    assert run.tokens == ["[CLS]", "she", "saw", "[SEP]", "the", "keys", "[SEP]"]
    inputs = encode(model, "she saw", "the keys")
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    # The same ids with every token in the first segment must give other vectors.
    with torch.no_grad():
        two = model.network(**inputs, output_hidden_states=True).hidden_states[0]
        inputs["token_type_ids"] = torch.zeros_like(inputs["token_type_ids"])
        one = model.network(**inputs, output_hidden_states=True).hidden_states[0]
    assert torch.equal(run.blocks[0].residual, two[0])
    assert torch.equal(one[0, :4], two[0, :4])
    assert (one[0, 4:] - two[0, 4:]).abs().max() > 1e-2


def test_a_pair_in_a_model_without_segments(tiny):
    run = trace(tiny("roberta"), "key", pair="she")
    assert run.tokens == ["<s>", "key", "</s>", "</s>", "sh", "e", "</s>"]


# --- texts that are refused ------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u3000"])
def test_empty_text(minilm, text):
    with pytest.raises(ValueError, match="text is empty"):
        trace(minilm, text)


@pytest.mark.parametrize("pair", ["", "  "])
def test_an_empty_pair(minilm, pair):
    with pytest.raises(ValueError, match="pair is empty"):
        trace(minilm, "she saw them", pair=pair)


@pytest.mark.parametrize("text", [None, 3, ["she saw"], b"she saw", ("she", "saw")])
def test_what_is_no_string(minilm, text):
    with pytest.raises((TypeError, ValueError), match="one string, got " + type(text).__name__):
        trace(minilm, text)


def test_a_pair_that_is_no_string(minilm):
    with pytest.raises((TypeError, ValueError), match="pair must be one string, got list"):
        trace(minilm, "she saw", pair=["them"])


@pytest.mark.parametrize("text", ["\u200b", "\x00", "\u200b\x00\ufeff"])
def test_text_of_which_nothing_is_left(minilm, text):
    with pytest.raises(ValueError, match="no token left"):
        trace(minilm, text)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_token_that_the_embedding_does_not_have(tiny, name):
    model = tiny(name)
    words = copy.deepcopy(model.tokenizer)
    words.add_tokens(["zebra"])
    rows = len(model.tokenizer)
    for texts in (["she saw zebra"], ["she", "zebra"]):
        with pytest.raises(
            ValueError, match=rf"'zebra' with the id {rows}.* {rows} rows"
        ) as caught:
            trace(Model("own", model.network, words), *texts)
        assert "resize_token_embeddings(len(model.tokenizer))" in str(caught.value)
    network = copy.deepcopy(model.network)
    network.resize_token_embeddings(len(words))
    assert "zebra" in trace(Model("own", network, words), "she saw zebra").tokens


def test_a_segment_that_the_model_does_not_have(tiny):
    """A BERT-like tokenizer counts two, RoBERTa has an embedding for one."""
    network = AutoModel.from_config(tiny("roberta").network.config, attn_implementation="eager")
    model = Model("own", network.eval(), tiny("bert").tokenizer)
    with pytest.raises(ValueError, match=r"2 segments.*embeddings for 1.*pair"):
        trace(model, "she saw", pair="keys")
    assert len(trace(model, "she saw").tokens) == 4


# --- length ----------------------------------------------------------------------------------


def test_the_longest_text_works_and_one_more_is_refused(minilm):
    run = trace(minilm, "keys " * 510)
    assert len(run.tokens) == 512
    assert run.tokens[0] == "[CLS]" and run.tokens[-1] == "[SEP]"
    with pytest.raises(ValueError, match=r"513 tokens.*512") as caught:
        trace(minilm, "keys " * 511)
    assert "shorten" in str(caught.value)


@pytest.mark.parametrize(
    ("family", "maximum", "marks"),
    [("bert", 42, 2), ("electra", 42, 2), ("gpt2", 42, 0)]
    # RoBERTa counts positions from padding_idx + 1 = 2: two rows of the table are never used.
    + [(family, 40, 2) for family in ("roberta", "xlm-roberta", "camembert")],
)
def test_the_longest_text_of_each_family(tiny, family, maximum, marks):
    model = tiny(family)
    pieces = " ".join("," * (maximum - marks)) if family in ("bert", "electra") else ","
    text = pieces if len(pieces) > 1 else "," * (maximum - marks)
    assert len(trace(model, text).tokens) == maximum
    with pytest.raises(ValueError, match=rf"{maximum + 1} tokens.*{maximum}"):
        trace(model, text + ",")


def test_nothing_is_cut_off(minilm):
    """The embedded tokenizer.json holds a truncation to 128 tokens, which must not act."""
    assert '"max_length":128' in (embedded_folder() / "tokenizer.json").read_text()[:200]
    run = trace(minilm, "keys " * 200)
    assert len(run.tokens) == 202
    assert run.tokens.count("keys") == 200


def test_nothing_is_padded(minilm):
    """It holds a padding to 128 tokens too."""
    run = trace(minilm, "she saw them")
    assert run.tokens == ["[CLS]", "she", "saw", "them", "[SEP]"]
    assert run.attention.shape[-2:] == (5, 5)


def test_a_long_text_prints_no_warning(minilm, capfd, recwarn, caplog):
    capfd.readouterr()
    trace(minilm, "keys " * 400)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list and not caplog.records


# --- networks that are refused ---------------------------------------------------------------


def test_an_sdpa_network_is_refused(minilm):
    network = AutoModel.from_pretrained(embedded_folder(), attn_implementation="sdpa").eval()
    with pytest.raises(ValueError, match="load_model") as caught:
        trace(Model("sdpa", network, minilm.tokenizer), "she saw them")
    assert "'sdpa'" in str(caught.value) and "\n" not in str(caught.value)


def test_one_layer_of_another_kind_is_refused(tiny):
    """The network's own settings say eager, and still a layer's weights would be missing."""
    model = tiny("bert")
    network = AutoModel.from_pretrained(model.name, attn_implementation="eager").eval()
    reader = network.encoder.layer[1].attention.self
    reader.config = copy.deepcopy(reader.config)
    reader.config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match=r"attention tensors for 3 layers.*load_model"):
        trace(Model("own", network, model.tokenizer), "key")


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_network_of_the_other_kind_is_never_read_empty(tiny, family):
    model = tiny(family)
    network = AutoModel.from_pretrained(model.name, attn_implementation="sdpa").eval()
    with pytest.raises(ValueError, match="load_model"):
        trace(Model("sdpa", network, model.tokenizer), "key")


def test_training_mode_is_refused(tiny):
    model = tiny("bert")
    model.network.train()
    try:
        with pytest.raises(ValueError, match=r"training mode.*eval\(\)"):
            trace(model, "she saw them")
    finally:
        model.network.eval()
    assert trace(model, "she saw them").tokens[1] == "she"


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_weights_that_are_not_finite_are_refused(tiny, family, value):
    model = tiny(family)
    network = AutoModel.from_pretrained(model.name, attn_implementation="eager").eval()
    with torch.no_grad():
        network.get_input_embeddings().weight.fill_(value)
    with pytest.raises(ValueError, match=r"(?i)nan"):
        trace(Model("broken", network, model.tokenizer), "key")


def test_a_broken_value_in_the_last_layer_is_refused(tiny):
    """It never reaches an attention weight, but every norm of that layer is NaN."""
    model = tiny("bert")
    network = AutoModel.from_pretrained(model.name, attn_implementation="eager").eval()
    with torch.no_grad():
        network.encoder.layer[-1].attention.self.value.bias[0] = math.nan
    with pytest.raises(ValueError, match=r"(?i)nan"):
        trace(Model("broken", network, model.tokenizer), "key")


def test_an_unsupported_architecture(tiny):
    config = MPNetConfig(
        vocab_size=80,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    network = MPNetModel(config).eval()
    with pytest.raises(ValueError, match=r"'mpnet' is not supported.*bert.*gpt2.*roberta"):
        trace(Model("mpnet", network, tiny("bert").tokenizer), "key")
