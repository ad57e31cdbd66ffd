"""Long texts: pictures of a limited size, which say what they leave out and lose nothing."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from oracle.compare import refused
from plots.reading import bars, drawn, many, names, png, sink, smallest_letters

from helpers import plots, trace
from helpers.plots import labels

# --- size and labels -------------------------------------------------------------------------

LONG = {
    "map": lambda n: plots.heatmap(sink(n), many(n), title="$x$"),
    "differences": lambda n: plots.heatmap(sink(n) - sink(n).T, many(n), center=0),
    "bars": lambda n: plots.token_bars(sink(n)[5], many(n)),
}


@pytest.mark.parametrize("n", [512, 3000])
@pytest.mark.parametrize("kind", LONG)
def test_a_long_text_has_a_picture_of_limited_size(kind, n):
    ax = LONG[kind](n)
    assert max(png(ax.figure).shape) <= 2000 and smallest_letters(ax.figure) >= 10
    ends = [label.get_window_extent().y0 for label in ax.get_yticklabels()]
    assert 20 < len(ends) <= 200 and np.abs(np.diff(ends)).min() >= 9.9
    step = int(ax.get_yticks()[1] - ax.get_yticks()[0])
    ending = {1: "st", 2: "nd", 3: "rd"}.get(step % 10, "th")
    assert f"every {step}{ending} token is named" in ax.get_ylabel()


@pytest.mark.parametrize(
    ("number", "written"),
    [(2, "2nd"), (3, "3rd"), (8, "8th"), (11, "11th"), (21, "21st"), (113, "113th")],
)
def test_ordinal_numbers(number, written):
    assert labels._ordinal(number) == written


def test_what_is_said_of_labels_is_said_once_and_follows_the_figure():
    ax = plots.heatmap(sink(100), ["a"] * 100)
    for width in (6, 3):
        ax.figure.set_figwidth(width)
        png(ax.figure)
        step = int(np.diff(ax.get_xticks())[0])
        assert ax.get_xlabel().count("token is named") == 1 and f"every {step}" in ax.get_xlabel()
    ax.set_xlabel("mine")
    png(ax.figure)
    assert ax.get_xlabel().startswith("mine\nevery ")
    plots.heatmap(sink(20), ["a"] * 20, ax=ax, cbar=False)
    png(ax.figure)
    assert ax.get_xlabel() == "key (read from)"


def test_panels_that_share_their_rows_say_it_where_the_labels_are():
    figure, axes = plt.subplots(1, 2, sharey=True, layout="constrained")
    for ax in axes:
        plots.heatmap(sink(100), ["a"] * 100, ax=ax)
    png(figure)
    assert "token is named" in axes[0].get_ylabel() and not axes[1].get_ylabel()


@pytest.mark.parametrize("size", [2, 22, 60])
def test_a_picture_of_an_ordinary_text_says_nothing_of_it(size):
    ax = plots.heatmap(sink(size), ["a"] * size, figsize=(3, 3))
    png(ax.figure)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key (read from)", "query (reads)")


# --- nothing disappears ----------------------------------------------------------------------


def test_a_cell_of_a_very_long_map_stays_at_its_place():
    data = np.zeros((3000, 2000))
    data[1234, 777] = 1
    ax = plots.heatmap(data, ["q"] * 3000, ["k"] * 2000)
    image = png(ax.figure)
    assert "each cell is the largest of" in ax.get_xlabel()
    assert ax.get_xlim() == (0, 2000) and ax.get_ylim() == (3000, 0)
    cells = drawn(ax)
    assert cells.max() == 1 and (cells > 0).sum() == 1 and max(cells.shape) < 1500
    row, column = (place[0] for place in cells.nonzero())
    (x, y) = ax.collections[0].get_transform().transform((column + 0.5, row + 0.5))
    assert ax.transData.inverted().transform((x, y)) == pytest.approx((777, 1234), abs=5)
    box = ax.get_window_extent()
    dark = image[..., 0] < 0.3
    inside = dark[int(image.shape[0] - box.y1) + 20 : int(image.shape[0] - box.y0) - 20]
    assert inside[:, int(box.x0) + 20 : int(box.x1) - 20].any(), "it is seen"


def test_the_sink_at_the_first_key_is_seen_in_a_longsink():
    for n in (512, 3000):
        ax = plots.heatmap(sink(n), ["a"] * n)
        image, box = png(ax.figure), ax.get_window_extent()
        edge = image[300:-300, int(box.x0) : int(box.x0) + 25, :3]
        assert (edge.min(axis=(1, 2)) < 0.3).all(), "behind the frame or between two pixels"


def test_differences_keep_their_sign_and_what_is_masked_stays_white():
    data = np.zeros((2000, 2000))
    data[10, 10], data[10, 11] = -3, 1
    cells = drawn(plots.heatmap(data, ["a"] * 2000, center=0))
    assert cells.min() == -3 and cells.max() == 0
    mask = data != 0
    ax = plots.heatmap(data, ["a"] * 2000, center=0, mask=mask)
    assert drawn(ax).min() == drawn(ax).max() == 0
    ax = plots.heatmap(data, ["a"] * 2000, center=0, mask=np.tri(2000, dtype=bool))
    assert np.ma.getmaskarray(ax.collections[0].get_array())[-1, 0]


def test_the_longest_bar_of_neighbours_is_drawn():
    data = np.full(3000, 0.1)
    data[1000], data[2000:2100] = 1, np.nan
    ax = plots.token_bars(data, ["a"] * 3000)
    png(ax.figure)
    assert max(bars(ax)) == 1 and "each bar is the largest of" in ax.get_ylabel()
    longest = ax.patches[int(np.nanargmax(bars(ax)))]
    assert longest.get_y() <= 1000.5 <= longest.get_y() + longest.get_height()
    assert np.isnan(bars(ax)).any(), "what was not measured has no bar"
    refused(
        lambda: plots.token_bars(data, ["a"] * 3000, color=["red"] * 3000),
        "color has one entry per token",
        "rows=",
    )


def test_a_long_run_is_drawn_in_every_way(minilm):
    ids = [minilm.tokenizer.cls_token_id, *range(2000, 2300)]
    run = trace(minilm, ids)
    for figure in (
        plots.draw_attention(run, 0),
        plots.draw_weight_and_norm(run, 1),
        plots.draw_stage(run, "AttnRes-N", 1),
        plots.draw_rollout(run),
    ):
        assert max(png(figure).shape) <= 2000 and smallest_letters(figure) >= 10
        assert "token is named" in figure.axes[0].get_ylabel()


def test_many_lines_and_many_places():
    table = pd.DataFrame({"x": range(200), "y": 1.0, "token": many(200)})
    table["name"] = [f"{n}: {token}" for n, token in enumerate(table["token"])]
    refused(
        lambda: plots.lines(table, x="x", y="y", hue="name"),
        "hue, the column 'name' of data, names 200 lines",
        "legend=False",
    )
    ax = plots.lines(table, x="x", y="y", hue="name", legend=False)
    assert max(ax.figure.get_size_inches()) <= 20
    ax = plots.lines(table, x="name", y="y", figsize=(6, 4))
    png(ax.figure)
    step = int(np.diff(ax.get_xticks())[0])
    assert step > 2 and f"every {step}" in ax.get_xlabel()
    assert names(ax.xaxis)[1].startswith(f"{step}: ")
