"""Every family of the README's table: the same analyses, exact, on the unmodified classes.

The table is read, so what it says is what is tested. Each block is compared with what `cut` takes
out of the model by other means, and then with the naive reference. Errors are relative to the
largest value. In float32 3e-7 was seen; 2e-6 is allowed, for other processors.
"""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import cut
import pytest
import reference
import tiny_models
import torch
import transformers
from tiny_models import ARCHITECTURES

from helpers import (
    STAGES,
    Model,
    anatomy,
    blank_out,
    expansion_rate,
    flow,
    globenc,
    load_model,
    mixing_ratio,
    reconstruction_error,
    rollout,
    stage_map,
    trace,
    transformed_norms,
    value_zeroing,
    weighted_norms,
)

README = (Path(__file__).parents[1] / "README.md").read_text()
KINDS = ("encoder", "decoder", "cross")
TEXT, TARGET = "she saw the keys.", "on the table."
TOLERANCE = 2e-6


def _table() -> dict[tuple[str, str | None], dict[str, str]]:
    """The README's rows by name of a tiny architecture and, in an encoder-decoder, its attention."""
    section = README.partition("## Other models")[2].partition("\n## ")[0]
    head, *lines = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)
    rows = {}
    for line in lines:
        cells = dict(zip(head.split(" | "), line.split(" | "), strict=True))
        for family in re.findall(r"`(.+?)`", cells["family"]):
            more = cells["family"].rpartition("`")[2].removeprefix(", ")
            if more in KINDS:
                rows[family, more] = cells
            else:
                rows[f"{family}, {more}" if more else family, None] = cells
    return rows


TABLE = _table()
# A variant without a row of its own belongs to the row of its family.
CASES = {
    (name, kind): TABLE.get((name, kind)) or TABLE.get((name.partition(",")[0], kind))
    for name in ARCHITECTURES
    for kind in (None, *KINDS)
    if (name, kind) in TABLE or (name.partition(",")[0], kind) in TABLE
}
FAMILIES = sorted(anatomy.FAMILIES)
TWO_SIDED = ("bart", "marian", "mt5", "t5")
ONE_TEXT = [family for family in FAMILIES if family not in TWO_SIDED]


def _close(found, expected, tolerance=TOLERANCE):
    assert found.shape == expected.shape
    assert torch.isfinite(found).all()
    difference = (found.double() - expected.double()).abs().max()
    assert difference <= tolerance * expected.abs().max(), difference / expected.abs().max()


def _message(error, function, *arguments, **named) -> str:
    """The one sentence of the error that is raised."""
    with pytest.raises(error) as caught:
        function(*arguments, **named)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


def _target(model: Model) -> str | None:
    return TARGET if model.network.config.is_encoder_decoder else None


@pytest.fixture(scope="module", params=CASES, ids=lambda case: " ".join(filter(None, case)))
def case(request):
    return request.param


@pytest.fixture(scope="module")
def row(case):
    return CASES[case]


@pytest.fixture(scope="module")
def model(case, tiny):
    return tiny(case[0])


@pytest.fixture(scope="module")
def run(case, model):
    return trace(model, TEXT, target=_target(model), attention=case[1])


@pytest.fixture(scope="module")
def cuts(case, model):
    ids = cut.inputs(model, TEXT, target=_target(model))
    return cut.blocks(model.network, cut.place(*case), ids, case[1])


@pytest.fixture(scope="module")
def naive(cuts):
    return [reference.Parts(**block.parts) for block in cuts]


# --- the table -------------------------------------------------------------------------------


