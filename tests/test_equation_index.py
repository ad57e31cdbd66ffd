"""The table of CONTRIBUTING.md that leads from a paper's equation to the function that holds it."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where each equation stands")[2]
ROWS = re.findall(r"^\| (.+) \| (.+) \| `(.+)` \| (`.+`) \|$", SECTION, re.MULTILINE)
INDEX = [(file, name) for *_, file, names in ROWS for name in re.findall(r"`(\w+)`", names)]


def module(file: str):
    return import_module(file.removesuffix(".py").replace("/", "."))


@pytest.mark.parametrize(("file", "name"), INDEX)
def test_every_entry_leads_to_a_function_of_that_file(file, name):
    function = getattr(module(file), name)
    assert inspect.isfunction(function) and function.__module__ == module(file).__name__
    assert Path(inspect.getsourcefile(inspect.unwrap(function))) == ROOT / file


def test_no_row_is_overlooked():
    lines = [line for line in SECTION.partition("\n## ")[0].splitlines() if line.startswith("|")]
    assert len(ROWS) == len(lines) - 2 and len(INDEX) == len(set(INDEX)) >= 25


@pytest.mark.parametrize("name", ["norms", "block", "paths"])
def test_every_function_that_holds_an_equation_has_an_entry(name):
    file = f"helpers/{name}.py"
    functions = inspect.getmembers(module(file), inspect.isfunction)
    own = {n for n, f in functions if f.__module__ == f"helpers.{name}" and not n.startswith("_")}
    assert own == {function for place, function in INDEX if place == file}
