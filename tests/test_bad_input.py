"""What people really pass by mistake: each gets one clear sentence, or the right result."""

import copy
import dataclasses
import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
import transformers
from exercises import said

from helpers import (
    alignment,
    blank_out,
    checks,
    corpus,
    expansion_rate,
    figures,
    flow,
    globenc,
    input_gradients,
    load_model,
    mixing_ratio,
    plots,
    reconstruction_error,
    rollout,
    stage_map,
    trace,
    transformed_norms,
    value_zeroing,
    weighted_norms,
    widgets,
)
from helpers.alignment import Gold
from helpers.models import Model
from helpers.saliency import rank_correlation


@pytest.mark.parametrize(
    "function",
    [
        transformed_norms,
        weighted_norms,
        reconstruction_error,
        lambda run: stage_map(run, "Attn-W"),
        lambda run: mixing_ratio(run, "Attn-N"),
        lambda run: widgets.draw_attention(run, 1),
        lambda run: widgets.draw_weight_and_norm(run, 1),
    ],
)
def test_a_model_where_a_trace_is_wanted(minilm, function):
    with pytest.raises(TypeError, match="run must be a Trace, got Model"):
        function(minilm)


@pytest.mark.parametrize("function", [expansion_rate, lambda model: trace(model, "Hi there.")])
def test_a_trace_where_a_model_is_wanted(run, function):
    with pytest.raises(TypeError, match="model must be a Model, got Trace"):
        function(run)


def test_a_trace_is_short_when_a_cell_shows_it(run):
    assert len(repr(run)) < 200 and "6 layers" in repr(run)


def test_swapped_arguments_and_far_off_names_get_no_guess(run):
    for wrong in ("zzzz", 0, None, run):
        with pytest.raises(ValueError) as caught:
            stage_map(run, wrong)
        assert "did you mean" not in str(caught.value) and len(str(caught.value)) < 400


def test_half_a_character(minilm):
    with pytest.raises(ValueError, match="text .* holds half of a character"):
        trace(minilm, "Hi \ud83d")


def test_a_pair_that_is_too_long_is_named(minilm):
    with pytest.raises(ValueError, match="text and pair together"):
        trace(minilm, "Hello", pair="word " * 600)


def test_a_coarse_network_is_refused(tiny):
    small = tiny("bert")
    half = load_model(small.name).network.half()
    with pytest.raises(ValueError, match="float16"):
        trace(Model("half", half, small.tokenizer), "the keys")


def test_numpy_and_torch_integers_are_numbers_and_bools_are_not(run):
    widgets.draw_attention(run, np.int64(1), torch.tensor(2))
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(ValueError, match="layer must be a whole number from 1 to 6"):
            widgets.draw_attention(run, wrong)


