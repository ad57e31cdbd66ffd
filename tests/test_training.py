"""The script that trained the translation model: a tiny run from the first line to the last."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from oracle.tiny_models import TRANSLATIONS, randomise, save_marian

from helpers import load_model, reconstruction_error, trace

SCRIPT = Path(__file__).parents[1] / "training" / "translation.py"
SUBJECTS = [
    ("Der Hund", "The dog"),
    ("Die Frau", "The woman"),
    ("Das Kind", "The child"),
    ("Ein Mann", "A man"),
    ("Der alte Lehrer", "The old teacher"),
]
ENDINGS = [
    ("sieht den Fluss.", "sees the river."),
    ("sucht die Schlüssel, aber nicht hier.", "looks for the keys, but not here."),
    ("liest ein Buch.", "reads a book."),
    ("steht vor dem Haus.", "stands in front of the house."),
    ("läuft über die Brücke.", "runs across the bridge."),
    ("wartet auf den Zug.", "waits for the train."),
]
PAIRS = [
    tuple(" ".join(words) for words in zip(*parts, strict=True))
    for parts in product(SUBJECTS, ENDINGS)
]


def _write(folder: Path, name: str, pairs, packed: bool = False) -> list[str]:
    """Two files, one sentence per line."""
    paths = [folder / f"{name}.{side}{'.gz' if packed else ''}" for side in ("de", "en")]
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        with (gzip.open if packed else open)(path, "wt", encoding="utf-8") as file:
            file.writelines(f"{sentence}\n" for sentence in side)
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def script(load_script):
    """The script's own functions."""
    return load_script(SCRIPT)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """A function: arguments give a run of the script on small files; its last line comes back."""
    folder = tmp_path_factory.mktemp("training")
    gaps = [PAIRS[0], ("", "Nothing stands opposite."), (" ", ""), PAIRS[1]]
    texts = [
        *("--train", *_write(folder, "train", PAIRS * 2 + gaps, packed=True)),
        *("--valid", *_write(folder, "valid", PAIRS[:5])),
    ]

    def run(*arguments, test: bool = False) -> dict:
        extra = ("--test", *_write(folder, "test", gaps)) if test else ()
        done = subprocess.run(
            [sys.executable, str(SCRIPT), *texts, *extra, "--smoke", *map(str, arguments)],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "62 pairs" in done.stdout, "pairs that are empty on either side are left out"
        return json.loads(done.stdout.splitlines()[-1])

    run.folder = folder
    return run


@pytest.fixture(scope="module")
def trained(train):
    """Folder and scores of a first run."""
    out = train.folder / "out"
    return out, train("--out", out, "--checkpoints", train.folder / "states", test=True)


def _history(checkpoint: Path) -> list[tuple]:
    """Step, loss and seconds of each validation so far. The seconds tell two runs apart."""
    log = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [(e["step"], e["eval_loss"], e["eval_runtime"]) for e in log if "eval_loss" in e]


# --- a whole run -----------------------------------------------------------------------------


def test_the_folder_is_read_by_load_model(trained):
    out, _ = trained
    model = load_model(out)
    settings = model.network.config
    assert (settings.encoder_layers, settings.decoder_layers) == (3, 3)
    assert settings.vocab_size == len(model.tokenizer) <= 200
    assert json.loads((out / "config.json").read_text())["dtype"] == "float16"
    run = trace(model, *PAIRS[1][:1], target=PAIRS[1][1])
    assert run.tokens[0] == "<pad>" and run.keys[-1] == "</s>"
    assert "<unk>" not in run.tokens + run.keys
    assert reconstruction_error(run).max() < 1e-4


def test_the_folder_names_no_place_of_this_computer(trained, train):
    for file in trained[0].glob("*.json"):
        for place in (str(train.folder), str(train.folder.parents[1])):
            assert place not in file.read_text(), file.name


def test_scores(trained):
    assert trained[1].keys() == {"validation_loss", "bleu_greedy", "bleu_beam_5"}
    assert 2 < trained[1]["validation_loss"] < 8


def test_a_stopped_run_continues_from_its_checkpoint(trained, train):
    out, scores = trained
    vocabulary = (out / "vocab.json").read_bytes()
    states = shutil.copytree(train.folder / "states", train.folder / "stopped")
    before = _history(states / "checkpoint-3")
    assert [step for step, *_ in before] == [1, 2, 3]
    shutil.rmtree(states / "checkpoint-4")
    weights = (states / "checkpoint-3" / "model.safetensors").stat().st_mtime_ns
    again = train("--out", train.folder / "again", "--checkpoints", states)
    after = _history(states / "checkpoint-4")
    assert after[:3] == before and [step for step, *_ in after[3:]] == [4]
    assert (states / "checkpoint-3" / "model.safetensors").stat().st_mtime_ns == weights
    assert again["validation_loss"] == pytest.approx(scores["validation_loss"], abs=1e-3)
    assert (train.folder / "again" / "vocab.json").read_bytes() == vocabulary


def test_a_trained_model_begins_a_deeper_one(trained, train):
    out, _ = trained
    deeper = train.folder / "deeper"
    arguments = ("--start", out, "--decoder-layers", 5, "--checkpoints", train.folder / "more")
    assert "validation_loss" in train("--out", deeper, *arguments)
    model = load_model(deeper)
    run = trace(model, PAIRS[0][0], target=PAIRS[0][1])
    assert len(run.blocks) == 5
    assert len(trace(model, PAIRS[0][0], attention="encoder").blocks) == 3
    assert (deeper / "vocab.json").read_bytes() == (out / "vocab.json").read_bytes()


# --- its parts -------------------------------------------------------------------------------


def test_files_of_different_length_are_refused(script, tmp_path, monkeypatch):
    german, english = _write(tmp_path, "train", PAIRS)
    with open(english, "a", encoding="utf-8") as file:
        file.write("One line more.\n")
    places = ["--out", str(tmp_path / "out"), "--checkpoints", str(tmp_path / "states")]
    files = ["--train", german, english, "--valid", german, english]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *files, *places])
    monkeypatch.setattr(script, "set_seed", lambda seed: None)
    with pytest.raises(SystemExit) as caught:
        script.main()
    assert str(caught.value) == f"{german} has 30 lines, {english} has 31."
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_pairs_are_cut_into_words_and_gaps_left_out(script, tmp_path, packed):
    pairs = [
        ("Hallo, Welt!", "Hello, world!"),
        ("", "Alone."),
        ("Allein.", "\t"),
        ("", ""),
        ("Der Ball-Spieler wirft.", "The player's ball  flies."),
    ]
    paths = [Path(path) for path in _write(tmp_path, "texts", pairs, packed)]
    assert script._pairs(paths) == [
        ("Hallo , Welt !", "Hello , world !"),
        ("Der Ball-Spieler wirft .", "The player's ball flies ."),
    ]


