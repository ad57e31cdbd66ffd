"""Text to token ids and back: readable tokens, the word of each token, which tokens are special.

Everything here is asked of the tokenizer and never guessed from how a token looks.
"""

from helpers.tokens.shown import readable
from helpers.tokens.structure import Words, role_of_each, segment_of_each, special_ids, word_of_each
from helpers.tokens.texts import Text, encode, read_back

__all__ = [
    "Text",
    "Words",
    "encode",
    "read_back",
    "readable",
    "role_of_each",
    "segment_of_each",
    "special_ids",
    "word_of_each",
]
