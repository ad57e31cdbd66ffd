"""Is this computer ready for the course? One line for each thing that breaks most often."""

import sys
from importlib import metadata
from pathlib import Path

PROJECT = "transformer-attention-course"


def check_environment() -> bool:
    """Print one OK or FAIL line for each thing that this course needs; True if all are OK."""
    results = [_report(what, remedy, test) for what, remedy, test in _ENVIRONMENT]
    return all(results)


def _report(what, remedy, test) -> bool:
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
    return None if version in SpecifierSet(wanted) else f"this is {version}, needed is {wanted}"


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
    from packaging.requirements import Requirement

    wrong = []
    for requirement in map(Requirement, metadata.requires(PROJECT)):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            installed = "missing"
        if installed == "missing" or installed not in requirement.specifier:
            wrong.append(f"{requirement.name} is {installed}, needed is {requirement.specifier}")
    return "; ".join(wrong) or None


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


_SET_UP = "Run `make lab` again (with conda: `pip install -e .` in the folder of the course)"
_ENVIRONMENT = (
    ("Python version", "Install Python 3.11 to 3.14, then set up again", _python_version),
    ("kernel of this environment", "Start JupyterLab with `make lab`", _kernel),
    ("versions of the packages", _SET_UP, _versions),
    ("widgets: ipywidgets and jupyterlab_widgets", _SET_UP, _widgets),
    ("default model loads", _SET_UP, _model),
    ("attention weights come back from every layer", _SET_UP, _attentions),
)


if __name__ == "__main__":  # `make check`: works also where importing `helpers` does not
    sys.exit(not check_environment())
