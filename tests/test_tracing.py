"""trace: what it reads is what the model computes, the model stays as it is, or one sentence."""

import copy
import math
from functools import partial

import pytest
import torch
from oracle import cut, reference
from oracle.compare import close, refused

from helpers import (
    STAGES,
    Model,
    blank_out,
    expansion_rate,
    input_gradients,
    reconstruction_error,
    stage_map,
    tables,
    trace,
    value_zeroing,
)
from helpers.tokens import encode

SOURCE, TARGET = "Die Schlüssel liegen im Schrank .", "She saw them on the table ."
KINDS = {"cross": 3, "encoder": 2, "decoder": 3}  # and how many layers a tiny model has of each
TWO_SIDED = ("bart", "marian", "t5")


def tensors(block) -> dict[str, torch.Tensor]:
    return {name: v for name, v in vars(block).items() if isinstance(v, torch.Tensor)}


def same(one, two) -> bool:
    """Whether two runs hold the same tokens and the same numbers, bit by bit."""
    blocks = zip(one.blocks, two.blocks, strict=True)
    pairs = [(tensors(a)[name], b) for a, b2 in blocks for name, b in tensors(b2).items()]
    names = [(r.tokens, r.keys, r.ids, r.words, r.key_words, r.is_cross) for r in (one, two)]
    equal = all(torch.equal(a, b) for a, b in [*pairs, (one.attention, two.attention)])
    return equal and names[0] == names[1]


def read(model, attention=None):
    """One run of the model, with a target if it is an encoder-decoder."""
    target = TARGET if model.network.config.is_encoder_decoder else None
    return trace(model, SOURCE, target=target, attention=attention)


def kinds(model) -> tuple:
    return tuple(KINDS) if model.network.config.is_encoder_decoder else (None,)


# --- what is read is what the model computes ---------------------------------------------------


def softmax(Q, K, heads: int, causal: bool):
    """softmax(Q K^T / sqrt(d)), head by head: (H, T, S)."""
    maps = []
    for q, k in zip(Q.chunk(heads, dim=-1), K.chunk(heads, dim=-1), strict=True):
        scores = q @ k.T / math.sqrt(q.shape[-1])
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -math.inf)
        maps.append(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))
    return torch.stack(maps)


@torch.no_grad()
def test_attention_is_the_softmax_of_queries_and_keys(any_model, any_run):
    base, config = any_model.network.base_model, any_model.network.config
    ids = torch.tensor([any_run.ids])
    states = base(input_ids=ids, output_hidden_states=True).hidden_states[:-1]
    for n, (state, block) in enumerate(zip(states, any_run.blocks, strict=True)):
        assert torch.equal(block.residual, state[0]), "the layers follow each other"
        if config.model_type == "gpt2":
            layer = base.h[n]
            Q, K, _ = layer.attn.c_attn(layer.ln_1(state[0])).chunk(3, dim=-1)
        else:
            reader = base.encoder.layer[n].attention.self
            Q, K = reader.query(state[0]), reader.key(state[0])
        expected = softmax(Q, K, config.num_attention_heads, config.model_type == "gpt2")
        close(any_run.attention[n], expected)
    # Otherwise one map could have been compared with itself.
    flat = any_run.attention.flatten(0, 1).flatten(1)
    assert (torch.cdist(flat, flat) + torch.eye(len(flat))).min() > 1e-3


def test_shapes_and_types(any_model, any_run):
    config = any_model.network.config
    L, H, D = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    T, d, post = len(any_run.tokens), D // H, config.model_type != "gpt2"
    assert any_run.attention.shape == (L, H, T, T) and len(any_run.blocks) == L
    assert any_run.tokens == any_run.keys and any_run.words == any_run.key_words
    assert any_run.stages == (STAGES if post else STAGES[:-1]) and not any_run.is_cross
    shapes = {"x": (T, D), "residual": (T, D), "output": (T, D), "attention": (H, T, T)}
    shapes |= {"W_V": (H, D, d), "b_V": (H, d), "W_O": (H, d, D), "b_O": (D,)}
    norms = {"gamma": (D,), "beta": (D,), "second_gamma": (D,), "before_second_norm": (T, D)}
    for alpha, block in zip(any_run.attention, any_run.blocks, strict=True):
        assert torch.equal(block.attention, alpha)
        found = {name: tuple(tensor.shape) for name, tensor in tensors(block).items()}
        assert found == (shapes | norms if post else shapes)
        assert block.eps == (config.layer_norm_eps if post else None)
        for tensor in tensors(block).values():
            assert tensor.dtype == torch.float32 and not tensor.requires_grad
    close(any_run.attention.sum(dim=-1), torch.ones(L, H, T), 2e-6)


