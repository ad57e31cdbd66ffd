"""Maps: every value has its colour, everything has a name, and links lie where they belong."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm, to_hex, to_rgb
from matplotlib.patches import Rectangle
from oracle.compare import refused
from plots.reading import colours, drawn, names, smallest_letters, title

from helpers import plots
from helpers.datasets import Gold

NONE = frozenset()


def test_everything_has_a_name():
    values = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    ax = plots.heatmap(values, ["a", "b"], ["x", "y", "z"], title="A title", label="my unit")
    assert isinstance(ax, Axes) and title(ax) == "A title"
    assert "query" in ax.get_ylabel() and "key" in ax.get_xlabel()
    assert ax.collections[0].colorbar.ax.get_ylabel() == "my unit"
    assert names(ax.yaxis) == ["a", "b"] and names(ax.xaxis) == ["x", "y", "z"]
    ax = plots.heatmap(torch.eye(2), ["a", "b"])
    assert names(ax.xaxis) == names(ax.yaxis) == ["a", "b"], "keys are the queries"


@pytest.mark.parametrize(
    ("values", "more", "name"),
    [
        ([[0.5, 0.5]], {}, "share of the row"),
        ([[0.5, 0.6]], {}, "value"),
        ([[0.5, 0.5]], {"center": 0}, "difference"),
    ],
)
def test_the_colour_bar_says_what_the_numbers_are(values, more, name):
    ax = plots.heatmap(values, ["a"], ["x", "y"], **more)
    assert ax.collections[0].colorbar.ax.get_ylabel() == name


def test_rows_are_queries_and_the_first_is_on_top():
    values = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).requires_grad_()
    ax = plots.heatmap(values, ["a", "b"], ["x", "y", "z"])
    assert drawn(ax).tolist() == [[0, 1, 2], [3, 4, 5]] and ax.get_ylim() == (2, 0)
    assert ax.get_yticks().tolist() == [0.5, 1.5] and ax.get_xticks().tolist() == [0.5, 1.5, 2.5]


def test_colours_run_on_a_square_root_from_white_at_zero():
    ax = plots.heatmap([[0.2, 0.4]], ["a"], ["x", "y"])
    mesh = ax.collections[0]
    assert colours(ax) == (0, 0.4) and isinstance(mesh.norm, PowerNorm)
    assert float(mesh.norm(0.1)) == pytest.approx(0.5)
    assert to_hex(mesh.cmap(0.0)) == "#ffffff"
    assert mesh.cmap(0.7)[:3] == pytest.approx(to_rgb(plots.PALETTE["weights"]), abs=0.02)
    assert mesh.colorbar.extend == "neither"


@pytest.mark.parametrize(
    ("more", "limits", "arrow"),
    [
        ({"vmax": 1}, (0, 1), "neither"),
        ({"vmax": 0.2}, (0, 0.2), "max"),
        ({"vmin": 0.3, "vmax": 0.4}, (0.3, 0.4), "min"),
        ({"center": 0}, (-0.4, 0.4), "neither"),
        ({"center": 0, "vmax": 0.3}, (-0.3, 0.3), "max"),
        ({"center": 5}, (0.2, 9.8), "neither"),
    ],
)
def test_limits_hold_and_an_arrow_shows_what_they_cut(more, limits, arrow):
    ax = plots.heatmap([[0.2, 0.4]], ["a"], ["x", "y"], **more)
    assert colours(ax) == pytest.approx(limits)
    assert ax.collections[0].colorbar.extend == arrow
    assert (ax.collections[0].cmap.name == "PuOr") == ("center" in more)


@pytest.mark.parametrize("more", [{}, {"vmax": 0}, {"center": 0}])
def test_a_map_of_zeros_runs_from_zero_to_something(more):
    ax = plots.heatmap(np.zeros((2, 2)), ["a", "b"], **more)
    assert colours(ax) == ((-1, 1) if more.get("center") == 0 else (0, 1))


def test_keywords_reach_seaborn_and_matplotlib():
    eye = np.eye(2)
    ax = plots.heatmap(eye, ["a", "b"], cmap="norms", annot=True, figsize=(5, 4), cbar=False)
    assert ax.collections[0].cmap is plots.CMAPS["norms"] and ax.collections[0].colorbar is None
    assert [text.get_text() for text in ax.texts] == ["1", "0", "0", "1"]
    assert ax.figure.get_size_inches().tolist() == [5, 4]
    ax = plots.heatmap(eye, ["a", "b"], cmap="viridis", cbar_kws={"format": "%.3f"}, alpha=0.5)
    assert ax.collections[0].cmap.name == "viridis" and ax.collections[0].get_alpha() == 0.5
    assert names(ax.collections[0].colorbar.ax.yaxis)[-1] == "1.000"


def test_axes_that_are_given_and_share_their_rows():
    figure, axes = plt.subplots(1, 3, sharey=True, figsize=(8.3, 3.5), layout="constrained")
    for ax in axes[1:]:
        assert plots.heatmap(np.eye(2), ["a", "b"], ax=ax) is ax
    assert len(plt.get_fignums()) == 1 and not axes[0].collections
    assert not axes[1].get_ylabel() and not axes[2].get_ylabel()
    plots.heatmap(np.eye(2), ["a", "b"], ax=axes[0])
    assert axes[0].get_ylabel() and axes[0].get_ylim() == (2, 0)
    assert smallest_letters(figure) >= 10
    _, column = plt.subplots(2, 1, sharex=True)
    for ax in column:
        plots.heatmap(np.eye(2), ["a", "b"], ax=ax)
    assert not column[0].get_xlabel() and column[1].get_xlabel()
    bar, map_ = axes[2].collections[0].colorbar.ax.get_window_extent(), axes[2].get_window_extent()
    assert (bar.y0, bar.y1) == pytest.approx((map_.y0, map_.y1)), "as tall as the map"


@pytest.mark.parametrize("size", [1, 40, 120])
def test_labels_are_large_enough_and_do_not_overlap(size):
    ax = plots.heatmap(np.eye(size), [f"token {n}" for n in range(size)])
    assert smallest_letters(ax.figure) >= 10
    for axis, side in ((ax.xaxis, "x"), (ax.yaxis, "y")):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels()]
        starts = sorted(getattr(box, f"{side}0") for box in boxes)
        assert len(boxes) == size or size > 50, "only of a long text some are left out"
        assert np.diff(starts).min(initial=20) >= 9.9


@pytest.mark.parametrize("shape", [(3, 2), (2,), (2, 2, 2), (0, 0)])
def test_names_that_do_not_fit(shape):
    with pytest.raises(ValueError, match="2 queries and 2 keys") as caught:
        plots.heatmap(np.ones(shape), ["a", "b"])
    assert str(shape) in str(caught.value)
    assert not plt.get_fignums(), "no empty figure is left open"


def test_values_without_a_colour():
    with pytest.raises(ValueError, match="^data must be 0 or more, got -0.25 .*center=0"):
        plots.heatmap([[0.5, -0.25]], ["a"], ["x", "y"])
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match=rf"finite numbers, got {wrong} at .*0, 1\]"):
            plots.heatmap([[0.5, wrong]], ["a"], ["x", "y"])
    assert not plt.get_fignums()
    plots.heatmap([[1, -1e-7]], ["a"], ["x", "y"])  # rounding


# --- links -----------------------------------------------------------------------------------


def _map() -> Axes:
    return plots.heatmap(np.eye(2, 3), ["a", "b"], ["x", "y", "z"], title="links")


def test_links_are_frames_and_dots():
    ax = _map()
    gold = Gold(frozenset({(0, 1)}), frozenset({(2, 0)}))  # sure, though not among the possible
    assert plots.links({(2, 1), (0, 0)}, gold, ax=ax) is ax
    frames = {frame.get_xy(): frame.get_linestyle() for frame in ax.patches}
    assert all(isinstance(frame, Rectangle) for frame in ax.patches)
    assert frames == {(0.1, 1.1): "-", (2.1, 0.1): ":"}
    assert ax.lines[0].get_xydata().tolist() == [[0.5, 0.5], [2.5, 1.5]]
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["gold, sure", "gold, possible", "found"]
    assert title(ax) == "links" and "source" in ax.get_xlabel() and "target" in ax.get_ylabel()
    ax = plots.links(set(), Gold(NONE, NONE), ax=_map())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["found"]
    for predicted, gold, words in (
        ({(9, 9)}, NONE, r"predicted has the link \(9, 9\), outside its 3 source and 2"),
        (set(), frozenset({(3, 0)}), r"gold has the link \(3, 0\)"),
    ):
        with pytest.raises(ValueError, match=words):
            plots.links(predicted, Gold(gold, NONE), ax=ax)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"vmax": float("nan")}, "vmax"),
        ({"vmax": -1}, "vmax"),
        ({"vmax": "1"}, "vmax"),
        ({"vmin": 0.8, "vmax": 0.2}, "vmax"),
        ({"vmin": None}, "vmin"),
        ({"center": float("nan")}, "center"),
    ],
)
def test_limits_between_which_no_colour_lies(limits, name):
    refused(lambda: plots.heatmap(np.eye(2), ["a", "b"], **limits), name)
    assert not plt.get_fignums(), "nothing half drawn is left"


@pytest.mark.parametrize("ax", [plt, "left", np.array([None, None])], ids=str)
def test_what_is_not_an_axes(ax):
    refused(lambda: plots.heatmap(np.eye(2), ["a", "b"], ax=ax), "ax must be an Axes")
    refused(lambda: plots.token_bars([1, 1], ["a", "b"], ax=ax), "ax must be an Axes")
