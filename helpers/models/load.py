"""A network and its tokenizer, ready to be read: whole, in eager attention, without dropout."""

import copy
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from helpers import _validate
from helpers.models.find import DATA, DEFAULT, find

# What old files keep of a class's own, and what is no part of any layer.
BUFFERS = re.compile(r"(^|\.)(position_ids|inv_freq|version|(attn|attention)\.(masked_)?bias)$")
POOLERS = re.compile(r"(^|\.)pooler\.")


@dataclass(frozen=True, repr=False)
class Model:
    """A network with its tokenizer: what `trace` reads. Your own: `Model(network, tokenizer)`."""

    network: PreTrainedModel  # in evaluation mode, with attn_implementation="eager"
    tokenizer: transformers.PreTrainedTokenizerBase
    name: str = ""  # what messages call it; by default the class of the network

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or type(self.network).__name__)

    def __repr__(self) -> str:
        return f"Model({type(self.network).__name__}, name={self.name!r})"

    @torch.inference_mode(False)  # whose tensors can never have a gradient
    def to(self, device: str | torch.device) -> "Model":
        """A new Model whose network is a copy on this device; this one stays where it is.

        Raises ValueError where torch cannot use the device. Example: `model.to("cuda")`.
        """
        network = _copy(self.network)
        try:
            network = network.to(device=torch.device(device))
        except Exception as error:  # each backend raises its own error
            device, why = _validate.shown(device), type(error).__name__
            raise ValueError(f"torch cannot use the device {device} here ({why}).") from error
        return replace(self, network=network)

    @torch.inference_mode(False)
    def double(self) -> "Model":
        """A new Model whose network is a copy in float64, on an Apple GPU after `.to("cpu")`."""
        return replace(self, network=_copy(self.network).double())


@torch.inference_mode(False)
def load_model(name: str | Path = DEFAULT, *, device: str | torch.device | None = None) -> Model:
    """Load a network and its tokenizer in eager attention, evaluation mode and float32.

    name: the path of a folder that `save_pretrained` has written; the id of a model on the Hugging
        Face hub, such as "bert-base-uncased"; or one of the three that come with the course:
        "minilm", "de-en" (a small German–English translation model) and "verb-number" ("minilm",
        its top layers trained to tell the number of a masked verb). Neither those nor a hub model
        in the local cache need a network. The task head of the class that config.json names is
        kept, but no pooler without weights.
    device: where the network goes, such as "cuda"; by default, the CPU.

    Raises ValueError in one sentence where nothing is found under the name, where the folder holds
    no model, too few weights or too many layers, where the hub cannot be reached, or where torch
    cannot use the device. Example: load_model("bert-base-uncased", device="cuda").
    """
    with torch.device("cpu"):  # whatever the default device is: the files are read on the CPU
        model = _verb_number() if str(name).strip() == "verb-number" else _load(name)
    return model if device is None else model.to(device)


def _copy(network: PreTrainedModel) -> PreTrainedModel:
    """A deep copy; ValueError where torch cannot make one."""
    try:
        return copy.deepcopy(network)
    except RuntimeError as error:  # weights that a hook makes anew hang on others
        raise ValueError(
            "model.network cannot be copied, because some of its weights are computed from others; "
            "make them its own first, with torch.nn.utils.prune.remove or remove_weight_norm."
        ) from error


def _load(name: str | Path) -> Model:
    source = find(name)
    with _silence():
        try:
            config = AutoConfig.from_pretrained(source)
            config.chunk_size_feed_forward = 0  # it saves memory, and hides tensors from trace
            config.return_dict = True
            tokenizer = AutoTokenizer.from_pretrained(source)
            exact = {"attn_implementation": "eager", "dtype": torch.float32}
            exact["experts_implementation"] = "eager"  # the only one that reads float64
            network, report = _network_class(config).from_pretrained(
                source, config=config, output_loading_info=True, **exact
            )
        except Exception as error:  # broken files make every library below fail in its own way
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            if "snapshots" in Path(source).parts:  # of the cache, where half a download can lie
                why += f" If a download was cut off, delete {str(source)!r} and load it again."
            raise ValueError(
                f"name {str(name)!r} was found but could not be loaded as a model with its "
                f"tokenizer: {why}"
            ) from error
    _require_whole(name, network, report)
    return Model(network.eval(), tokenizer, str(name))