def edit(folder, **changes):
    """Change config.json in a folder."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.fixture
def folder(tiny, tmp_path):
    model = tiny("bert")
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_weights_that_the_files_lack_are_named_and_never_random(folder):
    file = folder / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    gone = next(name for name in weights if "layer.1.attention.self.value" in name)
    del weights[gone]
    safetensors.torch.save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lacks weights .*attention.self.value"):
        load_model(folder)


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("bert", "BertForMaskedLM"),
        ("bert", "BertForSequenceClassification"),
        ("bert", "BertForTokenClassification"),
        ("roberta", "RobertaForMaskedLM"),
        ("electra", "ElectraForPreTraining"),
        ("gpt2", "GPT2ForSequenceClassification"),
        ("bart", "BartForSequenceClassification"),
    ],
)
def test_a_task_head_that_the_files_lack_is_never_random(tiny, tmp_path, family, head):
    model = tiny(family)
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    edit(tmp_path, architectures=[head])
    with pytest.raises(ValueError, match="lacks weights .* random .* config.json"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("family", "head"), [("gpt2", "GPT2LMHeadModel"), ("t5", "T5EncoderModel")]
)
def test_a_head_or_a_side_without_weights_of_its_own_is_read(tiny, tmp_path, family, head):
    model = tiny(family)
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    edit(tmp_path, architectures=[head])
    assert type(load_model(tmp_path).network).__name__ == head


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("bert", {"num_hidden_layers": 2}),
        ("gpt2", {"n_layer": 2}),
        ("llama", {"num_hidden_layers": 1}),
        ("t5", {"num_layers": 1}),
        ("marian", {"decoder_layers": 2}),
    ],
)
def test_layers_that_the_config_does_not_count_are_named(tiny, tmp_path, family, change):
    model = tiny(family)
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    edit(tmp_path, **change)
    if family == "llama":
        edit(tmp_path, layer_types=None)
    with pytest.raises(ValueError, match=r"holds layers that its config.json does not count, .*\d"):
        load_model(tmp_path)


def test_an_output_without_names_in_the_config_of_a_folder(folder):
    edit(folder, return_dict=False)
    model = load_model(folder)
    assert trace(model, "the keys").stages
    blank_out(model, "the keys", lambda output: output.last_hidden_state.sum())


@pytest.mark.parametrize("head", [None, "BertForSequenceClassification"])
def test_a_missing_pooler_is_none_and_never_random(folder, head):
    if head:
        config = load_model(folder).network.config
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
    file = folder / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    kept = {name: value for name, value in weights.items() if "pooler" not in name}
    assert len(kept) < len(weights)
    safetensors.torch.save_file(kept, file, metadata={"format": "pt"})
    if head:
        with pytest.raises(ValueError, match="lacks weights .*pooler"):
            load_model(folder)
        return
    model = load_model(folder)
    assert trace(model, "the keys").stages
    assert model.network.pooler is None
    blank_out(model, "the keys", lambda output: output.last_hidden_state.sum())


@pytest.mark.parametrize(
    ("part", "value"),
    [("network", None), ("network", "bert"), ("tokenizer", None), ("tokenizer", "bert")],
)
def test_a_model_put_together_from_something_else(tiny, part, value):
    model = dataclasses.replace(tiny("bert"), **{part: value})
    for function in (
        expansion_rate,
        lambda model: trace(model, "the keys"),
        lambda model: value_zeroing(model, "the keys"),
        lambda model: blank_out(model, "the keys", len),
        lambda model: input_gradients(model, "the keys", len),
        lambda model: corpus.frequency_ranks(model, [1]),
    ):
        with pytest.raises(TypeError, match=rf"^model\.{part} must be a .*load_model\(\)\."):
            function(model)


def test_a_file_where_a_folder_is_wanted(folder):
    with pytest.raises(ValueError, match="is a file; give its folder"):
        load_model(folder / "model.safetensors")


@pytest.mark.parametrize("name", [None, 5])
def test_a_name_that_is_no_text(name):
    with pytest.raises(TypeError, match="name must be a string or a path"):
        load_model(name)


def test_files_of_texts_from_other_editors(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_bytes("\ufeffOne text.\r\n\r\nAnother.\r\n".encode())
    assert corpus.read_passages(file) == ["One text.", "Another."]
    for content in ("Grüße".encode("latin1"), "Hi there".encode("utf-16-le")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="not in UTF-8"):
            corpus.read_passages(file)


@pytest.mark.parametrize("texts", [None, 5, "one text", {"a": 1}, [], (t for t in ["a"])])
def test_texts_that_are_no_list(minilm, texts):
    with pytest.raises(ValueError, match="texts must be a list"):
        corpus.token_table(minilm, texts)


def test_unknown_words_can_be_masked(minilm):
    table = corpus.mixing_table(minilm, ["🎉 🎉"], masked=1.0)
    assert list(table["token"].unique()) == ["[CLS]", "[MASK]", "[SEP]"]


@pytest.mark.parametrize("cast", [torch.Tensor.bool, lambda t: t + 0j, lambda t: t.to_sparse()])
def test_answers_that_are_no_real_numbers(capsys, run, cast):
    answer = cast(run.attention[1, 8])
    line = said(capsys, checks.check_head_weights, answer, run, 1, 8)
    assert line.startswith("Not yet: expected a tensor of real numbers")


@pytest.mark.parametrize("answer", [(float("inf"), 1), (0.9, 2.9), ("0", "2"), 7])
def test_pairs_that_are_no_whole_numbers(capsys, run, answer):
    assert said(capsys, checks.check_two_back_head, answer, run).startswith("Not yet: expected")


@pytest.mark.parametrize("answer", [float("inf"), 2.7, "2"])
def test_layers_that_are_no_whole_numbers(capsys, run, answer):
    assert said(capsys, checks.check_takeover, answer, run, 2).startswith("Not yet: expected")


def test_a_category_that_the_text_does_not_have(capsys, run):
    line = said(capsys, checks.check_norm_share, torch.zeros(6), run, "Punctuation")
    assert line.startswith("Not yet") and "'Punctuation'" in line


def test_a_model_without_the_norm_that_lesson_4_is_about(capsys, tiny):
    causal = trace(tiny("gpt2"), "the keys")
    for check in (
        checks.check_block_output,
        checks.check_mixing_ratio,
        checks.check_layernorm_part,
    ):
        assert "needs a model with LayerNorm" in said(capsys, check, None, causal, 1)


NAN, PAIR = float("nan"), Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))
ODD = {
    "None": None,
    "text": "abc",
    "list": ["a", "b"],
    "empty list": [],
    "nothing in a list": [None],
    "array": np.ones(9),
    "array of text": np.array(["a", "b"]),
    "NaN": NAN,
    "infinite": float("inf"),
    "negative": -99,
    "huge": 10**30,
    "dictionary": {"a": 1},
    "wrong shape": torch.ones(9),
    "empty tensor": torch.zeros(0),
    "one number": torch.tensor(1.5),
    "NaN map": torch.full((4, 4), NAN),
    "complex map": torch.eye(4) + 0j,
    "sparse map": torch.eye(4).to_sparse(),
}
WEAK = ("nothing in a list", "empty list")  # refused by the shape of the scores
POSITIVE = ("None", "huge", "one number")
WORDS = (["<pad>", "▁a"], ["▁a"])
# Each takes one argument, which is named in front of the "=", and refuses all of ODD but these.
ARGUMENTS = {
    "run=transformed_norms": (lambda x, r, m: transformed_norms(x), ()),
    "run=globenc": (lambda x, r, m: globenc(x), ()),
    "stage=stage_map": (lambda x, r, m: stage_map(r, x), ()),
    "stage=mixing_ratio": (lambda x, r, m: mixing_ratio(r, x), ()),
    "model=expansion_rate": (lambda x, r, m: expansion_rate(x), ()),
    "model=value_zeroing": (lambda x, r, m: value_zeroing(x, "a"), ()),
    "maps=rollout": (lambda x, r, m: rollout(x), ()),
    "maps=flow": (lambda x, r, m: flow(x), ()),
    "residual=rollout": (lambda x, r, m: rollout(stage_map(r, "Attn-W"), x), ()),
    "layer=flow": (lambda x, r, m: flow(stage_map(r, "Attn-W"), layer=x), ()),
    "query=flow": (lambda x, r, m: flow(stage_map(r, "Attn-W"), layer=0, query=x), ("None",)),
    "normalize=flow": (lambda x, r, m: flow(stage_map(r, "Attn-W"), normalize=x), ()),
    "score=blank_out": (lambda x, r, m: blank_out(m, "a", x), ()),
    "blank=blank_out": (lambda x, r, m: blank_out(m, "a", len, x), ("None",)),
    "exclude=blank_out": (
        lambda x, r, m: blank_out(m, "a", len, exclude=x),
        ("None", "empty list"),
    ),
    "times_input=input_gradients": (lambda x, r, m: input_gradients(m, "a", len, x), ()),
    "a=rank_correlation": (lambda x, r, m: rank_correlation(x, [1.0, 2]), ()),
    "path=read_passages": (lambda x, r, m: corpus.read_passages(x), ("None",)),
    "tokens=categories": (lambda x, r, m: corpus.categories(x), ("list", "empty list")),
    "ids=frequency_ranks": (lambda x, r, m: corpus.frequency_ranks(m, x), ("empty list",)),
    "model=frequency_ranks": (lambda x, r, m: corpus.frequency_ranks(x, [1]), ()),
    "texts=token_table": (lambda x, r, m: corpus.token_table(m, x), ("list", "nothing in a list")),
    "masked=mixing_table": (lambda x, r, m: corpus.mixing_table(m, ["a"], x), ()),
    "text=words": (lambda x, r, m: alignment.words(x), ("text",)),
    "path=read_gold": (lambda x, r, m: alignment.read_gold(x, one_indexed=True), ()),
    "one_indexed=read_gold": (lambda x, r, m: alignment.read_gold(["1-1"], one_indexed=x), ()),
    "pieces=word_of": (lambda x, r, m: alignment.word_of(x), ("list", "empty list")),
    "special=word_of": (lambda x, r, m: alignment.word_of(["a"], x), ("list", "empty list")),
    "scores=to_words": (lambda x, r, m: alignment.to_words(x, [0, 1], [0, 1]), ()),
    "target_word=to_words": (lambda x, r, m: alignment.to_words(torch.eye(2), x, [0, 1]), WEAK),
    "source_word=to_words": (lambda x, r, m: alignment.to_words(torch.eye(2), [0, 1], x), WEAK),
    "setting=score_words": (lambda x, r, m: alignment.align(torch.ones(2, 1), *WORDS, x), ()),
    "predicted=alignment_error_rate": (
        lambda x, r, m: alignment.alignment_error_rate(x, [PAIR]),
        ("empty list",),
    ),
    "gold=alignment_error_rate": (
        lambda x, r, m: alignment.alignment_error_rate([{(0, 0)}], x),
        ("empty list",),
    ),
    "values=heatmap": (lambda x, r, m: plots.heatmap(x, r.tokens), ()),
    "queries=heatmap": (lambda x, r, m: plots.heatmap(torch.eye(2), x), ("list", "empty list")),
    "vmax=heatmap": (lambda x, r, m: plots.heatmap(torch.eye(2), ["a", "b"], vmax=x), POSITIVE),
    "center=heatmap": (
        lambda x, r, m: plots.heatmap(torch.eye(2), ["a", "b"], center=x),
        (*POSITIVE, "negative"),
    ),
    "title=heatmap": (lambda x, r, m: plots.heatmap(torch.eye(1), ["a"], title=x), ("text",)),
    "ax=heatmap": (lambda x, r, m: plots.heatmap(torch.eye(1), ["a"], ax=x), ("None",)),
    "values=token_bars": (lambda x, r, m: plots.token_bars(x, r.tokens), ()),
    "vmax=token_bars": (lambda x, r, m: plots.token_bars([1], ["a"], vmax=x), POSITIVE),
    "capacities=pipes": (lambda x, r, m: plots.pipes(x, r.tokens), ()),
    "query=pipes": (lambda x, r, m: plots.pipes(torch.ones(1, 1, 1), ["a"], query=x), ("None",)),
    "result=pipes": (lambda x, r, m: plots.pipes(torch.ones(1, 1, 1), ["a"], result=x), ("None",)),
    "ax=links": (lambda x, r, m: plots.links(x, set(), PAIR), ()),
    "table=lines": (lambda x, r, m: plots.lines(x, "a", "b", "c"), ()),
    "x=lines": (lambda x, r, m: plots.lines(pd.DataFrame({"a": [1]}), x, "a", "a"), ()),
    "layer=draw_attention": (lambda x, r, m: figures.draw_attention(r, x), ()),
    "head=draw_attention": (lambda x, r, m: figures.draw_attention(r, 1, x), ()),
    "stage=draw_stage": (lambda x, r, m: figures.draw_stage(r, x, 1), ()),
    "residual=draw_rollout": (lambda x, r, m: figures.draw_rollout(r, "Attn-W", x, 1, 1), ()),
    "query=draw_rollout": (lambda x, r, m: figures.draw_rollout(r, "Attn-W", "none", 1, x), ()),
    "stage=residual_of": (lambda x, r, m: figures.residual_of(r, x, "none"), ()),
    "run=residual_of": (lambda x, r, m: figures.residual_of(x, "Attn-W", "none"), ()),
    "pairs=explore_alignment": (lambda x, r, m: widgets.explore_alignment(m, x), ()),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_odd_arguments_get_one_sentence_that_names_them(tiny, name):
    model = tiny("bert")
    run = trace(model, "she saw")
    function, fine = ARGUMENTS[name]
    for kind in ODD.keys() - set(fine):
        with pytest.raises((ValueError, TypeError)) as caught:
            function(ODD[kind], run, model)
        text = str(caught.value)
        assert text.startswith(name.partition("=")[0]), (kind, text)
        assert "\n" not in text and text.endswith(".") and len(text) < 400, (kind, text)
        assert "helpers" in str(caught.traceback[-1].path), (kind, text)
    assert not plt.get_fignums(), "no empty figure is left open"


def test_values_without_a_colour_are_named_by_their_place():
    for wrong in (NAN, float("inf")):
        values = torch.eye(2)
        values[0, 1] = wrong
        for draw in (
            lambda values: plots.heatmap(values, ["a", "b"]),
            lambda values: plots.pipes(values[None], ["a", "b"]),
        ):
            with pytest.raises(ValueError, match=rf"finite numbers, got {wrong} at .*0, 1\]"):
                draw(values)
    assert plots.token_bars([0.5, NAN], ["a", "b"]), "NaN is a bar that was not measured"
    with pytest.raises(ValueError, match="values must hold finite numbers, got inf"):
        plots.token_bars([0.5, float("inf")], ["a", "b"])
    with pytest.raises(ValueError, match="capacities must be from 0 to 1"):
        plots.pipes([[[2.0]]], ["a"])


def test_weights_that_are_no_numbers(tiny):
    small = tiny("bert")
    model = Model("broken", copy.deepcopy(small.network), small.tokenizer)
    with torch.no_grad():
        model.network.encoder.layer[1].attention.output.dense.weight[0, 0] = NAN
    for function in (
        expansion_rate,
        lambda model: blank_out(model, "she saw", lambda output: output[0].sum()),
        lambda model: input_gradients(model, "she saw", lambda output: output[0].sum()),
        lambda model: trace(model, "she saw"),
        lambda model: value_zeroing(model, "she saw"),
    ):
        with pytest.raises(ValueError, match=r"NaN or infinite weights, first in .*layer\.1\."):
            function(model)


def changed(model, change) -> Model:
    """A copy of the model after the function `change` of its network."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        change(network)
    return Model("changed", network, model.tokenizer)


