"""What a student does in JupyterLab, as functions: open, run all, move a control, look."""

import os
from pathlib import Path

# Reading the state of the notebook; all acting is done with mouse and keys.
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === 'code' && cell.model.sharedModel.source.trim())
    .map(cell => ({
        done: cell.model.executionCount,
        errors: (cell.model.getMetadata('tags') ?? []).includes('raises-exception') ? []
            : cell.model.outputs.toJSON().filter(output => output.output_type === 'error')
                .map(output => `${output.ename}: ${output.evalue}`),
    }))"""
READY = """() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status
    === 'idle'"""
STOPPED = f"""() => ({READY})() && (({CELLS})().every(cell => cell.done)
    || ({CELLS})().some(cell => cell.errors.length))"""
OUTPUT = "application/vnd.jupyter."  # prefix of the kinds of text that an error is shown as


def open_notebook(page, name):
    page.goto(f"/lab/tree/{name}?reset")
    page.wait_for_function(READY)


def run_all(page, minutes=5):
    """Clear every output, run every cell, and assert that none shows an error."""
    _menu(page, "Edit", "Clear Outputs of All Cells")
    _menu(page, "Run", "Run All Cells")
    page.wait_for_function(STOPPED, timeout=minutes * 60_000)
    errors = [error for cell in page.evaluate(CELLS) for error in cell["errors"]]
    assert not errors
    assert page.locator(f'.widget-output [data-mime-type="{OUTPUT}error"]').count() == 0
    assert page.locator(f'[data-mime-type="{OUTPUT}stderr"]').count() == 0


def next_value(page, description):
    """Move the slider, or the drop-down menu, with this description to its next value.

    After the last entry of a menu comes its first.
    """
    label = page.locator(".widget-label").get_by_text(description, exact=True).first
    control = label.locator("xpath=..").locator(".noUi-handle, select").first
    control.scroll_into_view_if_needed()
    control.focus()
    if control.evaluate("element => element.tagName") == "SELECT":
        # Not with the arrow keys: outside the widgets of the course JupyterLab takes them.
        after = "element => (element.selectedIndex + 1) % element.options.length"
        control.select_option(index=control.evaluate(after))
    else:
        page.keyboard.press("ArrowRight")


def widget_image(page, other_than=None):
    """The address (the data) of the first picture that a widget draws; waits for a new one."""
    image = page.locator(".widget-output img").first
    image.wait_for()
    if other_than is not None:
        page.wait_for_function(
            "old => ![old, undefined].includes(document.querySelector('.widget-output img')?.src)",
            arg=other_than,
        )
    return image.get_attribute("src")


def screenshot(page, name):
    """Keep a picture of the first widget, if SCREENSHOTS names a folder."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        page.locator(".widget-output").first.scroll_into_view_if_needed()
        page.screenshot(path=Path(folder, f"{name}.png"))


def _menu(page, menu, entry):
    page.locator(".lm-MenuBar-item", has_text=menu).first.click()
    page.locator(".lm-Menu-itemLabel").get_by_text(entry, exact=True).click()
