"""The progress bar: there for a student who waits, never in a stored output."""

import inspect

import nbformat
import pytest
from nbclient import NotebookClient

from helpers import _progress


@pytest.mark.parametrize("unattended", [True, False])
def test_the_bar_waits_two_seconds_and_goes_away(monkeypatch, unattended):
    seen = {}

    def bar(steps, name, **options):
        seen.update(options, name=name)
        return steps

    monkeypatch.setattr(_progress, "tqdm", bar)
    monkeypatch.setattr(_progress, "_unattended", lambda: unattended)
    assert list(_progress.progress([1, 2, 3], "flow")) == [1, 2, 3]
    assert (seen["delay"], seen["leave"], seen["name"]) == (2, False, "flow")
    assert bool(seen["disable"]) == unattended


def test_a_notebook_run_by_a_program_is_known_as_such(execute):
    """There the bar is off: in a notebook, tqdm's bar would stay in the stored outputs."""
    code = inspect.getsource(_progress._unattended) + "print(_unattended())"
    cell = nbformat.v4.new_code_cell("from IPython import get_ipython\n" + code)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    execute(NotebookClient(notebook, kernel_name="python3", extra_arguments=["--log-level=ERROR"]))
    assert [output.text for output in cell.outputs] == ["True\n"]
    assert not _progress._unattended()  # here there is no notebook at all
