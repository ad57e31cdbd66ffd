"""Parts of long texts: as large as short ones, with the numbers and colours of the whole."""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from oracle.compare import refused
from plots.reading import bars, colours, drawn, names, png, sink, smallest_letters, title

from helpers import plots, trace
from helpers.plots import windows

# --- what a window is ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        (None, [0, 1, 2, 3, 4]),
        (range(1, 3), [1, 2]),
        (range(-2, 0), [3, 4]),
        (slice(-2, None), [3, 4]),
        (slice(3, 99), [3, 4]),
        ([4, 0], [4, 0]),
        ((-1,), [4]),
        (np.array([2, 3]), [2, 3]),
        (torch.tensor([2, 3]), [2, 3]),
    ],
)
def test_positions(window, wanted):
    assert windows.positions("rows", window, 5).tolist() == wanted


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (range(3, 7), "every position in rows must be a whole number from 0 to 4"),
        ([0, -6], "got -6"),
        ([0, 1.5], "got 1.5"),
        ([True], "got True"),
        ([1, -4], "rows must name each position once"),
        ([], "rows shows nothing, got []; choose positions from 0 to 4"),
        (slice(7, 9), "rows shows nothing"),
        (range(10**12), "got 5"),
        (slice(None, None, 0), "a step other than 0"),
        (slice("a", None), "rows must be a slice of whole numbers"),
        (3, "rows must be a range, a slice or a list of positions counted from 0"),
        ("all", "rows must be a range"),
        ({1, 2}, "rows must be a range"),
    ],
)
def test_what_is_no_window(window, words):
    refused(lambda: plots.heatmap(sink(5), list("abcde"), rows=window), words)
    refused(lambda: plots.token_bars(np.ones(5), list("abcde"), rows=window), words)
    refused(lambda: plots.pipes([sink(5)], list("abcde"), rows=window), words)
    assert not plt.get_fignums()


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (range(5), ""),
        (range(1, 4), "tokens 2 to 4 of 5"),
        ([2], "token 3 of 5"),
        ([0, 3], "2 of 5 tokens"),
    ],
)
def test_what_a_window_shows_is_counted_from_1(places, words):
    assert windows.span(np.array(places), 5) == words


# --- parts -----------------------------------------------------------------------------------


def test_a_part_of_a_map_has_the_colours_of_the_whole():
    A = sink(100)
    A[50, 50] = 3
    tokens = [f"t{n}" for n in range(100)]
    ax = plots.heatmap(A, tokens, rows=range(10, 30), columns=[0, -1])
    png(ax.figure)
    np.testing.assert_array_equal(drawn(ax), A[10:30][:, [0, -1]])
    assert colours(ax) == (0, 3)
    assert names(ax.yaxis) == tokens[10:30] and names(ax.xaxis) == ["t0", "t99"]
    assert ax.get_ylabel() == "query (reads)\ntokens 11 to 30 of 100"
    assert ax.get_xlabel() == "key (read from)\n2 of 100 tokens"
    whole = plots.heatmap(sink(100), tokens, columns=range(5))
    assert whole.collections[0].colorbar.ax.get_ylabel() == "share of the row", "of all keys"
    center = plots.heatmap(A, tokens, center=0, rows=range(3))
    assert colours(center) == (-3, 3)


def test_names_may_be_a_column_of_a_table():
    column = pd.Series(list("abc"), index=[7, 8, 9])
    for ax in (plots.heatmap(sink(3), column), plots.token_bars([1, 1, 1], column)):
        assert names(ax.yaxis) == ["a", "b", "c"]
    assert names(plots.pipes([sink(3)], column, rows=[2]).yaxis)[0] == "c"


def test_options_that_have_a_value_per_cell_or_bar_are_cut_too():
    A, three = sink(9), slice(3, 6)
    notes = np.array([[f"{i}{j}" for j in range(9)] for i in range(9)])
    options = {"rows": three, "columns": three, "annot": notes, "fmt": "s", "mask": A < 0.4}
    ax = plots.heatmap(A, list("abcdefghi"), **options)
    assert [text.get_text() for text in ax.texts] == ["33", "44", "55"]
    ax = plots.token_bars(A[0], list("abcdefghi"), rows=three, color=["red"] * 5 + ["blue"] * 4)
    assert [to_hex(bar.get_facecolor()) for bar in ax.patches] == ["#ff0000"] * 2 + ["#0000ff"]
    ax = plots.token_bars([1, 1, 1], list("abc"), color=(0, 0, 1))
    assert to_hex(ax.patches[0].get_facecolor()) == "#0000ff", "one colour, not one per bar"


