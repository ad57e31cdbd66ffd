"""Widgets: the drawing functions over every choice, and controls that call them."""

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from helpers import STAGES, mixing_ratio, stage_map, trace, weighted_norms, widgets
from helpers.widgets import (
    ALL_HEADS,
    compare_weight_and_norm,
    draw_attention,
    draw_stage,
    draw_weight_and_norm,
    explore,
    explore_stages,
)

TEXT = "she saw"
LAYERS, HEADS = (1, 2, 3), (ALL_HEADS, 1, 2, 3, 4)


pytestmark = pytest.mark.usefixtures("warnings_are_errors")


@pytest.fixture(scope="module")
def small(tiny):
    return trace(tiny("bert"), TEXT)


def _drawn(ax) -> np.ndarray:
    """The numbers behind a map's colours, (T, S)."""
    T = len(ax.get_yticks())
    return np.asarray(ax.collections[0].get_array()).reshape(T, -1)


def _maps(figure: Figure) -> list:
    return [ax for ax in figure.axes if "query" in ax.get_ylabel()]


def _weights(run, layer, head):
    attention = run.attention[layer - 1]
    return attention.mean(dim=0) if head == ALL_HEADS else attention[head - 1]


def _shares(values):
    return (values / values.sum(dim=-1, keepdim=True)).numpy()


# --- drawing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("head", HEADS)
def test_draw_attention(small, layer, head):
    figure = draw_attention(small, layer, head)
    assert isinstance(figure, Figure)
    (ax,) = _maps(figure)
    np.testing.assert_allclose(_drawn(ax), _weights(small, layer, head).numpy(), rtol=1e-6)
    assert f"layer {layer}" in ax.get_title()
    assert ("all heads" if head == ALL_HEADS else f"head {head}") in ax.get_title()
    assert ax.collections[0].get_clim() == (0, 1)


def test_draw_attention_up_to_the_maximum(small):
    (ax,) = _maps(draw_attention(small, 2, 3, full_range=False))
    assert ax.collections[0].get_clim() == (0, pytest.approx(small.attention[1, 2].max().item()))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("head", HEADS)
def test_draw_weight_and_norm(small, layer, head):
    left, right = _maps(draw_weight_and_norm(small, layer, head))
    weight = _weights(small, layer, head)
    norms = stage_map(small, "Attn-N") if head == ALL_HEADS else weighted_norms(small)[:, head - 1]
    np.testing.assert_allclose(_drawn(left), _shares(weight), rtol=1e-5)
    np.testing.assert_allclose(_drawn(right), _shares(norms[layer - 1]), rtol=1e-5)
    assert left.collections[0].get_clim() == right.collections[0].get_clim(), "one colour rule"
    assert left.collections[0].get_clim()[1] >= max(_drawn(left).max(), _drawn(right).max())
    assert "weight" in left.get_title() and "norm" in right.get_title()
    assert all(f"layer {layer}" in ax.get_title() for ax in (left, right))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("stage", STAGES)
def test_draw_stage(small, stage, layer):
    figure = draw_stage(small, stage, layer)
    (ax,) = _maps(figure)
    np.testing.assert_allclose(_drawn(ax), _shares(stage_map(small, stage)[layer - 1]), rtol=1e-5)
    assert stage in ax.get_title() and f"layer {layer}" in ax.get_title()
    bars = next(a for a in figure.axes if a.get_xlabel() == "mixing ratio")
    ratios = mixing_ratio(small, stage)[layer - 1]
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], ratios, rtol=1e-6)
    assert f"{ratios.mean():.2f}" in bars.get_title()


@pytest.mark.parametrize("family", ["roberta", "electra", "gpt2"])
def test_every_family_can_be_drawn(tiny, family):
    run = trace(tiny(family), "key")
    assert _maps(draw_attention(run, 1, 1)) and _maps(draw_weight_and_norm(run, 2))
    for stage in run.stages[-2:]:
        figure = draw_stage(run, stage, 3)
    figure.canvas.draw()


def test_minilm_can_be_drawn(run):
    for figure in (
        draw_attention(run, 6, 12),
        draw_weight_and_norm(run, 1),
        draw_stage(run, "AttnResLn-N", 6),
    ):
        labels = [label.get_text() for label in _maps(figure)[0].get_yticklabels()]
        assert labels == run.tokens
    figure.canvas.draw()


def test_drawing_changes_nothing(small):
    attention = small.attention.clone()
    kept = stage_map(small, "AttnRes-N")
    draw_attention(small, 1)
    draw_weight_and_norm(small, 1)
    draw_stage(small, "AttnRes-N", 1)
    assert torch.equal(small.attention, attention)
    assert torch.equal(stage_map(small, "AttnRes-N"), kept)


@pytest.mark.parametrize("layer", [0, -4, 4])
def test_a_layer_out_of_range(small, layer):
    for draw in (
        lambda: draw_attention(small, layer),
        lambda: draw_weight_and_norm(small, layer, 1),
        lambda: draw_stage(small, "Attn-N", layer),
    ):
        with pytest.raises(
            ValueError, match=f"layer must be .* from 1 to 3, or from -3 to -1 .*, got {layer}"
        ):
            draw()
    assert not plt.get_fignums()


