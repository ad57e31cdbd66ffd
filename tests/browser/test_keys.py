"""Real keys in every control of every widget: they move the control, and never the notebook."""

import nbformat
import pytest
from browser.lab import open_notebook, run_all
from browser.test_every_widget import OTHERS, WIDGETS

pytestmark = pytest.mark.browser

# What the keys of the command mode would change: the cells, their order and types, the active one.
NOTEBOOK = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    const cells = notebook.widgets.map(cell => [cell.model.id, cell.model.type]);
    return [cells, notebook.activeCellIndex, notebook.selectedCells.length];
}"""
SAVED = "() => !window.jupyterapp.shell.currentWidget.context.model.dirty"
COUNT = "n => window.jupyterapp.shell.currentWidget.content.widgets[n].model.executionCount"
FOCUSABLE = "select, input, button, textarea, .noUi-handle, [tabindex='0']"
# What a control shows: its value, and in a text also where the caret is.
STATE = """element => [element.value, element.checked, element.selectionStart,
    element.ariaValueNow, element.ariaSelected, document.activeElement === element]"""
COMMANDS = ("d", "d", "a", "b", "x", "m", "y", "r", "c", "v", "z", "j", "k", "1", "Shift+M")
MOVES = ("ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft", "Shift+ArrowDown", "Shift+ArrowUp")
OTHER_KINDS = """\
import ipywidgets
from helpers._keys import keep_keys

button = ipywidgets.Button(description="Add")
boxes = [ipywidgets.Checkbox(), ipywidgets.Textarea("text")]
board = ipywidgets.VBox([
    ipywidgets.Tab(boxes, titles=("One", "Two")),
    ipywidgets.ToggleButtons(options=["left", "right"]), button,
    ipywidgets.IntRangeSlider(), ipywidgets.BoundedIntText(3), ipywidgets.Select(options="abc"),
])
later = ipywidgets.Dropdown(options=[1, 2, 3], value=2)
button.on_click(lambda _: setattr(board, "children", (*board.children, later)))
keep_keys(board)"""
SET_UP = "from helpers import datasets, load_model, plots, widgets\n\nplots.style()"


@pytest.fixture(scope="module")
def page(start_lab, browser, tmp_path_factory):
    """One notebook of every widget, each in a cell of its own between two others, executed."""
    cells = [nbformat.v4.new_code_cell(SET_UP)]
    for name in WIDGETS:
        model, subject = OTHERS.get(name, ("minilm", "'The keys'"))
        show = f"widgets.{name}(load_model({model!r}), {subject})"
        cells += [nbformat.v4.new_code_cell(show), nbformat.v4.new_markdown_cell(name)]
    cells += [nbformat.v4.new_code_cell(OTHER_KINDS), nbformat.v4.new_markdown_cell("end")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "name": "python3"}
    folder = tmp_path_factory.mktemp("keys")
    nbformat.write(notebook, folder / "keys.ipynb")
    page = browser.new_page(base_url=start_lab(folder), viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(20_000)
    open_notebook(page, "keys.ipynb")
    run_all(page)
    yield page
    page.close()


def board(page, name):
    """The part of the page with the widget of this name, and the index of its cell."""
    number = 1 + 2 * [*WIDGETS, "other kinds"].index(name)
    return page.locator(".jp-Notebook .jp-Cell").nth(number).locator(".jp-OutputArea"), number


def press(page, control, *keys):
    """Press keys one by one; after each the notebook is as before. What the control then showed."""
    control.scroll_into_view_if_needed()
    control.focus()
    before, shown = page.evaluate(NOTEBOOK), []
    for key in keys:
        page.keyboard.press(key)
        assert page.evaluate(NOTEBOOK) == before, key
        shown.append(control.evaluate(STATE))
    return shown


@pytest.mark.parametrize("name", [*WIDGETS, "other kinds"])
def test_keys_stay_in_every_control(page, name):
    area, _ = board(page, name)
    area.locator(FOCUSABLE).first.wait_for()
    controls = [c for c in area.locator(FOCUSABLE).all() if c.is_visible()]
    assert len(controls) >= 3
    for control in controls:
        kind = control.evaluate("element => element.getAttribute('type') ?? element.tagName")
        first = control.evaluate(STATE)
        if kind not in ("checkbox", "button", "submit", "BUTTON"):
            shown = press(page, control, *MOVES)
            assert any(state[:-1] != first[:-1] for state in shown), f"{kind} does not move"
        else:
            press(page, control, *MOVES)
        if kind == "checkbox":
            pressed, again = press(page, control, "Space", "Space")
            assert pressed[1] != again[1]
        press(page, control, *COMMANDS, "Enter")


def test_a_menu_that_is_added_later_keeps_its_keys(page):
    area, _ = board(page, "other kinds")
    area.get_by_role("button", name="Add").focus()
    page.keyboard.press("Enter")
    menu = area.locator(".widget-dropdown select")
    assert [state[0] for state in press(page, menu.last, "ArrowDown", "ArrowUp")] == ["3", "2"]
    press(page, menu.last, *COMMANDS)


def test_keys_with_ctrl_still_reach_jupyterlab_and_a_new_page_keeps_keys(page):
    area, number = board(page, "explore")
    handle = area.locator(".noUi-handle")
    press(page, handle, "d", "d", "Control+s")
    page.wait_for_function(SAVED)
    page.reload()
    handle.wait_for()
    press(page, handle, *MOVES, *COMMANDS)
    count = page.evaluate(COUNT, number)
    page.keyboard.press("Control+Enter")
    page.wait_for_function(f"n => ({COUNT})(n) > {count}", arg=number)


def test_outside_widgets_the_command_mode_has_its_keys(page):
    number = board(page, "explore")[1] + 1
    page.locator(".jp-Notebook .jp-Cell").nth(number).click()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(NOTEBOOK)[1] == number + 1