def test_the_table_names_every_family_that_is_supported():
    named = {name.partition(",")[0] for name, _ in TABLE}
    assert sorted(named) == FAMILIES
    assert len(TABLE) == sum(len(row["family"].split("`")) // 2 for row in _unique(TABLE.values()))


def _unique(rows):
    return {id(row): row for row in rows}.values()


def test_every_row_has_a_tiny_model_and_every_tiny_model_a_row():
    assert {name for name, _ in CASES} == set(ARCHITECTURES)
    assert set(TABLE) <= set(CASES)
    assert {kind for name, kind in CASES if name in TWO_SIDED} == set(KINDS)


def test_the_stages_are_those_of_the_table(run, row):
    last = re.match(r"`([\w-]+)`", row["last stage"])[1]
    assert run.stages == STAGES[: STAGES.index(last) + 1]
    for stage in STAGES[len(run.stages) :]:
        for function in (stage_map, mixing_ratio):
            text = _message(ValueError, function, run, stage)
            assert f"{stage!r} does not exist" in text and ", ".join(run.stages) in text


def test_globenc_exists_where_the_table_says(run, row):
    if "globenc" in row["last stage"]:
        assert globenc(run).shape == run.attention[:, 0].shape
    else:
        assert "globenc does not exist" in _message(ValueError, globenc, run)


def test_the_order_of_the_layernorm_is_that_of_the_table(case, run, row):
    post = row["LayerNorm"].startswith("post-LN")
    assert post != row["LayerNorm"].startswith("pre-LN")
    assert all((block.gamma is not None) == post for block in run.blocks)
    assert ("one after attention" in row["LayerNorm"]) == (cut.place(*case).inner_norm is not None)


OUTPUTS = {  # what the table says, and where `cut` finds that tensor
    r"output of the LayerNorm after (cross-|self-)?attention": "after norm",
    r"input of the (LayerNorm|RMSNorm) before the feed-forward network": "before a norm",
    r"attention \+ x, which is no tensor of the model": "after project",
    r"output of the layer's first sublayer": "before layer.1",
    r"output of the layer's second sublayer": "before layer.2",
}


def _where(place: cut.Place) -> str:
    if place.end.startswith("<"):
        norm = re.search(r"norm|ln_", place.end)
        return "before a norm" if norm else f"before {place.end[1:]}"
    return {place.norm: "after norm", place.project: "after project"}[place.end]


def test_the_output_is_the_tensor_that_the_table_names(case, run, row, cuts):
    said = row["`.output` of a block"]
    (place,) = [place for text, place in OUTPUTS.items() if re.match(text, said)]
    assert place == _where(cut.place(*case))
    for block, own in zip(run.blocks, cuts, strict=True):
        if "no tensor of the model" in said:
            assert torch.equal(block.output, own.output + block.residual)
        else:
            assert torch.equal(block.output, own.output)


# --- against the naive reference -------------------------------------------------------------


def test_the_parts_add_up_to_the_model_s_own_output(run):
    errors = reconstruction_error(run)
    assert errors.shape == (len(run.blocks),)
    assert (errors >= 0).all() and errors.max() < TOLERANCE


def test_the_reference_adds_up_too(run, naive):
    for block, parts in zip(run.blocks, naive, strict=True):
        _close(block.output, reference.block_output(parts))


def test_in_float64_nothing_is_left(case, model):
    """Where the model itself stays in float64: an RMSNorm is computed in float32 by its class."""
    exact = Model("exact", copy.deepcopy(model.network).double(), model.tokenizer)
    run = trace(exact, TEXT, target=_target(model), attention=case[1])
    inner = run.blocks[0].inner_gamma is not None
    assert reconstruction_error(run).max() < (1e-7 if inner else 1e-13)


def test_what_is_read(run, naive):
    assert len(run.blocks) == len(naive)
    for block, alpha, parts in zip(run.blocks, run.attention, naive, strict=True):
        assert torch.equal(block.attention, alpha)
        assert torch.equal(alpha.double(), parts.attention)
        assert torch.equal(block.x.double(), parts.x)
        assert torch.equal(block.residual.double(), parts.residual)
        for name in ("W_V", "b_V", "W_O", "b_O"):
            expected = getattr(parts, name)
            torch.testing.assert_close(getattr(block, name).double(), expected, rtol=0, atol=1e-12)


def test_norms(run, naive):
    _close(transformed_norms(run), torch.stack([reference.transformed_norms(p) for p in naive]))
    _close(weighted_norms(run), torch.stack([reference.weighted_norms(p) for p in naive]))


def test_maps(run, naive):
    for stage in run.stages:
        expected = torch.stack([reference.stage_map(parts, stage) for parts in naive])
        _close(stage_map(run, stage), expected)


def test_mixing_ratios(case, run, naive):
    for stage in run.stages:
        if case[1] == "cross":
            assert "no mixing ratio" in _message(ValueError, mixing_ratio, run, stage)
        else:
            expected = torch.stack([reference.mixing_ratio(parts, stage) for parts in naive])
            _close(mixing_ratio(run, stage), expected)


def test_globenc(run, row, cuts, naive):
    if "globenc" not in row["last stage"]:
        pytest.skip("the table says that it does not exist")
    vectors = [
        reference.whole_layer_vectors(parts, *own.second)
        for parts, own in zip(naive, cuts, strict=True)
    ]
    _close(globenc(run), torch.stack(vectors).norm(dim=-1))


def test_expansion_rate(case, model, naive):
    rates = expansion_rate(model, case[1])
    assert (rates > 0).all()
    expected = [reference.expansion_rate(p.W_V, p.W_O, p.b_V, p.b_O) for p in naive]
    _close(rates, torch.tensor(expected))


def test_value_zeroing(case, model):
    if case[1] in ("decoder", "cross"):
        pytest.skip("the table says that it does not exist")
    text = "she saw."
    ids = cut.inputs(model, text, target="on" if case[1] else None)
    expected = cut.value_zeroing(model.network, cut.place(*case), ids)
    _close(value_zeroing(model, text), expected)


# --- rows that sum to one, rollout, flow ------------------------------------------------------


def test_attention_rows_sum_to_one(run):
    sums = run.attention.sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)
    assert run.attention.min() >= 0


