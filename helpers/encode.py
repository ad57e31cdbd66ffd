"""From a text to token ids, after every check that a text can fail, and back to readable tokens."""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from helpers import anatomy
from helpers.arguments import check_index, shown
from helpers.models import Model, check_model

_SIGNS = bytes_to_unicode()  # how a byte-level vocabulary writes each byte
_BYTES = {sign: byte for byte, sign in _SIGNS.items()}


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
    if attention in ("cross", "decoder") and pair is not None:
        raise ValueError(
            'pair of an encoder-decoder is read with attention="encoder" only; leave it out, and '
            "give the translation as target."
        )
    if attention in ("cross", "decoder") and target is None:
        raise ValueError(
            f"target is missing: the decoder of {model.name!r} must be fed a text; give "
            'target="…" to trace, or attention="encoder" to read the encoder alone. Functions of one '
            "text, such as most widgets, can not read this model."
        )
    if attention is None and getattr(model.tokenizer, "separate_vocabs", False):
        raise ValueError(
            f"{model.name!r} is a decoder alone, but its tokenizer has two vocabularies and would read "
            "text with the other one; load the whole encoder-decoder."
        )
    _check_text("text", text, model)
    if pair is not None:
        _check_text("pair", pair, model)
    inputs = model.tokenizer(
        text, pair, return_tensors="pt", truncation=False, padding=False, verbose=False
    )
    name, base = "text" if pair is None else "text and pair together", model.network.base_model
    _check_length(name, inputs["input_ids"], model)
    _check_ids(name, inputs["input_ids"], _table(base), model)
    _check_segments(inputs, base)
    if attention is not None:
        table = _table(base.get_decoder())
        ids = [_start(model, table.num_embeddings)]
        if target is not None:
            _check_text("target", target, model)
            ids += model.tokenizer(text_target=target, truncation=False, verbose=False)["input_ids"]
            if ids[-1] == model.tokenizer.eos_token_id:
                ids.pop()
        inputs["decoder_input_ids"] = torch.tensor([ids])
        _check_length("target", inputs["decoder_input_ids"], model)
        _check_ids("target", inputs["decoder_input_ids"], table, model)
    return inputs.to(model.network.device)


def readable(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], of_target: bool = False
) -> list[str]:
    """The tokens of these ids as they are shown; `of_target` where a decoder is fed with them.

    Byte-level vocabularies (GPT-2, RoBERTa, Qwen) write every byte as one sign. Here whole
    characters are shown as themselves; the bytes of half a character as "<0xE4>", as sentencepiece
    does; and the sign stays for a space ("Ġ"), a line break ("Ċ") and all else that is not
    printable. Tokens of all other tokenizers are those of the vocabulary.
    """
    if not of_target and getattr(tokenizer, "separate_vocabs", False):
        # Marian with two vocabularies reads its ids back with the target's alone.
        source = {number: token for token, number in tokenizer.get_src_vocab().items()}
        return [source[number] for number in ids]
    tokens = [
        f"<{number}>" if token is None else token  # a start symbol that is in no vocabulary
        for number, token in zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True)
    ]
    if not _is_byte_level(tokenizer):
        return tokens
    added = tokenizer.added_tokens_decoder  # these are no bytes
    return [
        token if number in added else _characters(token)
        for number, token in zip(ids, tokens, strict=True)
    ]


def blank_id(model: Model, blank: str | int | None) -> int:
    """The number of the token that replaces the others, or a sentence why there is none."""
    words, table = model.tokenizer, model.network.get_input_embeddings()
    named = {"[MASK]": words.mask_token_id, "[UNK]": words.unk_token_id}
    known = {token: number for token, number in named.items() if number is not None}
    if blank is None:
        number = next(iter(known.values()), None)
    elif isinstance(blank, str):
        number = known.get(blank, words.get_vocab().get(blank))
    else:
        number = blank
    if number is None and blank is None:
        raise ValueError("blank must be given: this model has no mask token and no unknown token.")
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    if not whole or not 0 <= number < table.num_embeddings:
        raise ValueError(
            f"blank {shown(blank)} is no token of this model; give one of its vocabulary, or its number "
            f"below {table.num_embeddings}{''.join(f', or {token!r}' for token in known)}."
        )
    return int(number)


def excluded(model: Model, ids: Tensor, exclude: int | Sequence[int] | None) -> Tensor:
    """Where `exclude` says that nothing shall be measured: (T,), bool."""
    if exclude is None:
        mask = model.tokenizer.mask_token_id
        return ids == (-1 if mask is None else mask)
    T, found = len(ids), torch.zeros_like(ids, dtype=torch.bool)
    for position in exclude if isinstance(exclude, list | tuple | range | set) else [exclude]:
        found[check_index("exclude, each position of it,", position, T)] = True
    return found


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # The state shows one inside a sequence too.
    parts = (getattr(backend, "decoder", None), getattr(backend, "pre_tokenizer", None))
    return any(part is not None and b'"ByteLevel"' in part.__getstate__() for part in parts)


def _characters(token: str) -> str:
    """A piece of a byte-level vocabulary with its whole characters in place of their bytes."""
    if not all(sign in _BYTES for sign in token):
        return token
    shown = ""
    # A byte that is no part of a whole character becomes a surrogate, which no text holds.
    for character in bytes(_BYTES[sign] for sign in token).decode(errors="surrogateescape"):
        if "\udc80" <= character <= "\udcff":
            shown += f"<0x{ord(character) - 0xDC00:02X}>"
        elif character.isprintable() and character not in " Ġ":  # that letter means a space here
            shown += character
        else:
            shown += "".join(_SIGNS[byte] for byte in character.encode())
    return shown


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


def _check_ids(name: str, ids: Tensor, table: nn.Embedding, model: Model) -> None:
    """Raise unless the embedding table has a row for each token."""
    for number in ids[(ids < 0) | (ids >= table.num_embeddings)].tolist():
        token = readable(model.tokenizer, [number], of_target=name == "target")[0]
        raise ValueError(
            f"{name} has the token {token!r} with the id {number}, and this model's embedding has "
            f"{table.num_embeddings} rows; take the tokenizer that belongs to the model, or call "
            "model.network.resize_token_embeddings(len(model.tokenizer)) and train the new rows."
        )


def _table(base: PreTrainedModel) -> nn.Embedding:
    try:
        return base.get_input_embeddings()
    except NotImplementedError:  # by what wraps a decoder that stands alone
        return base.get_decoder().get_input_embeddings()


def _check_segments(inputs: dict[str, Tensor], base: nn.Module) -> None:
    """Raise unless the model has an embedding for each segment that the tokenizer counts."""
    table = getattr(getattr(base, "embeddings", None), "token_type_embeddings", None)
    if table is not None and "token_type_ids" in inputs:
        count = int(inputs["token_type_ids"].max()) + 1
        if count > table.num_embeddings:
            raise ValueError(
                f"The tokenizer counts {count} segments, and this model has embeddings for "
                f"{table.num_embeddings}; leave pair out, or take the model's own tokenizer."
            )


def _start(model: Model, rows: int) -> int:
    """The symbol that a decoder is fed first."""
    start = getattr(model.network.config, "decoder_start_token_id", None)
    if start is None or not 0 <= start < rows:
        raise ValueError(
            f"The decoder of {model.name!r} is fed the token {start} first and has an embedding for "
            f"the tokens 0 to {rows - 1}; set model.network.config.decoder_start_token_id."
        )
    return start
