"""Drawings: an Axes comes back, everything on it has a name, and any token can be a label."""

import io

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


pytestmark = pytest.mark.usefixtures("warnings_are_errors")


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


def test_numbers_that_numpy_does_not_have():
    exact, coarse = torch.tensor([[0.5, 0.25]]), torch.tensor([[0.5, 0.25]], dtype=torch.bfloat16)
    for values in (exact, coarse):
        ax = plots.heatmap(values, ["a"], ["x", "y"])
        assert np.asarray(ax.collections[0].get_array()).tolist() == exact.tolist()
        assert [p.get_width() for p in plots.token_bars(values[0], ["a", "b"]).patches] == [
            0.5,
            0.25,
        ]


def test_values_that_would_be_drawn_wrong():
    for draw, words in (
        (
            lambda: plots.heatmap([[0.5, -0.25]], ["a"], ["x", "y"]),
            "0 or more, got -0.25 .*center=0",
        ),
        (lambda: plots.token_bars([0.3, -1], ["a", "b"]), r"0 or more, got -1 at position \[1\]"),
        (lambda: plots.token_bars([-1, -2], ["a", "b"], vmax=None), "0 or more, got -1"),
        (lambda: plots.token_bars([5, 0.3], ["a", "b"]), "from 0 to 1, got 5 at .*larger vmax"),
        (lambda: plots.token_bars([1, 2], ["a", "b"], vmax=0), "from 0 to 0, got 1 at"),
    ):
        with pytest.raises(ValueError, match="^values must be " + words):
            draw()
    assert not plt.get_fignums(), "no empty figure is left open"


def test_rounding_and_what_was_not_measured_are_no_mistakes():
    nan = float("nan")
    plots.heatmap([[1, -1e-7]], ["a"], ["x", "y"])
    for values in ([1 + 1e-7, -1e-7], [0.5, nan], [nan, nan], [0, 0]):
        for vmax in (1.0, None):
            _save(plots.token_bars(values, ["a", "b"], vmax=vmax).figure)


def test_a_heatmap_may_be_cut_at_vmax_and_its_center_may_be_anywhere():
    image = plots.heatmap([[0.5, 0.1]], ["a"], ["x", "y"], vmax=0.2).collections[0]
    assert image.get_clim() == (0, 0.2)
    image = plots.heatmap([[0.5, 0.1]], ["a"], ["x", "y"], center=5).collections[0]
    assert image.get_clim() == pytest.approx((0.1, 9.9)), "all values have a colour"


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


WORDS = ("$x_$", "$$", "_", "_a", "\\alpha", "$x_ 中", "\u202eabc", "costs $5 or $6")


@pytest.mark.parametrize("words", WORDS)
def test_no_words_are_mathematics_or_disappear(words, monkeypatch):
    monkeypatch.setattr(labels, "FONTS", ("DejaVu Sans",))
    shown = words.replace("中", "<4E2D>").replace("\u202e", "<202E>")
    table = pd.DataFrame(
        {"x_": [1, 2] * 2, words: [1, 2, 3, 4], f"{words}by": [words] * 2 + ["b"] * 2}
    )
    ax = plots.lines(table, "x_", words, f"{words}by", title=words)
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [shown, "b"]
    assert legend.get_title().get_text() == f"{shown}by"
    assert ax.get_ylabel() == ax.get_title() == shown
    _save(ax.figure)
    assert plots.lines(table.rename(columns={"x_": "x", words: "y"}), "x", "y", f"{words}by")
    ax = plots.lines(table, words, "x_", f"{words}by", ylabel=words)
    assert ax.get_xlabel() == ax.get_ylabel() == shown
    _save(ax.figure)
    ax = plots.heatmap(np.eye(1), ["a"], title=words, label=words)
    assert ax.collections[0].colorbar.ax.get_ylabel() == ax.get_title() == shown
    _save(ax.figure)
    ax = plots.token_bars([1], ["a"], title=words, label=words)
    assert ax.get_xlabel() == ax.get_title() == shown
    _save(ax.figure)
    ax = plots.pipes(np.ones((1, 1, 1)), ["a"], result=[1], title=words, label=words)
    assert _labels(ax.xaxis)[0] == ax.get_title() == shown
    _save(ax.figure)


@pytest.mark.parametrize(
    ("token", "written"),
    [
        *((" ", "␣"), ("  ", "␣␣"), ("\xa0", "<A0>"), ("\x00", "<0>"), ("\u200b", "<200B>")),
        *(("\u2800", "<2800>"), ("\ufe0f", "<FE0F>"), (" \u200b", "␣<200B>")),
        *(("a b", "a b"), (" a", " a"), ("a\u200db", "a\u200db"), ("\u0301", "\u0301"), ("", "")),
        *(("\u202eabc", "<202E>abc"), ("a\u2066b", "a<2066>b"), ("a\u2028b", "a<2028>b")),
        *(("a\x00b", "a<0>b"), ("مر", "مر")),
    ],
)
def test_a_token_of_which_nothing_would_be_seen_is_written_as_signs(token, written, monkeypatch):
    monkeypatch.setattr(labels, "FONTS", ("DejaVu Sans",))
    assert labels.short(token) == written
    assert _labels(plots.heatmap(np.eye(1), [token]).xaxis) == [written]
    table = pd.DataFrame({"x": [1, 2], "y": [1, 2], "by": [token] * 2})
    (name,) = plots.lines(table, "x", "y", "by").get_legend().get_texts()
    assert name.get_text() == written


