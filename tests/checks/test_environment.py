"""The self-test of the computer: one line per thing, and what it says where something is wrong."""

import ast
import os
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from helpers.checks import environment, self_test

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lines(capsys):
    """A function that runs the self-test and gives what it returned and the lines it printed."""

    def run():
        return self_test(), capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def installed(monkeypatch):
    """A function: pretend that a package is installed in another version, or (None) not at all."""

    def pretend(name, version):
        def found(asked, true=metadata.version):
            if asked != name:
                return true(asked)
            if version is None:
                raise metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(environment.metadata, "version", found)

    return pretend


def test_one_line_for_each_thing(lines):
    ready, said = lines()
    assert ready is True and [line[:5] for line in said] == ["OK   "] * 6, said


@pytest.mark.parametrize("version", ["99.0", None], ids=str)
def test_a_version_outside_the_range_and_what_to_do(lines, installed, version):
    installed("seaborn", version)
    ready, said = lines()
    (wrong,) = (line for line in said if not line.startswith("OK   "))
    assert ready is False and wrong.startswith("FAIL versions of the packages: seaborn is ")
    assert (
        f"seaborn is {version or 'missing'}, but the course needs" in wrong
        and "`make lab`" in wrong
    )


def test_another_version_inside_the_range_is_noted(lines, installed):
    installed("scipy", "1.99")
    ready, said = lines()
    assert ready is True and len(said) == 7
    assert said[-1].startswith("NOTE") and "scipy 1.99, not ==" in said[-1]


def test_without_the_lock_of_a_clone_nothing_is_noted(lines, installed, monkeypatch, tmp_path):
    installed("scipy", "1.99")
    monkeypatch.setattr(environment, "LOCK", tmp_path / "constraints.txt")
    assert len(lines()[1]) == 6


def test_what_breaks_in_any_way_is_one_line(lines, monkeypatch):
    def broken(*_):
        raise OSError("first line\nsecond line")

    monkeypatch.setattr("helpers.models.load_model", broken)
    ready, said = lines()
    assert ready is False and len(said) == 6
    assert said[4].startswith("FAIL default model loads: OSError: first line. ")


def test_it_is_also_a_script(capsys):
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "helpers/checks/environment.py"), run_name="__main__")
    assert ended.value.code in (False, 0) and capsys.readouterr().out.startswith("OK   Python")


SCRIPT = ROOT / "helpers" / "checks" / "environment.py"


def run_script(python=sys.executable, flags=(), **environment):
    """The script in a process of its own: its return code and lines. It never shows a traceback."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "JPY_PARENT_PID")}
    command = [python, *flags, SCRIPT]
    run = subprocess.run(
        command, env=kept | environment, capture_output=True, text=True, check=False
    )
    lines = run.stdout.splitlines()
    assert not run.stderr and len(lines) == 7, run
    assert {line[:5] for line in lines} <= {"OK   ", "FAIL ", "NOTE "}
    return run.returncode, lines


def test_with_nothing_installed_and_no_permission_to_write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # -S leaves out site-packages; -B and no home as on a disk that cannot be written.
    code, lines = run_script(flags=("-S", "-B", "-E"), HOME="/nonexistent")
    assert code == 1 and "torch is missing, but the course needs >=" in lines[2]
    assert "does not find `helpers`" in lines[4] and "pip install" in lines[4]
    assert lines[5].startswith("FAIL attention weights")


@pytest.mark.parametrize("text", ["x = 1", "import sys; sys.exit(3)", "syntax error"])
def test_another_helpers_in_the_way_is_named_and_not_run(tmp_path, text):
    (tmp_path / "helpers.py").write_text(text)
    code, lines = run_script(PYTHONPATH=str(tmp_path), PYTHONIOENCODING="ascii")
    assert code == 1 and all(line.startswith("OK") for line in lines[:4])
    for line in lines[4:6]:
        assert f"finds {tmp_path / 'helpers.py'}, which is not" in line and "Rename" in line


def test_what_ends_the_program_is_one_line_too(lines, monkeypatch):
    monkeypatch.setattr("helpers.models.load_model", lambda: sys.exit("ended"))
    ready, said = lines()
    assert ready is False and said[4].startswith("FAIL default model loads: SystemExit: ended")


def test_an_older_python_can_read_it():
    for path in (SCRIPT, SCRIPT.with_name("_front_end.py")):
        source = path.read_text(encoding="utf-8")
        ast.parse(source, feature_version=(3, 8))
        assert "from __future__ import annotations" in source


LAB = """\
import os, subprocess, sys
environment = os.environ | {"JPY_PARENT_PID": str(os.getpid())}
subprocess.run([KERNEL, "-c", CODE], env=environment, check=True)
"""
LOOK = "import helpers.checks.environment as e; e._report('widgets', 'Set up', e._widgets)"


@pytest.fixture
def central(tmp_path):
    """A function: JupyterLab of another environment starts a kernel of ours, which looks."""

    def look(version, name="jupyter-lab"):
        other = tmp_path / "central"
        (other / "bin").mkdir(parents=True)
        (other / "bin" / "python3").symlink_to(sys.executable)
        (other / "bin" / name).write_text(f"KERNEL, CODE = {sys.executable!r}, {LOOK!r}\n{LAB}")
        (other / "jupyter_core").mkdir()
        (other / "jupyter_core" / "__init__.py").write_text("")
        paths = f"def jupyter_path(name):\n    return [{str(other)!r} + '/' + name]\n"
        (other / "jupyter_core" / "paths.py").write_text(paths)
        if version:
            package = other / "labextensions" / "@jupyter-widgets" / "jupyterlab-manager"
            package.mkdir(parents=True)
            (package / "package.json").write_text(f'{{"version": "{version}"}}')
        run = subprocess.run(
            [other / "bin" / "python3", other / "bin" / name],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{other}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return run.stdout

    return look


@pytest.mark.parametrize(
    ("version", "says"), [(None, "does not see"), ("3.1.0", "too old"), ("5.0.9", None)]
)
def test_the_jupyterlab_around_the_kernel_is_asked(central, tmp_path, version, says):
    said = central(version)
    if says is None:
        assert said == "OK   widgets\n"
    else:
        python = tmp_path / "central" / "bin" / "python3"
        assert said.startswith("FAIL widgets: JupyterLab, which runs in ") and says in said
        assert f"Run `{python} -m pip install" in said


def test_where_nobody_can_tell_it_says_so(lines, monkeypatch):
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    monkeypatch.setattr("psutil.Process.parents", lambda self: [])
    ready, said = lines()
    assert ready is True and said[3].startswith("NOTE widgets") and "cannot be seen" in said[3]
