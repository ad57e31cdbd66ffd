"""Does the JupyterLab that shows this notebook have what widgets need? It may live elsewhere.

A kernel can belong to another environment than the JupyterLab around it, as on a hub. The process
that started the kernel tells which Python that JupyterLab runs in, and that Python is asked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

EXTENSION = Path("@jupyter-widgets", "jupyterlab-manager")
SERVERS = {
    *("jupyter-lab", "jupyterlab", "jupyter-labhub", "jupyterhub-singleuser", "jupyter-notebook"),
    *("notebook", "jupyter-server", "jupyter_server", "jupyterhub.singleuser"),
}
ASK = "import json; from jupyter_core.paths import jupyter_path as p; "
ASK += "print(json.dumps(p('labextensions')))"


def problem() -> tuple[str, str | None] | str | None:
    """What hinders widgets in the JupyterLab that shows this notebook, as `environment` reports it.

    A string, or a string with its own remedy, or with None where nobody can tell; None if nothing.
    """
    python, environment = _server()
    if python is None:
        return environment  # a sentence for a note, or None in VS Code, which has widgets built in
    if not environment or Path(python).parent.resolve() == Path(sys.executable).parent.resolve():
        from jupyter_core.paths import jupyter_path

        folders, remedy = jupyter_path("labextensions"), None
    else:
        remedy = f"Run `{python} -m pip install jupyterlab_widgets`, and start JupyterLab again"
        command = [python, "-c", ASK]
        try:
            asked = subprocess.run(
                command, env=environment, capture_output=True, timeout=60, check=True
            )
            folders = json.loads(asked.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return (f"JupyterLab runs in {python}, which cannot be asked for its extensions", None)
    files = [Path(folder, EXTENSION, "package.json") for folder in folders]
    version = next((json.loads(f.read_text("utf-8"))["version"] for f in files if f.exists()), None)
    if version is None:
        found = "does not see the extension jupyterlab_widgets"
    elif int(version.split(".")[0]) < 5:  # jupyterlab_widgets 3 has the number 5 in JupyterLab
        found = "has a jupyterlab_widgets that is too old for ipywidgets 8"
    else:
        return None
    found = f"JupyterLab, which runs in {python}, {found}"
    return (found, remedy) if remedy else found


def _server() -> tuple:
    """The Python of the JupyterLab that shows this notebook, and that process's environment.

    (this Python, None) where no JupyterLab shows it, as in a terminal; (None, a note) where nobody
    can tell.
    """
    if "JPY_PARENT_PID" not in os.environ:  # set where a kernel is started
        return sys.executable, None
    unknown = ("which JupyterLab shows this notebook cannot be seen from here", None)
    try:
        import psutil  # here, because this file runs where nothing is installed, too

        for process in psutil.Process().parents():
            command = process.cmdline()
            if not command or any("ipykernel" in word for word in command):
                continue  # what starts a kernel in another environment, such as `conda run`
            if SERVERS & {_program(word) for word in command[:4]}:
                return _python_of(process, command), process.environ()
            if "VSCODE_PID" in os.environ or "VSCODE_CWD" in os.environ:
                return None, None
            is_python = _program(command[0]).startswith("python")
            return (sys.executable, None) if is_python else (None, unknown)  # nbclient, for example
    except Exception:  # noqa: BLE001  another user's process, or no psutil
        return None, unknown
    return None, unknown


def _program(word: str) -> str:
    return re.sub(r"(-script)?\.(exe|pyw?)$", "", re.split(r"[\\/]", word)[-1])


def _python_of(process, command: list[str]) -> str:
    """The Python that a process runs in. Its link is kept, because it tells the environment."""
    python = command[0]
    if not _program(python).startswith("python"):
        return process.exe()
    if os.path.dirname(python):
        return os.path.join(process.cwd(), python)
    return shutil.which(python, path=process.environ().get("PATH")) or process.exe()