def test_numbers_that_nobody_could_read():
    refused(
        lambda: plots.heatmap(sink(100), ["a"] * 100, annot=True),
        "annot must write at most 4,000 numbers, got a map of 10,000 cells",
        "rows= and columns=",
    )
    plots.heatmap(sink(100), ["a"] * 100, annot=False)
    ax = plots.heatmap(sink(100), ["a"] * 100, annot=True, rows=range(3), columns=range(3))
    assert len(ax.texts) == 9


def test_a_part_of_the_bars_keeps_the_axis_of_all():
    data = [0.1, 0.2, 0.8]
    ax = plots.token_bars(data, list("abc"), rows=[0, 1], vmax=None)
    png(ax.figure)
    assert bars(ax) == [0.1, 0.2] and ax.get_xlim()[1] >= 0.8
    assert names(ax.yaxis) == ["a", "b"] and ax.get_ylabel() == "tokens 1 to 2 of 3"


# --- figures of a run ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tiny):
    return trace(tiny("bert"), "she saw the keys, she saw them")


DRAW = {
    "attention": partial(plots.draw_attention, layer=0),
    "one head": partial(plots.draw_attention, layer=0, head=1, vmax=None),
    "weight and norm": partial(plots.draw_weight_and_norm, layer=1),
    "stage": partial(plots.draw_stage, stage="AttnRes-N", layer=1),
    "rollout": partial(plots.draw_rollout, query=2),
}


@pytest.mark.parametrize("name", DRAW)
def test_a_part_of_a_figure_shows_the_numbers_of_the_whole(small, name):
    whole, part = DRAW[name](small), DRAW[name](small, queries=range(2, 5), keys=slice(-4, None))
    png(part)
    assert len(whole.axes) == len(part.axes)
    for old, new in zip(whole.axes, part.axes, strict=True):
        assert title(old) == title(new)
        if new.collections and new.get_label() != "<colorbar>":
            np.testing.assert_array_equal(drawn(new), drawn(old)[2:5, -4:])
            assert colours(old) == colours(new)
            assert names(new.xaxis) == small.tokens[-4:]
        elif new.patches:
            chosen = slice(-4, None) if name == "rollout" else slice(2, 5)
            assert bars(new) == bars(old)[chosen] and new.get_xlim()[1] >= max(bars(old))
    assert names(part.axes[0].yaxis) == small.tokens[2:5]
    n = len(small.tokens)
    assert f"tokens 3 to 5 of {n}" in part.axes[0].get_ylabel()
    assert f"tokens {n - 3} to {n} of {n}" in part.axes[0].get_xlabel()
    assert smallest_letters(part) >= 10


def test_bars_of_rollout_and_flow_are_those_of_the_keys(small):
    left, right, *_ = plots.draw_rollout(small, queries=[1, 2], keys=[3, 4, 5]).axes
    assert names(left.yaxis) == small.tokens[1:3] and names(right.yaxis) == small.tokens[3:6]
    left, right, *_ = plots.draw_rollout(small, queries=[1, 2], keys=range(1, 3)).axes
    assert not right.yaxis.get_tick_params()["labelleft"], "the same tokens are named once"
    whole, part = plots.draw_flow(small, query=1), plots.draw_flow(small, query=1, keys=range(2, 4))
    png(part)
    for old, new in zip(whole.axes, part.axes, strict=True):
        assert bars(new) == bars(old)[2:4] and old.get_xlim() == new.get_xlim()
    assert "tokens 3 to 4" in part.axes[0].get_ylabel()


@pytest.mark.parametrize("draw", [*DRAW.values(), plots.draw_flow])
def test_a_part_that_does_not_exist_is_named(small, draw):
    refused(lambda: draw(small, keys=range(99)), "every position in keys", "got 10")
    if draw is not plots.draw_flow:
        refused(lambda: draw(small, queries=[]), "queries shows nothing")


# --- pipes and lines -------------------------------------------------------------------------


def test_pipes_of_a_part_are_as_wide_as_in_the_whole():
    A, tokens = np.stack([sink(300)] * 2), [f"t{n}" for n in range(300)]
    refused(lambda: plots.pipes(A, tokens), "at most 128 tokens, got 300", "rows=")
    refused(lambda: plots.pipes(A, tokens, rows=[0, 1], query=5), "rows must show the query")
    ax = plots.pipes(A, tokens, rows=[0, 5], query=5, result=A[0, 5])
    png(ax.figure)
    segments = [c.get_segments() for c in ax.collections]
    assert [len(found) for found in segments] == [2, 3], "the top layer comes first"
    assert [text.get_text() for text in ax.texts] == ["0.50", "0.50"]
    assert "2 of 300 tokens and the pipes between them" in ax.get_ylabel()
    ax = plots.pipes(A[:, :120, :120], tokens[:120])
    assert max(png(ax.figure).shape) <= 2000 and smallest_letters(ax.figure) >= 10
