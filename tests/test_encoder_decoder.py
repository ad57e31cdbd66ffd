"""Encoder-decoder models: three kinds of attention, in one pass that is fed the translation."""

import json
import math
import re
import warnings
from dataclasses import replace

import pytest
import reference
import safetensors.torch
import sentencepiece
import torch
import transformers
from tiny_models import POSITIONS, TRANSLATIONS, save_marian

from helpers import (
    STAGES,
    Model,
    expansion_rate,
    flow,
    load_model,
    mixing_ratio,
    reconstruction_error,
    rollout,
    stage_map,
    trace,
    transformed_norms,
    weighted_norms,
)
from helpers.encode import encode

SOURCE = "Die Schlüssel liegen im Schrank ."
TARGET = "She saw them on the table ."
KINDS = {"cross": 3, "encoder": 2, "decoder": 3}  # and how many layers the tiny model has of each


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("marian")
    save_marian(path)
    return path


@pytest.fixture(scope="module")
def marian(folder):
    return load_model(folder)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def kind_run(marian, kind):
    return trace(marian, SOURCE, target=TARGET, attention=kind)


@pytest.fixture
def copy(folder, tmp_path):
    """The same folder once more, to be damaged."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def _own_pass(model, target=TARGET):
    """The model's own training pass, with labels and with no code of `helpers`."""
    inputs = model.tokenizer(SOURCE, return_tensors="pt")
    labels = model.tokenizer(text_target=target, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return model.network(
            **inputs, labels=labels, output_attentions=True, output_hidden_states=True
        )


def _modules(network, kind):
    """Attention and LayerNorm of every layer, named here and not by `helpers`."""
    if kind == "cross":
        layers = network.base_model.decoder.layers
        return [(layer.encoder_attn, layer.encoder_attn_layer_norm) for layer in layers]
    layers = getattr(network.base_model, kind).layers
    return [(layer.self_attn, layer.self_attn_layer_norm) for layer in layers]


def _close(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape
    assert (found.double() - expected.double()).abs().max() <= tolerance * expected.abs().max()


def _message(error, function, *arguments, **named) -> str:
    """The one sentence of the error that is raised."""
    with pytest.raises(error) as caught:
        function(*arguments, **named)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


# --- tokens and shapes -----------------------------------------------------------------------


def test_tokens_of_the_three_kinds(marian):
    source = ["▁D", "ie", "▁Sch", "l", "ü", "sse", "l", "</s>"]
    target = ["<pad>", "▁T", "he", "▁", "ke", "y", "s"]
    read = {
        kind: trace(marian, "Die Schlüssel", target="The keys", attention=kind) for kind in KINDS
    }
    assert (read["cross"].tokens, read["cross"].keys) == (target, source)
    assert (read["decoder"].tokens, read["decoder"].keys) == (target, target)
    assert (read["encoder"].tokens, read["encoder"].keys) == (source, source)


def test_the_decoder_is_fed_the_start_and_not_the_end(marian, kind_run, kind):
    words = marian.tokenizer
    source = words(SOURCE)["input_ids"]
    labels = words(text_target=TARGET)["input_ids"]
    assert source[-1] == labels[-1] == words.eos_token_id
    start = marian.network.config.decoder_start_token_id
    assert kind_run.ids == (source if kind == "encoder" else [start, *labels[:-1]])
    assert words.convert_ids_to_tokens(kind_run.ids) == kind_run.tokens
    if kind != "encoder":
        assert kind_run.tokens[0] == "<pad>" and "</s>" not in kind_run.tokens


def test_cross_attention_is_the_default(marian):
    run = trace(marian, SOURCE, target=TARGET)
    named = trace(marian, SOURCE, target=TARGET, attention="cross")
    assert (run.tokens, run.keys, run.stages) == (named.tokens, named.keys, named.stages)
    assert torch.equal(run.attention, named.attention)
    assert run.stages == ("Attn-W", "Attn-N")


def test_shapes_and_types(kind, kind_run):
    T, S, H, D, d = len(kind_run.tokens), len(kind_run.keys), 4, 24, 6
    assert (T, S) == {"cross": (18, 22), "encoder": (22, 22), "decoder": (18, 18)}[kind]
    assert kind_run.attention.shape == (KINDS[kind], H, T, S)
    assert len(kind_run.blocks) == KINDS[kind]
    for alpha, block in zip(kind_run.attention, kind_run.blocks, strict=True):
        assert torch.equal(block.attention, alpha)
        assert block.x.shape == (S, D)
        assert block.residual.shape == block.output.shape == (T, D)
        assert (block.W_V.shape, block.b_V.shape) == ((H, D, d), (H, d))
        assert (block.W_O.shape, block.b_O.shape) == ((H, d, D), (D,))
        assert block.gamma.shape == block.beta.shape == (D,) and block.eps == 1e-5
        for value in vars(block).values():
            if isinstance(value, torch.Tensor):
                assert value.dtype == torch.float32 and not value.requires_grad
    assert transformed_norms(kind_run).shape == (KINDS[kind], H, S)
    assert weighted_norms(kind_run).shape == (KINDS[kind], H, T, S)
    for stage in kind_run.stages:
        assert stage_map(kind_run, stage).shape == (KINDS[kind], T, S)
    if kind != "cross":
        assert kind_run.stages == STAGES
        assert mixing_ratio(kind_run, "AttnResLn-N").shape == (KINDS[kind], T)


def test_one_word_each(marian):
    run = trace(marian, ".", target=".")
    assert (run.tokens, run.keys) == (["<pad>", "▁", "."], ["▁", ".", "</s>"])
    assert reconstruction_error(run).max() < 1e-5


def test_each_side_is_cut_by_its_own_rule(copy):
    """Here the target side knows single letters only, under the numbers of the source side."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([side for pair in TRANSLATIONS for side in pair]),
        model_prefix=f"{copy}/letters",
        model_type="char",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (copy / "letters.model").rename(copy / "target.spm")
    run = trace(load_model(copy), "Die", target="The keys")
    assert run.tokens == ["<pad>", *"▁The▁keys"]
    assert run.keys == ["▁D", "ie", "</s>"]


@pytest.fixture
def two_vocabularies(folder, marian, tmp_path):
    """A folder whose target has a vocabulary of its own: the same pieces, other numbers, one more."""
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    source = json.loads((folder / "vocab.json").read_text())
    marks = {token: source[token] for token in ("</s>", "<unk>", "<pad>")}
    numbers = sorted(set(source.values()) - set(marks.values()))
    pieces = [piece for piece in source if piece not in marks][::-1]
    target = marks | dict(zip(pieces, numbers, strict=True)) | {"▁zebra": len(source)}
    (tmp_path / "target_vocab.json").write_text(json.dumps(target))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["separate_vocabs"] = True
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    config = transformers.MarianConfig.from_pretrained(folder)
    config.update(
        {
            "share_encoder_decoder_embeddings": False,
            "tie_word_embeddings": False,
            "decoder_vocab_size": len(target),
        }
    )
    transformers.MarianMTModel(config).save_pretrained(tmp_path)
    return tmp_path


def test_two_vocabularies_are_not_mixed_up(two_vocabularies, marian):
    model = load_model(two_vocabularies)
    assert model.tokenizer.separate_vocabs
    for kind in KINDS:
        run = trace(model, SOURCE, target=TARGET, attention=kind)
        expected = trace(marian, SOURCE, target=TARGET, attention=kind)
        assert (run.tokens, run.keys) == (expected.tokens, expected.keys)
        assert (run.ids == expected.ids) == (kind == "encoder")
        assert reconstruction_error(run).max() < 1e-5


def test_a_decoder_alone_with_two_vocabularies_is_refused(two_vocabularies):
    """Its tokenizer reads a text with the vocabulary of the encoder, which is not there."""
    config = transformers.MarianConfig.from_pretrained(two_vocabularies)
    words = load_model(two_vocabularies).tokenizer
    network = transformers.MarianForCausalLM._from_config(config, attn_implementation="eager")
    text = _message(ValueError, trace, Model("own", network.eval(), words), "She saw")
    assert "two vocabularies" in text and "encoder-decoder" in text


def test_a_token_that_one_side_s_embedding_does_not_have(two_vocabularies):
    """The decoder's table has one row more, and the numbers mean other tokens there."""
    model = load_model(two_vocabularies)
    model.network.base_model.encoder.set_input_embeddings(torch.nn.Embedding(40, 24))
    text = _message(ValueError, trace, model, SOURCE, target=TARGET)
    assert re.match(r"text has the token '.+' with the id \d+.* 40 rows", text)
    named = re.search(r"'(.+?)' with the id (\d+)", text)
    assert model.tokenizer.get_src_vocab()[named[1]] == int(named[2]) >= 40
    model = load_model(two_vocabularies)
    model.network.base_model.decoder.set_input_embeddings(torch.nn.Embedding(40, 24))
    model.network.config.decoder_start_token_id = 0
    text = _message(ValueError, trace, model, SOURCE, target=TARGET)
    named = re.match(r"target has the token '(.+)' with the id (\d+).* 40 rows", text)
    assert model.tokenizer.decoder[int(named[2])] == named[1]


@pytest.mark.parametrize(
    ("family", "start"), [("bart", None), ("t5", None), ("t5", 999), ("marian", 58100)]
)
def test_a_decoder_without_a_start_symbol_is_refused(tiny, family, start):
    model = load_model(tiny(family).name)
    model.network.config.decoder_start_token_id = start
    text = _message(ValueError, trace, model, SOURCE, target=TARGET)
    assert f"the token {start} first" in text
    assert "model.network.config.decoder_start_token_id" in text


def test_a_start_symbol_that_is_in_no_vocabulary(tiny):
    """The embedding has a row for it, which training may have filled."""
    model = load_model(tiny("bart").name)
    number = len(model.tokenizer)
    model.network.resize_token_embeddings(number + 3)
    model.network.config.decoder_start_token_id = number
    assert trace(model, "she", target="key").tokens[:2] == [f"<{number}>", "<s>"]


def test_unknown_characters_are_shown_as_unknown(marian):
    run = trace(marian, "Die 象 Schlüssel", target="The 象")
    assert run.keys[:4] == ["▁D", "ie", "▁", "<unk>"]
    assert run.tokens == ["<pad>", "▁T", "he", "▁", "<unk>"]
    assert trace(marian, "象", target=TARGET).keys == ["▁", "<unk>", "</s>"]


# --- what is read is what the model computes -------------------------------------------------


def test_attention_is_the_model_s_own(marian, kind, kind_run):
    own = getattr(_own_pass(marian), f"{kind}_attentions")
    assert torch.equal(kind_run.attention, torch.cat(own))
    sums = kind_run.attention.sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=2e-6)


def test_attention_is_the_softmax_of_queries_and_keys(marian, kind, kind_run):
    """Queries come from the residual stream and keys from what f reads, head by head."""
    modules = _modules(marian.network, kind)
    for (attention, _), block in zip(modules, kind_run.blocks, strict=True):
        Q, K = attention.q_proj(block.residual), attention.k_proj(block.x)
        for head in range(4):
            part = slice(head * 6, (head + 1) * 6)
            scores = Q[:, part] @ K[:, part].T / math.sqrt(6)
            if kind == "decoder":
                scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -math.inf)
            torch.testing.assert_close(
                block.attention[head], scores.softmax(dim=-1), rtol=0, atol=2e-6
            )


