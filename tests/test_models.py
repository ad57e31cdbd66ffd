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
from oracle import tiny_models
from oracle.compare import close, refused
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from helpers import Model, load_model, models, stage_map, trace
from helpers.models import find, load

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TEXT = "she saw them"


def save(model, folder, network=None):
    """Write a model into a folder, with another network if there is one."""
    (network or model.network).save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def edit(folder, **changes):
    """Change config.json in a folder."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def drop(folder, part: str) -> str:
    """Take the weights out of a folder that have this part in their names; gives the first."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    gone = [name for name in weights if part in name]
    kept = {name: value for name, value in weights.items() if name not in gone}
    save_file(kept, file, metadata={"format": "pt"})
    return gone[0]


@pytest.fixture
def folder(tmp_path, tiny, randomised):
    """A folder of a tiny BERT with a masked-language head: 3 layers, 4 heads, a tokenizer."""
    network = transformers.BertForMaskedLM(tiny("bert").network.config)
    randomised(network, seed=7)
    return save(tiny("bert"), tmp_path / "model", network)


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
    monkeypatch.setattr(find.model_info.__self__, "endpoint", address)


# --- what comes back -------------------------------------------------------------------------


def test_the_default_is_the_embedded_model(minilm):
    config = minilm.network.config
    assert (config.model_type, config.num_hidden_layers) == ("bert", 6)
    assert (config.num_attention_heads, config.hidden_size) == (12, 384)
    assert minilm.name == models.DEFAULT == "minilm"
    assert minilm.tokenizer.convert_tokens_to_ids(["[CLS]", "the"]) == [101, 1996]
    weights = (models.embedded_folder() / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == SHA256


def test_a_missing_wheel_is_named(monkeypatch):
    monkeypatch.setattr(find.importlib.util, "find_spec", lambda name: None)
    refused(load_model, "make lab")


def test_a_folder_wherever_it_is_and_before_the_hub(folder, monkeypatch, hub):
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.chdir(folder.parent)
    for name in (folder, str(folder), f" {folder} ", "~/model", "model"):
        model = load_model(name)
        assert type(model.network).__name__ == "BertForMaskedLM" and model.name == str(name)
        assert len(model.tokenizer) == model.network.config.vocab_size
    assert not hub


def test_the_weights_are_those_of_the_folder(folder):
    saved, loaded = load_file(folder / "model.safetensors"), load_model(folder).network.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in saved.items())
    assert set(loaded) - set(saved) <= {
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
    }


def test_eager_and_ready_to_read(any_model):
    assert any_model.network.config._attn_implementation == "eager"
    assert not any(module.training for module in any_model.network.modules())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_float32_whatever_was_saved(folder, dtype):
    load_model(folder).network.to(dtype).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == str(dtype).split(".")[1]
    found = {parameter.dtype for parameter in load_model(folder).network.parameters()}
    assert found == {torch.float32}


def test_settings_of_a_folder_that_would_hide_tensors_are_taken_back(folder):
    edit(folder, return_dict=False, chunk_size_feed_forward=1, attn_implementation="sdpa")
    config = load_model(folder).network.config
    assert (config.return_dict, config.chunk_size_feed_forward) == (True, 0)
    assert config._attn_implementation == "eager"


@pytest.mark.parametrize("architectures", [["BertForSomethingOfMyOwn"], None])
def test_an_architecture_that_transformers_does_not_name_falls_back(folder, architectures):
    """To the class of the network without a head, if nothing is lost."""
    drop(folder, "cls.")
    edit(folder, architectures=architectures)
    assert type(load_model(folder).network).__name__ == "BertModel"


