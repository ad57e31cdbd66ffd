"""Text to token ids and back: readable tokens, the word of each token, which tokens are special.

Everything here is asked of the tokenizer and never guessed from how a token looks.
"""

import torch
from torch import nn
from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from helpers import _validate, anatomy
from helpers.models import Model

_SIGNS = bytes_to_unicode()  # how a byte-level vocabulary writes each byte
_BYTES = {sign: byte for byte, sign in _SIGNS.items()}


def encode(
    model: Model,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    attention: anatomy.Attention | None = None,
) -> BatchEncoding:
    """Token ids as tensors with a batch axis of 1; the texts are checked first.

    For an encoder-decoder, "decoder_input_ids" are the start symbol and the target's tokens; the
    end symbol is not fed in, because it has no output left to predict.

    Parameters: those of `trace`. Raises TypeError and ValueError as `trace` does for a text.

    Example: encode(model, "The keys are here.")["input_ids"] has the shape (1, T).
    """
    _validate.model(model)
    attention = anatomy.which(model.network, attention)
    _check_texts(model, text, pair, target, attention)
    base, device = model.network.base_model, model.network.device
    read = model.tokenizer(text, pair, truncation=False, padding=False, verbose=False)
    data, encodings = dict(read), read.encodings or []
    _check_ids("text" if pair is None else "text and pair together", data, base, model)
    if attention is not None:
        data["decoder_input_ids"] = [_start(model)]
        if target is not None:
            read = model.tokenizer(text_target=target, truncation=False, verbose=False)
            ends = read["input_ids"][-1] == model.tokenizer.eos_token_id
            data["decoder_input_ids"] += read["input_ids"][: -1 if ends else None]
            encodings = encodings + (read.encodings or [])  # which word a token belongs to
        _check_ids("target", data, base.get_decoder(), model)
    tensors = {name: torch.tensor([values], device=device) for name, values in data.items()}
    return BatchEncoding(tensors, encoding=encodings or None)


def read_back(
    tokenizer: PreTrainedTokenizerBase, inputs: BatchEncoding, of_target: bool = False
) -> tuple[list[int], list[str], list[int | None] | None]:
    """Ids, readable tokens, words of what `encode` gave; `of_target` for what a decoder is fed."""
    ids = inputs["decoder_input_ids" if of_target else "input_ids"][0].tolist()
    tokens = readable(tokenizer, ids, of_target)
    return ids, tokens, word_ids(tokenizer, inputs, ids, of_target)


def word_ids(
    tokenizer: PreTrainedTokenizerBase, inputs: BatchEncoding, ids: list[int], of_target: bool
) -> list[int | None] | None:
    """The word, counted from 0, that each token belongs to; None where the tokenizer cannot tell.

    Special tokens belong to no word (None), except the mask token, which stands for one. The words
    of a pair continue the count. Most fast tokenizers split a text into words first and remember
    which token came from which. SentencePiece, which may not, writes spaces into its tokens.
    """
    special, side = special_ids(tokenizer) - {tokenizer.mask_token_id}, int(of_target)
    special |= {ids[0]} if of_target else set()  # the start symbol, whatever it is
    pieces, told = readable(tokenizer, ids, of_target), [(0, 0)] * len(ids)
    if inputs.is_fast:
        told = [(None, None)] * side
        told += zip(inputs.sequence_ids(side), inputs.word_ids(side), strict=True)
    elif not any(piece.startswith("▁") for piece in pieces):
        return None
    numbers: dict = {}  # in order and without a gap
    return [
        None if key[1] is None or n in special else numbers.setdefault((key, start), len(numbers))
        for n, key, start in zip(ids, told, _starts(pieces), strict=False)
    ]


def readable(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], of_target: bool = False
) -> list[str]:
    """The tokens of these ids as they are shown; `of_target` where a decoder is fed with them.

    Byte-level vocabularies (GPT-2, RoBERTa, Qwen) write every byte as one symbol. Here, whole
    characters are shown as themselves, and the bytes of half a character as "<0xE4>", as in
    SentencePiece. A space ("Ġ"), a line break ("Ċ") and whatever else is not printable keep their
    symbols. The tokens of all other tokenizers are those of the vocabulary.
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
    added = tokenizer.added_tokens_decoder  # these are not bytes
    return [
        token if number in added else _characters(token)
        for number, token in zip(ids, tokens, strict=True)
    ]


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The ids of tokens that stand for no text. The unknown token does, so it is not among them."""
    named, added = dict(tokenizer.special_tokens_map), tokenizer.added_tokens_decoder
    unknown = named.pop("unk_token", None)
    special = {number for number, token in added.items() if token.special}
    special |= set(tokenizer.all_special_ids)
    # GPT-2 has one token for every purpose, the unknown one included, which no text needs.
    return special if unknown in named.values() else special - {tokenizer.unk_token_id}


