"""Pictures of lesson 6: the network of pipes, and rollout beside flow."""

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from helpers import STAGES, flow, labels, plots, rollout, stage_map, trace
from helpers.figures import RESIDUALS, draw_flow, draw_rollout, residual_of
from helpers.pipes import WIDEST
from helpers.widgets import explore_flow

ODD = ["$x$", "_a_b", "\\alpha", "<", "&", "#", "##字", "中文", "x" * 60, "$", "", "a\nb"]
HAND = torch.tensor(
    [
        [[1, 0, 0], [0.25, 0.75, 0], [0, 0.25, 0.75]],
        [[1, 0, 0], [0, 1, 0], [0.25, 0, 0.75]],
    ]
)


pytestmark = pytest.mark.usefixtures("warnings_are_errors")


def _save(figure) -> None:
    figure.savefig(io.BytesIO(), format="png")


def _pipes(ax) -> dict:
    """{(upper layer, upper position, lower position): width} of all lines that were drawn."""
    drawn = {}
    for lines in (c for c in ax.collections if isinstance(c, LineCollection)):
        for ((l, i), (k, j)), width in zip(
            lines.get_segments(), lines.get_linewidths(), strict=False
        ):
            assert l - k == 1
            drawn[int(l), int(i), int(j)] = width
    return drawn


# --- pipes -----------------------------------------------------------------------------------


def test_a_line_for_each_pipe_as_wide_as_its_capacity():
    ax = plots.pipes(HAND, ["a", "b", "c"], title="A title")
    assert isinstance(ax, Axes) and ax.get_title() == "A title"
    wanted = {(n + 1, i, j): WIDEST * HAND[n, i, j].item() for n, i, j in HAND.nonzero().tolist()}
    assert _pipes(ax) == pytest.approx(wanted)
    assert ax.get_xlabel() == "layer" and ax.get_ylabel() == "position"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["input", "1", "2"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b", "c"] * 2
    assert ax.get_ylim() == (3, 0), "the first token is on top"
    legend = ax.get_legend()
    assert "capacity" in legend.get_title().get_text()
    widths = [line.get_linewidth() / WIDEST for line in legend.get_lines()]
    assert [text.get_text() for text in legend.get_texts()] == [f"{w:g}" for w in widths]
    _save(ax.figure)


def test_a_query_shows_only_what_it_can_reach():
    ax = plots.pipes(HAND, ["a", "b", "c"], query=2)
    assert set(_pipes(ax)) == {(2, 2, 0), (2, 2, 2), (1, 0, 0), (1, 2, 1), (1, 2, 2)}
    (marked,) = [line for line in ax.get_lines() if line.get_marker() == "D"]
    assert marked.get_xydata().tolist() == [[2, 2.5]]


def test_thin_pipes_are_left_out_but_what_they_reach_is_not():
    thin = torch.tensor([[[0.5, 0.5], [0.5, 0.5]], [[0.99, 0.01], [0.01, 0.99]]])
    assert set(_pipes(plots.pipes(thin, ["a", "b"], query=0))) == {
        (2, 0, 0),
        *((1, i, j) for i in (0, 1) for j in (0, 1)),
    }


def test_the_result_is_a_bar_and_a_number():
    result = [0.25, 0.5, 1]
    ax = plots.pipes(HAND, ["a", "b", "c"], result=result, label="flow $", vmax=1)
    widths = [abs(bar.get_width()) for bar in ax.patches]
    assert widths == pytest.approx([0.2, 0.4, 0.8])
    assert [text.get_text() for text in ax.texts] == ["0.25", "0.50", "1.00"]
    assert ax.get_xticklabels()[0].get_text() == "flow $"
    _save(ax.figure)
    ax = plots.pipes(HAND, ["a", "b", "c"], result=[0, 0, 0])
    assert [bar.get_width() for bar in ax.patches] == [0, 0, 0]
    _save(ax.figure)


def test_pipes_of_bfloat16():
    ax = plots.pipes(HAND.bfloat16(), ["a", "b", "c"], result=torch.ones(3).bfloat16())
    assert _pipes(ax) == pytest.approx(_pipes(plots.pipes(HAND, ["a", "b", "c"])))


def test_pipes_on_axes_that_are_given():
    _, axes = plt.subplots(1, 2)
    number = len(plt.get_fignums())
    assert plots.pipes(HAND, ["a", "b", "c"], ax=axes[1]) is axes[1]
    assert len(plt.get_fignums()) == number and not axes[0].collections


def test_pipes_of_odd_tokens():
    T = len(ODD)
    A = torch.softmax(torch.randn(3, T, T, generator=torch.Generator().manual_seed(0)), dim=-1)
    ax = plots.pipes(A, ODD, query=3, result=A[0, 0], label="x", title="".join(ODD[:6]))
    assert not any(label.get_parse_math() for label in ax.get_yticklabels())
    texts = [label.get_text() for label in ax.get_yticklabels()]
    assert texts[:6] == ODD[:6] and len(texts[8]) == labels.LONGEST
    _save(ax.figure)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tokens": ["a", "b"]}, ["(2, 3, 3)", "2 tokens"]),
        ({"capacities": HAND[0]}, ["(3, 3)", "3 tokens"]),
        ({"capacities": HAND[:0]}, ["(0, 3, 3)"]),
        ({"query": 3}, ["query", "0 to 2", "3"]),
        ({"query": -4}, ["query", "from -3 to -1", "-4"]),
        ({"result": [1, 2]}, ["result", "(2,)", "3 tokens"]),
        ({"result": [1, -1, 0]}, ["result must be 0 or more", "got -1 at position [1]"]),
        ({"result": [1, 3, 0], "vmax": 2}, ["result must be from 0 to 2", "got 3 at position [1]"]),
        ({"capacities": 2 * HAND}, ["capacities must be from 0 to 1, got 2 at position [0, 0, 0]"]),
        ({"capacities": -HAND}, ["capacities must be from 0 to 1, got -1 at"]),
        ({"capacities": [[[1, 2], [3]]]}, ["capacities must be an array of real numbers"]),
        ({"tokens": [], "capacities": HAND[:, :0, :0]}, ["tokens is empty"]),
    ],
)
def test_pipes_that_do_not_fit(given, words):
    with pytest.raises(ValueError) as error:
        plots.pipes(**({"capacities": HAND, "tokens": ["a", "b", "c"]} | given))
    assert all(word in str(error.value) for word in words)
    assert not plt.get_fignums(), "no empty figure is left open"


