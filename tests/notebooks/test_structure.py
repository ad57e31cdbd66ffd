"""The form of the lessons. What the cells print is compared by nbval, in the same run of pytest."""

import importlib.util
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
REBUILD = ROOT / "tools" / "rebuild.py"
TAGS = {"nbval-ignore-output", "raises-exception", "solution", "hide-cell", "exercise", "check"}
WIDGET = "application/vnd.jupyter.widget-view+json"

_spec = importlib.util.spec_from_file_location("rebuild", REBUILD)
rebuild = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rebuild)
NOTEBOOKS = rebuild.course()


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def notebook(path):
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def markdown(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def tags(cell):
    return set(cell.metadata.get("tags", []))


def texts(cell):
    """What a reader sees of a cell, without pictures."""
    yield cell.source
    for output in cell.get("outputs", []):
        yield output.get("text", "")
        yield "\n".join(output.get("traceback", []))
        yield from (str(v) for k, v in output.get("data", {}).items() if "image/png" not in k)


def without_code(source):
    """Markdown without fenced and inline code, in which # and [..](..) mean something else."""
    return re.sub(
        r"`[^`\n]*`", "", re.sub(r"^(```|~~~).*?^\1", "", source, flags=re.MULTILINE | re.DOTALL)
    )


def test_it_is_in_the_form_that_make_notebooks_writes(path, notebook):
    nbformat.validate(notebook)
    assert notebook.nbformat_minor == 5
    assert path.read_text(encoding="utf-8") == nbformat.writes(notebook) + "\n"
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert "version" not in notebook.metadata.language_info
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)


def test_it_was_executed_top_to_bottom(code):
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


def test_no_warnings_and_no_unexpected_errors(code):
    for cell in code:
        for output in cell.outputs:
            assert output.get("name") != "stderr", cell.source
            assert output.output_type != "error" or "raises-exception" in tags(cell), cell.source


def test_no_widget_is_stored(notebook, code):
    assert "widgets" not in notebook.metadata
    assert not [c.source for c in code for o in c.outputs if WIDGET in o.get("data", {})]


def test_no_path_of_a_computer(notebook):
    pattern = r"(?<![\w.:/-])/(home|root|tmp|Users|usr|opt|var|mnt|work|private)/|\b[A-Z]:\\"
    for cell in notebook.cells:
        for text in texts(cell):
            assert not re.search(pattern, text), text[:300]


def test_size(path):
    assert path.stat().st_size <= 1_500_000


def test_one_heading_of_level_one_and_it_comes_first(notebook, markdown):
    sources = [without_code(cell.source) for cell in markdown]
    assert notebook.cells[0].cell_type == "markdown"
    assert re.match(r"# \w", notebook.cells[0].source)
    assert sum(len(re.findall(r"^# ", source, re.MULTILINE)) for source in sources) == 1


def test_tags_are_known(notebook):
    assert set().union(*(tags(cell) for cell in notebook.cells)) <= TAGS
    assert not [cell.source for cell in notebook.cells if re.search(r"#\s*NBVAL_", cell.source)]


def test_solutions_are_folded(notebook):
    for cell in notebook.cells:
        if tags(cell) & {"solution", "hide-cell"}:
            assert {"solution", "hide-cell"} <= tags(cell)
            assert cell.metadata.jupyter.source_hidden is True
            # JupyterLab shows the first line of a folded cell.
            assert cell.cell_type == "markdown" or cell.source.startswith("# Solution")


def test_navigation_fits_the_files(path, notebook):
    assert notebook.cells[-1].cell_type == "markdown"
    assert notebook.cells[-1].source == rebuild.navigation(path)
    assert sum(rebuild.NAVIGATION in cell.source for cell in notebook.cells) == 1


def anchors(path):
    """The headings of a notebook as JupyterLab names them, and anchors written by hand."""
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(
        re.sub(r"^```.*?^```", "", c.source, flags=re.MULTILINE | re.DOTALL) for c in cells
    )
    headings = re.findall(r"^#+ +(.+?)\s*$", text, re.MULTILINE)
    named = re.findall(r'<a (?:id|name)="([^"]+)"', text)
    return {re.sub(r"[`*]", "", heading).replace(" ", "-") for heading in headings} | {*named}


def test_every_relative_link_leads_somewhere(path, markdown):
    for cell in markdown:
        found = re.findall(r'\]\(([^)\s]+)\)|(?:href|src)="([^"]+)"', without_code(cell.source))
        for target in (unquote(markdown or html) for markdown, html in found):
            if re.match(r"https?:|mailto:", target):
                continue
            name, _, anchor = target.partition("#")
            file = path.parent / name if name else path
            assert file.exists(), target
            if anchor and file.suffix == ".ipynb":
                assert anchor in anchors(file), target


def test_code_cells_are_short(code):
    lengths = [len(cell.source.splitlines()) for cell in code]
    assert max(lengths) <= 25
    assert statistics.median(lengths) <= 8


@pytest.mark.parametrize(
    "pattern", [r"[!%]\s*pip\b", r"\bsys\.path\b", r"^\s*from .+ import \*"], ids=str
)
def test_no_set_up_tricks(code, pattern):
    assert not [cell.source for cell in code if re.search(pattern, cell.source, re.MULTILINE)]


def test_every_figure_stands_beside_a_description(notebook):
    kinds = ["", *(cell.cell_type for cell in notebook.cells), ""]
    for number, cell in enumerate(notebook.cells, start=1):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            assert "markdown" in (kinds[number - 1], kinds[number + 1]), cell.source


def nbval(path):
    """Compare one notebook as `make test` does, in a pytest of its own."""
    plugins = ["-p", "no:xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", path.parent]
    return subprocess.run(
        [*command, *plugins, "--nbval", "--nbval-current-env", path],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def with_one_digit_changed(notebook):
    """The notebook up to its first compared cell that prints a digit, and that digit + 1."""
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and "nbval-ignore-output" not in tags(cell):
            for output in cell.outputs:
                place = output if "text" in output else output.get("data", {})
                key = "text" if "text" in output else "text/plain"
                digit = re.search(r"\d", place.get(key, ""))
                if digit:
                    text, at = place[key], digit.start()
                    place[key] = f"{text[:at]}{(int(digit[0]) + 1) % 10}{text[at + 1 :]}"
                    notebook.cells = notebook.cells[: number + 1]
                    return notebook
    pytest.fail("no compared cell of this notebook prints a number")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    path = tmp_path_factory.mktemp("canary") / "00_small.ipynb"
    cells = [nbformat.v4.new_code_cell(text) for text in ("x = 0.25", "print(f'{x:.2f}')")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    subprocess.run([sys.executable, REBUILD, path], check=True, capture_output=True)
    return path


def test_canary_an_untouched_notebook_passes(executed):
    result = nbval(executed)
    assert result.returncode == 0 and "2 passed" in result.stdout, result.stdout


@pytest.mark.parametrize("which", ["small", "lesson"])
def test_canary_one_changed_digit_fails(executed, tmp_path, which):
    source = nbformat.read(executed if which == "small" else NOTEBOOKS[0], as_version=4)
    path = tmp_path / "changed.ipynb"
    nbformat.write(with_one_digit_changed(source), path)
    result = nbval(path)
    assert result.returncode == 1, result.stdout
    assert "1 failed" in result.stdout and "Cell outputs differ" in result.stdout