def test_tokens_and_ids_of_a_sentence(run, minilm):
    assert run.tokens[:4] == ["[CLS]", "the", "keys", "to"] and len(run.tokens) == 22
    assert run.ids[:2] == [101, 1996] and run.ids[-1] == 102
    assert minilm.tokenizer.convert_ids_to_tokens(run.ids) == run.tokens
    text = "Trace(6 layers, 12 heads, 22 queries, 22 keys: ['[CLS]', 'the', 'keys', 'to']…)"
    assert repr(run) == text


def test_a_pair_uses_the_second_segment(minilm):
    """The same tokens with every one in the first segment give other vectors."""
    run = trace(minilm, "she saw", pair="the keys")
    one = trace(minilm, "she saw [SEP] the keys")
    assert run.tokens == one.tokens
    difference = (run.blocks[0].residual - one.blocks[0].residual).abs().amax(dim=-1)
    assert (difference[:4] == 0).all() and (difference[4:] > 1e-2).all()


# --- encoder-decoders: three attentions --------------------------------------------------------


@pytest.fixture(scope="module", params=[(f, k) for f in TWO_SIDED for k in KINDS], ids=" ".join)
def two_sided(request, tiny):
    """A family's model, which attention, and its run."""
    family, kind = request.param
    return tiny(family), family, kind, read(tiny(family), kind)


def test_each_attention_equals_what_is_cut_out_by_hand(two_sided):
    model, family, kind, run = two_sided
    ids = cut.inputs(model, SOURCE, target=TARGET)
    cuts = cut.blocks(model.network, cut.place(family, kind), ids, kind)
    assert len(run.blocks) == len(cuts) == KINDS[kind]
    naive = [reference.Parts(**own.parts) for own in cuts]
    for block, alpha, own, parts in zip(run.blocks, run.attention, cuts, naive, strict=True):
        assert torch.equal(block.output, own.output) and torch.equal(block.attention, alpha)
        for name, expected in own.parts.items():
            if isinstance(expected, torch.Tensor):
                close(getattr(block, name), expected, 1e-6)
        close(block.output, reference.block_output(parts))
    for stage in run.stages:
        close(stage_map(run, stage), torch.stack([reference.stage_map(p, stage) for p in naive]))


