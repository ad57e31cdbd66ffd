"""How token ids are shown to people."""

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

_SIGNS = bytes_to_unicode()  # how a byte-level vocabulary writes each byte
_BYTES = {sign: byte for byte, sign in _SIGNS.items()}


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
    if not is_byte_level(tokenizer):
        return tokens
    added = tokenizer.added_tokens_decoder  # these are not bytes
    return [
        token if number in added else _characters(token)
        for number, token in zip(ids, tokens, strict=True)
    ]


def is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
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
