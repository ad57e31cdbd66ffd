import pytest
from browser.lab import next_value, open_notebook, run_all, screenshot, widget_image

pytestmark = pytest.mark.browser


def test_the_layer_selector_changes_the_picture(page):
    open_notebook(page, "01_raw_attention.ipynb")
    run_all(page)
    before = widget_image(page)
    screenshot(page, "lesson1-before")
    next_value(page, "Layer")
    after = widget_image(page, other_than=before)
    screenshot(page, "lesson1-after")
    assert after != before