def test_rollout_and_flow_of_every_map(case, run):
    """Flow from one position to one token is compared: the oracle is slow."""
    for stage in run.stages:
        maps = stage_map(run, stage)
        if case[1] == "cross":
            for function in (rollout, flow):
                assert "shape (L, T, T)" in _message(ValueError, function, maps)
            continue
        residual = 0.0 if "Res" in stage else 0.5
        shares = rollout(maps, residual)
        torch.testing.assert_close(shares.sum(dim=-1), torch.ones(shares.shape[:2]))
        _close(shares, reference.rollout(maps.double(), residual), 1e-5)
        T = maps.shape[-1]
        expected = reference.max_flow(maps.double(), len(maps), T - 1, 0, residual)
        found = flow(maps, residual, query=T - 1, normalize=False)
        assert found[0].item() == pytest.approx(expected, abs=1e-5)
        torch.testing.assert_close(flow(maps, residual).sum(dim=-1), torch.ones(T))


# --- the tiny models leave no term out --------------------------------------------------------


def _wrong(block):
    """The block with one thing wrong at a time."""
    turned = [*range(1, len(block.W_O)), 0]
    yield "heads of W_O", replace(block, W_O=block.W_O[turned])
    yield "heads' attention", replace(block, attention=block.attention[turned])
    yield "residual", replace(block, residual=torch.zeros_like(block.residual))
    if block.b_V.any():
        yield "b_V", replace(block, b_V=torch.zeros_like(block.b_V))
    if block.b_O.any():
        yield "b_O", replace(block, b_O=torch.zeros_like(block.b_O))
    if block.gamma is not None:
        yield "gamma", replace(block, gamma=torch.ones_like(block.gamma))
        yield "beta", replace(block, beta=torch.zeros_like(block.beta))
    if block.inner_gamma is not None:
        yield "inner gamma", replace(block, inner_gamma=block.inner_gamma - 1)
        yield "inner eps", replace(block, inner_eps=0.0)


def test_the_error_notices_what_is_wrong(run):
    """In one layer at least: deep in a random model the tokens are nearly equal."""
    for name in dict(_wrong(run.blocks[0])):
        changed = replace(run, blocks=[dict(_wrong(block))[name] for block in run.blocks])
        assert reconstruction_error(changed).max() > 1e-3, name


WITHOUT_BIAS = {"t5": "VO", "mt5": "VO", "llama, no biases": "VO", "mistral": "VO", "qwen2": "O"}


def test_biases_are_there_or_count_as_zero(case, run):
    without = WITHOUT_BIAS.get(case[0], "")
    for block in run.blocks:
        assert bool(block.b_V.any()) == ("V" not in without)
        assert bool(block.b_O.any()) == ("O" not in without)