def test_a_title_of_spaces_stays():
    assert plots.heatmap(np.eye(1), ["a"], title=" ").get_title() == " "


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ax: labels.short(None), "token must be one string, got NoneType"),
        (lambda ax: labels.room(None), "tokens must be a list of strings, got None"),
        (lambda ax: labels.room("abc"), "tokens must be a list of strings, got 'abc'"),
        (lambda ax: labels.map_size([1], ["a"]), "queries must be a list of strings"),
        (lambda ax: labels.map_size(["a"], [2]), "keys must be a list of strings"),
        (lambda ax: labels.token_ticks(ax.xaxis, [1]), "tokens must be a list of strings"),
        (lambda ax: labels.token_ticks(ax, ["a"]), "axis must be a Axis, got Axes; give ax.xaxis"),
        (lambda ax: labels.write_title(ax, None), "text must be one string"),
        (lambda ax: labels.write_title(None, "a"), "ax must be a Axes, got NoneType"),
        (lambda ax: labels.write_title(ax, "a", pad="b"), "pad must be one finite number"),
        (lambda ax: labels.write(ax, "a"), "text must be a Text, got Axes"),
        (lambda ax: labels.write(ax.title, 1), "words must be one string"),
        (lambda ax: labels.write_names([ax.title], [1]), "names must be a list of strings"),
        (lambda ax: labels.write_ticks(ax.xaxis, [1], [1]), "names must be a list of strings"),
    ],
)
def test_labels_of_odd_arguments(call, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        call(plt.subplots()[1])


def test_no_labels_need_no_room():
    assert labels.room([]) == 0 and labels.map_size([], []) == (4.0, 3.2)


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": ["a", None] * 3}, "by, the column 'kind' of table, has missing values"),
        ({"layer": [1, np.nan] * 3}, "x, the column 'layer' of table, has missing values"),
        ({"layer": [1, np.inf] * 3}, "x, the column 'layer' of table, holds infinite numbers"),
        ({"layer": [1, "a"] * 3}, "x, the column 'layer', can not be sorted"),
        ({"share": [1, -np.inf] * 3}, "y, the column 'share' of table, holds infinite numbers"),
        ({"share": [np.nan] * 6}, "y, the column 'share' of table, holds nothing but missing"),
        (
            {"share": [10**400] * 6},
            "y, the column 'share' of table, must be an array of real numbers",
        ),
        ({"share": ["a"] * 6}, "y, the column 'share' of table, must be an array of real numbers"),
    ],
)
def test_lines_that_would_lack_something(table, change, words):
    with pytest.raises(ValueError, match=words):
        plots.lines(table.assign(**change), "layer", "share", "kind")
    assert not plt.get_fignums(), "no empty figure is left open"


@pytest.mark.parametrize(("name", "column"), [("x", "layer"), ("y", "share"), ("by", "kind")])
def test_lines_of_a_doubled_column(table, name, column):
    table = pd.concat([table, table[[column]]], axis=1)
    with pytest.raises(ValueError, match=f"^{name}, the column '{column}' .* is there 2 times"):
        plots.lines(table, "layer", "share", "kind")


def test_lines_of_values_that_were_partly_not_measured_and_of_rows_with_one_number(table):
    table.loc[0, "share"] = np.nan
    table.index = [0] * len(table)
    for kind in ("float64", "Float64", object):
        given = table.assign(share=table["share"].astype(kind))
        first, second = plots.lines(given, "layer", "share", "kind").get_lines()[:2]
        assert (len(first.get_xdata()), len(second.get_xdata())) == (2, 3)


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        (pd.Categorical(["b", "a"] * 3, ["b", "a", "c"]), ["b", "a", "c"]),
        (["b", "a"] * 3, ["b", "a"]),
        ([2, 1] * 3, ["1", "2"]),
        ([0.5, 0.25] * 3, ["0.25", "0.5"]),
        (np.array([2, 1] * 3, dtype=object), ["1", "2"]),
        ([True, False] * 3, ["False", "True"]),
        ([["b"], ["a"]] * 3, ["['b']", "['a']"]),
    ],
)
def test_lines_come_in_the_order_of_seaborn(table, kinds, names):
    ax = plots.lines(table.assign(kind=kinds), "layer", "share", "kind")
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == names
    handles = dict(zip(texts, ax.get_legend().get_lines(), strict=True))
    drawn = {line.get_color(): line for line in ax.get_lines() if len(line.get_xdata()) == 3}
    values = dict(zip(map(str, kinds), table["share"], strict=False))
    for name in map(str, kinds[:2]):
        line = drawn[handles[name].get_color()]
        assert line.get_ydata()[-1] == pytest.approx(values[name])


def test_lines_drawn_twice_keep_all_their_names(table):
    ax = plots.lines(table, "layer", "share", "kind")
    other = table.assign(kind=table["kind"] + "_$x$")
    plots.lines(other, "layer", "share", "kind", ax=ax)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["weight", "norm", "weight_$x$", "norm_$x$"]
    _save(ax.figure)


def test_many_lines_and_long_names_fit_on_a_figure_of_their_own():
    rows = [(x, f"{'long ' * 12}{n}", n) for n in range(40) for x in (1, 2)]
    _save(plots.lines(pd.DataFrame(rows, columns=["x", "by", "y"]), "x", "y", "by").figure)


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
