"""One thread for torch at the doors of the course, where the user chose none, and only there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CHOICES = pytest.mark.parametrize("chosen", [None, "3"], ids=str)
KERNEL = """
import json
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3", extra_arguments=["--log-level=ERROR"])
expressions = {"n": "__import__('os').environ.get('OMP_NUM_THREADS')"}
reply = client.execute("import torch", user_expressions=expressions, reply=True, timeout=60)
expressions["n"] = "__import__('torch').get_num_threads()"
again = client.execute("", user_expressions=expressions, reply=True, timeout=60)
for answer in reply, again:
    print(answer["content"]["user_expressions"]["n"]["data"]["text/plain"].strip("'"))
client.stop_channels(); manager.shutdown_kernel(now=True)
"""


def environment(chosen, **more):
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MAKEFLAGS")}
    return kept | ({} if chosen is None else {"OMP_NUM_THREADS": chosen}) | more


@pytest.fixture
def clone(tmp_path):
    """A folder with the Makefile and a set-up .venv, whose Python prints its number of threads."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "threads: $OMP_NUM_THREADS"\n')
    python.chmod(0o755)
    return tmp_path


def make(clone, target, chosen=None):
    command = ["make", "--silent", target]
    run = subprocess.run(
        command, cwd=clone, env=environment(chosen), capture_output=True, text=True, check=True
    )
    return run.stdout


@CHOICES
@pytest.mark.parametrize("target", ["lab", "check"])
def test_make_caps_the_threads_unless_they_are_chosen(clone, target, chosen):
    (clone / ".venv" / ".ready").touch()
    assert f"threads: {chosen or 1}\n" in make(clone, target, chosen)


@CHOICES
def test_a_kernel_in_the_environment_of_make_is_capped(clone, chosen):
    make(clone, "check")  # sets up, and writes the configuration of the kernel
    config = clone / ".venv" / "etc" / "ipython"
    assert [path.name for path in config.iterdir()] == ["ipython_kernel_config.py"]
    # IPython reads this folder as it reads etc/ipython of the environment that it runs in.
    profile = Path(shutil.copytree(config, clone / "ipython" / "profile_default"))
    run = subprocess.run(
        [sys.executable, "-c", KERNEL],
        env=environment(chosen, IPYTHONDIR=str(profile.parent)),
        capture_output=True,
        text=True,
        check=True,
    )
    variable, threads = run.stdout.split()
    assert variable == (chosen or "1") and int(threads) <= int(variable), run.stderr


def test_the_conda_environment_caps_the_threads():
    text = (ROOT / "environment.yml").read_text()
    assert yaml.safe_load(text)["variables"] == {"OMP_NUM_THREADS": "1"}


def test_importing_the_helpers_changes_no_number_of_threads():
    look = "import os, torch; torch.set_num_threads(2); import helpers, helpers.widgets\n"
    look += "print(torch.get_num_threads(), 'OMP_NUM_THREADS' in os.environ)"
    command = [sys.executable, "-c", look]
    run = subprocess.run(
        command, cwd=ROOT, env=environment(None), capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["2", "False"]


def test_the_readme_says_what_to_type_elsewhere():
    text = (ROOT / "README.md").read_text()
    assert "`OMP_NUM_THREADS=1 jupyter lab`" in text and "torch.set_num_threads(1)" in text
