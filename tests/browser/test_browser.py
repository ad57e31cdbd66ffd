"""The browser functions themselves, on a notebook of two cells."""

import nbformat
import pytest
from browser.lab import next_value, open_notebook, run_all, screenshot, widget_image

pytestmark = pytest.mark.browser

DRAW = """\
import matplotlib.pyplot as plt
from ipywidgets import Dropdown, IntSlider, VBox, interactive_output


def draw(layer, head):
    plt.figure(figsize=(3, 2))
    plt.bar([0, 1], [layer, head])
    plt.show()
"""
SHOW = """\
controls = {
    "layer": IntSlider(0, 0, 5, description="Layer", continuous_update=False),
    "head": Dropdown(options=[1, 2, 3], description="Head"),
}
VBox([*controls.values(), interactive_output(draw, controls)])
"""


@pytest.fixture(scope="module")
def small_lab(start_lab, tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")

    def write(name, *sources):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
        notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
        notebook.cells[-1].metadata["jupyter"] = {"source_hidden": True}
        nbformat.write(notebook, folder / name)

    write("widget.ipynb", DRAW, SHOW, "1")
    write("error.ipynb", DRAW, SHOW.replace("IntSlider(0", "IntSlider('a'"), "1")
    write("hidden_error.ipynb", DRAW.replace("[0, 1]", "no_such_name"), SHOW, "1")
    return start_lab(folder)


def test_slider_and_menu_change_the_picture(new_page, small_lab):
    page = new_page(small_lab)
    open_notebook(page, "widget.ipynb")
    run_all(page)
    first = widget_image(page)
    screenshot(page, "small-before")
    next_value(page, "Layer")
    second = widget_image(page, other_than=first)
    next_value(page, "Head")
    third = widget_image(page, other_than=second)
    screenshot(page, "small-after")
    assert len({first, second, third}) == 3


@pytest.mark.parametrize("name", ["error.ipynb", "hidden_error.ipynb"])
def test_an_error_is_seen(new_page, small_lab, name):
    page = new_page(small_lab)
    open_notebook(page, name)
    with pytest.raises(AssertionError):
        run_all(page, minutes=1)