@pytest.mark.parametrize("architectures", [["BertForSomethingOfMyOwn"], ["TFBertModel"]])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_head_of_a_class_that_transformers_does_not_name_is_not_lost(
    tiny, tmp_path, family, architectures
):
    edit(save(tiny(family), tmp_path), architectures=architectures)
    file = tmp_path / "model.safetensors"
    weights = load_file(file) | {"my_head.weight": torch.ones(2, 2)}
    save_file(weights, file, metadata={"format": "pt"})
    words = (f"config.json is {architectures or []};", "would be lost", "Model(network, token")
    refused(lambda: load_model(tmp_path), *words)
    known = type(tiny(family).network).__name__
    edit(tmp_path, architectures=[known, "BertForSomethingOfMyOwn"])
    refused(lambda: load_model(tmp_path), "would be lost")
    edit(tmp_path, architectures=[known])
    assert type(load_model(tmp_path).network).__name__ == known


@pytest.mark.parametrize(
    ("family", "weight"),
    [
        ("bert", "encoder.layer.0.attention.output.adapter.weight"),
        ("bert", "encoder.layer.2.attention.self.value.lora_A.weight"),
        ("llama", "layers.1.self_attn.q_norm.weight"),
        ("gpt2", "h.0.attn.adapter.bias"),
        ("llama", "layers.0.self_attn.bias"),
        ("deberta-v2", "encoder.conv.conv.weight"),
    ],
)
def test_weights_inside_layers_that_the_class_does_not_have(tiny, tmp_path, family, weight):
    save(tiny(family), tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {weight: torch.ones(2)}, file, metadata={"format": "pt"})
    refused(lambda: load_model(tmp_path), "inside its body", weight, "merge adapters")


def test_a_class_of_another_family_is_not_taken(tiny, tmp_path):
    """A BERT would count the positions of a RoBERTa from another number."""
    edit(save(tiny("roberta"), tmp_path), architectures=["BertModel"])
    model = load_model(tmp_path)
    assert type(model.network).__name__ == "RobertaModel"
    assert torch.equal(trace(model, TEXT).attention, trace(tiny("roberta"), TEXT).attention)
    edit(save(tiny("llama"), tmp_path / "llama"), architectures=["MistralModel"])
    assert type(load_model(tmp_path / "llama").network).__name__ == "LlamaModel"


@pytest.mark.parametrize(
    ("family", "head"), [("gpt2", "GPT2LMHeadModel"), ("t5", "T5EncoderModel")]
)
def test_a_head_or_a_side_without_weights_of_its_own_is_read(tiny, tmp_path, family, head):
    edit(save(tiny(family), tmp_path), architectures=[head])
    assert type(load_model(tmp_path).network).__name__ == head


# --- copies of a model ------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [lambda m: m.to("cpu"), Model.double], ids=["to", "double"])
def test_a_copy_leaves_the_old_model_untouched(folder, copied):
    model = load_model(folder)
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    with torch.inference_mode():  # whose tensors would have no gradient
        new = copied(model)
    assert new.tokenizer is model.tokenizer and new.name == model.name
    assert all(tensor.requires_grad for tensor in new.network.parameters())
    assert not any(tensor.is_inference() for tensor in new.network.parameters())
    for name, tensor in new.network.state_dict().items():
        close(tensor, before[name], 0)
    for tensor in new.network.state_dict().values():
        tensor.zero_()
    after = model.network.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert model.network.dtype == torch.float32


def test_float64_gives_the_same_numbers_but_for_rounding(any_model):
    exact, run = trace(any_model.double(), TEXT), trace(any_model, TEXT)
    assert exact.attention.dtype == stage_map(exact, "Attn-N").dtype == torch.float64
    for stage in run.stages:
        close(stage_map(run, stage), stage_map(exact, stage), 2e-6)


def test_a_model_of_one_s_own(tiny):
    model = tiny("bert")
    own = Model(model.network, model.tokenizer)
    assert own.name == "BertModel" and repr(own) == "Model(BertModel, name='BertModel')"
    assert torch.equal(trace(own, TEXT).attention, trace(model, TEXT).attention)
    refused(lambda: trace(model.network, TEXT), "BertModel", "Model(network, tokenizer)")


