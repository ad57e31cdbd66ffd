"""The lessons on another model: its name stands in one cell, and every cell still runs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from oracle import tiny_models

FOLDER = Path(__file__).parents[1] / "notebooks"
NAME = 'MODEL = "minilm"'
PASSAGES = "read_passages()"


@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_lesson_4_runs_on_another_model(family, tmp_path, execute):
    """A random model, saved as a folder, that is deep and long enough for the lessons."""
    tiny_models.save(family, tmp_path, seed=1, num_hidden_layers=6, max_position_embeddings=600)
    notebook = nbformat.read(next(FOLDER.glob("04_*.ipynb")), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for text, other in ((NAME, f"MODEL = {str(tmp_path)!r}"), (PASSAGES, f"{PASSAGES}[:12]")):
        assert any(text in cell.source for cell in code)
        for cell in code:
            cell.source = cell.source.replace(text, other)
    execute(NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER)}}))
    printed = "".join(o.get("text", "") for cell in code for o in cell.outputs)
    assert "This model has another vocabulary" in printed
    assert "in every layer: True" in printed
    assert "Correct." in printed
    shown = "".join(o.data.get("text/plain", "") for c in code for o in c.outputs if "data" in o)
    for category in ("[CLS]", "[SEP]", "[MASK]"):
        assert category in shown, "token categories must know this model's special tokens"
