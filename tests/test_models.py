"""load_model: by name, folder and hub id; silent, eager, float32; one sentence when it fails."""

import hashlib
import json
import logging
import shutil
import socket
import threading
import time

import pytest
import torch
import transformers
from huggingface_hub import constants
from huggingface_hub.errors import RepositoryNotFoundError
from transformers.utils import logging as transformers_logging

from helpers import Model, load_model, models, trace
from helpers.models import embedded_folder

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture
def folder(tmp_path, tiny):
    """A folder of a tiny BERT with a masked-language head: 3 layers, 4 heads, a tokenizer."""
    tiny_bert = tiny("bert")
    network = transformers.BertForMaskedLM(tiny_bert.network.config)
    network.save_pretrained(tmp_path / "model")
    tiny_bert.tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def hub(monkeypatch):
    """A hub on this machine that closes every connection; gives the list of connections made."""
    connections = []
    server = socket.create_server(("127.0.0.1", 0))

    def answer():
        while True:
            try:
                connection, address = server.accept()
            except OSError:
                return
            connections.append(address)
            connection.close()

    threading.Thread(target=answer, daemon=True).start()
    _point_hub_at(server, monkeypatch)
    yield connections
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def _point_hub_at(server, monkeypatch):
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(models.model_info.__self__, "endpoint", address)


@pytest.fixture
def cached(tmp_path, folder, monkeypatch):
    """The id of a hub model that lies in a local cache, in the layout of huggingface_hub."""
    repository = tmp_path / "cache" / "models--some-org--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return "some-org/tiny"


def _edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def _message(name) -> str:
    """The message of the ValueError that load_model raises, which must be one line."""
    with pytest.raises(ValueError) as caught:
        load_model(name)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600
    return text


# --- what comes back -------------------------------------------------------------------------


def test_the_default_is_the_embedded_model(minilm):
    config = minilm.network.config
    assert (config.model_type, config.num_hidden_layers) == ("bert", 6)
    assert (config.num_attention_heads, config.hidden_size) == (12, 384)
    assert minilm.name == models.DEFAULT == "minilm"
    assert minilm.tokenizer.convert_tokens_to_ids(["[CLS]", "the"]) == [101, 1996]


def test_the_embedded_weights_are_the_known_file():
    data = (embedded_folder() / "model.safetensors").read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256


def test_a_missing_wheel_is_named(monkeypatch):
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    assert "make lab" in _message("minilm")


@pytest.mark.parametrize("form", [str, lambda path: path, lambda path: f" {path} "])
def test_a_folder_as_text_and_as_path(folder, form):
    model = load_model(form(folder))
    assert isinstance(model, Model)
    assert len(model.tokenizer) == model.network.config.vocab_size


def test_a_folder_in_the_home(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load_model("~/model").network.config.num_hidden_layers == 3


def test_a_folder_below_the_working_folder_wins_over_the_hub(folder, monkeypatch, hub):
    monkeypatch.chdir(folder.parent)
    assert load_model("model").network.config.num_hidden_layers == 3
    assert not hub


def test_eager_and_ready_to_read(any_model):
    assert any_model.network.config._attn_implementation == "eager"
    assert not any(module.training for module in any_model.network.modules())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_float32_whatever_was_saved(folder, dtype):
    before = load_model(folder)
    before.network.to(dtype).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == str(dtype).split(".")[1]
    after = load_model(folder)
    assert {parameter.dtype for parameter in after.network.parameters()} == {torch.float32}


def test_the_weights_are_those_of_the_folder(tmp_path, tiny, randomised):
    network = transformers.BertForMaskedLM(tiny("bert").network.config)
    randomised(network, seed=7)
    network.save_pretrained(tmp_path)
    tiny("bert").tokenizer.save_pretrained(tmp_path)
    loaded = load_model(tmp_path).network.state_dict()
    for name, value in network.state_dict().items():
        assert torch.equal(loaded[name], value), name


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("bert", "BertForMaskedLM"),
        ("bert", "BertForSequenceClassification"),
        ("roberta", "RobertaForMaskedLM"),
        ("xlm-roberta", "XLMRobertaForTokenClassification"),
        ("camembert", "CamembertForMaskedLM"),
        ("electra", "ElectraForPreTraining"),
        ("gpt2", "GPT2LMHeadModel"),
    ],
)
def test_a_task_head_is_kept_and_looked_through(tmp_path, tiny, randomised, family, head):
    network = getattr(transformers, head)(tiny(family).network.config)
    randomised(network, seed=3)
    network.save_pretrained(tmp_path)
    tiny(family).tokenizer.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert type(model.network).__name__ == head
    run = trace(model, "she saw them.")
    assert run.attention.shape[:2] == (3, 4)
    first = network.base_model.encoder.layer[0] if family != "gpt2" else network.base_model.h[0]
    if family == "gpt2":
        assert torch.equal(run.blocks[0].b_O, first.attn.c_proj.bias)
    else:
        assert torch.equal(run.blocks[0].b_O, first.attention.output.dense.bias)