# --- rollout beside flow ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tiny):
    return trace(tiny("bert"), "she saw")


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("stage", STAGES)
def test_draw_flow(small, stage, residual):
    maps, kept = stage_map(small, stage), residual_of(small, stage, residual)
    T = len(small.tokens)
    for layer, query in ((1, 1), (2, T), (3, 2)):
        figure = draw_flow(small, stage, residual, layer, query)
        assert isinstance(figure, Figure)
        left, right = figure.axes
        rows = rollout(maps, kept)[layer - 1, query - 1], flow(maps, kept, layer - 1, query - 1)
        for ax, row, name in zip((left, right), rows, ("Rollout", "Flow"), strict=True):
            np.testing.assert_allclose([bar.get_width() for bar in ax.patches], row, rtol=1e-5)
            assert [label.get_text() for label in ax.get_yticklabels()] == small.tokens
            for word in (name, stage, f"layer {layer}", small.tokens[query - 1]):
                assert word in ax.get_title()
        assert left.get_xlim() == right.get_xlim(), "one range"
        _save(figure)
        plt.close(figure)


def test_draw_flow_of_odd_text(minilm):
    run = trace(minilm, r"$5 _a \x < & # 中文 ## " + "x" * 60)
    for query in (1, len(run.tokens)):
        _save(draw_flow(run, "Attn-W", RESIDUALS[0], 2, query))


@pytest.mark.parametrize("draw", [draw_flow, draw_rollout])
def test_negative_numbers_count_from_the_end_and_titles_name_the_real_ones(small, draw):
    figures = [draw(small, "Attn-W", RESIDUALS[0], *numbers) for numbers in ((-1, -3), (3, 2))]
    titles, same = ([ax.get_title() for ax in figure.axes] for figure in figures)
    assert titles == same and "layer 3" in titles[0] and "uery 2: " in titles[1]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (("Attn-X", RESIDUALS[0], 1, 1), "did you mean"),
        (("Attn-W", "half", 1, 1), "residual must be .* or .none., got 'half'"),
        (
            ("Attn-W", RESIDUALS[0], 4, 1),
            "layer must be a whole number from 1 to 3, or from -3 to -1 .*, got 4",
        ),
        (
            ("Attn-W", RESIDUALS[0], 0, 1),
            "layer must be a whole number from 1 to 3, or from -3 to -1 .*, got 0",
        ),
        (
            ("Attn-W", RESIDUALS[0], 1, 0),
            "query must be a whole number from 1 to 4, or from -4 to -1 .*, got 0",
        ),
        (
            ("Attn-W", RESIDUALS[0], 1, 99),
            "query must be a whole number from 1 to 4, or from -4 to -1 .*, got 99",
        ),
    ],
)
def test_choices_that_do_not_exist(small, choice, words):
    with pytest.raises(ValueError, match=words):
        draw_flow(small, *choice)
    assert not plt.get_fignums()


def test_the_widget_has_the_four_controls(tiny):
    board = explore_flow(tiny("bert"), "she saw")
    field, row, _ = board.children
    names = [control.description for control in row.children]
    assert names == ["Stage", "Residual", "Layer", "Query"]
    assert field.value == "she saw" and all(names)
    for control in row.children:  # each can be moved, and an unknown text is no error
        control.value = control.options[-1] if hasattr(control, "options") else control.max
    field.value = "the keys to the cabinet"
    assert row.children[-1].max > 4
