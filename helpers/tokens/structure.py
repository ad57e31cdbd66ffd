"""What a tokenizer says of its tokens: the word of each, and which are special."""

from bisect import bisect_right
from itertools import accumulate, pairwise

from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase

from helpers import _validate
from helpers.tokens.shown import readable

# What a special token is for, first of these that applies; any other one is "special".
ROLES = {
    "cls_token": "[CLS]",
    "bos_token": "[BOS]",
    "sep_token": "[SEP]",
    "eos_token": "[EOS]",
    "mask_token": "[MASK]",
}
Words = list[int | None]


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The ids of tokens that stand for no text. The unknown token does, so it is not among them."""
    named, added = dict(tokenizer.special_tokens_map), tokenizer.added_tokens_decoder
    unknown = named.pop("unk_token", None)
    special = {number for number, token in added.items() if token.special}
    special |= set(tokenizer.all_special_ids)
    # GPT-2 has one token for every purpose, the unknown one included, which no text needs.
    return special if unknown in named.values() else special - {tokenizer.unk_token_id}


def role_of_each(
    tokenizer: PreTrainedTokenizerBase, ids: list[int], of_target: bool = False
) -> list[str | None]:
    """What each special token is for: a value of ROLES, or "special"; None for tokens of the text.

    `of_target` where a decoder is fed with them: the first is the start, "[BOS]", whatever it is.
    """
    special, roles = special_ids(tokenizer), {}
    for name, role in ROLES.items():
        roles.setdefault(getattr(tokenizer, f"{name}_id", None), role)
    found = [roles.get(number, "special") if number in special else None for number in ids]
    return ["[BOS]", *found[1:]] if of_target else found


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
    split: tuple[list[str] | None, ...],
    of_target: bool = False,
) -> Words | None:
    """The word, counted from 0, that each token belongs to; None where the tokenizer cannot tell.

    Special tokens belong to no word (None), except the mask token, which stands for one. The words
    of a pair continue the count. Most fast tokenizers split a text into words first and remember
    which token came from which. SentencePiece, which may not, writes spaces into its tokens.

    encoding: what a fast tokenizer remembers. split: for each text its words, if it was given so.
    """
    special = special_ids(tokenizer) - {tokenizer.mask_token_id}
    pieces, start = readable(tokenizer, ids, of_target), int(of_target)
    if encoding is None and not any(piece.startswith("▁") for piece in pieces):
        return None
    keys = [(0, 0, number) for number in _starts(pieces)]  # what tells one word from another
    if encoding is not None:
        told = zip(encoding.sequence_ids, encoding.word_ids, strict=True)
        keys = [(side, word, key[2]) for (side, word), key in zip(told, keys[start:], strict=False)]
        keys = [(None, None, 0)] * start + keys
    if encoding is not None and any(split):
        spans = zip(encoding.sequence_ids, encoding.offsets, strict=True)
        for n, (side, span) in zip(range(start, len(ids)), spans, strict=False):
            if side is not None and split[side]:
                keys[n] = (side, _place(split[side], span, pieces[n]), 0)
    numbers: dict = {}  # in order and without a gap
    words = [
        None
        if n < start or key[1] is None or number in special
        else numbers.setdefault(key, len(numbers))
        for n, (key, number) in enumerate(zip(keys, ids, strict=True))
    ]
    for side, given in enumerate(split):
        found = len([key for key in numbers if key[0] == side])
        if given and found != len(given):
            raise ValueError(
                f"The {len(given)} words that were given, {_validate.shown(given)}, are {found} in "
                "the tokens of this model; leave out words of spaces or special tokens alone, or "
                "give the text as one string."
            )
    return words


def _place(words: list[str], span: tuple[int, int], piece: str) -> int:
    """The word that a token belongs to, by its place among the words joined by spaces."""
    ends = list(accumulate(len(word) + 1 for word in words))  # a space belongs to the word after it
    first, last = (bisect_right(ends, place + 1) for place in (span[0], max(span[1] - 1, span[0])))
    if first != last:
        raise ValueError(
            f"The token {piece!r} covers several of the words that were given; give the text as "
            "one string."
        )
    return last


def _starts(pieces: list[str]) -> list[int]:
    """One number per piece, a new one wherever a word starts: at a space ("▁"), or a line break.

    A line break is a word of its own, and a piece of nothing but spaces belongs to the next one.
    """
    words, word = [], 0
    for last, piece in pairwise(["", *pieces]):
        before, now = (one == "<0x0A>" or set(one) == {"\n"} for one in (last, piece))
        word += before != now or (piece.startswith(("▁", "\n")) and last.strip("▁") != "")
        words.append(word)
    return words