def test_teacher_forcing_is_the_model_s_training_pass(marian):
    with torch.no_grad():
        fed = marian.network(**encode(marian, SOURCE, target=TARGET))
    assert torch.equal(fed.logits, _own_pass(marian).logits)


def test_what_is_fed_in_does_not_depend_on_what_the_model_would_say(marian):
    """Two targets with a common beginning: equal rows up to there, and other rows after it."""
    one, two = (trace(marian, SOURCE, target=t) for t in ("She saw them", "She saw the old"))
    same = next(n for n, pair in enumerate(zip(one.ids, two.ids, strict=False)) if len({*pair}) > 1)
    assert 3 < same < len(one.ids)
    torch.testing.assert_close(
        one.attention[:, :, :same], two.attention[:, :, :same], rtol=0, atol=1e-6
    )
    assert (one.attention[:, :, same] - two.attention[:, :, same]).abs().max() > 1e-2


def test_the_output_is_the_model_s_own_tensor(marian, kind):
    """Captured by hooks of the test's own."""
    seen = []
    norms = [norm for _, norm in _modules(marian.network, kind)]
    handles = [norm.register_forward_hook(lambda *call: seen.append(call[2])) for norm in norms]
    run = trace(marian, SOURCE, target=TARGET, attention=kind)
    for handle in handles:
        handle.remove()
    assert len(seen) == len(run.blocks) == KINDS[kind]
    for block, tensor in zip(run.blocks, seen, strict=True):
        assert torch.equal(block.output, tensor[0])


