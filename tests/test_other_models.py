"""The lessons on another model: its name stands in one cell, and every cell still runs."""

from pathlib import Path

import nbformat
import pytest
import transformers
from nbclient import NotebookClient
from tiny_models import randomise, tokenizer

FOLDER = Path(__file__).parents[1] / "notebooks"
NAME = 'MODEL = "minilm"'
PASSAGES = "corpus.read_passages()"


@pytest.fixture(scope="module", params=["roberta", "electra"])
def folder(request, tmp_path_factory):
    """A random model that is deep and long enough for the lessons, saved as a folder."""
    words = tokenizer(request.param)
    settings = {"embedding_size": 12} if request.param == "electra" else {}
    config = transformers.AutoConfig.for_model(
        request.param,
        **settings,
        vocab_size=len(words),
        num_hidden_layers=6,
        num_attention_heads=4,
        hidden_size=24,
        intermediate_size=40,
        max_position_embeddings=600,
        pad_token_id=words.pad_token_id,
    )
    network = transformers.AutoModel.from_config(config)
    randomise(network, seed=1)
    path = tmp_path_factory.mktemp(request.param)
    network.save_pretrained(path)
    words.save_pretrained(path)
    return path


def test_lesson_4_runs_on_another_model(folder, execute):
    path = next(FOLDER.glob("04_*.ipynb"))
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(cell.source.count(NAME) for cell in code) == 1
    for cell in code:
        cell.source = cell.source.replace(NAME, f"MODEL = {str(folder)!r}")
        cell.source = cell.source.replace(PASSAGES, f"{PASSAGES}[:12]")
    execute(NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER)}}))
    printed = "".join(o.get("text", "") for cell in code for o in cell.outputs)
    assert "This model has another vocabulary" in printed
    assert "largest error below 1e-5 in every layer: True" in printed
    assert "Correct." in printed
    shown = "".join(o.data.get("text/plain", "") for c in code for o in c.outputs if "data" in o)
    for category in ("[CLS]", "[SEP]", "[MASK]"):
        assert category in shown, "token categories must know this model's special tokens"
