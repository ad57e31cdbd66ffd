"""Checks of networks: whether they can be read exactly."""

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from helpers._validate.arguments import instance


def model(value) -> None:
    """Raise TypeError, naming the line that works, unless this is a Model that can be read."""
    if isinstance(value, PreTrainedModel):
        raise TypeError(
            f"model must be a Model, got a plain {type(value).__name__}; wrap it together with its "
            "tokenizer: Model(network, tokenizer)."
        )
    if not hasattr(value, "network") or not hasattr(value, "tokenizer"):
        raise TypeError(
            f"model must be a Model, got {type(value).__name__}; make one with load_model(), or "
            "with Model(network, tokenizer)."
        )
    remedy = "make the Model with load_model(), or with Model(network, tokenizer)"
    for name in ("merge_and_unload()", "module", "_orig_mod"):  # peft, DataParallel, torch.compile
        if not isinstance(value.network, PreTrainedModel) and hasattr(
            value.network, name.removesuffix("()")
        ):
            remedy = f"give what it is put around: Model(network.{name}, tokenizer)"
    instance("model.network", value.network, PreTrainedModel, remedy)
    instance("model.tokenizer", value.tokenizer, PreTrainedTokenizerBase, remedy)
    exact()


def exact() -> None:
    """Raise ValueError where torch computes in 16 bits, whatever the tensors are in."""
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda", "mps")):
        raise ValueError(
            "torch.autocast is on, which is too coarse for exact parts; call this outside it."
        )
    backends = torch.backends.mkldnn, torch.backends.cuda
    coarse = {getattr(getattr(one, "matmul", None), "fp32_precision", "") for one in backends}
    if coarse & {"bf16", "tf32"}:
        raise ValueError(
            "torch multiplies float32 matrices with fewer digits, which is too coarse for exact "
            'parts; call torch.set_float32_matmul_precision("highest") first.'
        )


def network(model) -> None:
    """Raise ValueError, naming the remedy, unless the network gives exact numbers, by name."""
    parameters = [p for p in model.network.parameters() if p.is_floating_point()]
    kinds = sorted({str(parameter.dtype) for parameter in parameters})
    coarse = [kind for kind in kinds if kind not in ("torch.float32", "torch.float64")]
    train = any(module.training for module in model.network.modules())
    faults = {
        "is on the device meta, which holds no numbers; load it again": all(
            p.is_meta for p in parameters
        ),
        f"is in {''.join(coarse[:1])}, which is too coarse for exact parts; call "
        "model.network.float() first": coarse,
        "is in float32 and in float64; call model.network.float() or .double()": len(kinds) > 1,
        "is spread over several devices; put it on one with model.to(device)": (
            len({parameter.device for parameter in parameters}) > 1
        ),
        "is in training mode, where dropout changes every output at random; call "
        "model.network.eval() first": train,
        "returns its output without names; set model.network.config.return_dict to True, or load "
        "it with load_model": not getattr(model.network.config, "return_dict", True),
    }
    for fault in (fault for fault, found in faults.items() if found):
        raise ValueError(f"model.network {fault}.")


def states(model, *tensors: Tensor) -> None:
    """Raise ValueError, naming the weight where one is at fault, unless lengths can be computed."""
    if all(tensor.square().sum(dim=-1).isfinite().all() for tensor in tensors):
        return
    weights(model)
    raise ValueError(
        "The model's layers return NaN, infinite numbers, or numbers whose squares are infinite; "
        "check the size of model.network's weights."
    )


def eager(model) -> None:
    """Raise ValueError, naming the remedy, unless one ordinary pass shows every layer."""
    code = model.network.base_model.config._attn_implementation
    if code != "eager":
        raise ValueError(
            f"model.network computes attention with {code!r}, which does not show its weights; "
            'load it with load_model, or with attn_implementation="eager".'
        )
    if any(getattr(module, "chunk_size_feed_forward", 0) for module in model.network.modules()):
        raise ValueError(
            "model.network runs its feed-forward networks in chunks, so that the LayerNorm after "
            "them never reads a whole tensor; load it with load_model, or with "
            "chunk_size_feed_forward=0."
        )


def weights(model) -> None:
    """Raise ValueError, naming the first, if weights of the network are NaN or infinite."""
    for name, weight in model.network.named_parameters():
        if not weight.isfinite().all():
            raise ValueError(
                f"model.network has NaN or infinite weights, first in {name}; load it again."
            )


def one_text(model) -> None:
    """Raise ValueError unless the whole network, head included, reads one text."""
    head, name = type(model.network).__name__, model.name
    if model.network.config.is_encoder_decoder:
        raise ValueError(
            f"{name!r} is an encoder-decoder, whose output needs a second text; give a model that "
            "reads one text."
        )
    if head.endswith("ForMultipleChoice"):
        raise ValueError(
            f"{name!r} has the head {head}, which compares several texts; give a model that reads "
            "one text."
        )


def score(value, model) -> Tensor:
    """What a score function returned, if it is one finite number: ()."""
    got = type(value).__name__
    if isinstance(value, Tensor):
        got = f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
        if value.numel() == 1 and value.is_floating_point():
            if value.isfinite():
                return value.reshape(())
            weights(model)
            got = f"{value.item()}"
    raise ValueError(
        f"score must return one finite number, a float tensor of one element, got {got}."
    )