def test_layers_follow_each_other(marian):
    own = _own_pass(marian)
    runs = {kind: trace(marian, SOURCE, target=TARGET, attention=kind) for kind in KINDS}
    for kind in ("encoder", "decoder"):
        states = getattr(own, f"{kind}_hidden_states")
        for block, state in zip(runs[kind].blocks, states, strict=False):
            assert torch.equal(block.x, state[0]) and torch.equal(block.residual, state[0])
    for cross, before in zip(runs["cross"].blocks, runs["decoder"].blocks, strict=True):
        assert torch.equal(cross.x, own.encoder_last_hidden_state[0])
        assert torch.equal(cross.residual, before.output)


def test_the_parts_add_up_to_the_model_s_own_output(kind, kind_run, parts):
    errors = reconstruction_error(kind_run)
    assert errors.shape == (KINDS[kind],)
    assert errors.max() < 1e-5
    for block in kind_run.blocks:
        _close(block.output, reference.block_output(parts(block)))


SABOTAGE = {
    "no b_V": lambda b: replace(b, b_V=torch.zeros_like(b.b_V)),
    "no b_O": lambda b: replace(b, b_O=torch.zeros_like(b.b_O)),
    "no residual": lambda b: replace(b, residual=torch.zeros_like(b.residual)),
    "the residual of the next token": lambda b: replace(b, residual=b.residual.roll(1, 0)),
    "the vectors of the next key": lambda b: replace(b, x=b.x.roll(1, 0)),
    "heads turned round": lambda b: replace(b, W_O=b.W_O.flip(0)),
    "no gamma": lambda b: replace(b, gamma=torch.ones_like(b.gamma)),
    "no beta": lambda b: replace(b, beta=torch.zeros_like(b.beta)),
}