@pytest.mark.parametrize(
    ("name", "reach", "ahead"),
    [("mistral", 2, 0), ("gemma2", 2, 0), ("gemma3_text", 2, 0), ("modernbert", 2, 2)],
)
def test_a_local_layer_hides_what_is_far_away(tiny, name, reach, ahead):
    run = trace(tiny(name), TEXT)
    T = len(run.tokens)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    near = (distance <= reach) & (distance >= -ahead)
    assert T > 2 * reach + 2 and not near.all()
    for number, alpha in enumerate(run.attention):
        seen = near if name == "mistral" or number != 1 else (distance >= 0) | (ahead > 0)
        assert torch.equal(alpha > 0, seen.expand_as(alpha))


def test_heads_need_not_be_as_wide_as_they_are_many(tiny):
    for name, groups in (("gemma", 1), ("gemma2", 2), ("qwen3", 1)):
        block = trace(tiny(name), TEXT).blocks[0]
        assert (block.W_V.shape, block.W_O.shape) == ((4, 24, 8), (4, 8, 24))
        assert len({tuple(W.flatten().tolist()) for W in block.W_V}) == groups
    assert trace(tiny("t5"), TEXT, attention="encoder").blocks[0].W_V.shape == (4, 24, 8)
    llama = trace(tiny("llama"), TEXT).blocks[0]
    assert torch.equal(llama.W_V[0], llama.W_V[1]) and torch.equal(llama.b_V[2], llama.b_V[3])
    assert not torch.equal(llama.W_V[1], llama.W_V[2])


def test_shared_layers_are_read_once_a_call(tiny):
    assert len(trace(tiny("albert"), TEXT).blocks) == 3
    blocks = trace(tiny("albert, 2 groups of 2"), TEXT).blocks
    first = [next(n for n, b in enumerate(blocks) if torch.equal(b.W_V, c.W_V)) for c in blocks]
    assert first == [0, 1, 0, 1, 4, 5], "three calls: the first group twice, the second once"
    assert not torch.equal(blocks[0].x, blocks[2].x)


# --- task heads -------------------------------------------------------------------------------

HEADS = {
    "albert": ("AlbertForMaskedLM", "AlbertForSequenceClassification"),
    "bart": ("BartForSequenceClassification", "BartForCausalLM", "BartModel"),
    "bert": ("BertForMaskedLM", "BertForMultipleChoice", "BertLMHeadModel"),
    "camembert": ("CamembertForMaskedLM", "CamembertForQuestionAnswering"),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertForSequenceClassification"),
    "electra": ("ElectraForMaskedLM", "ElectraForSequenceClassification"),
    "gemma": ("GemmaForCausalLM", "GemmaForSequenceClassification"),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2ForSequenceClassification"),
    "gemma3_text": ("Gemma3ForCausalLM", "Gemma3TextForSequenceClassification"),
    "gpt2": ("GPT2LMHeadModel", "GPT2ForSequenceClassification"),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXForTokenClassification"),
    "llama": ("LlamaForCausalLM", "LlamaForSequenceClassification"),
    "marian": ("MarianModel", "MarianForCausalLM"),
    "mistral": ("MistralForCausalLM", "MistralForTokenClassification"),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertForSequenceClassification"),
    "mt5": ("MT5Model", "MT5EncoderModel", "MT5ForSequenceClassification"),
    "opt": ("OPTForCausalLM", "OPTForSequenceClassification"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2ForSequenceClassification"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3ForQuestionAnswering"),
    "roberta": ("RobertaForMaskedLM", "RobertaForTokenClassification"),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3ForTokenClassification"),
    "t5": ("T5Model", "T5ForSequenceClassification", "T5EncoderModel", "T5ForTokenClassification"),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"),
}


def test_every_family_has_its_heads():
    assert sorted(HEADS) == FAMILIES


@pytest.mark.parametrize(("family", "head"), [(f, h) for f, hs in HEADS.items() for h in hs])
def test_a_head_is_kept_and_looked_through(tmp_path, family, head):
    tiny_models.save(family, tmp_path, getattr(transformers, head), seed=5)
    model = load_model(tmp_path)
    assert type(model.network).__name__ == head
    base = Model("base", model.network.base_model, model.tokenizer)
    kinds = KINDS if model.network.config.is_encoder_decoder else (None,)
    for kind in kinds:
        run = trace(model, TEXT, target=_target(model), attention=kind)
        assert reconstruction_error(run).max() < TOLERANCE
        assert len(expansion_rate(model, kind)) == len(run.blocks)
        if isinstance(base.network, transformers.PreTrainedModel):
            other = trace(base, TEXT, target=_target(model), attention=kind)
            assert torch.equal(run.attention, other.attention)
            assert torch.equal(run.blocks[-1].output, other.blocks[-1].output)


