"""The self-test of the computer: one line per thing, and what it says where something is wrong."""

import runpy
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
