"""Lesson 7: every map's row of [MASK], the yardsticks, and their picture and widget."""

import copy
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from matplotlib.figure import Figure
from tiny_models import config, randomise, tokenizer

from helpers import (
    blank_out,
    flow,
    globenc,
    input_gradients,
    load_model,
    rollout,
    stage_map,
    trace,
    value_zeroing,
    widgets,
)
from helpers.saliency import rank_correlation
from helpers.widgets import explore_yardsticks
from helpers.yardsticks import MAPS, RESIDUAL, YARDSTICKS, draw_yardstick, measure

TEXT = "the keys, [MASK] on them."


pytestmark = pytest.mark.usefixtures("warnings_are_errors")


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    """A tiny BERT with random weights that gives one number a token."""
    folder = tmp_path_factory.mktemp("scorer")
    words = tokenizer("bert")
    settings = config("bert", words)
    settings.num_labels = 1
    network = transformers.BertForTokenClassification(settings)
    randomise(network, seed=3)
    network.save_pretrained(folder)
    words.save_pretrained(folder)
    return load_model(folder)


@pytest.fixture(scope="module")
def measured(scorer):
    return measure(scorer, TEXT)


def test_the_names_and_shapes(measured):
    T = len(measured.tokens)
    assert measured.tokens[measured.mask] == "[MASK]"
    assert tuple(measured.rows) == MAPS and tuple(measured.yardsticks) == YARDSTICKS
    assert len(MAPS) == 16
    assert {tuple(row.shape) for row in measured.rows.values()} == {(3, T)}
    for values in measured.yardsticks.values():
        assert values.shape == (T,)
        assert torch.equal(values.isnan(), torch.arange(T) == measured.mask)
        assert (values.nan_to_num(0.0) >= 0).all()


@pytest.mark.parametrize("stage", RESIDUAL)
def test_rows_of_a_stage(scorer, measured, stage):
    maps, mask = stage_map(trace(scorer, TEXT), stage).double(), measured.mask
    residual = 0.0 if stage.startswith("AttnRes") else 0.5
    assert torch.equal(measured.rows[stage], maps[:, mask])
    assert torch.equal(measured.rows[f"rollout {stage}"], rollout(maps, residual)[:, mask])
    water = torch.stack([flow(maps, residual, layer=layer)[mask] for layer in range(3)])
    torch.testing.assert_close(measured.rows[f"flow {stage}"], water, rtol=0, atol=1e-9)


def test_rows_beyond_the_attention_block(scorer, measured):
    run, mask = trace(scorer, TEXT), measured.mask
    for name, maps in {
        "GlobEnc": globenc(run).double(),
        "value zeroing": value_zeroing(scorer, TEXT).double(),
    }.items():
        assert torch.equal(measured.rows[name], maps[:, mask])
        assert torch.equal(measured.rows[f"rollout {name}"], rollout(maps, 0)[:, mask])


def test_equal_flows_are_equal_after_rounding(measured):
    values = measured.rows["flow Attn-W"]
    assert torch.equal(values, values.round(decimals=9))


def test_yardsticks(scorer, measured):
    mask, names = measured.mask, measured.yardsticks

    def score(output):
        return output.logits[0, mask, 0]

    kept = torch.arange(len(measured.tokens)) != mask
    for name, values in {
        "blank-out": blank_out(scorer, TEXT, score, blank="[UNK]"),
        "blank-out, [MASK]": blank_out(scorer, TEXT, score),
        "gradient × input": input_gradients(scorer, TEXT, score, times_input=True),
        "gradient length": input_gradients(scorer, TEXT, score, length=True),
    }.items():
        assert torch.equal(names[name][kept], values[kept])


