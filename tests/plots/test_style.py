"""The look of the course: what it sets, and what it leaves to the reader."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from oracle.compare import refused
from plots.reading import png
from seaborn.utils import relative_luminance

from helpers import STAGES, plots
from helpers.plots.style import OTHERS, inches, on_white, picture


@pytest.fixture(autouse=True)
def _own_settings():
    with plt.rc_context():
        yield


def _contrast(colour) -> float:
    return 1.05 / (relative_luminance(colour) + 0.05)


def test_style_sets_figures_of_ones_own_and_keeps_the_first_font():
    plt.rcParams["font.family"] = ["DejaVu Serif"]
    plots.style()
    plots.style()
    assert plt.rcParams["font.family"][:2] == ["DejaVu Serif", "DejaVu Sans"]
    ax = plt.subplots()[1]
    ax.set_title("中 left")
    assert ax.get_title(loc="left") and not ax.spines["top"].get_visible()
    ax.figure.canvas.draw()


def test_functions_change_no_settings_and_keep_those_of_the_reader():
    plt.rcParams["axes.labelsize"] = 13
    before = dict(matplotlib.rcParams)
    ax = plots.heatmap(np.eye(2), ["a", "b"], title="bold")
    assert dict(matplotlib.rcParams) == before
    assert ax.xaxis.label.get_fontsize() == 13 and ax._left_title.get_fontweight() == "bold"


def test_a_figure_is_the_same_whether_or_not_style_was_called(run):
    plain = plots.draw_attention(run, 0, 2)
    plots.style()
    np.testing.assert_array_equal(png(plain), png(plots.draw_attention(run, 0, 2)))


def test_every_stage_has_its_own_colour_and_words_in_it_can_be_read():
    assert len({plots.PALETTE[stage] for stage in STAGES}) == len(STAGES) == 5
    for colour in (*plots.PALETTE.values(), *OTHERS, *plots.ramp(12)):
        assert _contrast(on_white(colour)) >= 4.5
    for name in plots.PALETTE.keys() - {"assumed", "AttnRes-W"}:
        assert to_hex(on_white(plots.PALETTE[name])) == plots.PALETTE[name]


def test_maps_and_layers_go_from_light_to_dark_without_a_turn():
    maps = [cmap(np.linspace(0, 1, 50))[:, :3] for cmap in plots.CMAPS.values()]
    assert all(shades[0] == pytest.approx((1, 1, 1)) for shades in maps)
    for shades in (*maps, *(plots.ramp(n) for n in (1, 2, 12))):
        assert (np.diff([relative_luminance(shade) for shade in shades]) < 0).all()


CELLS = (
    "from helpers.plots.style import picture\nfigure = picture(4, 3)\nfigure.subplots().plot([1])",
    "figure",
    "from helpers import plots\nplots.style()",
    "figure",
    "import matplotlib.pyplot as plt\nplt.subplots()[1].plot([1])\nplt.show()",
)


def test_a_notebook_shows_a_figure_once_and_sharp(execute):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    execute(NotebookClient(notebook, kernel_name="python3", timeout=120))
    shown = [[o for o in cell.outputs if "data" in o] for cell in notebook.cells]
    assert not any(o.get("name") == "stderr" for cell in notebook.cells for o in cell.outputs)
    for outputs in (shown[1], shown[3], shown[4]):
        (output,) = [o for o in outputs if "image/png" in o["data"]]
        assert output["metadata"]["image/png"]["width"] > 300, "the size is given, so it is retina"


def test_a_picture_is_a_figure_outside_pyplot_and_never_too_wide():
    figure = picture(20, 3)
    assert isinstance(figure, Figure) and figure.get_figwidth() <= 8.4
    assert not plt.get_fignums()
    figure.subplots()
    data, size = figure._repr_png_()
    assert data.startswith(b"\x89PNG") and size["width"] <= 848


DRAW = {
    "map": lambda **more: plots.heatmap(np.eye(2), ["a", "b"], **more),
    "bars": lambda **more: plots.token_bars([1, 1], ["a", "b"], **more),
    "pipes": lambda **more: plots.pipes([np.eye(2)], ["a", "b"], **more),
    "lines": lambda **more: plots.lines(pd.DataFrame({"x": [1, 2]}), x="x", y="x", **more),
}


@pytest.mark.parametrize(
    "figsize",
    [(0, 3), (-1, 3), (float("nan"), 3), (3, 900), (3,), (3, 3, 3), 5, "33", ("3", 3), (), {}],
    ids=str,
)
@pytest.mark.parametrize("kind", DRAW)
def test_sizes_that_no_figure_can_have(kind, figsize):
    refused(lambda: DRAW[kind](figsize=figsize), "figsize must be two numbers of inches")
    assert not plt.get_fignums()


def test_sizes_of_figures_of_a_run(run):
    refused(lambda: plots.draw_attention(run, 0, figsize=(5, 0)), "figsize must be two numbers")
    refused(lambda: plots.draw_flow(run, figsize=(5, 1e6)), "figsize must be two numbers")
    assert inches(np.array([5, 4]), (1, 1)) == (5, 4) and inches(None, (1, 2)) == (1, 2)


@pytest.mark.parametrize("kind", DRAW)
def test_a_picture_that_fails_half_way_is_not_left_open(kind):
    own = plt.figure()
    with pytest.raises(AttributeError):
        DRAW[kind](there_is_no_such_option=1)
    assert plt.get_fignums() == [own.number] and plt.gcf() is own, "only what was there before"
    ax = own.subplots()
    with pytest.raises(AttributeError):
        DRAW[kind](there_is_no_such_option=1, ax=ax)
    assert plt.get_fignums() == [own.number], "a figure of the reader's own stays"
