"""`make notebooks`: what it writes, and that it writes nothing when a cell fails."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
REBUILD = ROOT / "tools" / "rebuild.py"
WIDGET = "from ipywidgets import IntSlider\n\nIntSlider(description='Layer')"


def write(path, *sources, tags=()):
    cells = [nbformat.v4.new_markdown_cell(f"# Title of {path.stem}")]
    cells += [nbformat.v4.new_code_cell(source, metadata={"tags": [*tags]}) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def rebuild(*paths):
    command = [sys.executable, REBUILD, *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lessons")
    write(folder / "00_start_here.ipynb", "1")
    write(folder / "02_last.ipynb", "2")
    path = write(folder / "01_middle.ipynb", "x = 'ü'\nx", WIDGET, "  ", tags=["solution"])
    result = rebuild(path)
    assert result.returncode == 0, result.stderr
    return path


def test_navigation(rebuilt):
    marker, line = nbformat.read(rebuilt, as_version=4).cells[-1].source.splitlines()
    assert marker == "<!-- navigation -->"
    assert line.split(" | ") == [
        "[previous: Title of 00_start_here](00_start_here.ipynb)",
        "[contents](00_start_here.ipynb)",
        "[next: Title of 02_last](02_last.ipynb)",
    ]


def test_navigation_below_the_lessons(rebuilt, load_script):
    folder = rebuilt.parent / "more"
    folder.mkdir()
    write(folder / "a.ipynb", "1")
    assert load_script(REBUILD).navigation(write(folder / "b.ipynb", "1")).splitlines()[1:] == [
        "[previous: Title of a](a.ipynb) | [contents](../00_start_here.ipynb)"
    ]


def test_the_course_is_every_notebook(load_script):
    found = (ROOT / "notebooks").rglob("[!.]*.ipynb")
    assert (
        {*load_script(REBUILD).course()} == {p for p in found if p.parent.name[0] != "."} != set()
    )


def test_what_is_written(rebuilt):
    text = rebuilt.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2]  # the empty cell is gone
    assert code[0].source == '# Solution\nx = "ü"\nx' and "ü" in text  # formatted by ruff, readable
    assert "interactive" in code[1].outputs[0].data["text/plain"]
    assert "widget-view" not in text and "widgets" not in notebook.metadata
    assert "version" not in notebook.metadata.language_info
    assert code[0].metadata == {
        "jupyter": {"source_hidden": True},
        "tags": ["hide-cell", "solution"],
    }
    assert text.endswith("}\n")


def test_a_second_run_changes_nothing(rebuilt):
    before = rebuilt.read_bytes()
    assert rebuild(rebuilt).returncode == 0
    assert rebuilt.read_bytes() == before


HIDDEN = (
    "from ipywidgets import fixed, interactive_output\n\ninteractive_output(len, {'obj': fixed(1)})"
)


@pytest.mark.parametrize(
    ("source", "message"),
    [("1 / 0", "ZeroDivisionError"), (HIDDEN, "a widget fails"), ("x = undefined", "undefined")],
    ids=["error", "error in a widget", "lint"],
)
def test_an_error_leaves_the_file_as_it_was(tmp_path, source, message):
    path = write(tmp_path / "00_start_here.ipynb", source)
    before = path.read_bytes()
    result = rebuild(path)
    assert result.returncode == 1 and message in result.stderr, result.stderr
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_expected_error_is_kept_without_the_paths_of_this_computer(tmp_path):
    source = "import json\n\njson.loads('[')"
    path = write(tmp_path / "00_start_here.ipynb", source, tags=["raises-exception"])
    result = rebuild(path)
    assert result.returncode == 0, result.stderr
    (output,) = nbformat.read(path, as_version=4).cells[1].outputs
    (line,) = output.traceback
    assert line.startswith("JSONDecodeError: Expecting value")