@pytest.mark.parametrize("sabotage", SABOTAGE)
def test_the_error_notices(kind_run, sabotage):
    wrong = replace(kind_run, blocks=[SABOTAGE[sabotage](block) for block in kind_run.blocks])
    assert reconstruction_error(wrong).min() > 1e-3


# --- stages ----------------------------------------------------------------------------------


def test_norms_equal_the_reference(kind_run, parts):
    for layer, block in enumerate(kind_run.blocks):
        _close(transformed_norms(kind_run)[layer], reference.transformed_norms(parts(block)))
        _close(weighted_norms(kind_run)[layer], reference.weighted_norms(parts(block)))


@pytest.mark.parametrize("stage", STAGES)
def test_stage_maps_equal_the_reference(kind, kind_run, parts, stage):
    if stage not in kind_run.stages:
        assert kind == "cross" and stage.startswith("AttnRes")
        return
    found = stage_map(kind_run, stage)
    for layer, block in enumerate(kind_run.blocks):
        _close(found[layer], reference.stage_map(parts(block), stage))
        if kind != "cross":
            ratio = reference.mixing_ratio(parts(block), stage)
            assert (mixing_ratio(kind_run, stage)[layer] - ratio).abs().max() < 1e-5


@pytest.mark.parametrize("stage", STAGES)
def test_the_decoder_reads_nothing_from_the_future(marian, stage):
    run = trace(marian, SOURCE, target=TARGET, attention="decoder")
    maps = stage_map(run, stage)
    assert not maps.triu(1).any()
    assert (maps.tril().sum(dim=-1) > 0).all()
    assert mixing_ratio(run, stage)[:, 0].tolist() == pytest.approx([0, 0, 0], abs=1e-6)


@pytest.mark.parametrize("attention", ["cross", "encoder"])
def test_the_source_is_read_in_both_directions(marian, attention):
    run = trace(marian, SOURCE, target=TARGET, attention=attention)
    assert (stage_map(run, "Attn-W").triu(1).sum(dim=-1)[:, :-1] > 0).all()


