"""Lines: each can be told from the others, by its name too."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from plots.reading import names, png, smallest_letters, title

from helpers import STAGES, plots
from helpers.plots.style import appearance


@pytest.fixture
def table():
    rows = [(layer, kind, layer * y) for layer in (1, 2, 3) for kind, y in (("a", 0.1), ("b", 0.2))]
    return pd.DataFrame(rows, columns=["layer", "kind", "share"])


def _lines(table, hue="kind", **more):
    return plots.lines(table, x="layer", y="share", hue=hue, **more)


def _names(ax) -> list[str]:
    return [
        text.get_text() for text in (ax.get_legend().get_texts() if ax.get_legend() else ax.texts)
    ]


def test_lines(table):
    ax = _lines(table, title="Shares", ylabel="share of it")
    assert (title(ax), ax.get_xlabel(), ax.get_ylabel()) == ("Shares", "layer", "share of it")
    assert ax.get_xticks().tolist() == [1, 2, 3] and ax.get_ylim()[0] <= 0
    one, two = ax.get_lines()
    np.testing.assert_allclose(one.get_ydata(), [0.1, 0.2, 0.3])
    assert one.get_color() != two.get_color() and one.get_marker() != two.get_marker()
    assert _names(ax) == ["a", "b"] and ax.get_legend() is None
    assert [text.xy for text in ax.texts] == [pytest.approx((3, 0.3)), pytest.approx((3, 0.6))]
    assert smallest_letters(ax.figure) >= 10


def test_names_that_would_overlap_move_a_little_or_go_into_a_legend(table):
    near = table.assign(share=[1, 1.02] * 3)
    ax = _lines(near)
    png(ax.figure)
    low, high = (text.get_window_extent() for text in ax.texts)
    assert high.y0 >= low.y1 - 3 and _names(ax) == ["a", "b"]
    many = pd.concat([near.assign(kind=near["kind"] + str(n)) for n in range(4)])
    ax = _lines(many)
    assert not ax.texts and len(_names(ax)) == 8
    assert ax.get_legend().get_title().get_text() == "kind"
    assert _lines(table.iloc[:-1]).get_legend() is not None, "one line ends earlier"


def test_a_legend_can_be_asked_for_or_left_out(table):
    assert _lines(table, legend=True).get_legend() is not None
    ax = _lines(table, legend=False)
    assert ax.get_legend() is None and not ax.texts


def test_stages_have_their_colours_and_dashes_everywhere(table):
    table = pd.concat([table.query("kind == 'a'").assign(kind=stage) for stage in STAGES])
    for line, stage in zip(_lines(table).get_lines(), STAGES, strict=True):
        assert to_hex(line.get_color()) == plots.PALETTE[stage]
        assert (line.get_linestyle() == "--") == (stage == "AttnRes-W")


def test_a_path_has_the_colour_of_its_stage_and_a_dash_of_its_own():
    looks = [appearance(f"{path}Attn-N, measured", 0) for path in ("", "rollout ", "flow ")]
    assert {colour for colour, *_ in looks} == {plots.PALETTE["norms"]}
    assert len({dash for _, dash, _ in looks}) == 3
    assert appearance("rollout", 0)[0] == appearance("flow", 1)[0]
    assert appearance("weight", 0)[0] == plots.PALETTE["weights"]
    assert appearance("[CLS]", 0)[0] == appearance("[SEP]", 1)[0] == plots.PALETTE["sinks"]


def test_layers_go_from_light_to_dark(table):
    table = pd.concat([table.query("kind == 'a'").assign(kind=n, share=n) for n in (3, 1, 2)])
    ax = _lines(table)
    assert _names(ax) == ["1", "2", "3"]
    assert (np.diff([sum(line.get_color()) for line in ax.get_lines()]) < 0).all()


def test_rows_with_the_same_x_get_a_band_that_is_the_same_each_time(table):
    twice = pd.concat([table, table.assign(share=table["share"] + 0.1)])
    bands = [_lines(twice).collections[0].get_paths()[0].vertices for _ in range(2)]
    np.testing.assert_array_equal(*bands)
    np.testing.assert_allclose(_lines(twice).get_lines()[0].get_ydata(), [0.15, 0.25, 0.35])
    assert not _lines(twice, errorbar=None).collections, "keywords reach seaborn"


def test_panels_that_share_their_axis(table):
    _, axes = plt.subplots(1, 2, sharey=True)
    _lines(table, ax=axes[0])
    one = table.query("kind == 'a'").assign(share=[-9.0, 0, 9])
    assert _lines(one, hue=None, ax=axes[1]) is axes[1] and not axes[1].texts
    low, high = axes[0].get_ylim()
    assert low < -9 and high > 9, "nothing is cut off"
    assert _lines(table, figsize=(4, 3)).figure.get_size_inches().tolist() == [4, 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": ["a", None] * 3}, "hue, the column 'kind' of data, has missing values"),
        ({"layer": [1, np.inf] * 3}, "x, the column 'layer' of data, holds infinite numbers"),
        ({"share": [np.nan] * 6}, "y, the column 'share' of data, holds nothing but missing"),
        ({"share": ["a"] * 6}, "y, the column 'share' of data, must be an array of real numbers"),
    ],
)
def test_lines_that_would_lack_something(table, change, words):
    with pytest.raises(ValueError, match=words):
        _lines(table.assign(**change))
    assert not plt.get_fignums(), "no empty figure is left open"
    with pytest.raises(TypeError, match="data must be a DataFrame, got list"):
        _lines([1, 2])


@pytest.mark.parametrize("kind", ["float64", "Float64", object])
def test_values_that_were_partly_not_measured(table, kind):
    table.loc[0, "share"] = np.nan
    table.index = [0] * len(table)
    first, second = _lines(table.assign(share=table["share"].astype(kind))).get_lines()
    assert (len(first.get_xdata()), len(second.get_xdata())) == (2, 3)
    table.loc[table["kind"] == "a", "share"] = np.nan
    assert _names(_lines(table)) == ["b"], "never measured"


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        (pd.Categorical(["b", "a"] * 3, ["b", "a", "c"]), ["b", "a"]),
        (["b", "a"] * 3, ["b", "a"]),
        (np.array([2, 1] * 3, dtype=object), ["1", "2"]),
        ([["b"], ["a"]] * 3, ["['b']", "['a']"]),
    ],
)
def test_lines_come_in_the_order_of_seaborn(table, kinds, names):
    ax = _lines(table.assign(kind=kinds))
    assert _names(ax) == names
    values = dict(zip(map(str, kinds), table["share"], strict=False))  # the last of each
    for name, line in zip(names, ax.get_lines(), strict=True):
        assert line.get_ydata()[-1] == pytest.approx(values[name])


@pytest.mark.parametrize("legend", [None, True])
def test_lines_drawn_twice_keep_all_their_names(table, legend):
    ax = _lines(table, legend=legend)
    more = table.assign(kind=table["kind"] + "_$x$", share=table["share"] + 1)
    _lines(more, ax=ax, legend=legend)
    assert _names(ax) == ["a", "b", "a_$x$", "b_$x$"]
    png(ax.figure)


def test_words_along_x_are_no_mathematics():
    words = ["$x$", "_a", "\\alpha", "$"]
    ax = plots.lines(pd.DataFrame({"word": words, "share": 1.0}), x="word", y="share")
    png(ax.figure)
    assert names(ax.xaxis) == words
    assert not any(label.get_parse_math() for label in ax.get_xticklabels())


def test_colours_of_ones_own():
    data = pd.DataFrame({"x": [1, 2] * 2, "y": range(4), "h": list("aabb")})
    ax = plots.lines(data, x="x", y="y", hue="h", palette={"a": "red", "b": "blue"})
    assert [to_hex(line.get_color()) for line in ax.lines[:2]] == ["#ff0000", "#0000ff"]
