"""Whole figures: they show the right numbers, named and counted from 1, in letters one can read."""

from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from conftest import SENTENCE
from matplotlib.figure import Figure
from oracle.compare import refused
from plots.reading import bars, colours, drawn, names, png, smallest_letters, title

from helpers import STAGES, flow, load_model, mixing_ratio, plots, rollout, stage_map, trace
from helpers.block import TABLE
from helpers.norms import weight, weighted_norms

LONG = f"{SENTENCE} The author talked to Sara about her book on unusually long sentences."
# What each function needs beside a run.
DRAW = {
    "attention": partial(plots.draw_attention, layer=0, head=2),
    "weight and norm": partial(plots.draw_weight_and_norm, layer=3),
    "stage": partial(plots.draw_stage, stage="AttnRes-N", layer=2),
    "rollout": partial(plots.draw_rollout, query=2),
    "flow": partial(plots.draw_flow, stage="AttnResLn-N", layer=1, query=2),
}


@pytest.fixture(scope="module")
def small(tiny):
    """3 layers, 4 heads, 4 tokens."""
    return trace(tiny("bert"), "she saw")


@pytest.fixture(scope="module")
def model():
    return load_model("minilm")


def _shares(values):
    return (values / values.sum(dim=-1, keepdim=True)).numpy()


def _same(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("text", [SENTENCE, LONG])
@pytest.mark.parametrize("name", DRAW)
def test_letters_can_be_read_and_the_figure_fits_the_page(model, name, text):
    """10 pixels in the text column of JupyterLab, for 22 tokens and for more than 35."""
    run = trace(model, text)
    figure = DRAW[name](run)
    assert isinstance(figure, Figure) and not plt.get_fignums(), "outside pyplot"
    assert smallest_letters(figure) >= 10
    assert names(figure.axes[0].yaxis) == run.tokens, "every row has its label"
    assert all(ax.get_xlabel() for ax in figure.axes if ax.get_label() != "<colorbar>")
    width, height = DRAW[name](run, figsize=(5, 6)).get_size_inches()
    assert (width, height) == (5, 6)


@pytest.mark.parametrize("head", [None, 2, -1])
@pytest.mark.parametrize("layer", [0, -1])
def test_draw_attention(small, layer, head):
    weights = small.attention[layer]
    weights = weights.mean(dim=0) if head is None else weights[head]
    ax = plots.draw_attention(small, layer, head).axes[0]
    _same(drawn(ax), weights)
    which = "all heads" if head is None else f"head {head % 4 + 1}"
    assert title(ax) == f"Attention weights, layer {layer % 3 + 1}, {which}"
    assert colours(ax) == (0, 1)
    ax = plots.draw_attention(small, layer, head, vmax=None, title="Mine", cmap="magma").axes[0]
    assert colours(ax) == (0, pytest.approx(weights.max().item()))
    assert title(ax) == "Mine" and ax.collections[0].cmap.name == "magma"


@pytest.mark.parametrize("head", [None, 0, -2])
def test_draw_weight_and_norm(small, head):
    left, right, *_ = plots.draw_weight_and_norm(small, 1, head).axes
    if head is None:
        weights, norms = stage_map(small, "Attn-W")[1], stage_map(small, "Attn-N")[1]
    else:
        weights, norms = small.attention[1, head], weighted_norms(small)[1, head]
    _same(drawn(left), _shares(weights))
    _same(drawn(right), _shares(norms))
    assert colours(left) == colours(right), "one range"
    assert colours(left)[1] == pytest.approx(max(drawn(left).max(), drawn(right).max()))
    which = "all heads" if head is None else f"head {head % 4 + 1}"
    assert [title(left), title(right)] == [f"{m}, layer 2, {which}" for m in ("Weights", "Norms")]
    assert left.get_ylabel() and not right.get_ylabel(), "the rows are named once"


@pytest.mark.parametrize("stage", STAGES)
def test_draw_stage(small, stage):
    left, right, *_ = plots.draw_stage(small, stage, 1).axes
    ratios = mixing_ratio(small, stage)[1]
    _same(drawn(left), _shares(stage_map(small, stage)[1]))
    _same(bars(right), ratios)
    assert title(left) == f"{stage}, layer 2" and f"{ratios.mean():.2f}" in title(right)
    assert left.collections[0].cmap is plots.CMAPS[stage]


@pytest.mark.parametrize("residual", [0.3, "measured"])
@pytest.mark.parametrize("stage", STAGES)
def test_draw_rollout_and_draw_flow(small, stage, residual):
    maps = stage_map(small, stage)
    kept = 1 - mixing_ratio(small, "AttnResLn-N") if residual == "measured" else residual
    kept = 0.0 if stage.startswith("AttnRes") else kept
    for layer, query in ((1, -1), (-1, 2)):
        R, row = rollout(maps, kept)[layer], flow(maps, kept, layer, query)
        left, right, *_ = plots.draw_rollout(small, stage, residual, layer, query).axes
        _same(drawn(left), R)
        _same(bars(right), R[query])
        assert title(left) == f"Rollout over {stage}, layer {layer % 3 + 1}"
        assert title(right) == f"Row of query {query % 4 + 1}: {small.tokens[query]}"
        left, right = plots.draw_flow(small, stage, residual, layer, query).axes
        _same(bars(left), R[query])
        _same(bars(right), row)
        assert left.get_xlim() == right.get_xlim(), "one range"
        assert title(right) == f"Flow over {stage}, layer {layer % 3 + 1}"
        assert f"query {query % 4 + 1}: {small.tokens[query]}" in right.get_xlabel()


@pytest.mark.parametrize("family", ["roberta", "gpt2"])
def test_every_family_can_be_drawn(tiny, family):
    run = trace(tiny(family), "key")
    png(plots.draw_weight_and_norm(run, 2))
    png(plots.draw_stage(run, run.stages[-1], 2))
    png(plots.draw_rollout(run, "Attn-N", "measured"))


def test_odd_text(minilm):
    run = trace(minilm, r"$5 _a \x < & # 中文 ## 👍 مر " + "x" * 60)
    for draw in DRAW.values():
        png(draw(run))
    png(plots.draw_flow(run, query=-2))


def test_drawing_changes_nothing(small):
    attention, kept = small.attention.clone(), stage_map(small, "AttnRes-N")
    for draw in DRAW.values():
        draw(small, layer=0)
    assert torch.equal(small.attention, attention)
    assert torch.equal(stage_map(small, "AttnRes-N"), kept)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        *((partial(draw, layer=3), "layer must be .* 0 to 2, .* got 3") for draw in DRAW.values()),
        *((partial(draw, layer=-4), "layer must be .* got -4") for draw in DRAW.values()),
        (partial(plots.draw_attention, layer=0, head=4), "head must be .* 0 to 3, .* got 4"),
        (partial(plots.draw_weight_and_norm, layer=0, head=-5), "head must be .* got -5"),
        (partial(plots.draw_stage, stage="Attn-X", layer=0), "did you mean"),
        (partial(plots.draw_flow, query=4), "query must be .* from 0 to 3, .* got 4"),
        (partial(plots.draw_rollout, stage="Attn-X"), "did you mean"),
        (
            partial(plots.draw_rollout, residual="half"),
            'residual must be "measured", got .half',
        ),
        (partial(plots.draw_rollout, residual=2), "residual must be a number in"),
    ],
)
def test_choices_that_do_not_exist(small, draw, words):
    with pytest.raises(ValueError, match=words):
        draw(small)


