"""Fonts of one's own: they come first, and one that is not installed costs one sentence at most."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from plots.reading import png

from helpers import plots
from helpers.plots.style import fonts

# matplotlib brings these: one with bold letters, and one without.
SERIF, UNBOLD = "DejaVu Serif", "cmr10"
MISSING = "A Font That Nobody Has"


@pytest.fixture(autouse=True)
def _own_settings():
    # For cmr10 alone, matplotlib would recommend this.
    with plt.rc_context({"axes.formatter.use_mathtext": True}):
        yield


def _pictures():
    table = pd.DataFrame({"layer": [1, 2] * 2, "share": [0.1, 0.2, 0.3, 0.4], "of": list("aabb")})
    yield plots.heatmap(np.eye(2), ["keys", "中"], title="A title", label="share", annot=True)
    yield plots.token_bars([0.5, 1], ["keys", "中"], title="A title", label="ratio")
    yield plots.pipes([np.eye(2)], ["keys", "中"], result=[1, 1], title="A title", label="flow")
    yield plots.lines(table, x="layer", y="share", hue="of", title="A title")
    yield plots.lines(table, x="layer", y="share", hue="of", title="A title", legend=True)


def _families(ax) -> set[str]:
    """The first font of all words on a picture."""
    png(ax.figure)
    texts = [text for text in ax.figure.findobj(Text) if text.get_text() and text.get_visible()]
    return {text.get_fontfamily()[0] for text in texts}


@pytest.mark.parametrize("styled", [False, True])
@pytest.mark.parametrize("font", [SERIF, UNBOLD])
@pytest.mark.parametrize("way", ["family", "generic", "capitals", "beside a missing one"])
def test_the_readers_own_font_comes_first_everywhere(font, way, styled):
    plt.rcParams["font.family"] = {
        "family": [font],
        "generic": ["serif"],
        "capitals": [font.upper()],
        "beside a missing one": [MISSING, font],
    }[way]
    plt.rcParams["font.serif"] = [font]
    if styled:
        plots.style()
        plots.style()
    for ax in _pictures():
        assert _families(ax) == {font}
        bold = ax._left_title.get_fontweight() == "bold"
        assert bold == (font == SERIF), "bold only where the font has bold letters"


@pytest.mark.parametrize("font", [SERIF, UNBOLD])
def test_style_keeps_the_font_for_figures_of_ones_own(font):
    plt.rcParams["font.family"] = [font]
    plots.style()
    ax = plt.subplots()[1]
    ax.set_title("A title and 中")
    ax.set_xlabel("words")
    assert _families(ax) == {font} and plt.rcParams["font.family"][1] == "DejaVu Sans"


def test_a_list_that_is_set_after_style_still_holds():
    plots.style()
    plt.rcParams["font.sans-serif"] = [SERIF]
    assert fonts()[0] == SERIF
    for ax in _pictures():
        assert _families(ax) == {SERIF}


def test_a_font_that_is_not_installed_costs_no_warning():
    plt.rcParams["font.family"] = [MISSING]
    for ax in _pictures():
        assert _families(ax) == {"DejaVu Sans"}


def test_style_says_once_that_a_font_is_not_installed():
    plt.rcParams["font.family"] = [MISSING]
    with pytest.warns(UserWarning, match=f"{MISSING}.* is not installed, so 'DejaVu Sans'") as told:
        plots.style()
    plots.style()  # without a warning, which would be an error here
    assert len(told) == 1 and MISSING not in plt.rcParams["font.family"]
    ax = plt.subplots()[1]
    ax.set_title("A title")
    assert _families(ax) == {"DejaVu Sans"}