@pytest.mark.parametrize("stage", STAGES[2:])
def test_cross_attention_has_no_stage_with_a_residual(marian, stage):
    run = trace(marian, SOURCE, target=TARGET)
    for function in (stage_map, mixing_ratio):
        text = _message(ValueError, function, run, stage)
        assert repr(stage) in text and "cross-attention" in text
        assert text.endswith("Attn-W, Attn-N.")


@pytest.mark.parametrize("stage", STAGES[:2])
def test_cross_attention_has_no_mixing_ratio(marian, stage):
    run = trace(marian, SOURCE, target=TARGET)
    assert "Cross-attention has no mixing ratio" in _message(ValueError, mixing_ratio, run, stage)


def test_as_many_queries_as_keys_make_no_self_attention(marian):
    """The refusal asks for the kind of attention, not for the shape."""
    run = trace(marian, ".", target=".")
    assert len(run.tokens) == len(run.keys)
    for function, stage in ((stage_map, "AttnRes-W"), (mixing_ratio, "Attn-W")):
        assert "cross-attention" in _message(ValueError, function, run, stage).lower()


@pytest.mark.parametrize("function", [rollout, flow])
def test_cross_maps_do_not_roll_out(marian, function):
    run = trace(marian, SOURCE, target=TARGET)
    for stage in run.stages:
        text = _message(ValueError, function, stage_map(run, stage))
        assert "(L, T, T)" in text and "(3, 18, 22)" in text


def test_an_unknown_stage_is_unknown_in_cross_attention_too(marian):
    run = trace(marian, SOURCE, target=TARGET)
    assert "did you mean 'Attn-N'" in _message(ValueError, mixing_ratio, run, "Attn-n")


def test_expansion_rate(marian, kind):
    rates = expansion_rate(marian, kind)
    expected = []
    for attention, _ in _modules(marian.network, kind):
        value, out = attention.v_proj, attention.out_proj
        W_V = value.weight.T.unflatten(1, (4, 6)).transpose(0, 1)
        W_O = out.weight.T.unflatten(0, (4, 6))
        expected.append(
            reference.expansion_rate(W_V, W_O, value.bias.unflatten(0, (4, 6)), out.bias)
        )
    assert rates.tolist() == pytest.approx(expected, rel=1e-5)
    assert len(rates) == KINDS[kind]
    if kind == "cross":
        assert torch.equal(rates, expansion_rate(marian))


# --- targets and texts that are refused ------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"attention": "cross"}, {"attention": "decoder"}])
def test_a_missing_target(marian, named):
    text = _message(ValueError, trace, marian, SOURCE, **named)
    assert "target is missing" in text and 'attention="encoder"' in text


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("name", ["text", "target"])
def test_empty_texts(marian, name, attention):
    for empty in ("", " ", "\n\t ", "\u3000"):
        texts = {"text": SOURCE, "target": TARGET} | {name: empty}
        assert f"{name} is empty" in _message(
            ValueError, trace, marian, **texts, attention=attention
        )


def test_a_target_of_which_nothing_is_left(marian):
    assert "target '\\u200b' has no token left" in _message(
        ValueError, trace, marian, SOURCE, target="\u200b"
    )


def test_half_a_character(marian):
    text = _message(ValueError, trace, marian, SOURCE, target="Hi \ud83d")
    assert "target" in text and "half of a character" in text


@pytest.mark.parametrize("target", [3, b"the keys", ["the keys"], ("the", "keys"), {"a": 1}])
@pytest.mark.parametrize("attention", KINDS)
def test_a_target_that_is_no_string(marian, target, attention):
    text = _message(TypeError, trace, marian, SOURCE, target=target, attention=attention)
    assert f"target must be one string, got {type(target).__name__}" in text


def test_the_longest_source(marian):
    """One piece before the first point, one a point, and the end symbol."""
    for attention in KINDS:
        run = trace(marian, "." * (POSITIONS - 2), target=TARGET, attention=attention)
        assert len(run.tokens if attention == "encoder" else run.keys) in (POSITIONS, 18)
        assert reconstruction_error(run).max() < 1e-5
        text = _message(
            ValueError, trace, marian, "." * (POSITIONS - 1), target=TARGET, attention=attention
        )
        assert text.startswith("text has 43 tokens") and "42" in text and "shorten" in text


