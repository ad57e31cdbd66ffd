"""From a text, a list of words or a list of token ids to what a network reads."""

import torch
from torch import nn
from transformers import BatchEncoding

from helpers import _validate, anatomy
from helpers.models import Model
from helpers.tokens.shown import readable
from helpers.tokens.structure import Words, joined, role_of_each, segment_of_each, word_of_each

Text = str | list[str] | list[int]


def encode(
    model: Model,
    text: Text,
    pair: Text | None = None,
    target: Text | None = None,
    attention: anatomy.Attention | None = None,
) -> BatchEncoding:
    """Token ids as tensors with a batch axis of 1; the texts are checked first.

    For an encoder-decoder, "decoder_input_ids" are the start symbol and the target's tokens; the
    end symbol is not fed in, because it has no output left to predict. `words`, `target_words` and
    `segments` of the result say which word and which text each token belongs to.

    Parameters: those of `trace`. Raises TypeError and ValueError as `trace` does for a text.

    Example: encode(model, "The keys are here.")["input_ids"] has the shape (1, T).
    """
    _validate.model(model)
    attention = anatomy.which(model.network, attention)
    _check_texts(model, text, pair, target, attention)
    base, device = model.network.base_model, model.network.device
    data, words, segments = _of_source(model, text, pair)
    _check_ids("text" if pair is None else "text and pair together", data, base, model)
    target_words = None
    if attention is not None:
        data["decoder_input_ids"], target_words = _of_target(model, target)
        _check_ids("target", data, base.get_decoder(), model)
    with torch.inference_mode(False):
        tensors = {name: torch.tensor([values], device=device) for name, values in data.items()}
    inputs = BatchEncoding(tensors)
    inputs.words, inputs.target_words, inputs.segments = words, target_words, segments
    return inputs


def read_back(
    model: Model, inputs: BatchEncoding, of_target: bool = False
) -> tuple[list[int], list[str], Words | None, list[str | None]]:
    """Ids, readable tokens, words and roles; `of_target` for what a decoder is fed."""
    ids = inputs["decoder_input_ids" if of_target else "input_ids"][0].tolist()
    tokens = readable(model.tokenizer, ids, of_target)
    words = getattr(inputs, "target_words" if of_target else "words", None)
    start = getattr(model.network.config, "decoder_start_token_id", None) if of_target else None
    return ids, tokens, words, role_of_each(model.tokenizer, ids, start)


def is_ids(value) -> bool:
    """Whether a text is given as token ids."""
    return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)


def _of_source(
    model: Model, text: Text, pair: Text | None
) -> tuple[dict[str, list[int]], Words | None, list[int | None]]:
    """What the network reads of text and pair, and the word and the segment of each token."""
    tokenizer = model.tokenizer
    if is_ids(text):
        data = {"input_ids": text, "attention_mask": [1] * len(text)}
        return data, _words_of_ids(model, text), segment_of_each(tokenizer, text, None, len(text))
    texts = (text,) if pair is None else (text, pair)
    options = {"truncation": False, "padding": False, "verbose": False}
    read = tokenizer(*map(joined, texts), **options)
    ids, encoding = read["input_ids"], read.encodings[0] if read.is_fast else None
    first = 0
    if encoding is None:
        first = len(tokenizer(joined(text), add_special_tokens=False, verbose=False)["input_ids"])
    segments = segment_of_each(tokenizer, ids, encoding, first)
    return dict(read), word_of_each(tokenizer, ids, encoding, texts), segments


def _of_target(model: Model, target: Text | None) -> tuple[list[int], Words | None]:
    """What a decoder is fed, and the word of each token."""
    tokenizer, start = model.tokenizer, _start(model)
    if target is None:
        return [start], [None]
    if is_ids(target):
        begins = int(target[0] == start)
        words = _words_of_ids(model, target[begins:], "text_target")
        return target, words and [None] * begins + words
    read = tokenizer(text_target=joined(target), truncation=False, verbose=False)
    ids = read["input_ids"]
    ids = ids[:-1] if ids[-1] == tokenizer.eos_token_id else ids
    encoding = read.encodings[0] if read.is_fast else None
    words = word_of_each(tokenizer, ids, encoding, (target,), "text_target")
    return [start, *ids], words and [None, *words]


def _words_of_ids(model: Model, ids: list[int], argument: str = "text") -> Words | None:
    """The word of each id, if the tokenizer reads its own text of them as the same ids again."""
    tokenizer = model.tokenizer
    if not all(0 <= number < len(tokenizer) for number in ids):
        return None
    text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    read = tokenizer(**{argument: text}, add_special_tokens=False, truncation=False, verbose=False)
    if read["input_ids"] != ids:
        return None
    encoding = read.encodings[0] if read.is_fast else None
    return word_of_each(tokenizer, ids, encoding, (text,), argument)


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
    if pair is not None and (is_ids(text) or is_ids(pair)):
        raise ValueError(
            "pair cannot be read with token ids; give all ids, those of the pair included, as text."
        )


def _check_text(name: str, value: Text, model: Model) -> None:
    if is_ids(value):
        return  # whether the network has them is asked of any ids
    _validate.text_or_words(name, value)
    said, whole = f"{name} {_validate.shown(value)}", joined(value)
    if not whole.strip():
        raise ValueError(f"{name} is empty; give at least one word.")
    if any("\ud800" <= character <= "\udfff" for character in whole):
        raise ValueError(
            f"{said} contains an unpaired surrogate, half of a character; decode the text again."
        )
    if not model.tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"]:
        raise ValueError(
            f"{said} has no token left after the model's tokenizer; give at least one word."
        )


def _check_ids(name: str, data: dict[str, list[int]], base: nn.Module, model: Model) -> None:
    """Raise unless the network has a position, an embedding and a segment for every token."""
    ids = data["decoder_input_ids" if name == "target" else "input_ids"]
    limit, rows = anatomy.max_tokens(model.network), len(_table(base).weight)
    if limit is not None and len(ids) > limit:
        raise ValueError(
            f"{name} has {len(ids)} tokens with the special ones, and this model reads at most "
            f"{limit}; shorten the text or split it, nothing is cut off silently."
        )
    for number in (number for number in ids if not 0 <= number < rows):
        token = "a token"
        if 0 <= number < len(model.tokenizer):
            token = f"the token {readable(model.tokenizer, [number], name == 'target')[0]!r}"
        raise ValueError(
            f"{name} has {token} with the id {number}, and this model's embedding has "
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
    rows = len(_table(model.network.base_model.get_decoder()).weight)
    start = getattr(model.network.config, "decoder_start_token_id", None)
    if start is None or not 0 <= start < rows:
        raise ValueError(
            f"The decoder of {model.name!r} is fed the token {start} first and has embeddings for "
            f"the tokens 0 to {rows - 1}; set model.network.config.decoder_start_token_id."
        )
    return start