def _starts(pieces: list[str]) -> list[int]:
    """One number per piece, a new one wherever a word starts: at a space ("▁") or a line break."""
    words, word, last = [], 0, ""
    for piece in pieces:
        # A piece that is nothing but spaces or a line break belongs to the piece after it.
        inside = last.strip("▁\n") not in ("", "<0x0A>")
        word += inside and piece.startswith(("▁", "\n", "<0x0A>"))
        words.append(word)
        last = piece
    return words


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # The state also shows one that is part of a sequence.
    parts = (getattr(backend, "decoder", None), getattr(backend, "pre_tokenizer", None))
    return any(part is not None and b'"ByteLevel"' in part.__getstate__() for part in parts)


def _characters(token: str) -> str:
    """A piece of a byte-level vocabulary with its whole characters in place of their bytes."""
    if not all(sign in _BYTES for sign in token):
        return token
    shown = ""
    # A byte that is not part of a whole character becomes a surrogate, which no text holds.
    for character in bytes(_BYTES[sign] for sign in token).decode(errors="surrogateescape"):
        if "\udc80" <= character <= "\udcff":
            shown += f"<0x{ord(character) - 0xDC00:02X}>"
        elif character.isprintable() and character not in " Ġ":  # that letter means a space here
            shown += character
        else:
            shown += "".join(_SIGNS[byte] for byte in character.encode())
    return shown


def _check_texts(model: Model, text, pair, target, attention: anatomy.Attention | None) -> None:
    """Raise unless these are the texts that the network reads, with at least one token each."""
    fed, name, wrong = attention in ("cross", "decoder"), repr(model.name), None
    if attention is None and target is not None:
        wrong = (
            f"target is for encoder-decoder models, and {name} is not one; leave it out, or "
            "give a second segment as pair."
        )
    elif fed and pair is not None:
        wrong = (
            'pair of an encoder-decoder is read with attention="encoder" only; leave it out, and '
            "give the translation as target."
        )
    elif fed and target is None:
        wrong = (
            f"target is missing: the decoder of {name} must be fed a text; give target=… to trace, "
            'or attention="encoder" to read the encoder alone. Functions of one text, such as most '
            "widgets, cannot read this model."
        )
    elif attention is None and getattr(model.tokenizer, "separate_vocabs", False):
        wrong = (
            f"{name} is a decoder alone, but its tokenizer has two vocabularies and would "
            "read text with the other one; load the whole encoder-decoder."
        )
    if wrong:
        raise ValueError(wrong)
    for argument, value in (("text", text), ("pair", pair), ("target", target)):
        if value is not None or argument == "text":
            _check_text(argument, value, model)


def _check_text(name: str, value: str, model: Model) -> None:
    _validate.text(name, value)
    said = f"{name} {_validate.shown(value)}"
    if not value.strip():
        raise ValueError(f"{name} is empty; give at least one word.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(
            f"{said} contains an unpaired surrogate, half of a character; decode the text again."
        )
    if not model.tokenizer(value, add_special_tokens=False, verbose=False)["input_ids"]:
        raise ValueError(
            f"{said} has no token left after the model's tokenizer; give at least one word."
        )


def _check_ids(name: str, data: dict[str, list[int]], base: nn.Module, model: Model) -> None:
    """Raise unless the network has a position, an embedding and a segment for every token."""
    ids = data["decoder_input_ids" if name == "target" else "input_ids"]
    limit, rows = anatomy.max_tokens(model.network), _table(base).num_embeddings
    if limit is not None and len(ids) > limit:
        raise ValueError(
            f"{name} has {len(ids)} tokens with the special ones, and this model reads at most "
            f"{limit}; shorten the text or split it, nothing is cut off silently."
        )
    for number in (number for number in ids if not 0 <= number < rows):
        token = readable(model.tokenizer, [number], of_target=name == "target")[0]
        raise ValueError(
            f"{name} has the token {token!r} with the id {number}, and this model's embedding has "
            f"{rows} rows; take the tokenizer that belongs to the model, or call "
            "model.network.resize_token_embeddings(len(model.tokenizer)) and train the new rows."
        )
    segments = getattr(getattr(base, "embeddings", None), "token_type_embeddings", None)
    count = max(data.get("token_type_ids", [0])) + 1
    if segments is not None and count > segments.num_embeddings:
        raise ValueError(
            f"The tokenizer counts {count} segments, and this model has embeddings for "
            f"{segments.num_embeddings}; leave pair out, or take the model's own tokenizer."
        )


def _table(base: nn.Module) -> nn.Embedding:
    try:
        return base.get_input_embeddings()
    except NotImplementedError:  # raised by the wrapper of a decoder that stands alone
        return base.get_decoder().get_input_embeddings()


def _start(model: Model) -> int:
    """The symbol that a decoder is fed first."""
    rows = _table(model.network.base_model.get_decoder()).num_embeddings
    start = getattr(model.network.config, "decoder_start_token_id", None)
    if start is None or not 0 <= start < rows:
        raise ValueError(
            f"The decoder of {model.name!r} is fed the token {start} first and has embeddings for "
            f"the tokens 0 to {rows - 1}; set model.network.config.decoder_start_token_id."
        )
    return start