def test_the_longest_target(marian):
    """The start symbol takes the place of the end symbol."""
    for attention in KINDS:
        run = trace(marian, SOURCE, target="." * (POSITIONS - 2), attention=attention)
        assert len(run.tokens) == (22 if attention == "encoder" else POSITIONS)
        assert reconstruction_error(run).max() < 1e-5
        text = _message(
            ValueError, trace, marian, SOURCE, target="." * (POSITIONS - 1), attention=attention
        )
        assert text.startswith("target has 43 tokens") and "42" in text and "shorten" in text


def test_nothing_is_cut_off_or_padded(copy, capfd, recwarn, caplog):
    """A shorter maximum of the tokenizer's own must not act, and is not warned about."""
    file = copy / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": 5}))
    model = load_model(copy)
    assert model.tokenizer.model_max_length == 5
    capfd.readouterr()
    run = trace(model, SOURCE, target=TARGET)
    assert (len(run.tokens), len(run.keys)) == (18, 22)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list and not caplog.records


@pytest.mark.parametrize("target", [None, TARGET])
@pytest.mark.parametrize("attention", [None, "cross", "decoder"])
def test_a_pair_is_refused(marian, target, attention):
    text = _message(
        ValueError, trace, marian, SOURCE, pair=TARGET, target=target, attention=attention
    )
    assert "pair" in text and "give the translation as target" in text


def test_a_target_for_a_model_without_a_decoder(minilm, tiny):
    for model in (minilm, tiny("gpt2")):
        text = _message(ValueError, trace, model, "the keys", target="she saw")
        assert "target is for encoder-decoder models" in text and repr(model.name) in text


@pytest.mark.parametrize("attention", [*KINDS, "self", 1])
def test_a_kind_of_attention_for_a_model_with_one_kind(minilm, attention):
    for function in (
        lambda: trace(minilm, "the keys", attention=attention),
        lambda: expansion_rate(minilm, attention),
    ):
        text = _message(ValueError, function)
        assert f"attention={attention!r}" in text and "'bert'" in text and "leave it out" in text


@pytest.mark.parametrize("attention", ["Cross", "self", "encoder_attentions", "", 0, ["cross"]])
def test_an_unknown_kind_of_attention(marian, attention):
    for function in (
        lambda: trace(marian, SOURCE, target=TARGET, attention=attention),
        lambda: trace(marian, SOURCE, attention=attention),
        lambda: expansion_rate(marian, attention),
    ):
        text = _message(ValueError, function)
        assert f"attention {attention!r} is unknown" in text
        assert all(repr(kind) in text for kind in KINDS)


# --- nothing in the model changes ------------------------------------------------------------


def test_the_encoder_does_not_notice_the_target(marian):
    alone = trace(marian, SOURCE, attention="encoder")
    beside = trace(marian, SOURCE, target=TARGET, attention="encoder")
    assert alone.tokens == beside.tokens and alone.keys == beside.keys
    assert torch.equal(alone.attention, beside.attention)
    for one, two in zip(alone.blocks, beside.blocks, strict=True):
        assert torch.equal(one.x, two.x) and torch.equal(one.output, two.output)


def _hooks(network) -> int:
    modules = list(network.modules())
    hooks = [h for m in modules for h in (m._forward_hooks | m._forward_pre_hooks).values()]
    return sum(hook.__module__.startswith("helpers") for hook in hooks)


def test_two_calls_are_equal_and_no_hook_stays(marian, kind):
    before = _own_pass(marian).logits
    first = trace(marian, SOURCE, target=TARGET, attention=kind)
    for other in KINDS:
        trace(marian, "Der Tisch", target="The table", attention=other)
    second = trace(marian, SOURCE, target=TARGET, attention=kind)
    assert (first.tokens, first.keys) == (second.tokens, second.keys)
    assert torch.equal(first.attention, second.attention)
    for one, two in zip(first.blocks, second.blocks, strict=True):
        assert torch.equal(one.x, two.x) and torch.equal(one.output, two.output)
        assert one.output.data_ptr() != two.output.data_ptr()
    assert torch.equal(before, _own_pass(marian).logits)
    assert _hooks(marian.network) == 0
    assert all(parameter.grad is None for parameter in marian.network.parameters())


