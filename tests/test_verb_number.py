"""The default model taught the number of masked verbs: its file, its accuracy, its training."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from oracle.compare import close
from safetensors.torch import load_file

from helpers import Model, load_model, reconstruction_error, trace
from helpers.datasets import read_agreement
from helpers.tokens import encode

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "training" / "verb_number.py"
FILE = ROOT / "helpers" / "data" / "verb_number.safetensors"
CARD = FILE.with_name("verb_number.card.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def taught():
    """The model without its head, and the head: a probe of the last layer."""
    model = load_model("verb-number")
    assert type(model.network).__name__ == "BertForTokenClassification"
    return Model(model.network.bert, model.tokenizer), model.network.classifier


@pytest.fixture(scope="module")
def script(load_script):
    """The script's own functions."""
    return load_script(SCRIPT)


def test_the_file_is_small_and_holds_two_layers_and_the_probe():
    assert FILE.stat().st_size <= 8e6
    tensors = load_file(FILE)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    parts = {re.match(r"probe|encoder\.layer\.\d+", name).group() for name in tensors}
    assert parts == {"probe", "encoder.layer.4", "encoder.layer.5"}


def test_only_the_top_layers_are_changed_and_the_default_model_stays(taught, minilm):
    fresh = load_model().network.state_dict()
    assert all(torch.equal(fresh[k], v) for k, v in minilm.network.state_dict().items())
    original, changed = minilm.network.state_dict(), taught[0].network.state_dict()
    original = {name: t for name, t in original.items() if not name.startswith("pooler.")}
    added = load_file(FILE)
    assert set(added) - {"probe.weight", "probe.bias"} <= set(original) == set(changed)
    for name, tensor in original.items():
        difference = added[name].float() if name in added else torch.zeros_like(tensor)
        assert torch.equal(changed[name], tensor + difference), name
        assert (name in added) == bool(re.match(r"encoder\.layer\.[45]\.", name))


def test_the_model_is_traced_like_any_other(taught):
    model, text = load_model("verb-number"), "The keys to the old cabinet [MASK] on the table."
    assert model.name == "verb-number" and not model.network.training
    assert all(weight.requires_grad for weight in model.network.parameters())
    run = trace(model, text)
    assert reconstruction_error(run).max() < 1e-4
    with torch.no_grad():
        output = model.network(**encode(model, text))
        close(output.logits, taught[1](taught[0].network(**encode(model, text)).last_hidden_state))
    assert output.logits[0, run.tokens.index("[MASK]"), 0] > 0  # plural


def test_accuracy_on_nouns_that_training_did_not_see(taught, script):
    """As in the card, by attractors; 95 % or more in every group."""
    model, probe = taught
    table = read_agreement().query("split == 'test'")
    # All layers counted as frozen: the network's own last vectors.
    sentences = script.Sentences(model, table, frozen=6)
    scores = script.accuracy(torch.nn.ModuleList(), probe, sentences)
    for name, (right, all_of_them) in scores.items():
        attractors, opposite = re.findall(r"\d", name)
        share = 100 * right / all_of_them
        assert share >= 95
        assert f"| {attractors} | {opposite} | {all_of_them} | {right} | {share:.1f} |" in CARD
    assert sum(n for _, n in scores.values()) == 624


def test_an_unknown_subject_counts_as_singular(taught, script):
    model, probe = taught
    table = read_agreement().query("split == 'test' and number == 'singular'")
    blanked = [
        re.sub(rf"\b{noun}\b", "[UNK]", text)
        for noun, text in zip(table["noun"], table["text"], strict=True)
    ]
    assert all(text.count("[UNK]") == 1 for text in blanked)
    sentences = script.Sentences(model, table.assign(text=blanked), frozen=6)
    scores = script.accuracy(torch.nn.ModuleList(), probe, sentences)
    right = sum(n for n, _ in scores.values())
    assert f"singular in {right} of the {len(table)} pairs" in " ".join(CARD.split())


def test_states_kept_from_frozen_layers_lead_to_the_same_vectors(taught, script):
    model, probe = taught
    table = read_agreement().query("split == 'test'")[::25]
    sentences = script.Sentences(model, table, frozen=4)
    for n, text in enumerate(table["text"]):
        with torch.no_grad():
            last = model.network(**encode(model, text)).last_hidden_state[0]
        found = sentences.logits(model.network.encoder.layer[4:], probe, [n])
        torch.testing.assert_close(found, probe(last[sentences.mask[n]]), atol=1e-4, rtol=1e-4)


def test_batches_hold_every_sentence_once(taught, script):
    sentences = script.Sentences(taught[0], read_agreement()[::40], frozen=0)
    for random in (None, torch.Generator().manual_seed(0)):
        batches = sentences.batches(4, random)
        assert sorted(n for batch in batches for n in batch) == list(range(len(sentences.states)))
        assert all(len(batch) <= 4 for batch in batches)
        assert all(len(set(sentences.lengths[batch].tolist())) == 1 for batch in batches)


def _smoke(out, *flags):
    command = [sys.executable, SCRIPT, "--smoke", "--out", out, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_the_script_from_the_first_line_to_the_last(tmp_path):
    result = _smoke(out := tmp_path / "small.safetensors")
    assert "step 2 of 2" in result.stdout
    assert json.loads(result.stdout.splitlines()[-1])
    made, committed = load_file(out), load_file(FILE)
    assert {k: (v.dtype, v.shape) for k, v in made.items()} == {
        k: (v.dtype, v.shape) for k, v in committed.items()
    }


def test_a_fifth_left_out_is_measured_and_not_written(tmp_path):
    _smoke(out := tmp_path / "small.safetensors", "--hold-out")
    assert not out.exists()