READINGS = {
    "trace": lambda model: trace(model, "the keys"),
    "value zeroing": lambda model: value_zeroing(model, "the keys"),
    "blank-out": lambda model: blank_out(model, "the keys", lambda output: output[0].sum()),
    "gradients": lambda model: input_gradients(model, "the keys", lambda output: output[0].sum()),
}
NETWORKS = {
    "without names": lambda net: setattr(net.config, "return_dict", False),
    "training mode": lambda net: net.encoder.layer[1].train(),
    "is in torch.float16": lambda net: net.encoder.layer[2].half(),
    "is in float32 and in float64": lambda net: net.encoder.layer[2].double(),
}


@pytest.mark.parametrize("message", NETWORKS)
@pytest.mark.parametrize("reading", READINGS)
def test_a_network_of_which_only_a_part_is_unfit(tiny, message, reading):
    with pytest.raises(ValueError, match=f"^model.network .*{message}"):
        READINGS[reading](changed(tiny("bert"), NETWORKS[message]))


@pytest.mark.parametrize("function", [*READINGS, "stages", "rates", "rollout", "flow"])
def test_autocast_is_refused(tiny, function):
    model = tiny("bert")
    run, maps = trace(model, "the keys"), torch.ones(1, 2, 2)
    more = {
        "stages": lambda _: stage_map(run, "Attn-N"),
        "rates": expansion_rate,
        "rollout": lambda _: rollout(maps),
        "flow": lambda _: flow(maps),
    }
    refused = pytest.raises(ValueError, match="torch.autocast is on")
    with torch.autocast("cpu", torch.bfloat16), refused:
        (READINGS | more)[function](model)