def test_no_hook_stays_after_a_failure(marian, kind, monkeypatch):
    counted = []

    def fail(*args, **kwargs):
        counted.append(_hooks(marian.network))
        raise RuntimeError("out of memory")

    last = marian.network.base_model.decoder.layers[-1].final_layer_norm
    monkeypatch.setattr(last, "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        trace(marian, SOURCE, target=TARGET, attention=kind)
    assert counted[0] > 0, "the test looks where the hooks are"
    assert _hooks(marian.network) == 0


# --- networks that are refused, and folders --------------------------------------------------


def test_other_attention_code_and_training_mode_are_refused(folder, marian, kind):
    def network(attention):
        return transformers.MarianMTModel.from_pretrained(folder, attn_implementation=attention)

    for wrong, remedy in (
        (network("sdpa").eval(), "load_model"),
        (network("eager").train(), "eval()"),
        (network("eager").eval().half(), "float()"),
    ):
        model = Model("wrong", wrong, marian.tokenizer)
        text = _message(ValueError, trace, model, SOURCE, target=TARGET, attention=kind)
        assert remedy in text


def test_a_value_that_is_not_finite_is_refused(folder, kind):
    model = load_model(folder)
    with torch.no_grad():
        _modules(model.network, kind)[-1][0].v_proj.bias[0] = math.nan
    assert "NaN" in _message(ValueError, trace, model, SOURCE, target=TARGET, attention=kind)


def test_the_folder_s_weights_are_read_ready(folder, marian):
    network = marian.network
    assert type(network).__name__ == "MarianMTModel"
    assert network.config._attn_implementation == "eager" and not network.training
    saved = safetensors.torch.load_file(folder / "model.safetensors")
    state = network.state_dict()
    for name, value in saved.items():
        assert torch.equal(state[name], value), name
    assert network.final_logits_bias.abs().min() > 0
    assert network.lm_head.weight is network.model.shared.weight


def test_a_network_without_its_head(marian, tmp_path):
    marian.network.model.save_pretrained(tmp_path)
    marian.tokenizer.save_pretrained(tmp_path)
    bare = load_model(tmp_path)
    assert type(bare.network).__name__ == "MarianModel"
    for kind in KINDS:
        one, two = (trace(m, SOURCE, target=TARGET, attention=kind) for m in (marian, bare))
        assert torch.equal(one.attention, two.attention)


def test_half_precision_is_read_as_float32(marian, copy):
    load_model(copy).network.half().save_pretrained(copy)
    assert json.loads((copy / "config.json").read_text())["dtype"] == "float16"
    model = load_model(copy)
    assert {p.dtype for p in model.network.state_dict().values()} == {torch.float32}
    halves = marian.network.state_dict()
    for name, value in model.network.state_dict().items():
        if "embed_positions" not in name:  # computed, not saved
            assert torch.equal(value, halves[name].half().float()), name
    for kind in KINDS:
        run = trace(model, SOURCE, target=TARGET, attention=kind)
        assert run.attention.dtype == torch.float32
        assert reconstruction_error(run).max() < 1e-5


def test_loading_and_reading_are_silent(folder, capfd, caplog):
    """Without sacremoses too, which Marian's tokenizer recommends with a warning."""
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(load_model(folder), SOURCE, target=TARGET)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize(
    "gone",
    [
        "model.shared.weight",
        "model.encoder.layers.1.self_attn.v_proj.bias",
        "model.decoder.layers.2.encoder_attn.out_proj.weight",
        "model.decoder.layers.0.self_attn_layer_norm.weight",
    ],
)
def test_weights_that_the_folder_lacks_are_never_random(copy, gone):
    file = copy / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    del weights[gone]
    safetensors.torch.save_file(weights, file, metadata={"format": "pt"})
    text = _message(ValueError, load_model, copy)
    assert "lacks weights" in text
    assert (gone if "shared" not in gone else "embed_tokens.weight") in text


@pytest.mark.parametrize("gone", ["source.spm", "target.spm", "vocab.json"])
def test_a_tokenizer_that_is_not_whole(copy, gone):
    (copy / gone).unlink()
    text = _message(ValueError, load_model, copy)
    assert str(copy) in text and "could not be loaded" in text
