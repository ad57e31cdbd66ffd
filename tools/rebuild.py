"""Execute notebooks top to bottom and write them in the form in which they are committed.

    python tools/rebuild.py                        every notebook of the course
    python tools/rebuild.py path/to/lesson.ipynb ...

A notebook is written only after all of its cells ran. Running this twice gives the same bytes.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[1]
CONTENTS = "00_start_here.ipynb"
NAVIGATION = "<!-- navigation -->"  # first line of the last cell of a lesson; the rest is generated
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDGET_TEXT = "(an interactive figure appears here when this cell runs in JupyterLab)"


def notebooks(folder):
    """The notebooks in a folder, in the order in which they are read."""
    return sorted(path for path in folder.glob("*.ipynb") if not path.name.startswith("."))


def course():
    """Every notebook of the course: the lessons, then those in folders below."""
    folder = ROOT / "notebooks"
    return [
        *notebooks(folder),
        *(p for sub in sorted(folder.glob("[!.]*/")) for p in notebooks(sub)),
    ]


def title(path):
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return heading[1].strip() if heading else path.stem


def navigation(path):
    """The last cell of a notebook: previous | contents | next, from the files that are there."""
    files = notebooks(path.parent)
    position = [file.name for file in files].index(path.name)
    below = (path.parent.parent / CONTENTS).exists()  # in a folder below the lessons
    links = []
    if position > 0:
        previous = files[position - 1]
        links.append(f"[previous: {title(previous)}]({previous.name})")
    if path.name != CONTENTS:
        links.append(f"[contents]({'../' if below else ''}{CONTENTS})")
    if position + 1 < len(files):
        following = files[position + 1]
        links.append(f"[next: {title(following)}]({following.name})")
    return f"{NAVIGATION}\n" + " | ".join(links)


def tidy_cells(notebook, path):
    """Drop empty cells and stray metadata, fold solutions, give ids, renew the navigation."""
    cells = [c for c in notebook.cells if c.source.strip() and NAVIGATION not in c.source]
    cells.append(nbformat.v4.new_markdown_cell(navigation(path), id="navigation"))
    seen = set()
    for number, cell in enumerate(cells):
        tags = cell.metadata.get("tags", [])
        folded = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        if "solution" in tags:
            tags, folded = sorted({*tags, "hide-cell"}), True
            if cell.cell_type == "code" and not cell.source.startswith("# Solution"):
                cell.source = f"# Solution\n{cell.source}"  # the line shown while it is folded
        cell.metadata = nbformat.NotebookNode({"tags": tags} if tags else {})
        if folded:
            cell.metadata["jupyter"] = {"source_hidden": True}
        if notebook.nbformat_minor < 5 or cell.id in seen:
            cell.id = hashlib.sha256(f"{number} {cell.source}".encode()).hexdigest()[:8]
        seen.add(cell.id)
    notebook.cells, notebook.nbformat_minor = cells, 5
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3 (ipykernel)",
                "language": "python",
                "name": "python3",
            },
            "language_info": {
                "file_extension": ".py",
                "name": "python",
                "pygments_lexer": "ipython3",
            },
        }
    )


def ruff(notebook, path):
    """The notebook as `ruff check --fix` and `ruff format` leave it."""
    text = nbformat.writes(notebook)
    for command in (["check", "--fix", "--output-format", "concise"], ["format"]):
        options = ["--config", str(ROOT / "pyproject.toml"), "--stdin-filename", str(path)]
        run = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *options, "-"],
            check=False,
            input=text,
            capture_output=True,
            encoding="utf-8",
        )
        if run.returncode:
            sys.exit(f"{path.name} is unchanged, ruff {command[0]} finds:\n{run.stderr}")
        text = run.stdout
    return nbformat.reads(text, as_version=4)


def execute(notebook, path):
    """Run every cell in a new kernel; stop at the first error, also at one inside a widget."""
    try:
        NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(path.parent)}},
            coalesce_streams=True,
            record_timing=False,
        ).execute()
    except CellExecutionError as error:
        sys.exit(f"{path.name} is unchanged, a cell fails:\n{error}")
    widgets = notebook.metadata.get("widgets", {}).get(
        "application/vnd.jupyter.widget-state+json", {}
    )
    for model in widgets.get("state", {}).values():
        for output in model.get("state", {}).get("outputs", []):
            if output["output_type"] == "error":
                sys.exit(f"{path.name} is unchanged, a widget fails: {output['evalue']}")


def strip_outputs(notebook):
    """Remove what changes from run to run, and widget views, which nothing can draw once saved."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("data", {}).pop(WIDGET, None):
                output.data["text/plain"] = WIDGET_TEXT
            if output.output_type == "error":  # a full traceback holds this computer's paths
                output.traceback = [f"{output.ename}: {output.evalue}"]


def rebuild(path):
    notebook = nbformat.read(path, as_version=4)
    tidy_cells(notebook, path)
    notebook = ruff(notebook, path)
    execute(notebook, path)
    tidy_cells(notebook, path)  # execution adds metadata
    strip_outputs(notebook)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8", newline="\n")
    os.replace(unfinished, path)


def main(arguments):
    paths = [Path(argument).resolve() for argument in arguments] or course()
    with tempfile.TemporaryDirectory() as empty:
        # The outputs must not depend on this computer: its kernels, IPython start-up files,
        # matplotlib settings or downloaded models.
        os.environ |= {
            "JUPYTER_PATH": str(Path(sys.prefix, "share", "jupyter")),
            "JUPYTER_PREFER_ENV_PATH": "1",
            "IPYTHONDIR": empty,
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_CACHE": empty,
        }
        for path in paths:
            print(f"executing {path.name}", flush=True)
            rebuild(path)


if __name__ == "__main__":
    main(sys.argv[1:])
