"""Drawings: an Axes comes back, everything on it has a name, and any token can be a label."""

import io
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import font_manager
from matplotlib.axes import Axes

from helpers import labels, plots

ODD = {
    "mathematics": ["$x$", "_a_b", "\\alpha", "$", "x^2", "$\\frac{1}$"],
    "marks": ["<", ">", "&", "#", "^", "%", "~", "{", "}", "'", '"', "`", "@"],
    "white space": ["\n", "\t", " ", "\xa0", "a\nb", "\r"],
    "empty": ["", "a"],
    "long": ["x" * 60, "Donaudampfschifffahrtsgesellschaft" * 2],
    "Chinese": ["中", "文", "你好", "##字"],
    "Arabic": ["مرحبا", "السلام", "ا"],
    "emoji": ["😀", "👨‍👩‍👧", "🏳️‍🌈", "👍🏽"],
    "combining": ["e\u0301", "n\u0303o", "\u0301", "Z\u0351\u0343\u0352"],
    "byte level": ["Ġthe", "Ċ", "▁the", "âĢľ"],
    "control": ["\x00", "\u200b", "\ufeff", "\x1b"],
}


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def _labels(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def _save(figure) -> int:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return len(file.getvalue())


# --- heatmap ---------------------------------------------------------------------------------


def test_everything_has_a_name():
    values = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    ax = plots.heatmap(values, ["a", "b"], ["x", "y", "z"], title="A title", label="my unit")
    assert isinstance(ax, Axes)
    assert ax.get_title() == "A title"
    assert "query" in ax.get_ylabel() and "key" in ax.get_xlabel()
    bar = ax.collections[0].colorbar
    assert bar is not None and bar.ax.get_ylabel() == "my unit"
    assert _labels(ax.yaxis) == ["a", "b"]
    assert _labels(ax.xaxis) == ["x", "y", "z"]
    assert _save(ax.figure) > 1000


def test_rows_are_queries_and_the_first_is_on_top():
    values = np.arange(6.0).reshape(2, 3)
    ax = plots.heatmap(values, ["a", "b"], ["x", "y", "z"])
    np.testing.assert_array_equal(np.asarray(ax.collections[0].get_array()).reshape(2, 3), values)
    bottom, top = ax.get_ylim()
    assert (bottom, top) == (2, 0)
    assert ax.get_yticks().tolist() == [0.5, 1.5]
    assert ax.get_xticks().tolist() == [0.5, 1.5, 2.5]


def test_keys_are_the_queries_where_none_are_given():
    ax = plots.heatmap(torch.eye(2), ["a", "b"])
    assert _labels(ax.xaxis) == _labels(ax.yaxis) == ["a", "b"]


def test_colours_start_at_zero():
    image = plots.heatmap(np.array([[0.2, 0.4]]), ["a"], ["x", "y"]).collections[0]
    assert image.get_clim() == (0, 0.4)
    image = plots.heatmap(np.array([[0.2, 0.4]]), ["a"], ["x", "y"], vmax=1).collections[0]
    assert image.get_clim() == (0, 1)


def test_differences_get_colours_around_the_center():
    image = plots.heatmap(np.array([[-0.3, 0.1]]), ["a"], ["x", "y"], center=0).collections[0]
    assert image.get_clim() == (-0.3, 0.3)
    assert image.get_cmap().name == plots.DIFFERENCE_CMAP != plots.WEIGHTS_CMAP
    image = plots.heatmap(np.array([[-0.3, 0.1]]), ["a"], ["x", "y"], center=0, vmax=1)
    assert image.collections[0].get_clim() == (-1, 1)


def test_it_draws_on_the_axes_that_it_is_given():
    figure, axes = plt.subplots(1, 2, layout="constrained")
    number = len(plt.get_fignums())
    assert plots.heatmap(np.eye(2), ["a", "b"], ax=axes[1]) is axes[1]
    assert len(plt.get_fignums()) == number
    assert not axes[0].collections
    _save(figure)


def test_a_map_of_zeros():
    _save(plots.heatmap(np.zeros((2, 2)), ["a", "b"]).figure)


def test_values_are_left_alone():
    values = torch.rand(2, 2)
    kept = values.clone()
    plots.heatmap(values, ["a", "b"])
    assert torch.equal(values, kept)


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (2,), (2, 2, 2), (0, 0)])
def test_labels_that_do_not_fit(shape):
    with pytest.raises(ValueError) as caught:
        plots.heatmap(np.ones(shape), ["a", "b"])
    assert str(shape) in str(caught.value) and "2 queries and 2 keys" in str(caught.value)
    assert not plt.get_fignums(), "no empty figure is left open"


# --- labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ODD)
def test_any_token_can_be_a_label(kind):
    """No warning (they are errors here), on both axes of a map, and the picture can be saved."""
    tokens = ODD[kind]
    T = len(tokens)
    ax = plots.heatmap(np.eye(T), tokens)
    assert len(_labels(ax.xaxis)) == len(_labels(ax.yaxis)) == T
    assert _save(ax.figure) > 1000


@pytest.mark.parametrize("kind", ["mathematics", "marks", "byte level", "empty"])
def test_what_can_be_drawn_is_drawn_as_it_is(kind):
    tokens = ODD[kind]
    ax = plots.heatmap(np.eye(len(tokens)), tokens)
    assert _labels(ax.xaxis) == _labels(ax.yaxis) == tokens
    assert not any(label.get_parse_math() for label in ax.get_xticklabels())


