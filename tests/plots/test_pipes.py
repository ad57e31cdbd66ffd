"""The picture of a network of pipes."""

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from plots.reading import ODD, names, png, smallest_letters, title

from helpers import plots
from helpers.plots.pipes import THICKEST

TOKENS = ["a", "b", "c"]
HAND = torch.tensor(
    [
        [[1, 0, 0], [0.25, 0.75, 0], [0, 0.25, 0.75]],
        [[1, 0, 0], [0, 1, 0], [0.25, 0, 0.75]],
    ]
)


def _pipes(ax) -> dict:
    """{(upper layer, upper position, lower position): width} of all lines that were drawn."""
    found = {}
    for lines in (c for c in ax.collections if isinstance(c, LineCollection)):
        ends, widths = lines.get_segments(), lines.get_linewidths()
        for ((l, i), (k, j)), width in zip(ends, widths, strict=False):
            assert l - k == 1
            found[int(l), int(i), int(j)] = width
    return found


def test_a_line_for_each_pipe_as_wide_as_its_capacity():
    ax = plots.pipes(HAND, TOKENS, title="A title")
    assert isinstance(ax, Axes) and title(ax) == "A title"
    wanted = {(n + 1, i, j): THICKEST * HAND[n, i, j].item() for n, i, j in HAND.nonzero().tolist()}
    assert _pipes(ax) == pytest.approx(wanted)
    assert ax.get_xlabel() == "layer" and ax.get_ylabel() == "position"
    assert names(ax.xaxis) == ["input", "1", "2"] and names(ax.yaxis) == TOKENS * 2
    assert ax.get_ylim() == (3, 0), "the first token is on top"
    key = ax.get_legend()
    widths = [f"{line.get_linewidth() / THICKEST:g}" for line in key.get_lines()]
    assert "capacity" in key.get_title().get_text()
    assert [text.get_text() for text in key.get_texts()] == widths
    assert smallest_letters(ax.figure) >= 10


def test_a_query_shows_only_what_it_can_reach():
    for query in (2, -1):
        ax = plots.pipes(HAND, TOKENS, query=query)
        assert set(_pipes(ax)) == {(2, 2, 0), (2, 2, 2), (1, 0, 0), (1, 2, 1), (1, 2, 2)}
        (marked,) = [line for line in ax.get_lines() if line.get_marker() == "D"]
        assert marked.get_xydata().tolist() == [[2, 2.5]]


def test_thin_pipes_are_left_out_but_what_they_reach_is_not():
    thin = torch.tensor([[[0.5, 0.5], [0.5, 0.5]], [[0.99, 0.01], [0.01, 0.99]]])
    lower = {(1, i, j) for i in (0, 1) for j in (0, 1)}
    assert set(_pipes(plots.pipes(thin, ["a", "b"], query=0))) == {(2, 0, 0)} | lower


def test_the_result_is_a_bar_and_a_number():
    ax = plots.pipes(HAND, TOKENS, result=[0.25, 0.5, 1], label="flow $", vmax=1)
    widths = [abs(bar.get_width()) for bar in ax.patches]
    assert widths == pytest.approx([0.2, 0.4, 0.8])
    assert [text.get_text() for text in ax.texts] == ["0.25", "0.50", "1.00"]
    assert names(ax.xaxis)[0] == "flow $"
    assert smallest_letters(ax.figure) >= 10
    ax = plots.pipes(HAND, TOKENS, result=[0, 0, 0])
    assert [bar.get_width() for bar in ax.patches] == [0, 0, 0]


def test_axes_that_are_given_keywords_and_bfloat16():
    _, axes = plt.subplots(1, 2)
    assert plots.pipes(HAND.bfloat16(), TOKENS, ax=axes[1], alpha=0.2, color="red") is axes[1]
    assert len(plt.get_fignums()) == 1 and not axes[0].collections
    assert axes[1].collections[0].get_alpha() == 0.2
    assert _pipes(axes[1]) == pytest.approx(_pipes(plots.pipes(HAND, TOKENS)))


def test_pipes_of_odd_tokens():
    tokens = [kind[0] for kind in ODD.values()]
    A = torch.rand(3, len(tokens), len(tokens), generator=torch.Generator().manual_seed(0))
    png(plots.pipes(A, tokens, query=3, result=A[0, 0], label="x").figure)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tokens": ["a", "b"]}, r"\(2, 3, 3\), .*2 tokens"),
        ({"data": HAND[0]}, r"\(3, 3\), .*3 tokens"),
        ({"data": HAND[:0]}, r"\(0, 3, 3\)"),
        ({"query": 3}, "query .* 0 to 2.* got 3"),
        ({"result": [1, 2]}, r"result .*\(2,\).* 3 tokens"),
        ({"data": 2 * HAND}, r"data must be from 0 to 1, got 2 at position \[0, 0, 0\]"),
    ],
)
def test_pipes_that_do_not_fit(given, words):
    with pytest.raises(ValueError, match=words):
        plots.pipes(**{"data": HAND, "tokens": TOKENS} | given)