@pytest.mark.parametrize("head", [0, -5, 5])
def test_a_head_out_of_range(small, head):
    for draw in (draw_attention, draw_weight_and_norm):
        with pytest.raises(
            ValueError, match=f"head, .* from 1 to 4, or from -4 to -1 .*, got {head}"
        ):
            draw(small, 1, head)


def test_negative_numbers_count_from_the_end_and_titles_name_the_real_ones(small):
    for draw in (draw_attention, draw_weight_and_norm):
        (ax, *_), (same, *_) = _maps(draw(small, -1, -4)), _maps(draw(small, 3, 1))
        np.testing.assert_array_equal(_drawn(ax), _drawn(same))
        assert ax.get_title() == same.get_title() and "layer 3, head 1" in ax.get_title()
    (ax,) = _maps(draw_stage(small, "Attn-N", -3))
    assert ax.get_title() == "Attn-N, layer 1"


def test_a_stage_that_the_run_does_not_have(tiny, small):
    with pytest.raises(ValueError, match="did you mean"):
        draw_stage(small, "Attn-X", 1)
    with pytest.raises(ValueError, match="does not exist"):
        draw_stage(trace(tiny("gpt2"), "key"), "AttnResLn-N", 1)
    assert not plt.get_fignums()


# --- controls --------------------------------------------------------------------------------


def _controls(board) -> dict[str, ipywidgets.Widget]:
    found, waiting = {}, [board]
    while waiting:
        widget = waiting.pop()
        waiting.extend(getattr(widget, "children", ()))
        if hasattr(widget, "value") and not isinstance(widget, ipywidgets.Output):
            found[widget.description] = widget
    return found


def _record(monkeypatch, name: str) -> list:
    """Replace a drawing function by one that writes down how it was called, and then draws."""
    calls, draw = [], getattr(widgets, name)

    def recorded(run, **values):
        calls.append((run.tokens, values))
        return draw(run, **values)

    monkeypatch.setattr(widgets, name, recorded)
    return calls


@pytest.mark.parametrize("build", [explore, compare_weight_and_norm, explore_stages])
def test_every_control_has_a_description(tiny, build):
    board = build(tiny("bert"), TEXT)
    assert isinstance(board, ipywidgets.VBox)
    controls = _controls(board)
    assert "" not in controls and "Text" in controls and "Layer" in controls
    assert (controls["Layer"].min, controls["Layer"].max) == (1, 3)
    assert controls["Text"].value == TEXT
    assert any(isinstance(child, ipywidgets.Output) for child in board.children)


@pytest.mark.parametrize("build", [explore, compare_weight_and_norm])
def test_every_head_can_be_chosen(tiny, build):
    assert tuple(_controls(build(tiny("bert"), TEXT))["Head"].options) == HEADS


def test_only_stages_that_exist_can_be_chosen(tiny):
    for family, stages in (("bert", STAGES), ("gpt2", STAGES[:-1])):
        control = _controls(explore_stages(tiny(family), "key"))["Stage"]
        assert tuple(control.options) == stages and control.value == stages[-1]


def test_explore_draws_what_the_controls_say(tiny, monkeypatch, capsys):
    calls = _record(monkeypatch, "draw_attention")
    controls = _controls(explore(tiny("bert"), TEXT))
    tokens = trace(tiny("bert"), TEXT).tokens
    assert calls == [(tokens, {"layer": 1, "head": ALL_HEADS, "full_range": True})]
    controls["Layer"].value = 3
    controls["Head"].value = 2
    controls["Colours from 0 to 1"].value = False
    assert calls[-1] == (tokens, {"layer": 3, "head": 2, "full_range": False})
    assert len(calls) == 4, "once for each change"
    controls["Text"].value = "the keys"
    assert calls[-1][0] == ["[CLS]", "the", "keys", "[SEP]"]
    assert not plt.get_fignums(), "each figure is closed once it is shown"


def test_compare_draws_what_the_controls_say(tiny, monkeypatch):
    calls = _record(monkeypatch, "draw_weight_and_norm")
    controls = _controls(compare_weight_and_norm(tiny("bert"), TEXT))
    controls["Layer"].value = 2
    controls["Head"].value = 4
    assert calls[-1][1] == {"layer": 2, "head": 4}


def test_explore_stages_draws_what_the_controls_say(tiny, monkeypatch):
    calls = _record(monkeypatch, "draw_stage")
    controls = _controls(explore_stages(tiny("bert"), TEXT))
    controls["Layer"].value = 2
    controls["Stage"].value = "Attn-N"
    assert calls[-1][1] == {"stage": "Attn-N", "layer": 2}


def test_a_text_that_is_refused_gives_a_sentence(tiny, monkeypatch, capsys):
    calls = _record(monkeypatch, "draw_attention")
    controls = _controls(explore(tiny("bert"), TEXT))
    number = len(calls)
    capsys.readouterr()
    controls["Text"].value = "  "
    assert len(calls) == number
    assert "text is empty" in capsys.readouterr().out
    controls["Text"].value = "the keys"
    assert len(calls) == number + 1, "and the next text is drawn again"


@pytest.mark.parametrize("build", [explore, compare_weight_and_norm, explore_stages])
def test_a_first_text_that_is_refused_raises(tiny, build):
    with pytest.raises(ValueError, match="empty"):
        build(tiny("bert"), "")