def test_a_decoder_that_stands_alone_is_read_to_the_layer_s_end(tmp_path):
    tiny_models.save("bart", tmp_path, transformers.BartForCausalLM, seed=5)
    model = load_model(tmp_path)
    run = trace(model, TEXT)
    assert run.stages == STAGES and run.tokens == run.keys
    assert not stage_map(run, "AttnResLn-N").triu(1).any()
    assert globenc(run).shape == (3, len(run.tokens), len(run.tokens))
    ids = cut.inputs(model, "she")
    _close(
        value_zeroing(model, "she"),
        cut.value_zeroing(model.network, cut._bart("decoder", "self_attn", None), ids),
    )


# --- texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ONE_TEXT)
def test_sentence_pairs(tiny, family):
    model = tiny(family)
    run = trace(model, "she saw", pair="the keys")
    assert run.ids == model.tokenizer("she saw", "the keys")["input_ids"]
    assert reconstruction_error(run).max() < TOLERANCE
    assert len(run.tokens) > len(trace(model, "she saw").tokens)


@pytest.mark.parametrize("family", ["albert", "bert", "electra"])
def test_the_second_segment_is_told_apart(tiny, family):
    """The marks are those of one text with [SEP] in it; only the segments differ."""
    model = tiny(family)
    pair, one = trace(model, "she saw", pair="keys"), trace(model, "she saw [SEP] keys")
    assert pair.tokens == one.tokens == ["[CLS]", "she", "saw", "[SEP]", "keys", "[SEP]"]
    assert torch.equal(pair.blocks[0].residual[:4], one.blocks[0].residual[:4])
    assert (pair.blocks[0].residual[4:] - one.blocks[0].residual[4:]).abs().min(dim=1)[0].max() > 0


@pytest.mark.parametrize("family", TWO_SIDED)
def test_a_pair_in_an_encoder_decoder_is_for_its_encoder(tiny, family):
    model = tiny(family)
    text = _message(ValueError, trace, model, "she saw", pair="the keys")
    assert "target" in text
    run = trace(model, "she saw", pair="the keys", attention="encoder")
    assert run.ids == model.tokenizer("she saw", "the keys")["input_ids"]
    assert len(run.tokens) > len(trace(model, "she saw", attention="encoder").tokens)
    assert reconstruction_error(run).max() < TOLERANCE


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["albert", "bert", "gpt2", "gpt_neox", "llama", "roberta", "t5"])
def test_padding_and_truncation_of_the_folder_s_tokenizer_never_act(tmp_path, tiny, family, side):
    plain = tiny(family)
    plain.network.save_pretrained(tmp_path)
    words = copy.deepcopy(plain.tokenizer)
    words.backend_tokenizer.enable_padding(length=30, direction=side)
    words.backend_tokenizer.enable_truncation(3)
    words.model_max_length = 3
    words.padding_side = side
    words.save_pretrained(tmp_path)
    assert '"Fixed":30' in re.sub(r"\s", "", (tmp_path / "tokenizer.json").read_text())
    expected = trace(plain, TEXT, target=_target(plain))
    found = trace(load_model(tmp_path), TEXT, target=_target(plain))
    assert (found.tokens, found.keys) == (expected.tokens, expected.keys)
    assert torch.equal(found.attention, expected.attention)


