"""From a text to token ids, after every check that a text can fail."""

import torch
from torch import Tensor

from helpers import anatomy
from helpers.models import Model, check_model


def encode(
    model: Model,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    attention: anatomy.Attention | None = None,
) -> dict[str, Tensor]:
    """Token ids as tensors with a batch axis of 1, after every check a text can fail.

    For an encoder-decoder "decoder_input_ids" are the start symbol and the target's tokens; the
    end symbol is not fed in, because it has no output left to predict.
    """
    check_model(model)
    attention = anatomy.which(model.network, attention)
    if attention is None and target is not None:
        raise ValueError(
            f"target is for encoder-decoder models, and {model.name!r} is none; leave it out, or "
            "give a second segment as pair."
        )
    if attention is not None and pair is not None:
        raise ValueError(
            "pair is for models with segments, like BERT; give the translation as target."
        )
    if attention in ("cross", "decoder") and target is None:
        raise ValueError(
            f"target is missing: the decoder of {model.name!r} must be fed a text; give "
            'target="…" to trace, or attention="encoder" to read the encoder alone. Functions of one '
            "text, such as most widgets, can not read this model."
        )
    _check_text("text", text, model)
    if pair is not None:
        _check_text("pair", pair, model)
    inputs = model.tokenizer(
        text, pair, return_tensors="pt", truncation=False, padding=False, verbose=False
    )
    _check_length("text" if pair is None else "text and pair together", inputs["input_ids"], model)
    if attention is not None:
        ids = [model.network.config.decoder_start_token_id]
        if target is not None:
            _check_text("target", target, model)
            ids += model.tokenizer(text_target=target, truncation=False, verbose=False)["input_ids"]
            if ids[-1] == model.tokenizer.eos_token_id:
                ids.pop()
        inputs["decoder_input_ids"] = torch.tensor([ids])
        _check_length("target", inputs["decoder_input_ids"], model)
    return inputs.to(model.network.device)


def _check_text(name: str, value: str, model: Model) -> None:
    """Raise unless the value is a text of which the tokenizer leaves at least one token."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one string, got {type(value).__name__}.")
    if not value.strip():
        raise ValueError(f"{name} is empty; give at least one word.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{name} {value!r} holds half of a character; decode it again.")
    if not model.tokenizer(value, add_special_tokens=False, verbose=False)["input_ids"]:
        raise ValueError(
            f"{name} {value!r} has no token left after the model's tokenizer; give at least one word."
        )


def _check_length(name: str, ids: Tensor, model: Model) -> None:
    limit = anatomy.max_tokens(model.network)
    if limit is not None and ids.shape[1] > limit:
        raise ValueError(
            f"{name} has {ids.shape[1]} tokens with the special ones, and this model reads at most "
            f"{limit}; shorten the text or split it, nothing is cut off silently."
        )
