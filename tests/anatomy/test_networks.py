"""Heads, texts, number formats and settings of every family, and the families not supported."""

import copy
import re
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from oracle import cut, tiny_models
from oracle.compare import close, refused
from oracle.tiny_models import TWO_SIDED

from helpers import (
    STAGES,
    Model,
    anatomy,
    blank_out,
    expansion_rate,
    globenc,
    load_model,
    mixing_ratio,
    reconstruction_error,
    stage_map,
    trace,
    value_zeroing,
)

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
KINDS = ("encoder", "decoder", "cross")
TEXT, TARGET = "she saw the keys.", "on the table."
FAMILIES = sorted(anatomy.FAMILIES)


def _read(model: Model, attention=None):
    """One run of the model; a target is added where its decoder needs one."""
    two_sided = model.network.config.is_encoder_decoder
    return trace(model, TEXT, target=TARGET if two_sided else None, attention=attention)


def _save(model: Model, folder, network=None):
    (network or model.network).save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


# --- task heads -------------------------------------------------------------------------------

HEADS = {
    "albert": ("AlbertForMaskedLM", "AlbertForSequenceClassification"),
    "bart": ("BartForSequenceClassification", "BartForCausalLM", "BartModel"),
    "bert": ("BertForMaskedLM", "BertForMultipleChoice", "BertLMHeadModel"),
    "biogpt": ("BioGptForCausalLM", "BioGptForSequenceClassification"),
    "blenderbot": ("BlenderbotModel", "BlenderbotForCausalLM"),
    "bloom": ("BloomForCausalLM", "BloomForTokenClassification"),
    "cohere": ("CohereForCausalLM",),
    "data2vec-text": ("Data2VecTextForMaskedLM", "Data2VecTextForTokenClassification"),
    "deberta-v2": ("DebertaV2ForMaskedLM", "DebertaV2ForSequenceClassification"),
    "ernie": ("ErnieForMaskedLM", "ErnieForTokenClassification"),
    "falcon": ("FalconForCausalLM", "FalconForTokenClassification"),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", "GPTBigCodeForTokenClassification"),
    "gpt_neo": ("GPTNeoForCausalLM", "GPTNeoForTokenClassification"),
    "gptj": ("GPTJForCausalLM", "GPTJForSequenceClassification"),
    "m2m_100": ("M2M100Model",),
    "mbart": ("MBartModel", "MBartForCausalLM", "MBartForSequenceClassification"),
    "megatron-bert": ("MegatronBertForMaskedLM", "MegatronBertForTokenClassification"),
    "mixtral": ("MixtralForCausalLM", "MixtralForSequenceClassification"),
    "mpnet": ("MPNetForMaskedLM", "MPNetForSequenceClassification"),
    "olmo": ("OlmoForCausalLM",),
    "olmo2": ("Olmo2ForCausalLM",),
    "olmo3": ("Olmo3ForCausalLM",),
    "pegasus": ("PegasusModel", "PegasusForCausalLM"),
    "phi": ("PhiForCausalLM", "PhiForTokenClassification"),
    "phi3": ("Phi3ForCausalLM", "Phi3ForSequenceClassification"),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeForSequenceClassification"),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeForSequenceClassification"),
    "rembert": ("RemBertForMaskedLM", "RemBertForTokenClassification"),
    "roformer": ("RoFormerForMaskedLM", "RoFormerForSequenceClassification"),
    "stablelm": ("StableLmForCausalLM", "StableLmForSequenceClassification"),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2ForSequenceClassification"),
    "xlm-roberta-xl": ("XLMRobertaXLForMaskedLM", "XLMRobertaXLForTokenClassification"),
    "camembert": ("CamembertForMaskedLM", "CamembertForQuestionAnswering"),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertForSequenceClassification"),
    "electra": ("ElectraForMaskedLM", "ElectraForPreTraining"),
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
    "t5": ("T5Model", "T5EncoderModel", "T5ForTokenClassification"),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"),
}


def test_every_family_has_its_heads():
    assert sorted(HEADS) == FAMILIES


@pytest.mark.parametrize(("family", "head"), [(f, h) for f, hs in HEADS.items() for h in hs])
def test_a_head_is_kept_and_looked_through(tmp_path, family, head):
    tiny_models.save(family, tmp_path, getattr(transformers, head), seed=5)
    model = load_model(tmp_path)
    assert type(model.network).__name__ == head
    base = Model(model.network.base_model, model.tokenizer)
    for kind in KINDS if model.network.config.is_encoder_decoder else (None,):
        run = _read(model, kind)
        assert reconstruction_error(run).max() < 1e-5
        assert len(expansion_rate(model, kind)) == len(run.blocks)
        if isinstance(base.network, transformers.PreTrainedModel):
            other = _read(base, kind)
            assert torch.equal(run.attention, other.attention)
            assert torch.equal(run.blocks[-1].output, other.blocks[-1].output)