# --- other number formats, other attentions ---------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_folders_are_read_as_float32(tmp_path, tiny, family, dtype):
    half = copy.deepcopy(tiny(family).network).to(dtype)
    half.save_pretrained(tmp_path)
    tiny(family).tokenizer.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert {tensor.dtype for tensor in model.network.parameters()} == {torch.float32}
    saved = half.state_dict()
    for name, tensor in model.network.named_parameters():
        if family != "marian" or "embed_positions" not in name:  # a table of sines, made anew
            assert torch.equal(tensor, saved[name].float()), name
    assert reconstruction_error(trace(model, TEXT, target=_target(model))).max() < TOLERANCE
    coarse = Model("coarse", half.eval(), model.tokenizer)
    assert "float()" in _message(ValueError, trace, coarse, TEXT, target=_target(model))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_network_that_returns_no_attention_is_refused(tiny, family):
    """After the remedy that the sentence names it is read like any other."""
    model = tiny(family)
    if family == "gemma2":
        with pytest.raises(ValueError, match="does not support"):  # by transformers itself
            type(model.network).from_pretrained(model.name, attn_implementation="sdpa")
        return
    network = type(model.network).from_pretrained(model.name, attn_implementation="sdpa").eval()
    own, target = Model("own", network, model.tokenizer), _target(model)
    text = _message(ValueError, trace, own, TEXT, target=target)
    assert "load_model" in text and 'attn_implementation="eager"' in text
    assert "load_model" in _message(ValueError, value_zeroing, own, "she")
    network.set_attn_implementation("eager")
    expected = trace(model, TEXT, target=target)
    assert torch.equal(trace(own, TEXT, target=target).attention, expected.attention)


@pytest.mark.parametrize("name", ["flash_attention_2", "flex_attention", "my_own"])
@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_no_other_attention_code_is_read(monkeypatch, tiny, family, name):
    """What it would need is not asked for: such a network is refused before it runs."""
    network = copy.deepcopy(tiny(family).network)
    monkeypatch.setattr(network.base_model.config, "_attn_implementation_internal", name)
    monkeypatch.setattr(network.base_model, "forward", None)
    own = Model("own", network, tiny(family).tokenizer)
    text = _message(ValueError, trace, own, TEXT, target=_target(own))
    assert repr(name) in text and "load_model" in text and 'attn_implementation="eager"' in text
    assert repr(name) in _message(ValueError, value_zeroing, own, TEXT)


def _folder_that_asks_for(tmp_path, model: Model, **settings):
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return tmp_path