def test_runs_that_cannot_be_drawn(tiny):
    for draw in DRAW.values():
        with pytest.raises(TypeError, match="run must be a Trace, got NoneType"):
            draw(None)
    with pytest.raises(ValueError, match="does not exist"):
        plots.draw_stage(trace(tiny("gpt2"), "key"), "AttnResLn-N", 0)
    square = trace(tiny("marian"), "sie", target="she")
    for draw in (plots.draw_rollout, plots.draw_flow):
        with pytest.raises(ValueError, match="^run is cross-attention"):
            draw(square, "Attn-N", 0.0)


def test_a_new_stage_is_drawn_like_the_others(small, monkeypatch):
    """What one row adds to the table reaches every figure, and the measured residual stays."""
    kept = plots.paths.residual_of(small, "Attn-W", "measured")
    monkeypatch.setitem(TABLE, "new", replace(TABLE["AttnResLn-N"], map=lambda b: weight(b)))
    for draw in (plots.draw_stage, plots.draw_rollout, plots.draw_flow):
        assert "new" in title(draw(small, "new", layer=0).axes[0])
    assert torch.equal(plots.paths.residual_of(small, "Attn-W", "measured"), kept)


def test_rows_of_zeros_and_an_axes_of_ones_own(small):
    silent = replace(small, blocks=[replace(b, W_O=0 * b.W_O) for b in small.blocks])
    assert (drawn(plots.draw_stage(silent, "Attn-N", 0).axes[0]) == 0).all()
    with pytest.raises(TypeError, match="ax"):
        plots.draw_attention(small, 0, ax=plt.subplots()[1])
    refused(lambda: plots.draw_yardstick(small, "Attn-W", 0), "measured must be a Measured")