@pytest.mark.parametrize("device", ["tpu", "cuda:99", 0.5])
def test_a_device_that_is_not_there(minilm, device):
    for call in (lambda: load_model(device=device), lambda: minilm.to(device)):
        refused(call, f"torch cannot use the device {device!r} here")


def test_a_device_that_is_there(minilm):
    model = load_model(device=torch.device("cpu"))
    assert torch.equal(trace(model, TEXT).attention, trace(minilm, TEXT).attention)


# --- silence ---------------------------------------------------------------------------------


@pytest.fixture
def loud(monkeypatch):
    """Progress bars and all notes of transformers on; gives the bars that are really opened."""
    opened, note = [], transformers_logging
    monkeypatch.setattr(note.tqdm_lib, "tqdm", _recorder(opened))
    verbosity, bars = note.get_verbosity(), note.is_progress_bar_enabled()
    note.set_verbosity_debug()
    note.enable_progress_bar()
    yield opened
    note.set_verbosity(verbosity)
    if not bars:
        note.disable_progress_bar()


def _recorder(opened: list):
    class Recorder(transformers_logging.tqdm_lib.tqdm):
        def __init__(self, *args, **kwargs):
            if not kwargs.get("disable"):
                opened.append(kwargs.get("desc"))
            super().__init__(*args, **(kwargs | {"disable": True}))

    return Recorder


@pytest.mark.parametrize("name", ["minilm", "de-en", "verb-number", "no head"])
def test_loading_is_silent_and_the_reader_s_own_settings_come_back(
    name, folder, loud, capfd, caplog, recwarn
):
    """transformers prints a table about weights that are not in the file; the reader sees none."""
    caplog.clear()
    capfd.readouterr()
    loud.clear()
    if name == "no head":
        transformers_logging.disable_progress_bar()
        edit(folder, architectures=["BertForSequenceClassification"])
        refused(lambda: load_model(folder), "lacks weights")
    else:
        load_model(name)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not recwarn.list and not loud
    assert transformers_logging.get_verbosity() == logging.DEBUG
    assert transformers_logging.is_progress_bar_enabled() == (name != "no head")


# --- folders without a model --------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", None, ("without config.json", "save_pretrained")),
        ("config.json", b"", ("without config.json",)),
        ("config.json", b"{not json", ("could not be loaded",)),
        ("config.json", b'{"model_type": "nothing-known"}', ("could not be loaded",)),
        ("model.safetensors", None, ("without weights", "save_pretrained")),
        ("model.safetensors", b"cut off", ("could not be loaded",)),
        ("tokenizer.json", None, ("without tokenizer", "save_pretrained")),
        ("tokenizer.json", b"{not json", ("could not be loaded",)),
    ],
)
def test_a_folder_with_a_file_missing_or_broken(folder, file, content, words):
    (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
    refused(lambda: load_model(folder), str(folder), *words)


def test_a_file_where_a_folder_is_wanted(folder):
    refused(lambda: load_model(folder / "model.safetensors"), "is a file; give its folder")


def test_weights_of_other_sizes(folder):
    edit(folder, intermediate_size=41)
    refused(lambda: load_model(folder), str(folder), "could not be loaded")


@pytest.mark.parametrize("part", ["layer.1.attention.self.value", "cls.predictions.transform"])
def test_weights_that_the_files_lack_are_named_and_never_random(folder, part):
    gone = drop(folder, part)
    refused(lambda: load_model(folder), "lacks weights", gone.rpartition(".")[0], "config.json")


def test_a_pooler_without_weights_goes_where_no_head_reads_it(folder, tiny):
    save(tiny("bert"), folder)
    drop(folder, "pooler")
    assert load_model(folder).network.pooler is None
    network = transformers.BertForSequenceClassification(tiny("bert").network.config)
    save(tiny("bert"), folder, network)
    drop(folder, "pooler")
    refused(lambda: load_model(folder), "lacks weights", "pooler")


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("bert", {"num_hidden_layers": 2}),
        ("gpt2", {"n_layer": 2}),
        ("llama", {"num_hidden_layers": 1, "layer_types": None}),
        ("t5", {"num_layers": 1}),
        ("marian", {"decoder_layers": 2}),
    ],
)
def test_layers_that_the_config_does_not_count_are_named(tiny, tmp_path, family, change):
    edit(save(tiny(family), tmp_path), **change)
    refused(lambda: load_model(tmp_path), "holds layers that its config.json does not count")