@pytest.mark.parametrize("name", ["sdpa", "flash_attention_2", "flex_attention", "my_own"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_a_folder_that_asks_for_other_attention_code_loads_eager(tmp_path, tiny, family, name):
    plain, asked = tiny(family), {"attn_implementation": name, "_attn_implementation": name}
    model = load_model(_folder_that_asks_for(tmp_path, plain, **asked))
    modules = [m for m in model.network.modules() if isinstance(m, transformers.PreTrainedModel)]
    assert {module.config._attn_implementation for module in modules} == {"eager"}
    expected = trace(plain, TEXT, target=_target(plain))
    assert torch.equal(trace(model, TEXT, target=_target(model)).attention, expected.attention)


# --- settings that save memory or leave weights out -------------------------------------------


CHUNKED = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")


@pytest.mark.parametrize("family", CHUNKED)
def test_a_feed_forward_network_in_chunks(tmp_path, tiny, family):
    """load_model puts it together again; a network of one's own is refused."""
    plain = tiny(family)
    folder = _folder_that_asks_for(tmp_path, plain, chunk_size_feed_forward=1)
    run, expected = trace(load_model(folder), TEXT), trace(plain, TEXT)
    assert reconstruction_error(run).max() < TOLERANCE
    for stage in STAGES:
        assert torch.equal(stage_map(run, stage), stage_map(expected, stage))
    assert torch.equal(globenc(run), globenc(expected))
    network = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    for function in (trace, value_zeroing):
        text = _message(ValueError, function, Model("own", network, plain.tokenizer), TEXT)
        assert "chunk_size_feed_forward=1" in text and "chunk_size_feed_forward=0" in text


@pytest.mark.parametrize("name", ["opt", "opt, post-LN"])
def test_norms_without_weights_do_as_if_they_were_one_and_zero(tiny, name):
    model = tiny(name)
    config = copy.deepcopy(model.network.config)
    config.layer_norm_elementwise_affine = False
    bare = type(model.network)._from_config(config, attn_implementation="eager").eval()
    same = copy.deepcopy(model.network)
    bare.load_state_dict(same.state_dict(), strict=False)
    for module in same.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.ones_(module.weight)
            torch.nn.init.zeros_(module.bias)
    bare, same = (Model("own", network, model.tokenizer) for network in (bare, same))
    run, expected = trace(bare, TEXT), trace(same, TEXT)
    assert run.stages == expected.stages
    assert reconstruction_error(run).max() < TOLERANCE
    for stage in run.stages:
        _close(stage_map(run, stage), stage_map(expected, stage))
        _close(mixing_ratio(run, stage), mixing_ratio(expected, stage))
    if run.blocks[0].gamma is not None:
        _close(globenc(run), globenc(expected))
    _close(value_zeroing(bare, "she"), value_zeroing(same, "she"))


# --- families that are not supported ----------------------------------------------------------

_SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8}
_SMALL |= {"intermediate_size": 8, "pad_token_id": 0}
_GROUPS = _SMALL | {"num_key_value_heads": 2}
_LIKE_T5 = {"num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
_LIKE_T5 |= {"d_model": 8, "d_kv": 4, "d_ff": 8}
_LIKE_BART = {"encoder_layers": 1, "decoder_layers": 1}
_LIKE_BART |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 8}
_LIKE_BART |= {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 16}
_IMAGE = {"image_size": 4, "patch_size": 2}
UNSUPPORTED = {
    "big_bird": _SMALL,
    "bloom": {"hidden_size": 8, "n_layer": 1, "n_head": 2},
    "deberta": _SMALL,
    "deberta-v2": _SMALL,
    "falcon": _SMALL,
    "funnel": {"architectures": ["FunnelModel"], "num_decoder_layers": 1, "block_sizes": [1]}
    | {"block_repeats": [1], "d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 8},
    "gemma3": {
        "text_config": _GROUPS | {"vocab_size": 80, "head_dim": 4},
        "vision_config": _SMALL | _IMAGE,
        "mm_tokens_per_image": 4,
    },
    "gptj": {"n_embd": 8, "n_layer": 1, "n_head": 2, "rotary_dim": 2},
    "longformer": _SMALL | {"attention_window": [2]},
    "longt5": _LIKE_T5,
    "m2m_100": _LIKE_BART,
    "mbart": _LIKE_BART,
    "mixtral": _GROUPS | {"num_local_experts": 2},
    "mpnet": _SMALL,
    "mpt": {"d_model": 8, "n_layers": 1, "n_heads": 2},
    "olmo2": _GROUPS,
    "pegasus": _LIKE_BART,
    "phi": _SMALL,
    "phi3": _GROUPS,
    "qwen2_moe": _GROUPS
    | {"num_experts": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8},
    "roberta-prelayernorm": _SMALL,
    "umt5": _LIKE_T5,
    "vit": _SMALL | _IMAGE,
    "xlm-roberta-xl": _SMALL,
    "xlnet": {"n_layer": 1, "n_head": 2, "d_model": 8, "d_inner": 8},
}


@pytest.mark.parametrize("family", UNSUPPORTED)
def test_an_unsupported_family_is_refused_by_name_with_the_list(tmp_path, family):
    words = tiny_models.tokenizer("distilbert")
    settings = UNSUPPORTED[family]
    if family not in ("gemma3", "vit"):
        settings = settings | {"vocab_size": len(words)}
    network = transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model(family, **settings)
    )
    network.save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    for model in (load_model(tmp_path), Model("own", network.eval(), words)):
        for function in (
            lambda m: trace(m, "key"),
            lambda m: trace(m, "key", target="on"),
            expansion_rate,
            lambda m: value_zeroing(m, "key"),
        ):
            text = _message(ValueError, function, model)
            assert f"{family!r} is not supported" in text
            assert text.endswith(f"{', '.join(FAMILIES)}.")
    assert family not in README.partition("## Other models")[2].partition("\n## ")[0].split("`")


@pytest.mark.parametrize("family", ["funnel", "gptj", "xlnet"])
def test_what_needs_no_parts_reads_an_unsupported_family_too(family):
    words = tiny_models.tokenizer("distilbert")
    settings = UNSUPPORTED[family] | {"vocab_size": len(words)}
    config = transformers.AutoConfig.for_model(family, **settings)
    model = Model("own", transformers.AutoModel.from_config(config).eval(), words)
    moved = blank_out(model, "she saw", lambda output: output[0][..., 0].sum())
    assert moved.shape == (4,) and moved.isfinite().all() and moved.max() > 0
