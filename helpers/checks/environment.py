"""Is this computer ready for the course? One line for each thing that breaks most often.

Nothing is imported here before it is tested, so that a broken installation is reported, not met.
As a script, `python helpers/checks/environment.py`, it runs from any folder, in any Python from 3.8
on, with nothing installed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import sys
from importlib import metadata
from pathlib import Path
from typing import Callable  # noqa: UP035  an old Python runs this file too

PROJECT = "transformer-attention-course"
HELPERS = Path(__file__).resolve().parents[1]
LOCK = HELPERS.parent / "constraints.txt"  # in a clone of the course


def self_test() -> bool:
    """Print one OK or FAIL line per thing that the course needs, and return whether all are OK.

    Where the packages suit the course but are not those that its stored outputs come from, a NOTE
    follows, which is not a failure.

    Example: self_test() prints six lines that begin with OK where nothing is wrong.
    """
    results = [_report(what, remedy, test) for what, remedy, test in _TESTS]
    if all(results) and (others := _other_versions()):
        print(f"NOTE outputs may differ a little from the stored ones: {others}")
    return all(results)


def _report(what: str, remedy: str, test: Callable) -> bool:
    """Print the line of one test, and return whether it is not a failure.

    A test returns None, or what is wrong, or that and another remedy; the remedy None makes a NOTE.
    """
    try:
        found = test()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a broken environment fails in any way
        found = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
    problem, remedy = found if isinstance(found, tuple) else (found, remedy)
    if not problem:
        line = f"OK   {what}"
    else:
        line = f"FAIL {what}: {problem}. {remedy}" if remedy else f"NOTE {what}: {problem}"
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))
    return not problem or remedy is None


def _python_version() -> str | None:
    wanted = _wanted_python()
    version = "{}.{}.{}".format(*sys.version_info)
    return None if _inside(version, wanted) else f"this is {version}, but the course needs {wanted}"


def _clone() -> str:
    """What pyproject.toml says in a clone of the course; outside a clone an empty text."""
    path = HELPERS.parent / "pyproject.toml"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text if f'name = "{PROJECT}"' in text else ""


def _wanted_python() -> str:
    """From the clone, or else from what is installed."""
    if text := _clone():
        return re.search(r'^requires-python = "(.+)"', text, re.MULTILINE)[1]
    return metadata.metadata(PROJECT)["Requires-Python"]


def _inside(version: str, specifier: str) -> bool:
    """Whether a version is in a range such as ">=3.11,<3.15"; `packaging` may be missing."""
    tests = {
        ">=": lambda a, b: a >= b,
        "<": lambda a, b: a < b,
        "==": lambda a, b: a == b,
    }
    for operator, bound in re.findall(r"(>=|<|==)\s*([\w.]+)", specifier):
        if not tests[operator](_numbers(version), _numbers(bound)):
            return False
    return True


def _numbers(version: str) -> list[int]:
    numbers = [int(n) for n in re.match(r"\d+(\.\d+)*", version)[0].split(".")]
    return numbers + [0] * (6 - len(numbers))


def _kernel() -> str | None:
    from jupyter_client.kernelspec import KernelSpecManager

    command = Path(KernelSpecManager().get_kernel_spec("python3").argv[0])
    # A bare "python" means: the Python that runs Jupyter. Links are not followed, because the
    # Pythons of all virtual environments are links to the same file.
    foreign = command.is_absolute() and command.parent.resolve() != _folder(sys.executable)
    return f"Jupyter's python3 kernel runs {command}" if foreign else None


def _folder(executable: str) -> Path:
    return Path(executable).parent.resolve()


def _versions() -> str | None:
    installed = {name: (_installed(name), wanted) for name, wanted in _requirements().items()}
    wrong = [
        f"{name} is {version or 'missing'}, but the course needs {wanted}"
        for name, (version, wanted) in installed.items()
        if version is None or not _inside(version, wanted)
    ]
    return "; ".join(wrong) or None


def _other_versions() -> str:
    """The packages in another version than the lock's, which lies beside a clone's `helpers`."""
    if not LOCK.exists():
        return ""
    from packaging.requirements import Requirement  # all is OK here, so it is installed

    lines = LOCK.read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    needed = _requirements()
    others = [
        pin for pin in pins if pin.name in needed and _installed(pin.name) not in pin.specifier
    ]
    return ", ".join(f"{pin.name} {_installed(pin.name)}, not {pin.specifier}" for pin in others)


def _requirements() -> dict[str, str]:
    """The packages that the course needs, each with its range: from the clone, or as installed."""
    if text := _clone():
        block = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)[1]
        lines = re.findall(r'^\s*"([^"]+)"', block, re.MULTILINE)
    else:
        lines = [line for line in metadata.requires(PROJECT) if "extra ==" not in line]
    return dict(re.match(r"([\w.-]+)\s*\(?([^;)]*)", line).groups() for line in lines)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _widgets() -> tuple[str, str | None] | str | None:
    import ipywidgets  # noqa: F401

    # Not imported, because as a script this file cannot count on the package that it lies in.
    return runpy.run_path(str(HELPERS / "checks" / "_front_end.py"))["problem"]()


def _other_helpers() -> tuple[str, str] | None:
    """What is in the way of the course's `helpers`, found without importing it."""
    spec = importlib.util.find_spec("helpers")
    if spec is None:
        return "this Python does not find `helpers`, the package of the course", _SET_UP
    places = [*(spec.submodule_search_locations or []), spec.origin or ""]
    if any(str(HELPERS) == os.path.realpath(place) for place in places):
        return None
    where = spec.origin or places[0]
    remedy = "Rename or move it, or uninstall the package that it belongs to; then set up again"
    return f"`import helpers` finds {where}, which is not that of the course", remedy


def _model() -> tuple[str, str] | None:
    if problem := _other_helpers():
        return problem
    from helpers.models import load_model

    load_model()


def _attentions() -> tuple[str, str] | str | None:
    if problem := _other_helpers():
        return problem
    from helpers.models import load_model

    model = load_model()
    inputs = model.tokenizer("The keys are here.", return_tensors="pt")
    attentions = model.network(**inputs, output_attentions=True).attentions or ()
    layers = model.network.config.num_hidden_layers
    return None if len(attentions) == layers else f"{len(attentions)} came back for {layers} layers"


_SET_UP = (
    "Run `make lab` again (without make: `pip install -c constraints.txt -e .` in the "
    "folder of the course)"
)
_TESTS = (
    ("Python version", "Install Python 3.11 to 3.14, then set up again", _python_version),
    ("kernel of this environment", "Start JupyterLab with `make lab`", _kernel),
    ("versions of the packages", _SET_UP, _versions),
    ("widgets: ipywidgets and jupyterlab_widgets", _SET_UP, _widgets),
    ("default model loads", _SET_UP, _model),
    ("attention weights come back from every layer", _SET_UP, _attentions),
)


if __name__ == "__main__":  # `make check`: works also where importing `helpers` does not
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != HELPERS / "checks"]
    ready = self_test()
    if "JPY_PARENT_PID" not in os.environ:  # not started from a notebook
        print(
            "NOTE widgets were looked for in this environment's JupyterLab. Where another one opens"
            " the notebooks, as on a hub, run the self-test of lesson 00 there"
        )
    sys.exit(not ready)