# --- names that are not folders ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "name is empty"),
        ("   ", "name is empty"),
        (None, "name must be a string or a path"),
        ("no/such/folder", "neither a folder"),
        ("/no/such/folder", "neither a folder"),
        ("The keys are here.", "neither a folder"),
        ("The keys are here. " * 20, "neither a folder"),
    ],
)
def test_what_cannot_be_a_hub_id_is_refused_without_asking(name, words, hub):
    refused(lambda: load_model(name), words)
    assert not hub


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RepositoryNotFoundError.__new__(RepositoryNotFoundError, "404\nno"),
            ("neither a folder",),
        ),
        (
            ConnectionError("no route"),
            ("could not be reached (ConnectionError)", "lacks its files"),
        ),
        (Exception("?"), ("could not be reached (Exception)", "lacks its files")),
    ],
)
def test_a_hub_that_does_not_know_the_name_or_cannot_be_reached(monkeypatch, error, words):
    def ask(name, timeout):
        raise error

    monkeypatch.setattr(find, "model_info", ask)
    refused(
        lambda: load_model("some-org/model"), "'some-org/model'", "load_model('minilm')", *words
    )


def test_a_hub_that_closes_every_connection(hub):
    start = time.monotonic()
    refused(lambda: load_model("some-org/some-model"), "could not be reached")
    assert time.monotonic() - start < 10
    assert hub, "the hub was never asked"