def test_what_is_disturbed_can_be_the_same_network_in_double_precision(scorer, measured):
    exact = replace(scorer, network=copy.deepcopy(scorer.network).double())
    finer = measure(scorer, TEXT, scorer=exact)
    for name, values in finer.yardsticks.items():
        assert values.dtype == torch.float64
        coarse = measured.yardsticks[name].double()
        torch.testing.assert_close(values, coarse, rtol=1e-4, atol=1e-5, equal_nan=True)
        assert not torch.equal(values.nan_to_num(), coarse.nan_to_num())
    assert all(torch.equal(finer.rows[name], measured.rows[name]) for name in MAPS)


def test_an_unknown_yardstick(scorer):
    for wrong in (["taste"], []):
        with pytest.raises(ValueError, match='yardsticks, each of them, must be "blank-out"'):
            measure(scorer, TEXT, wrong)
    with pytest.raises(ValueError, match="yardsticks must be a list of strings"):
        measure(scorer, TEXT, "blank-out")


@pytest.mark.parametrize("text", ["the keys", "[MASK] keys [MASK]"])
def test_a_text_without_exactly_one_mask(scorer, text):
    with pytest.raises(ValueError, match=r"\[MASK\] once"):
        measure(scorer, text)


def test_a_model_without_a_score(tiny):
    with pytest.raises(ValueError, match=r'one number a token; use load_model\("verb-number"\)'):
        measure(tiny("bert"), TEXT)


def _with_head(folder, family: str, head: str, labels: int = 1):
    words = tokenizer(family)
    settings = config(family, words)
    settings.num_labels = labels
    network = getattr(transformers, head)(settings)
    randomise(network, seed=3)
    network.save_pretrained(folder)
    words.save_pretrained(folder)
    return load_model(folder)


@pytest.mark.parametrize(
    ("head", "labels"), [("BertForSequenceClassification", 1), ("BertForTokenClassification", 2)]
)
def test_a_model_that_scores_the_text_or_gives_several_numbers(tmp_path, scorer, head, labels):
    model = _with_head(tmp_path, "bert", head, labels)
    for text in (TEXT, "[MASK]"):  # the mask first too: a whole text's score has a first place
        for draw in (measure, explore_yardsticks):
            with pytest.raises(ValueError, match="^model .* does not give one number a token; use"):
                draw(model, text)
    with pytest.raises(ValueError, match="^scorer .* does not give one number a token"):
        measure(scorer, TEXT, scorer=model)


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("roberta", r"model .* has no token \[MASK\]"),
        ("modernbert", "model .* has no LayerNorm after the residual"),
    ],
)
def test_a_model_without_the_mask_or_the_maps(tmp_path, family, words):
    names = {"roberta": "Roberta", "modernbert": "ModernBert"}
    model = _with_head(tmp_path, family, f"{names[family]}ForTokenClassification")
    with pytest.raises(ValueError, match=words + r'.*use load_model\("verb-number"\)\.'):
        measure(model, TEXT)


def test_a_scorer_must_be_a_model_that_reads_the_same_tokens(tiny, scorer):
    with pytest.raises(TypeError, match="^scorer must be a Model, got str"):
        measure(scorer, TEXT, scorer="x")
    with pytest.raises(TypeError, match="^model must be a Model, got str"):
        measure("x", TEXT)
    shorter = copy.deepcopy(scorer.tokenizer)
    shorter.add_tokens(["on them"])
    other = replace(scorer, tokenizer=shorter)
    for wrong in (tiny("gpt2"), tiny("t5"), other):
        with pytest.raises(ValueError, match="^scorer .* must cut text into the same tokens"):
            measure(scorer, TEXT, scorer=wrong)
    with pytest.raises(ValueError, match="^scorer .* does not give one number a token"):
        measure(scorer, TEXT, scorer=tiny("bert"))


def test_the_model_of_the_lesson():
    text = "The keys near the door [MASK] gone."
    run = measure(load_model("verb-number"), text)
    assert run.tokens[int(run.yardsticks["blank-out"].nan_to_num(0.0).argmax())] == "keys"


# --- picture and widget ----------------------------------------------------------------------


