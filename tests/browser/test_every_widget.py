"""Every widget of the lessons, alone in a notebook: each of its controls changes the picture."""

import nbformat
import pytest
from browser.lab import next_value, open_notebook, run_all, screenshot, widget_image

pytestmark = pytest.mark.browser

WIDGETS = {
    "explore": ["Layer", "Head"],
    "compare_weight_and_norm": ["Layer", "Head"],
    "explore_alignment": ["Setting", "Measure", "Layer"],
    "explore_stages": ["Stage", "Layer"],
    "explore_rollout": ["Stage", "Query"],
    "explore_flow": ["Stage", "Query"],
    "explore_yardsticks": ["Map", "Yardstick"],
}
MODEL, TEXT = "minilm", "The keys $x_1$ are on the table. She saw them."
OTHERS = {
    "explore_alignment": ("de-en", "datasets.read_alignments()[:3]"),
    "explore_yardsticks": ("verb-number", repr("The keys $x_1$ near the door [MASK] gone.")),
}


@pytest.fixture(scope="module")
def widget_lab(start_lab, tmp_path_factory):
    folder = tmp_path_factory.mktemp("widgets")
    for name in WIDGETS:
        model, subject = OTHERS.get(name, (MODEL, repr(TEXT)))
        setup = "from helpers import datasets, load_model, plots, widgets\n\nplots.style()"
        setup += f"\nmodel = load_model({model!r})"
        show = f"widgets.{name}(model, {subject})"
        cells = [nbformat.v4.new_code_cell(source) for source in (setup, show)]
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
        nbformat.write(notebook, folder / f"{name}.ipynb")
    return start_lab(folder)


@pytest.mark.parametrize("name", WIDGETS)
def test_each_control_changes_the_picture(new_page, widget_lab, name):
    page = new_page(widget_lab)
    open_notebook(page, f"{name}.ipynb")
    run_all(page)
    seen = [widget_image(page)]
    screenshot(page, f"{name}-before")
    for control in WIDGETS[name]:
        next_value(page, control)
        seen.append(widget_image(page, other_than=seen[-1]))
    screenshot(page, f"{name}-after")
    assert len(set(seen)) == len(seen)
    # As large as it was made: letters keep their size, and twice the pixels keep it sharp.
    width, given, pixels = page.locator(".widget-output img").first.evaluate(
        "image => [image.getBoundingClientRect().width, image.width, image.naturalWidth]"
    )
    assert width == given and pixels >= 2 * given - 2