def _network(layers: int) -> transformers.MarianMTModel:
    network = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=20,
            d_model=8,
            encoder_layers=2,
            decoder_layers=layers,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            max_position_embeddings=10,
            pad_token_id=19,
            decoder_start_token_id=19,
        )
    )
    randomise(network, seed=layers)
    return network


def test_added_layers_are_copies_that_add_zero(script):
    shallow, deep = _network(2), _network(5)
    script._take_weights(deep, shallow)
    assert torch.equal(deep.lm_head.weight, shallow.model.shared.weight)
    assert deep.model.decoder.embed_tokens.weight is deep.model.shared.weight
    for one, two in zip(deep.model.encoder.layers, shallow.model.encoder.layers, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters()))
    silent = ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")
    origins = [(0, False), (0, True), (0, True), (1, False), (1, True)]
    for layer, (origin, added) in zip(deep.model.decoder.layers, origins, strict=True):
        source = dict(shallow.model.decoder.layers[origin].named_parameters())
        for name, value in layer.named_parameters():
            if added and name.rpartition(".")[0] in silent:
                assert not value.any(), name
            else:
                assert torch.equal(value, source[name]), name


def test_bleu_compares_each_translation_with_its_own_reference(script, tmp_path, monkeypatch):
    """A model that always knows the answer gets 100, also beside gaps and an endless sentence."""
    save_marian(tmp_path)
    tokenizer = load_model(tmp_path).tokenizer
    tokenizer.model_max_length = script.MAX_PIECES
    answers = {
        tuple(tokenizer(german)["input_ids"]): tokenizer(text_target=english)["input_ids"]
        for german, english in TRANSLATIONS
    }

    def generate(input_ids, attention_mask, **settings):
        assert input_ids.shape[1] <= script.MAX_PIECES
        said = [
            answers.get(tuple(row[mask > 0].tolist()), [tokenizer.eos_token_id])
            for row, mask in zip(input_ids, attention_mask, strict=True)
        ]
        return torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row) for row in said],
            batch_first=True,
            padding_value=tokenizer.pad_token_id,
        )

    def score(pairs):
        paths = [Path(path) for path in _write(tmp_path, "test", pairs)]
        model = SimpleNamespace(generate=generate)
        return script._bleu(model, tokenizer, SimpleNamespace(test=paths))

    as_written = [tuple(side.replace(" .", ".") for side in pair) for pair in TRANSLATIONS]
    gaps = [("", "Nothing stands opposite."), ("Allein.", "")]
    complete = {"bleu_greedy": 100, "bleu_beam_5": 100}
    assert score([as_written[0], *gaps, *as_written[1:]]) == pytest.approx(complete)
    assert score([*as_written, ("der Tisch " * 200, "?")])["bleu_greedy"] > 80
    turned = [(pair[0], other[1]) for pair, other in zip(as_written, as_written[::-1], strict=True)]
    assert score(turned)["bleu_greedy"] < 50
