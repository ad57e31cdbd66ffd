"""Is this computer ready for the course? One line for each thing that breaks most often.

Nothing is imported here before it is tested, so that a broken installation is reported, not met.
"""

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

PROJECT = "transformer-attention-course"
LOCK = Path(__file__).resolve().parents[2] / "constraints.txt"  # in a clone of the course


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


def _report(what: str, remedy: str, test: Callable[[], str | None]) -> bool:
    """Print the line of one test, which returns what is wrong, or None."""
    try:
        problem = test()
    except Exception as error:  # noqa: BLE001  a broken environment fails in any way
        problem = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
    print(f"FAIL {what}: {problem}. {remedy}" if problem else f"OK   {what}")
    return not problem


def _python_version() -> str | None:
    from packaging.specifiers import SpecifierSet

    wanted = metadata.metadata(PROJECT)["Requires-Python"]
    version = "{}.{}.{}".format(*sys.version_info)
    return (
        None
        if version in SpecifierSet(wanted)
        else f"this is {version}, but the course needs {wanted}"
    )


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
    installed = {needed: _installed(needed.name) for needed in _requirements()}
    wrong = [
        f"{needed.name} is {version or 'missing'}, but the course needs {needed.specifier}"
        for needed, version in installed.items()
        if version is None or version not in needed.specifier
    ]
    return "; ".join(wrong) or None


def _other_versions() -> str:
    """The packages in another version than the lock's, which lies beside a clone's `helpers`."""
    from packaging.requirements import Requirement

    if not LOCK.exists():
        return ""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    needed = {requirement.name for requirement in _requirements()}
    others = [
        pin for pin in pins if pin.name in needed and _installed(pin.name) not in pin.specifier
    ]
    return ", ".join(f"{pin.name} {_installed(pin.name)}, not {pin.specifier}" for pin in others)


def _requirements() -> list:
    """What the installed course says that it needs, without its extras."""
    from packaging.requirements import Requirement

    needed = map(Requirement, metadata.requires(PROJECT))
    return [line for line in needed if not line.marker or line.marker.evaluate({"extra": ""})]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _widgets() -> str | None:
    import ipywidgets  # noqa: F401
    from jupyter_core.paths import jupyter_path

    extension = Path("@jupyter-widgets", "jupyterlab-manager")
    found = any(Path(path, extension).is_dir() for path in jupyter_path("labextensions"))
    return None if found else "JupyterLab does not see the extension jupyterlab_widgets"


def _model() -> str | None:
    from helpers.models import load_model

    load_model()


def _attentions() -> str | None:
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
    sys.exit(not self_test())