def test_teacher_forcing_is_the_model_s_training_pass(two_sided):
    """With labels, and with no code of `helpers`."""
    model, _, kind, run = two_sided
    words, network = model.tokenizer, model.network
    labels = words(text_target=TARGET, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        own = network(**words(SOURCE, return_tensors="pt"), labels=labels, output_attentions=True)
        fed = network(**encode(model, SOURCE, target=TARGET))
    assert torch.equal(fed.logits, own.logits)
    assert torch.equal(run.attention, torch.cat(getattr(own, f"{kind}_attentions")))


def test_which_tokens_each_attention_reads(two_sided):
    model, family, kind, run = two_sided
    source = trace(model, SOURCE, attention="encoder").tokens  # which needs no target
    target = read(model, "decoder").tokens
    queries = source if kind == "encoder" else target
    keys = target if kind == "decoder" else source
    assert (run.tokens, run.keys, run.is_cross) == (queries, keys, kind == "cross")
    assert run.attention.shape[-2:] == (len(queries), len(keys)) and len(source) != len(target)
    assert target[0] == ("</s>" if family == "bart" else "<pad>")  # the start, and no end
    assert target[-1] != "</s>" == source[-1]
    last = "Attn-N" if kind == "cross" else "AttnRes-N" if family == "t5" else "AttnResLn-N"
    assert run.stages[-1] == last
    assert kind != "cross" or same(run, read(model)), "the default"


def test_a_target_is_read_word_for_word_and_never_ahead(two_sided):
    """Two targets with a common beginning: equal rows up to there, and other rows after it."""
    model, _, kind, run = two_sided
    other = trace(model, SOURCE, target="She saw the old cabinet .", attention=kind)
    ahead = run.attention.triu(1).sum(dim=-1)[..., :-1]  # of all rows but the last
    if kind == "encoder":
        assert same(run, other) and (ahead > 0).all()
        return
    first = [a == b for a, b in zip(run.ids, other.ids, strict=False)].index(False)
    assert 3 < first < len(run.ids)
    for one, two in zip(run.blocks, other.blocks, strict=True):
        close(one.output[:first], two.output[:first])
    assert (run.blocks[0].output[first] - other.blocks[0].output[first]).abs().max() > 1e-2
    assert (ahead > 0).all() if kind == "cross" else not ahead.any()


def test_as_many_queries_as_keys_make_no_self_attention(tiny):
    run = trace(tiny("marian"), ".", target=".")
    assert (run.tokens, run.keys) == (["<pad>", "▁", "."], ["▁", ".", "</s>"])
    assert run.is_cross and run.stages == STAGES[:2] and reconstruction_error(run).max() < 1e-5


# --- nothing in the model changes --------------------------------------------------------------


def hooks(network) -> int:
    """How many hooks of the course the network has; transformers keeps some of its own."""
    modules = list(network.modules())
    found = [h for m in modules for h in (m._forward_hooks | m._forward_pre_hooks).values()]
    return sum(hook.__module__.startswith("helpers") for hook in found)


@pytest.mark.parametrize("name", ["bert", "gpt2", "marian"])
def test_the_model_is_the_same_before_during_and_after(tiny, name):
    model, during = tiny(name), []
    inputs = encode(model, SOURCE, target=TARGET if name == "marian" else None)
    with torch.no_grad():
        before = model.network(**inputs)[0]
        listener = model.network.base_model.register_forward_hook(
            lambda *call: during.append(call[-1].last_hidden_state)
        )
        first = read(model)
        assert len(during) == 1, "one forward pass per trace"
        after = model.network(**inputs)[0]
    listener.remove()
    assert torch.equal(before, after) and torch.equal(during[0], during[1])
    trace(model, "ein Tisch", target="a table" if name == "marian" else None)
    second = read(model)
    assert same(first, second)
    assert first.blocks[0].output.data_ptr() != second.blocks[0].output.data_ptr()
    assert hooks(model.network) == 0
    assert all(parameter.grad is None for parameter in model.network.parameters())


@pytest.mark.parametrize("name", ["bert", "marian"])
def test_no_hook_stays_after_a_failure(tiny, monkeypatch, name):
    network, counted = tiny(name).network, []

    def fail(*args, **kwargs):
        counted.append(hooks(network))
        raise RuntimeError("out of memory")

    last = network.pooler if name == "bert" else network.model.decoder.layers[-1].final_layer_norm
    monkeypatch.setattr(last, "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        read(tiny(name))
    assert counted[0] > 0 == hooks(network)


# --- devices and number formats ----------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["albert", "bert", "distilbert", "gemma2", "gpt2", "gpt_neox", "llama", "modernbert"]
    + ["opt", "opt, post-LN", *TWO_SIDED],
)
def test_everything_is_made_on_the_device_of_the_model(tiny, name):
    """A default device without numbers stands in for a GPU: what is made there fails."""
    model = tiny(name)
    if name == "opt, post-LN":  # its LayerNorms can lack γ and β
        config = copy.deepcopy(model.network.config)
        config.layer_norm_elementwise_affine = False
        network = type(model.network)._from_config(config, attn_implementation="eager")
        model = Model(network.eval(), model.tokenizer)
    for kind in kinds(model):
        expected = read(model, kind)
        with torch.device("meta"):
            run = read(model, kind)
            errors, maps = reconstruction_error(run), [stage_map(run, s) for s in run.stages]
        assert same(run, expected) and torch.equal(errors, reconstruction_error(expected))
        for stage, found in zip(expected.stages, maps, strict=True):
            assert torch.equal(found, stage_map(expected, stage))


@pytest.mark.parametrize("name", ["bert", "llama", "marian"])
def test_a_model_that_was_moved_gives_the_same_numbers(tiny, name):
    """float64 stands in for another device, where everything must follow too."""
    model = tiny(name)
    by_hand = Model(copy.deepcopy(model.network), model.tokenizer)
    for kind in kinds(model):
        by_hand.network.to(torch.float32)
        run = read(model, kind)
        assert same(run, read(model.to("cpu"), kind)) and same(run, read(by_hand, kind))
        by_hand.network.to(torch.float64)  # and the run that was made before stays as it is
        exact = read(by_hand, kind)
        assert same(exact, read(model.double(), kind)) and same(run, read(model, kind))
        assert exact.attention.dtype == torch.float64
        assert {t.dtype for block in exact.blocks for t in tensors(block).values()} == {
            torch.float64
        }
        for stage in run.stages:
            close(stage_map(run, stage), stage_map(exact, stage))


# --- models and networks that are refused ------------------------------------------------------


def total(output):
    return output[0].sum()


DOORS = {
    "trace": lambda model: trace(model, "the keys"),
    "encode": lambda model: encode(model, "the keys"),
    "value_zeroing": lambda model: value_zeroing(model, "the keys"),
    "blank_out": lambda model: blank_out(model, "the keys", total),
    "input_gradients": lambda model: input_gradients(model, "the keys", total),
    "expansion_rate": expansion_rate,
    "token_table": lambda model: tables.token_table(model, ["the keys"]),
    "mixing_table": lambda model: tables.mixing_table(model, ["the keys"]),
    "frequency_ranks": lambda model: tables.frequency_ranks(model, [7]),
}


@pytest.mark.parametrize("name", DOORS)
def test_a_network_of_one_s_own(tiny, run, name):
    """Together with its tokenizer it is read everywhere; alone, the sentence says how."""
    network, words, door = tiny("bert").network, tiny("bert").tokenizer, DOORS[name]
    found, expected = door(Model(network, words)), door(tiny("bert"))
    if isinstance(found, torch.Tensor):
        assert torch.equal(found, expected)
    line = "Model(network, tokenizer)."
    said = refused(lambda: door(network), "model must be a Model, got a plain BertModel", line)
    assert said.endswith(line)
    for wrong in (run, None, "minilm", (network, words)):
        refused(lambda wrong=wrong: door(wrong), "model must be a Model, got", "load_model()", line)
    refused(
        lambda: door(Model(words, network)), "model.network must be a PreTrainedModel, got", line
    )
    refused(lambda: door(Model(network, "bert")), "model.tokenizer must be a", "got str", line)


def test_a_model_where_a_trace_is_wanted(minilm):
    call = partial(stage_map, minilm, "Attn-W")
    refused(call, "run must be a Trace, got Model; make one with trace(model, text).")


def other_code(network):
    """One layer alone, while the settings of the network say eager."""
    reader = network.encoder.layer[1].attention.self
    reader.config = copy.deepcopy(reader.config)
    reader.config._attn_implementation = "sdpa"


def fill(name: str, value: float):
    return lambda network: network.get_parameter(name).data.fill_(value)


VALUE = "encoder.layer.2.attention.self.value"
UNFIT = {
    "training": (lambda net: net.train(), "is in training mode", "call model.network.eval()"),
    "one layer in training": (lambda net: net.encoder.layer[1].train(), "is in training mode"),
    "half": (lambda net: net.half(), "is in torch.float16", "call model.network.float() first"),
    "one layer in half": (lambda net: net.encoder.layer[2].bfloat16(), "is in torch.bfloat16"),
    "two formats": (lambda net: net.encoder.layer[2].double(), "in float32 and in float64"),
    "two devices": (
        lambda net: net.encoder.layer[2].to("meta"),
        "is spread over several devices; put it on one with model.to(device).",
    ),
    "offloaded": (lambda net: net.to("meta"), "is on the device meta, which holds no numbers"),
    "no names": (lambda net: setattr(net.config, "return_dict", False), "output without names"),
    "sdpa": (lambda net: net.set_attn_implementation("sdpa"), "'sdpa'", "load_model"),
    "one layer in sdpa": (other_code, "attention tensors for 3 layers", "load_model"),
    "chunks": (lambda net: setattr(net.encoder.layer[0], "chunk_size_feed_forward", 1), "chunks"),
    "NaN": (fill("embeddings.LayerNorm.bias", math.nan), "NaN or infinite weights, first in"),
    "NaN at the end": (fill(f"{VALUE}.bias", math.nan), f"first in {VALUE}.bias; load it again."),
    "infinite": (fill("embeddings.LayerNorm.weight", math.inf), "embeddings.LayerNorm.weight"),
    "too large": (fill(f"{VALUE}.weight", 1e30), "numbers whose squares are infinite"),
}


@pytest.mark.parametrize("fault", UNFIT)
def test_a_network_that_cannot_be_read_exactly(tiny, fault):
    change, *words = UNFIT[fault]
    model = Model(copy.deepcopy(tiny("bert").network), tiny("bert").tokenizer)
    change(model.network)
    for door in ("trace", "value_zeroing"):
        refused(partial(DOORS[door], model), "model", *words)


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_decoder_that_cannot_be_read_exactly(tiny, kind):
    network, words = tiny("marian").network, tiny("marian").tokenizer
    for change, remedy in (
        (lambda net: net.set_attn_implementation("sdpa"), "load_model"),
        (lambda net: net.model.decoder.train(), "eval()"),
        (lambda net: net.model.decoder.half(), "float()"),
        (lambda net: net.model.decoder.to("meta"), "model.to(device)"),
        (lambda net: net.model.shared.weight.data.fill_(math.nan), "NaN"),
    ):
        model = Model(copy.deepcopy(network), words)
        change(model.network)
        refused(partial(read, model, kind), remedy)


@pytest.mark.parametrize("name", [name for name in DOORS if name != "frequency_ranks"])
def test_autocast_is_refused(tiny, name):
    with torch.autocast("cpu", torch.bfloat16):
        refused(lambda: DOORS[name](tiny("bert")), "torch.autocast is on")