LAST = {
    "gpt2": "h.2.mlp.c_proj.weight",
    "opt": "decoder.layers.2.fc2.weight",
    "gpt_neox": "layers.2.mlp.dense_4h_to_h.weight",
    "llama": "layers.2.mlp.down_proj.weight",
    "modernbert": "layers.2.mlp.Wo.weight",
    "gemma2": "layers.2.mlp.down_proj.weight",
    "t5": "encoder.block.1.layer.1.DenseReluDense.wo.weight",
}


@pytest.mark.parametrize("family", LAST)
def test_a_feed_forward_network_that_is_no_number(tiny, family):
    """No attention block reads the last one, and still a map of whole layers would be NaN."""

    def spoil(network):
        network.base_model.get_parameter(LAST[family])[0, 0] = NAN

    with pytest.raises(ValueError, match=f"first in .*{LAST[family]}; load it again"):
        value_zeroing(changed(tiny(family), spoil), "the keys")


@pytest.mark.parametrize("family", ["bert", "opt, post-LN", "gpt2", "llama"])
def test_weights_that_are_too_large(tiny, family):
    model = tiny(family)

    def enlarge(network):
        for name, weight in network.named_parameters():
            if "v_proj" in name or "value" in name or "c_attn" in name:
                weight.mul_(1e19)

    large = changed(model, enlarge)
    with pytest.raises(ValueError, match="weights of layer 0 .* NaN or infinite"):
        expansion_rate(large)
    for function in (trace, value_zeroing):
        with pytest.raises(
            ValueError, match="layers give NaN or infinite numbers, or such whose sq"
        ):
            function(large, "the keys")