def test_a_hub_that_never_answers(monkeypatch):
    """A real connection that hangs; the time limit is lowered, and must be used."""
    assert models.HUB_TIMEOUT <= 8
    monkeypatch.setattr(find, "HUB_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _point_hub_at(silent, monkeypatch)
        start = time.monotonic()
        refused(lambda: load_model("some-org/some-model"), "could not be reached")
        assert 0.4 < time.monotonic() - start < 5


# --- the local cache -------------------------------------------------------------------------


@pytest.fixture
def cached(tmp_path, folder, monkeypatch):
    """A hub model in a local cache, in the layout of huggingface_hub: its id, and its folder."""
    repository = tmp_path / "cache" / "models--some-org--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return "some-org/tiny", repository / "snapshots" / commit


def test_a_cached_hub_model_loads_in_offline_mode(cached):
    model = load_model(cached[0])
    assert models.in_cache(cached[0])
    assert type(model.network).__name__ == "BertForMaskedLM" and model.name == cached[0]
    assert trace(model, TEXT).tokens == ["[CLS]", "she", "saw", "them", "[SEP]"]


@pytest.mark.parametrize(
    ("file", "text", "missing"),
    [
        ("model.safetensors", None, "weights"),
        ("tokenizer.json", None, "tokenizer"),
        ("tokenizer.json", "vocab.json", "tokenizer"),
        ("model.safetensors", "model.safetensors.index.json", "model.safetensors.index.json"),
    ],
)
def test_what_half_a_download_is_missing(cached, file, text, missing):
    """An empty file, a vocabulary without its merges, an index that was cut off: each is none."""
    name, snapshot = cached
    (snapshot / file).write_bytes(b"")
    for other in ("vocab.txt", "vocab.json", "merges.txt"):
        (snapshot / other).unlink(missing_ok=True)
    if text:
        (snapshot / text).write_text('{"weight_map": {')
    assert not models.in_cache(name)
    refused(lambda: load_model(name), f"the cache lacks its {missing}", "could not be reached")


def test_a_broken_file_of_the_cache_is_to_be_deleted(cached):
    name, snapshot = cached
    (snapshot / "config.json").write_text('{"model_type": ')
    refused(lambda: load_model(name), "could not be loaded", f"delete {str(snapshot)!r}")


def test_a_cached_hub_model_asks_nothing(cached, hub):
    """A hub that hangs or is down must not hold up a model that is already here."""
    assert type(load_model(cached[0]).network).__name__ == "BertForMaskedLM"
    assert not hub


def test_a_name_that_is_not_in_the_cache(cached):
    assert not any(map(models.in_cache, ("some-org/other", "no hub id")))
    refused(lambda: load_model("some-org/other"), "the cache lacks its files")


@pytest.mark.parametrize("lacks", ["model.safetensors", "tokenizer.json", "a part"])
def test_half_a_download_is_named_offline_and_goes_on_online(cached, monkeypatch, lacks):
    name, snapshot = cached
    if lacks == "a part":
        whole = load_model(name)
        (snapshot / "model.safetensors").unlink()
        whole.network.save_pretrained(snapshot, max_shard_size="20KB")
        assert torch.equal(trace(load_model(name), TEXT).attention, trace(whole, TEXT).attention)
        lacks = sorted(snapshot.glob("model-*.safetensors"))[1].name
    (snapshot / lacks).unlink()
    assert not models.in_cache(name)
    part = {"model.safetensors": "weights", "tokenizer.json": "tokenizer"}.get(lacks, lacks)
    refused(lambda: load_model(name), f"the cache lacks its {part}, and", "could not be reached")
    # Online the hub id goes to the library, which loads what is missing; a folder would not.
    asked = []
    monkeypatch.setattr(find, "model_info", lambda name, timeout: None)
    monkeypatch.setattr(load.AutoConfig, "from_pretrained", lambda name: asked.append(name))
    refused(lambda: load_model(name), "could not be loaded")
    assert asked == [name]


@pytest.mark.parametrize("architectures", [None, []])
def test_a_head_of_no_named_class_is_left_out_with_a_word(tiny, tmp_path, architectures):
    """As in the files of DeBERTa 3."""
    edit(save(tiny("deberta-v2"), tmp_path), architectures=architectures)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    head = {"lm_predictions.lm_head.bias": torch.ones(2)}
    save_file(weights | head, file, metadata={"format": "pt"})
    with pytest.warns(UserWarning, match="holds a head that is left out, such as 'lm_predictions"):
        model = load_model(tmp_path)
    assert torch.equal(trace(model, TEXT).attention, trace(tiny("deberta-v2"), TEXT).attention)


@pytest.mark.parametrize(
    ("family", "head", "extra"),
    [
        ("bert", "BertForMaskedLM", "cls.seq_relationship.weight"),
        ("bert", "BertForMaskedLM", "bert.pooler.dense.weight"),
        ("roberta", "RobertaForMaskedLM", "roberta.embeddings.position_ids"),
        ("gpt2", "GPT2LMHeadModel", "transformer.h.0.attn.masked_bias"),
        ("gpt_neo", "GPTNeoForCausalLM", "transformer.h.0.attn.attention.bias"),
        ("gpt_neox", "GPTNeoXForCausalLM", "gpt_neox.layers.0.attention.bias"),
        ("llama", "LlamaForCausalLM", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("bart", "BartForConditionalGeneration", "model.encoder.version"),
    ],
)
def test_what_old_files_keep_is_no_reason_to_refuse(tmp_path, family, head, extra):
    tiny_models.save(family, tmp_path, getattr(transformers, head))
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {extra: torch.ones(2, 2)}, file, metadata={"format": "pt"})
    assert type(load_model(tmp_path).network).__name__ == head


def test_an_adapter_beside_a_model_is_refused(folder):
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    refused(lambda: load_model(folder), "holds an adapter beside a model", "merge_and_unload()")
