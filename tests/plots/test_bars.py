"""Bars: one per token, the first on top."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from plots.reading import bars, names, png, smallest_letters, title

from helpers import plots


def test_bars():
    values = [0.25, 1.0, 0.5]
    ax = plots.token_bars(torch.tensor(values), ["a", "$b$", "c"], title="Bars", label="ratio")
    assert (title(ax), ax.get_xlabel(), bars(ax)) == ("Bars", "ratio", values)
    assert names(ax.yaxis) == ["a", "$b$", "c"]
    heights = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    assert heights == pytest.approx(list(ax.get_yticks()))
    assert ax.get_ylim() == (3, 0) and ax.get_xlim() == (0, 1)
    assert to_hex(ax.patches[0].get_facecolor()) == plots.PALETTE["weights"]


def test_axes_that_are_given_and_keywords():
    ax = plt.subplots()[1]
    assert plots.token_bars([1], ["a"], ax=ax, color="black", hatch="//") is ax
    assert ax.patches[0].get_hatch() == "//" and to_hex(ax.patches[0].get_facecolor()) == "#000000"
    assert smallest_letters(plots.token_bars(np.ones(40), ["token"] * 40).figure) >= 10
    ax = plots.token_bars([1], ["a"], figsize=(3, 2))
    assert ax.figure.get_size_inches().tolist() == [3, 2]


@pytest.mark.parametrize("vmax", [1.0, None])
@pytest.mark.parametrize("values", [[1 + 1e-7, -1e-7], [0.5, np.nan], [np.nan] * 2, [0, 0]])
def test_rounding_and_what_was_not_measured_are_no_mistakes(values, vmax):
    png(plots.token_bars(values, ["a", "b"], vmax=vmax).figure)


@pytest.mark.parametrize(
    ("values", "vmax", "words"),
    [
        ([0.3, -1], 1, r"data must be from 0 to 1, got -1 at position \[1\]"),
        ([-1, -2], None, "data must be 0 or more, got -1"),
        ([5, 0.3], 1, "data must be from 0 to 1, got 5 at .*larger vmax"),
        ([0.5, np.inf], 1, "data must hold finite numbers, got inf"),
        ([1, 2, 3], 1, r"\(3,\).*2 tokens"),
    ],
)
def test_values_that_would_be_drawn_wrong(values, vmax, words):
    with pytest.raises(ValueError, match=words):
        plots.token_bars(values, ["a", "b"], vmax=vmax)
    assert not plt.get_fignums(), "no empty figure is left open"