@pytest.mark.parametrize("stage", ["Attn-N", "AttnRes-N", "AttnResLn-N"])
def test_a_map_is_never_nan(tiny, stage):
    run = trace(tiny("bert"), "the keys")
    blocks = [dataclasses.replace(block, W_O=block.W_O * 1e30) for block in run.blocks]
    large = dataclasses.replace(run, blocks=blocks)
    for function in (stage_map, mixing_ratio):
        with pytest.raises(ValueError, match="weights of layer 0 .* NaN or infinite"):
            function(large, stage)
    for function in (globenc, transformed_norms, weighted_norms):
        with pytest.raises(ValueError, match="weights of layer 0 .* NaN or infinite"):
            function(large)


def test_maps_of_other_tokens_than_queries(tiny):
    with pytest.raises(
        ValueError, match=r"got \(2, 3, 4\); a map must be square, and those of cross"
    ):
        rollout(torch.ones(2, 3, 4))
    with pytest.raises(ValueError, match=r"got \(2, 5, 3, 3\); combine the heads first"):
        flow(torch.ones(2, 5, 3, 3))
    with pytest.raises(ValueError, match=r"^residual must be .* got a tensor of shape \(\)\.$"):
        rollout(torch.ones(2, 3, 3), torch.tensor(0.5))


