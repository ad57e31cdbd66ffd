"""What people really pass by mistake: each gets one clear sentence, or the right result."""

import numpy as np
import pytest
import safetensors.torch
import torch

from helpers import (
    checks,
    corpus,
    expansion_rate,
    load_model,
    mixing_ratio,
    reconstruction_error,
    stage_map,
    trace,
    transformed_norms,
    weighted_norms,
    widgets,
)
from helpers.models import Model


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


def test_a_missing_pooler_is_harmless(folder):
    file = folder / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    kept = {name: value for name, value in weights.items() if "pooler" not in name}
    assert len(kept) < len(weights)
    safetensors.torch.save_file(kept, file, metadata={"format": "pt"})
    assert trace(load_model(folder), "the keys").stages


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


def said(capsys, check, *arguments):
    check(*arguments)
    return capsys.readouterr().out.strip()


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