@pytest.mark.parametrize("yardstick", YARDSTICKS)
@pytest.mark.parametrize("name", MAPS)
def test_draw_yardstick(measured, name, yardstick):
    before = measured.rows[name].clone()
    figure = draw_yardstick(measured, name, 2, yardstick)
    assert isinstance(figure, Figure)
    left, right = figure.axes
    row, effect = measured.rows[name][1].clone(), measured.yardsticks[yardstick]
    row[measured.mask] = torch.nan
    widths = [bar.get_width() for bar in left.patches]
    np.testing.assert_allclose(widths, row / row.nansum(), rtol=1e-6)
    np.testing.assert_allclose([bar.get_width() for bar in right.patches], effect, rtol=1e-6)
    for ax in (left, right):
        assert [label.get_text() for label in ax.get_yticklabels()] == measured.tokens
    assert name in left.get_title() and "layer 2" in left.get_title()
    assert yardstick in right.get_title()
    assert f"{rank_correlation(row, effect):.2f}" in right.get_title()
    assert torch.equal(measured.rows[name], before), "drawing changes nothing"
    figure.savefig(io.BytesIO(), format="png")


def test_choices_that_do_not_exist(measured):
    for choice, words in (
        (("Attn-X", 1), "map_name 'Attn-X' is unknown; did you mean 'Attn-.'. Maps: Attn-W, "),
        (("rolout attn-w", 1), "did you mean 'rollout Attn-W'"),
        (("taste", 1), "map_name must be \"Attn-W\", .* got 'taste'"),
        ((np.ones(2), 1), 'map_name must be "Attn-W", '),
        (("Attn-W", 1, "taste"), "yardstick must be \"blank-out\", .* got 'taste'"),
        (("Attn-W", 0), "layer must be a whole number from 1 to 3, .* got 0"),
        (("Attn-W", 4), "layer must be a whole number from 1 to 3, .* got 4"),
    ):
        with pytest.raises(ValueError, match=words):
            draw_yardstick(measured, *choice)
    with pytest.raises(TypeError, match="measured must be a Measured"):
        draw_yardstick(measured.rows, "Attn-W", 1)


def test_a_yardstick_that_was_not_measured(scorer):
    few = measure(scorer, TEXT, YARDSTICKS[1:2])
    draw_yardstick(few, "Attn-W", 1, YARDSTICKS[1])
    with pytest.raises(ValueError, match=r"yardstick 'blank-out' was not measured, only gradient"):
        draw_yardstick(few, "Attn-W", 1)


def test_layers_count_from_the_end_too(measured):
    assert "layer 3" in draw_yardstick(measured, "Attn-W", -1).axes[0].get_title()


def test_the_widget(scorer, monkeypatch, capsys):
    calls = []

    def recorded(measured, **values):
        calls.append((measured.tokens, values))
        return draw_yardstick(measured, **values)

    monkeypatch.setattr(widgets, "draw_yardstick", recorded)
    field, row, _ = explore_yardsticks(scorer, TEXT).children
    chosen = {control.description: control for control in row.children}
    assert list(chosen) == ["Map", "Layer", "Yardstick"]
    assert tuple(chosen["Map"].options) == MAPS
    assert tuple(chosen["Yardstick"].options) == YARDSTICKS
    assert calls[-1][1] == {"map_name": MAPS[0], "layer": 3, "yardstick": YARDSTICKS[0]}
    chosen["Map"].value, chosen["Layer"].value = "flow Attn-N", 1
    chosen["Yardstick"].value = YARDSTICKS[2]
    assert calls[-1][1] == {"map_name": "flow Attn-N", "layer": 1, "yardstick": YARDSTICKS[2]}
    field.value = "she [MASK] them"
    assert calls[-1][0] == ["[CLS]", "she", "[MASK]", "them", "[SEP]"]
    number = len(calls)
    capsys.readouterr()
    field.value = "she saw them"
    assert len(calls) == number and "[MASK] once" in capsys.readouterr().out
