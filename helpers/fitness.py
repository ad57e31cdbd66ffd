"""Whether a network can be read exactly. Each check raises one sentence that names the remedy."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from helpers.arguments import check_exact
from helpers.models import Model


def check_network(model: Model) -> None:
    """Raise ValueError, naming the remedy, if the network is coarse, random or without names."""
    check_exact()
    kinds = {part.dtype for part in model.network.parameters() if part.is_floating_point()}
    coarse = kinds - {torch.float32, torch.float64}
    if coarse:
        raise ValueError(
            f"model.network is in {coarse.pop()}, which is too coarse for exact parts; call "
            "model.network.float() first."
        )
    if len(kinds) > 1:
        raise ValueError(
            "model.network is in float32 and in float64; call model.network.float() or .double()."
        )
    if any(module.training for module in model.network.modules()):
        raise ValueError(
            "model.network is in training mode, where dropout changes every output at random; "
            "call model.network.eval() first."
        )
    if not getattr(model.network.config, "return_dict", True):
        raise ValueError(
            "model.network gives its output without names; set model.network.config.return_dict to "
            "True, or load it with load_model."
        )


def check_code(network: PreTrainedModel) -> None:
    """Raise ValueError, naming the remedy, unless all layers can be read in one plain pass."""
    code = network.base_model.config._attn_implementation
    if code != "eager":
        raise ValueError(
            f"model.network computes attention with {code!r}, which does not show its weights; load "
            'it with load_model, or with attn_implementation="eager".'
        )
    chunk = max(getattr(module, "chunk_size_feed_forward", 0) for module in network.modules())
    if chunk:
        raise ValueError(
            f"model.network runs its feed-forward networks with chunk_size_feed_forward={chunk}, so "
            "that no whole tensor passes the LayerNorm after them; load it with load_model, or with "
            "chunk_size_feed_forward=0."
        )


def check_weights(model: Model) -> None:
    """Raise ValueError, naming the first, if weights of the network are NaN or infinite."""
    for name, weight in model.network.named_parameters():
        if not weight.isfinite().all():
            raise ValueError(
                f"model.network has NaN or infinite weights, first in {name}; load it again."
            )


def check_finite(model: Model, *tensors: Tensor) -> None:
    """Raise ValueError, naming the weight where one is at fault, unless lengths can be computed."""
    if not all(tensor.square().sum(dim=-1).isfinite().all() for tensor in tensors):
        check_weights(model)
        raise ValueError(
            "The model's layers give NaN or infinite numbers, or such whose squares are infinite; "
            "check the size of model.network's weights."
        )


def check_one_text(model: Model) -> None:
    """Raise ValueError unless the whole network, head included, reads one text."""
    if model.network.config.is_encoder_decoder:
        raise ValueError(
            f"{model.name!r} is an encoder-decoder, whose output needs a second text; give a model "
            "that reads one text."
        )
    if type(model.network).__name__.endswith("ForMultipleChoice"):
        raise ValueError(
            f"{model.name!r} has the head {type(model.network).__name__}, which compares several "
            "texts; give a model that reads one text."
        )


def reads_batches(model: Model) -> bool:
    """Whether the whole network reads texts of one length together."""
    # These look for the last token before the padding, and refuse where they can not know it.
    looks = type(model.network).__name__.endswith("ForSequenceClassification")
    return not looks or model.network.config.pad_token_id is not None