def test_a_title_is_no_mathematics():
    for ax in (
        plots.heatmap(np.eye(2), ["a", "b"], title="costs $5 or $6"),
        plots.token_bars([0.5], ["a"], title="costs $5 or $6"),
    ):
        assert ax.get_title() == "costs $5 or $6"
        assert not ax.title.get_parse_math()


def test_a_long_token_is_cut_with_a_sign():
    ax = plots.heatmap(np.eye(2), ["x" * 60, "y" * labels.LONGEST])
    first, second = _labels(ax.xaxis)
    assert len(first) == labels.LONGEST and first == "x" * (labels.LONGEST - 1) + "…"
    assert second == "y" * labels.LONGEST


def test_a_letter_of_no_font_is_shown_by_its_code(monkeypatch):
    monkeypatch.setattr(labels, "FONTS", ("DejaVu Sans",))
    ax = plots.heatmap(np.eye(3), ["中文", "a\u4e00b", "\n"])
    assert _labels(ax.xaxis) == ["<4E2D><6587>", "a<4E00>b", "<A>"]


def _pixels(token: str) -> np.ndarray:
    figure = plots.token_bars([0.5], [token]).figure
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


@pytest.mark.parametrize(
    ("font", "package", "token", "other"),
    [
        ("Noto Sans CJK SC", "fonts-noto-cjk", "中", "文"),
        ("Noto Sans CJK SC", "fonts-noto-cjk", "한", "국"),
        ("Symbola", "fonts-symbola", "👍", "👎"),
    ],
)
def test_an_installed_font_draws_its_own_letters(font, package, token, other):
    if font not in font_manager.get_font_names():
        pytest.skip(f"the font {font} is not installed (on Debian: apt-get install {package})")
    ax = plots.heatmap(np.eye(2), [token, other])
    assert _labels(ax.xaxis) == _labels(ax.yaxis) == [token, other]
    assert (_pixels(token) != _pixels(other)).any(), "two letters, not twice the box of none"


def test_a_code_and_an_accented_letter_are_not_cut_apart(monkeypatch):
    monkeypatch.setattr(labels, "FONTS", ("DejaVu Sans",))
    tokens = ["中" * 60, "e\u0301" * 60, "a" * 15 + "中"]
    ax = plots.heatmap(np.eye(3), tokens)
    assert _labels(ax.xaxis) == ["<4E2D><4E2D>…", "e\u0301" * 15 + "…", "a" * 15 + "…"]


def test_long_labels_get_more_room():
    usual, long = (plots.heatmap(np.eye(2), [letters] * 2) for letters in ("x" * 12, "x" * 16))
    assert (long.figure.get_size_inches() > usual.figure.get_size_inches()).all()


def test_no_two_lines_in_a_label():
    ax = plots.heatmap(np.eye(2), ["a\nb", "\t"])
    assert not any("\n" in text or "\t" in text for text in _labels(ax.xaxis))


def test_only_fonts_that_are_installed_are_asked_for(monkeypatch):
    monkeypatch.setattr(labels, "FONTS", ("DejaVu Sans", "A Font That Nobody Has"))
    ax = plots.heatmap(np.eye(1), ["a"])
    assert ax.get_xticklabels()[0].get_fontfamily() == ["DejaVu Sans"]
    _save(ax.figure)


# --- lines and bars --------------------------------------------------------------------------


@pytest.fixture
def table():
    rows = [(layer, name, layer * 0.1) for layer in (1, 2, 3) for name in ("weight", "norm")]
    return pd.DataFrame(rows, columns=["layer", "kind", "share"])


def test_lines(table):
    ax = plots.lines(table, "layer", "share", "kind", title="Shares", ylabel="share of it")
    assert isinstance(ax, Axes)
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("Shares", "layer", "share of it")
    assert ax.get_xticks().tolist() == [1, 2, 3]
    assert ax.get_ylim()[0] <= 0
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["weight", "norm"]
    drawn = [line for line in ax.get_lines() if len(line.get_xdata()) == 3]
    assert len(drawn) == 2
    assert drawn[0].get_color() != drawn[1].get_color()
    assert drawn[0].get_marker() != drawn[1].get_marker(), "not told apart by colour alone"
    _save(ax.figure)


def test_lines_on_axes_that_are_given(table):
    _, given = plt.subplots()
    assert plots.lines(table, "layer", "share", "kind", ax=given) is given
    assert given.get_ylabel() == "share"


def test_lines_below_zero_are_not_cut_off(table):
    table["share"] -= 1
    assert plots.lines(table, "layer", "share", "kind").get_ylim()[0] < -0.9


def test_bars():
    values = [0.25, 1.0, 0.5]
    ax = plots.token_bars(torch.tensor(values), ["a", "$b$", "c"], title="Bars", label="ratio")
    assert (ax.get_title(), ax.get_xlabel()) == ("Bars", "ratio")
    assert [bar.get_width() for bar in ax.patches] == values
    assert _labels(ax.yaxis) == ["a", "$b$", "c"]
    heights = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    assert heights == pytest.approx(list(ax.get_yticks()))
    assert ax.get_ylim() == (3, 0), "the first token is on top"
    assert ax.get_xlim() == (0, 1)
    _save(ax.figure)


@pytest.mark.parametrize("kind", ODD)
def test_bars_of_odd_tokens(kind):
    _save(plots.token_bars(np.ones(len(ODD[kind])), ODD[kind]).figure)


def test_bars_that_do_not_fit():
    with pytest.raises(ValueError, match=r"\(3,\).*2 tokens"):
        plots.token_bars([1, 2, 3], ["a", "b"])
    assert not plt.get_fignums()
