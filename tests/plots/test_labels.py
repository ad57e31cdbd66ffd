"""Words on pictures: any token comes out as itself, or as its code, and never as mathematics."""

import importlib

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib import font_manager
from plots.reading import ODD, names, png, title

from helpers import plots
from helpers.plots import labels


@pytest.fixture
def one_font(monkeypatch):
    module = importlib.import_module("helpers.plots.style")  # plots.style is the function
    monkeypatch.setattr(module, "FONTS", ("DejaVu Sans", "A Font That Nobody Has"))


@pytest.mark.parametrize("kind", ODD)
def test_any_token_can_be_a_label(kind):
    tokens = ODD[kind]
    ax = plots.heatmap(np.eye(len(tokens)), tokens)
    assert len(names(ax.xaxis)) == len(names(ax.yaxis)) == len(tokens)
    assert not any("\n" in name or "\t" in name for name in names(ax.xaxis))
    png(ax.figure)
    png(plots.token_bars(np.ones(len(tokens)), tokens, title="".join(tokens)[:20]).figure)


@pytest.mark.parametrize("kind", ["mathematics", "marks", "byte level", "empty"])
def test_what_can_be_drawn_is_drawn_as_it_is(kind):
    ax = plots.heatmap(np.eye(len(ODD[kind])), ODD[kind])
    assert names(ax.xaxis) == names(ax.yaxis) == ODD[kind]
    assert not any(label.get_parse_math() for label in ax.get_xticklabels())


WORDS = ("$x_$", "_a", "\\alpha", "$x_ 中", "\u202eabc", "costs $5 or $6")


@pytest.mark.parametrize("words", WORDS)
def test_no_words_are_mathematics_or_disappear(words, one_font):
    shown = words.replace("中", "<4E2D>").replace("\u202e", "<202E>")
    for ax in (
        plots.heatmap(np.eye(1), ["a"], title=words, label=words),
        plots.token_bars([1], ["a"], title=words, label=words),
        plots.pipes(np.ones((1, 1, 1)), ["a"], result=[1], title=words, label=words),
    ):
        places = [ax.get_xlabel(), *names(ax.xaxis)]
        places += [mesh.colorbar.ax.get_ylabel() for mesh in ax.collections if mesh.colorbar]
        assert title(ax) == shown and shown in places
        png(ax.figure)
    table = pd.DataFrame({"x": [1, 2] * 2, words: [1, 2, 3, 4], "by": [words] * 2 + ["b"] * 2})
    for legend in (None, True):
        ax = plots.lines(table, x="x", y=words, hue="by", title=words, legend=legend)
        texts = ax.get_legend().get_texts() if legend else ax.texts
        assert [text.get_text() for text in texts] == [shown, "b"]
        assert ax.get_ylabel() == title(ax) == shown
        png(ax.figure)


@pytest.mark.parametrize(
    ("token", "written"),
    [
        *((" ", "␣"), ("  ", "␣␣"), ("\xa0", "<A0>"), ("\x00", "<0>"), ("\u200b", "<200B>")),
        *(("\u2800", "<2800>"), ("\ufe0f", "<FE0F>"), (" \u200b", "␣<200B>")),
        *(("a b", "a b"), (" a", " a"), ("a\u200db", "a\u200db"), ("\u0301", "\u0301"), ("", "")),
        *(("\u202eabc", "<202E>abc"), ("a\u2066b", "a<2066>b"), ("a\u2028b", "a<2028>b")),
        *(("a\x00b", "a<0>b"), ("مر", "مر"), ("中文", "<4E2D><6587>"), ("a\u4e00b", "a<4E00>b")),
        *(("x" * 60, "x" * 15 + "…"), ("y" * 16, "y" * 16)),
        # A code and an accented letter are not cut apart.
        *(("中" * 60, "<4E2D><4E2D>…"), ("e\u0301" * 60, "e\u0301" * 15 + "…")),
        ("a" * 15 + "中", "a" * 15 + "…"),
    ],
)
def test_how_a_token_is_written(token, written, one_font):
    assert labels.short(token) == written
    ax = plots.heatmap(np.eye(1), [token])
    assert names(ax.xaxis) == [written]
    assert ax.get_xticklabels()[0].get_fontfamily() == ["DejaVu Sans"], "an installed font"


def test_a_title_of_spaces_stays():
    assert title(plots.heatmap(np.eye(1), ["a"], title=" ")) == " "


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
    pictures = [
        png(plots.token_bars([1], [t], title=t, figsize=(3, 2)).figure) for t in (token, other)
    ]
    assert names(plots.heatmap(np.eye(2), [token, other]).yaxis) == [token, other]
    same = pictures[0].shape == pictures[1].shape and (pictures[0] == pictures[1]).all()
    assert not same, "two letters, not twice the box of none"


def test_the_readers_own_font_comes_first():
    with plt.rc_context({"font.family": ["DejaVu Serif", "sans-serif"]}):
        ax = plots.heatmap(np.eye(1), ["a"], title="a")
    assert ax.get_xticklabels()[0].get_fontfamily()[:2] == ["DejaVu Serif", "DejaVu Sans"]
    assert ax._left_title.get_fontfamily()[0] == "DejaVu Serif"


def test_long_labels_get_more_room():
    usual, long = (plots.heatmap(np.eye(2), [letters] * 2) for letters in ("x" * 4, "x" * 16))
    assert (long.figure.get_size_inches() > usual.figure.get_size_inches()).all()
    assert labels.room([]) == 0