def test_files_of_links_from_other_editors_and_places(tmp_path, monkeypatch):
    file = tmp_path / "gold.txt"
    monkeypatch.setenv("HOME", str(tmp_path))
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        file.write_bytes("1-1 2p3\n".encode(encoding))
        with pytest.raises(ValueError, match="not in UTF-8"):
            alignment.read_gold(file, one_indexed=True)
    file.write_text("1-1 2p3\n", encoding="utf-8-sig")
    (gold,) = alignment.read_gold("~/gold.txt", one_indexed=True)
    assert gold.sure == {(0, 0)} and gold.possible == {(0, 0), (1, 2)}


@pytest.mark.parametrize("layer", [6, -7, True, "1", None])
@pytest.mark.parametrize(
    "check",
    [
        lambda run, layer: checks.check_head_weights(None, run, layer, 0),
        lambda run, layer: checks.check_head_weights(None, run, 0, 2 * layer),
        lambda run, layer: checks.check_transformed_norms(None, run, layer),
        lambda run, layer: checks.check_attn_n(None, run, layer),
        lambda run, layer: checks.check_layernorm_part(None, run, layer),
        lambda run, layer: checks.check_block_output(None, run, layer),
        lambda run, layer: checks.check_mixing_ratio(None, run, layer),
        lambda run, layer: checks.check_flow_matrix(None, torch.eye(3).repeat(6, 1, 1), layer),
    ],
)
def test_a_check_of_a_layer_that_does_not_exist(run, check, layer):
    if layer is None or isinstance(layer, bool | str):
        layer = [layer]  # twice a list is a list
    with pytest.raises(ValueError, match="must be a whole number from 0 to"):
        check(run, layer)


def test_a_check_of_a_rate_that_does_not_exist(minilm):
    with pytest.raises(ValueError, match="layer must be a whole number from 0 to 5"):
        checks.check_expansion_rate(None, minilm, 6)