def test_an_architecture_that_transformers_does_not_name_falls_back(folder):
    _edit_config(folder, architectures=["BertForSomethingOfMyOwn"])
    assert type(load_model(folder).network).__name__ == "BertModel"
    _edit_config(folder, architectures=None)
    assert type(load_model(folder).network).__name__ == "BertModel"


# --- silence ---------------------------------------------------------------------------------


@pytest.fixture
def loud():
    """Progress bars and all notes of transformers on; afterwards as they were."""
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_info()
    transformers_logging.enable_progress_bar()
    yield
    transformers_logging.set_verbosity(verbosity)
    if not bars:
        transformers_logging.disable_progress_bar()


@pytest.fixture
def bars(monkeypatch):
    """The progress bars that are really opened: not those that are disabled."""
    opened = []

    class Recorder(transformers_logging.tqdm_lib.tqdm):
        def __init__(self, *args, **kwargs):
            if not kwargs.get("disable"):
                opened.append(kwargs.get("desc"))
            super().__init__(*args, **(kwargs | {"disable": True}))

    monkeypatch.setattr(transformers_logging.tqdm_lib, "tqdm", Recorder)
    return opened


@pytest.mark.parametrize("which", ["minilm", "folder"])
def test_loading_is_silent(which, request, loud, bars, capfd, caplog, recwarn):
    name = "minilm" if which == "minilm" else request.getfixturevalue("folder")
    capfd.readouterr()
    caplog.clear()
    bars.clear()
    load_model(name)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert not recwarn.list
    assert not bars


def test_silent_even_where_the_head_is_missing(folder, capfd):
    """transformers prints a table about weights that are not in the file; the reader sees none."""
    _edit_config(folder, architectures=["BertForSequenceClassification"])
    capfd.readouterr()
    _message(folder)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("bars", [True, False])
def test_the_reader_s_own_settings_come_back(folder, works, bars, loud):
    transformers_logging.set_verbosity(logging.DEBUG)
    if not bars:
        transformers_logging.disable_progress_bar()
    if works:
        load_model(folder)
    else:
        (folder / "config.json").write_text("{")
        _message(folder)
    assert transformers_logging.get_verbosity() == logging.DEBUG
    assert transformers_logging.is_progress_bar_enabled() is bars


# --- folders that hold no model --------------------------------------------------------------


def test_a_folder_without_a_config(tmp_path):
    text = _message(tmp_path)
    assert str(tmp_path) in text and "config.json" in text and "save_pretrained" in text


@pytest.mark.parametrize(
    "content", ["", "{not json", "[]", "{}", '{"model_type": "nothing-known"}']
)
def test_a_broken_config(folder, content):
    (folder / "config.json").write_text(content)
    text = _message(folder)
    assert str(folder) in text and "could not be loaded" in text


def test_a_folder_without_weights(folder):
    (folder / "model.safetensors").unlink()
    assert str(folder) in _message(folder)


@pytest.mark.parametrize("damage", ["cut", "other sizes"])
def test_broken_weights(folder, damage):
    file = folder / "model.safetensors"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-1000])
    else:
        _edit_config(folder, intermediate_size=41)
    assert str(folder) in _message(folder)