def test_a_decoder_that_stands_alone_is_read_to_the_layer_s_end(tmp_path):
    tiny_models.save("bart", tmp_path, transformers.BartForCausalLM, seed=5)
    model = load_model(tmp_path)
    run = trace(model, TEXT)
    assert run.stages == STAGES and run.tokens == run.keys
    assert not stage_map(run, "AttnResLn-N").triu(1).any()
    assert globenc(run).shape == (3, len(run.tokens), len(run.tokens))
    place, ids = cut.place("bart", "decoder"), cut.inputs(model, "she")
    close(value_zeroing(model, "she"), cut.value_zeroing(model.network, place, ids))


# --- texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs(tiny, family):
    """In an encoder-decoder, a pair is for the encoder."""
    model, kind = tiny(family), "encoder" if family in TWO_SIDED else None
    run = trace(model, "she saw", pair="the keys", attention=kind)
    assert run.ids == model.tokenizer("she saw", "the keys")["input_ids"]
    assert reconstruction_error(run).max() < 1e-5
    assert len(run.tokens) > len(trace(model, "she saw", attention=kind).tokens)
    if family in TWO_SIDED:
        refused(lambda: trace(model, "she saw", pair="the keys"), "target")


@pytest.mark.parametrize("family", ["albert", "bert", "electra"])
def test_the_second_segment_is_told_apart(tiny, family):
    """The marks are those of one text with [SEP] in it; only the segments differ."""
    model = tiny(family)
    pair, one = trace(model, "she saw", pair="keys"), trace(model, "she saw [SEP] keys")
    assert pair.tokens == one.tokens == ["[CLS]", "she", "saw", "[SEP]", "keys", "[SEP]"]
    same = (pair.blocks[0].residual == one.blocks[0].residual).all(dim=1)
    assert same.tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["albert", "gpt2", "llama", "t5"])
def test_padding_and_truncation_of_the_folder_s_tokenizer_never_act(tmp_path, tiny, family, side):
    plain = tiny(family)
    words = copy.deepcopy(plain.tokenizer)
    words.backend_tokenizer.enable_padding(length=30, direction=side)
    words.backend_tokenizer.enable_truncation(3)
    words.model_max_length = 3
    words.padding_side = side
    _save(Model(plain.network, words), tmp_path)
    assert '"Fixed":30' in re.sub(r"\s", "", (tmp_path / "tokenizer.json").read_text())
    expected, found = _read(plain), _read(load_model(tmp_path))
    assert (found.tokens, found.keys) == (expected.tokens, expected.keys)
    assert torch.equal(found.attention, expected.attention)


# --- other number formats, other attentions ---------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_folders_are_read_as_float32(tmp_path, tiny, family):
    half = copy.deepcopy(tiny(family).network).to(torch.bfloat16)
    model = load_model(_save(tiny(family), tmp_path, half))
    assert {tensor.dtype for tensor in model.network.parameters()} == {torch.float32}
    saved = half.state_dict()
    for name, tensor in model.network.named_parameters():
        if family != "marian" or "embed_positions" not in name:  # a table of sines, made anew
            assert torch.equal(tensor, saved[name].float()), name
    assert reconstruction_error(_read(model)).max() < 1e-5
    refused(partial(_read, Model(half.eval(), model.tokenizer)), "bfloat16", "float()")


@pytest.mark.parametrize(
    "family", ["bert", "gpt2", "gpt_neox", "llama", "marian", "modernbert", "t5"]
)
def test_a_network_that_returns_no_attention_is_refused(tiny, family):
    """After the remedy that the sentence names it is read like any other."""
    model = tiny(family)
    network = type(model.network).from_pretrained(model.name, attn_implementation="sdpa").eval()
    own = Model(network, model.tokenizer)
    refused(partial(_read, own), "load_model", 'attn_implementation="eager"')
    refused(partial(value_zeroing, own, "she"), "load_model")
    network.set_attn_implementation("eager")
    assert torch.equal(_read(own).attention, _read(model).attention)


@pytest.mark.parametrize("name", ["flash_attention_2", "my_own"])
@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_no_other_attention_code_is_read(monkeypatch, tiny, family, name):
    """What it would need is not asked for: such a network is refused before it runs."""
    network = copy.deepcopy(tiny(family).network)
    monkeypatch.setattr(network.base_model.config, "_attn_implementation_internal", name)
    monkeypatch.setattr(network.base_model, "forward", None)
    own = Model(network, tiny(family).tokenizer)
    for call in (partial(_read, own), partial(value_zeroing, own, TEXT)):
        refused(call, repr(name), "load_model", 'attn_implementation="eager"')


# --- settings that save memory or leave weights out -------------------------------------------


