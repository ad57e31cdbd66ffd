"""What a tokenizer says of its tokens: the word of each, and which are special."""

from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase

from helpers import _validate
from helpers.tokens.shown import is_byte_level

# What a special token is for, first of these that applies; any other one is "special".
ROLES = {
    "cls_token": "[CLS]",
    "bos_token": "[BOS]",
    "sep_token": "[SEP]",
    "eos_token": "[EOS]",
    "mask_token": "[MASK]",
}
Text = str | list[str]
Words = list[int | None]


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The ids of tokens that stand for no text. The unknown token does, so it is not among them."""
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    special |= set(tokenizer.all_special_ids)
    # A vocabulary of bytes knows every text: there it marks the beginning and the end, as in GPT-2.
    return special if is_byte_level(tokenizer) else special - {tokenizer.unk_token_id}


def role_of_each(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], start: int | None = None
) -> list[str | None]:
    """What each special token is for: a value of ROLES, or "special"; None for tokens of the text.

    start: the symbol that a decoder is fed first, which is "[BOS]" there, whatever else it is.
    """
    special, roles = special_ids(tokenizer), {}
    for name, role in ROLES.items():
        roles.setdefault(getattr(tokenizer, f"{name}_id", None), role)
    found = [roles.get(number, "special") if number in special else None for number in ids]
    if tokenizer.bos_token_id == tokenizer.eos_token_id:  # one token for both, told by its place
        found[1:] = ["[EOS]" if role == "[BOS]" else role for role in found[1:]]
    return ["[BOS]", *found[1:]] if start is not None and ids[0] == start else found


def segment_of_each(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], encoding: Encoding | None, first: int
) -> list[int | None]:
    """0 for tokens of the first text and 1 for those of its pair; None for tokens around them.

    encoding: what a fast tokenizer remembers; `first`, how many tokens the first text has, serves
    for all others.
    """
    if encoding is not None:
        return list(encoding.sequence_ids)
    special, segments, seen = special_ids(tokenizer) - {tokenizer.mask_token_id}, [], 0
    for number in ids:
        inside = number not in special
        segments.append(int(seen >= first) if inside else None)
        seen += inside
    return segments


def word_of_each(
    tokenizer: PreTrainedTokenizerBase,
    ids: list[int],
    encoding: Encoding | None,
    texts: tuple[Text, ...],
    argument: str = "text",
) -> Words | None:
    """The word, counted from 0, that each token belongs to; None where the tokenizer cannot tell.

    Special tokens belong to no word (None), except the mask token, which stands for one, and so do
    tokens of nothing but white space. The words of a pair continue the count. A word ends at white
    space, and where a fast tokenizer splits a text before all else; but a text that was given as
    words has these. A token that stands for parts of two words leaves nothing to tell.

    encoding: what a fast tokenizer remembers; a slow one is asked for each word alone. texts: each
    a string, or a list of words. argument: "text", or "text_target" for what a decoder is fed.
    Raises ValueError for a list whose words are not those of the tokens.
    """
    special = special_ids(tokenizer) - {tokenizer.mask_token_id}
    keys = (
        _asked(tokenizer, ids, texts, argument)
        if encoding is None
        else _told(encoding, texts, special)
    )
    keys = keys and [None if n in special else key for n, key in zip(ids, keys, strict=False)]
    for side, words in enumerate(texts):
        there = {key[1] for key in keys or [] if key and key[0] == side}
        if isinstance(words, list) and len(there) != len(words):
            raise ValueError(
                f"The {len(words)} words that were given, {_validate.shown(words)}, are not those "
                "of the tokens: a word has no token of its own, or shares one with another; give "
                "the text as one string."
            )
    numbers: dict = {}  # in order and without a gap
    return keys and [None if key is None else numbers.setdefault(key, len(numbers)) for key in keys]


def joined(text: Text) -> str:
    """A text as one string."""
    return " ".join(text) if isinstance(text, list) else text


def _told(
    encoding: Encoding, texts: tuple[Text, ...], special: set[int]
) -> list[tuple | None] | None:
    """What tells one word from another, by the places of the tokens in their text."""
    keys, last = [], None
    told = zip(
        encoding.ids, encoding.sequence_ids, encoding.offsets, encoding.word_ids, strict=True
    )
    for number, side, (start, end), word in reversed(list(told)):
        key = None
        if side is not None and number not in special:
            text, word = joined(texts[side]), None if isinstance(texts[side], list) else word
            before, piece = text[:start], text[start:end]
            if len(piece.split()) > 1:
                return None
            # How many words of the text have begun, this one included.
            key = (side, len((before + piece).split()), word)
            if not piece.strip():
                # A lone mark for a space belongs to what follows at once, if the tokenizer says so.
                follows = last is not None and last[:2] == (side, end) and last[2][2] == word
                key = last[2] if follows and set(piece) <= {" "} else None
        keys.append(key)
        last = key and (side, start, key)
    return keys[::-1]


def _asked(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], texts: tuple[Text, ...], argument: str
) -> list[tuple | None] | None:
    """The same of a tokenizer that remembers nothing, if a text is no more than its words."""
    keys, place = [None] * len(ids), 0
    for side, text in enumerate(texts):
        words = joined(text).split()
        options = {"add_special_tokens": False, "verbose": False}
        pieces = [tokenizer(**{argument: word}, **options)["input_ids"] for word in words]
        found = [n for n, piece in enumerate(pieces, start=1) for _ in piece]
        whole = [number for piece in pieces for number in piece]
        while place <= len(ids) and ids[place : place + len(whole)] != whole:
            place += 1
        if place > len(ids):
            return None
        keys[place : place + len(whole)] = [(side, n, None) for n in found]
        place += len(whole)
    return keys