@torch.no_grad()
def _verb_number() -> Model:
    """The default model with training/verb_number.py's changes, and its probe as the task head."""
    base = _load(DEFAULT)
    config = copy.deepcopy(base.network.config)
    config.num_labels = 1
    head = transformers.BertForTokenClassification
    network = head._from_config(config, attn_implementation="eager")
    network.bert.load_state_dict(base.network.state_dict(), strict=False)  # all but the pooler
    for name, change in load_file(DATA / "verb_number.safetensors").items():
        if name.startswith("probe."):
            network.get_parameter(name.replace("probe", "classifier")).copy_(change)
        else:
            network.bert.get_parameter(name).add_(change)
    return Model(network.eval(), base.tokenizer, "verb-number")


def _network_class(config: transformers.PretrainedConfig) -> type:
    """The class that wrote the weights, so that a task head is kept; AutoModel if unknown.

    `_require_whole` sees to it that nothing of an unknown class is lost.
    """
    named = [getattr(transformers, name, None) for name in config.architectures or []]
    found = [one for one in named if isinstance(one, type) and issubclass(one, PreTrainedModel)]
    # A class of another family would read the same weights in another way.
    return next((one for one in found if one.config_class is type(config)), AutoModel)


def _require_whole(name: str | Path, network: PreTrainedModel, report: dict) -> None:
    """Raise ValueError if the files lack weights of the network, or hold others that would be lost.

    A pooler without weights is removed where it only adds an output.
    """
    prefix, missing = f"{network.base_model_prefix}.", report["missing_keys"]
    said, own = f"name {str(name)!r}", type(network).__name__
    if network is network.base_model and any(one.startswith("pooler.") for one in missing):
        network.pooler = None
        missing = [one for one in missing if not one.startswith("pooler.")]
    # The base model's first, which a head can share.
    for weight in sorted(missing, key=lambda weight: (not weight.startswith(prefix), weight)):
        raise ValueError(
            f"{said} lacks weights of the network, such as {weight!r}, which would be random "
            "numbers; save the model again, whole, or correct architectures in config.json."
        )

    def any_layer(weight: str) -> str:
        return re.sub(r"(?<=\.)\d+(?=\.)", "0", weight.removeprefix(prefix))

    known = {any_layer(weight) for weight in network.state_dict()}
    lost = sorted(one for one in report["unexpected_keys"] if not BUFFERS.search(one))
    body = {name for name, _ in network.base_model.named_children()}
    for weight in lost:
        if any_layer(weight) in known:
            raise ValueError(
                f"{said} holds layers that its config.json does not count, such as that of "
                f"{weight!r}; set the number of layers there to what the weights have."
            )
        inside = weight.startswith(prefix) or weight.partition(".")[0] in body
        if inside and not POOLERS.search(weight):
            raise ValueError(
                f"{said} holds weights inside its body that a {own} does not have, such as "
                f"{weight!r}, and computes something else with them; merge adapters, or load it "
                "with its own class and give Model(network, tokenizer)."
            )
    lost = [weight for weight in lost if not POOLERS.search(weight)]
    wrote = network.config.architectures or []
    if lost and not wrote:
        warnings.warn(
            f"{said} holds a head that is left out, such as {lost[0]!r}, because its config.json "
            "names no class in architectures.",
            stacklevel=4,
        )
    elif lost and wrote != [own]:
        raise ValueError(
            f"{said} holds weights that a {own} does not have, such as {lost[0]!r}, which would be "
            f"lost: architectures in its config.json is {wrote}; correct that entry, or load it "
            "with its own class and give Model(network, tokenizer)."
        )


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