@pytest.mark.parametrize("family", ["albert", "bert", "distilbert", "electra", "roberta"])
def test_a_feed_forward_network_in_chunks(tmp_path, tiny, family):
    """load_model puts it together again; a network of your own is refused."""
    plain = tiny(family)
    network = copy.deepcopy(plain.network)
    network.config.chunk_size_feed_forward = 1
    _save(plain, tmp_path, network)
    run, expected = trace(load_model(tmp_path), TEXT), trace(plain, TEXT)
    for stage in STAGES:
        assert torch.equal(stage_map(run, stage), stage_map(expected, stage))
    assert torch.equal(globenc(run), globenc(expected))
    network = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    for function in (trace, value_zeroing):
        own = Model(network, plain.tokenizer)
        refused(partial(function, own, TEXT), "chunks", "chunk_size_feed_forward=0")


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
    bare, same = (Model(network, model.tokenizer) for network in (bare, same))
    run, expected = trace(bare, TEXT), trace(same, TEXT)
    assert run.stages == expected.stages
    assert reconstruction_error(run).max() < 1e-5
    for stage in run.stages:
        close(stage_map(run, stage), stage_map(expected, stage))
        close(mixing_ratio(run, stage), mixing_ratio(expected, stage))
    if run.blocks[0].gamma is not None:
        close(globenc(run), globenc(expected))
    close(value_zeroing(bare, "she"), value_zeroing(same, "she"))


# --- families that are not supported ----------------------------------------------------------

_SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8}
_SMALL |= {"intermediate_size": 8, "pad_token_id": 0}
UNSUPPORTED = {
    "codegen": {"n_embd": 16, "n_layer": 1, "n_head": 4, "rotary_dim": 2},
    "deberta": _SMALL,
    "gpt_oss": _SMALL | {"num_key_value_heads": 2, "head_dim": 4, "num_local_experts": 2},
    "granite": _SMALL | {"num_key_value_heads": 2},
    "nemotron": _SMALL | {"num_key_value_heads": 2},
    "xlnet": {"n_layer": 1, "n_head": 2, "d_model": 8, "d_inner": 8},
}


def _unsupported(family: str) -> Model:
    words = tiny_models.tokenizer("distilbert")
    settings = UNSUPPORTED[family] | {"vocab_size": len(words)}
    config = transformers.AutoConfig.for_model(family, **settings)
    return Model(transformers.AutoModel.from_config(config).eval(), words)


@pytest.mark.parametrize("family", UNSUPPORTED)
def test_an_unsupported_family_is_refused_by_name_with_the_list(tmp_path, family):
    own = _unsupported(family)
    for model in (load_model(_save(own, tmp_path)), own):
        for call in (
            lambda model=model: trace(model, "key"),
            lambda model=model: trace(model, "key", target="on"),
            lambda model=model: expansion_rate(model),
            lambda model=model: value_zeroing(model, "key"),
        ):
            text = refused(call, f"{family!r} is not supported")
            if family in anatomy.WHY_NOT:
                assert f", because {anatomy.WHY_NOT[family]}; README.md" in text
            else:
                assert text.endswith(f"{', '.join(FAMILIES)}.")
    there = README.partition("## Other models")[2]
    assert (f"`{family}`" in there) == (family in anatomy.WHY_NOT)


def test_the_readme_says_why_a_family_is_not_read():
    table = README.partition("| not supported | because |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (.+) \| (.+) \|$", table, re.MULTILINE))
    said = {name: why for names, why in rows.items() for name in re.findall("`(.+?)`", names)}
    assert said == anatomy.WHY_NOT


@pytest.mark.parametrize("family", ["codegen", "xlnet"])
def test_what_needs_no_parts_reads_an_unsupported_family_too(family):
    moved = blank_out(_unsupported(family), "she saw", lambda output: output[0][..., 0].sum())
    assert moved.shape == (4,) and moved.isfinite().all() and moved.max() > 0


# --- which attention, and how long a text ------------------------------------------------------


def test_which_attention_is_meant(tiny):
    bert, t5 = tiny("bert").network, tiny("t5").network
    assert anatomy.which(bert, None) is None and anatomy.which(t5, None) == "cross"
    assert [anatomy.which(t5, kind) for kind in KINDS] == list(KINDS)
    refused(lambda: anatomy.which(bert, "cross"), "attention='cross'", "leave it out")
    refused(lambda: anatomy.which(t5, "crss"), "attention must be", "did you mean 'cross'?")


def test_the_longest_text_is_what_the_position_embeddings_allow(tiny, minilm):
    """RoBERTa counts positions from its padding on; T5's attention knows no limit."""
    assert anatomy.max_tokens(minilm.network) == 512
    found = {name: anatomy.max_tokens(tiny(name).network) for name in ("bert", "gpt2", "llama")}
    assert set(found.values()) == {tiny_models.POSITIONS}
    assert anatomy.max_tokens(tiny("roberta").network) == tiny_models.POSITIONS - 2
    assert anatomy.max_tokens(tiny("t5").network) is None
    assert anatomy.max_tokens(_unsupported("xlnet").network) is None