def test_a_folder_without_a_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    text = _message(folder)
    assert str(folder) in text and "tokenizer" in text


def test_a_broken_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{not json")
    assert str(folder) in _message(folder)


def test_an_unsupported_architecture_is_refused_with_the_list(tmp_path, tiny):
    """It loads, since only the analyses need to know the architecture; `trace` refuses it."""
    config = transformers.MPNetConfig(
        vocab_size=80,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    transformers.MPNetModel(config).save_pretrained(tmp_path)
    tiny("bert").tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError) as caught:
        trace(load_model(tmp_path), "she saw them")
    text = str(caught.value)
    for family in (
        "'mpnet'",
        " bert,",
        " camembert,",
        " gpt2,",
        " llama,",
        " t5,",
        " xlm-roberta.",
    ):
        assert family in text
    assert "\n" not in text


# --- names that are no folder ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "   "])
def test_an_empty_name(name):
    assert "minilm" in _message(name)


@pytest.mark.parametrize("name", ["no/such/folder", "/no/such/folder", "two words!"])
def test_what_can_not_be_a_hub_id_is_refused_without_asking(name, hub):
    text = _message(name)
    assert name in text and "minilm" in text
    assert not hub


def test_a_name_that_the_hub_does_not_know(monkeypatch):
    def unknown(name, timeout):
        raise RepositoryNotFoundError.__new__(RepositoryNotFoundError, "404\nnot found")

    monkeypatch.setattr(models, "model_info", unknown)
    text = _message("some-org/unknown")
    assert "some-org/unknown" in text and "load_model('minilm')" in text
    assert "neither a folder" in text and "reached" not in text


@pytest.mark.parametrize(
    "error", [ConnectionError("no route"), TimeoutError("slow"), OSError("dns"), Exception("?")]
)
def test_a_hub_that_can_not_be_reached(monkeypatch, error):
    def unreachable(name, timeout):
        raise error

    monkeypatch.setattr(models, "model_info", unreachable)
    text = _message("some-org/some-model")
    assert "some-org/some-model" in text and "load_model('minilm')" in text
    assert "could not be reached" in text and type(error).__name__ in text


def test_a_hub_that_closes_every_connection(hub):
    start = time.monotonic()
    text = _message("some-org/some-model")
    assert time.monotonic() - start < 10
    assert hub, "the hub was never asked"
    assert "could not be reached" in text and "load_model('minilm')" in text


def test_a_hub_that_never_answers(monkeypatch):
    """A real connection that hangs; the time limit is lowered, and must be used."""
    assert models.HUB_TIMEOUT <= 8
    monkeypatch.setattr(models, "HUB_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _point_hub_at(silent, monkeypatch)
        start = time.monotonic()
        text = _message("some-org/some-model")
        assert 0.4 < time.monotonic() - start < 5
    assert "could not be reached" in text and "load_model('minilm')" in text


def test_an_unknown_name_with_the_network_of_this_machine(monkeypatch):
    """Nothing simulated: whether or not there is a network, one sentence in time."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    start = time.monotonic()
    text = _message("transformer-attention-course/there-is-no-such-model")
    assert time.monotonic() - start < 10
    assert "there-is-no-such-model" in text and "load_model('minilm')" in text


def test_offline_mode_is_named_like_no_network(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "load_model('minilm')" in _message("some-org/some-model")


# --- the local cache -------------------------------------------------------------------------


def test_a_cached_hub_model_loads_in_offline_mode(cached, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = load_model(cached)
    assert type(model.network).__name__ == "BertForMaskedLM"
    assert model.name == cached
    assert trace(model, "she saw them").tokens == ["[CLS]", "she", "saw", "them", "[SEP]"]


def test_a_cached_hub_model_asks_nothing(cached, hub, monkeypatch):
    """A hub that hangs or is down must not hold up a model that is already here."""

    def wait(seconds):
        raise AssertionError(f"waited {seconds} s for the hub")

    monkeypatch.setattr(time, "sleep", wait)
    assert type(load_model(cached).network).__name__ == "BertForMaskedLM"
    assert not hub