GRADIENT, FIVE = torch.ones(5, 8), ["a", "a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda run: checks.check_gradient_times_input(None, GRADIENT, GRADIENT[:4]),
            "gradient and x",
        ),
        (lambda run: checks.check_gradient_times_input(None, None, GRADIENT), "gradient must be"),
        (lambda run: checks.check_gradient_times_input(None, GRADIENT, None), "x must be"),
        (lambda run: checks.check_template_mean(len, torch.arange(5), FIVE), "values must hold"),
        (lambda run: checks.check_template_mean(len, np.ones(5), FIVE), "values must be a Tensor"),
        (lambda run: checks.check_template_mean(len, [1.0] * 5, FIVE), "values must be a Tensor"),
        (lambda run: checks.check_template_mean(len, torch.ones(4), FIVE), "values must hold"),
        (lambda run: checks.check_template_mean(len, torch.ones(0), []), "values must hold"),
        (lambda run: checks.check_template_mean(len, torch.ones(5), np.ones(5)), "templates must"),
        (
            lambda run: checks.check_takeover(1, run, 99),
            "position must be a whole number from 1 to",
        ),
        (lambda run: checks.check_takeover(1, run, 0), "position must be a whole number from 1 to"),
        (lambda run: checks.check_takeover(1, None, 1), "run must be a Trace"),
        (lambda run: checks.check_head_weights(None, None, 1, 1), "run must be a Trace"),
        (lambda run: checks.check_cls_share(None, None), "run must be a Trace"),
        (lambda run: checks.check_punctuation_share(None, None), "run must be a Trace"),
        (lambda run: checks.check_two_back_head(None, None), "run must be a Trace"),
        (lambda run: checks.check_transformed_norms(None, None, 1), "run must be a Trace"),
        (lambda run: checks.check_attn_n(None, None, 1), "run must be a Trace"),
        (lambda run: checks.check_norm_share(None, None, "[CLS]"), "run must be a Trace"),
        (lambda run: checks.check_disagreement(None, None), "run must be a Trace"),
        (lambda run: checks.check_layernorm_part(None, None, 1), "run must be a Trace"),
        (lambda run: checks.check_block_output(None, None, 1), "run must be a Trace"),
        (lambda run: checks.check_mixing_ratio(None, None, 1), "run must be a Trace"),
        (lambda run: checks.check_rollout(None, None, 0.5), "run must be a Trace"),
        (lambda run: checks.check_measured_residual(None, None), "run must be a Trace"),
        (lambda run: checks.check_bottleneck(len, None), "maps must be"),
        (lambda run: checks.check_flow_by_hand(None, None, 1), "maps must be"),
        (lambda run: checks.check_cap(None, None, 0.5), "maps must be"),
        (lambda run: checks.check_flow_matrix(len, None, 1), "maps must be"),
        (lambda run: checks.check_expansion_rate(None, None, 1), "model must be a Model"),
        (lambda run: checks.check_aer("text", None, None), "predicted must be"),
        (lambda run: checks.check_to_words(None, None, [0], [0]), "scores must be"),
    ],
)
def test_what_the_notebook_gives_a_check_is_named_where_it_is_wrong(run, check, message):
    with pytest.raises((ValueError, TypeError), match=f"^{message}") as caught:
        check(run)
    assert "\n" not in str(caught.value)


def test_a_complex_answer_prints_one_line(capsys, recwarn):
    line = said(capsys, checks.check_to_words, torch.eye(2) + 0j, torch.eye(2), [0, 1], [0, 1])
    assert line.startswith("Not yet: expected a tensor of real numbers") and not recwarn.list


def test_a_run_of_cross_attention_in_lesson_4(capsys, tiny):
    run = trace(tiny("marian"), "Die Schlüssel", target="The keys")
    line = said(capsys, checks.check_mixing_ratio, None, run, 1)
    assert (
        line == "Not yet: this exercise needs self-attention, and this run is of cross-attention."
    )


def test_a_number_of_a_token_does_not_count_from_the_end(minilm):
    with pytest.raises(ValueError, match="^ids, each of them, must be .* from 0 to 30521, got -1"):
        corpus.frequency_ranks(minilm, [-1])
