"""What is kept of one forward pass: a `Trace`, and in it a `Block` for each layer."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from helpers import _validate
from helpers.tokens import Words


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """What the stage algebra needs of one attention block (H heads of width d, hidden size D).

    T queries read S keys. In cross-attention x are the encoder's last states. All tensors are
    copies, as `Trace` says.
    """

    attention: Tensor  # (H, T, S) attention weights, rows sum to 1
    x: Tensor  # (S, D) what f reads; under pre-LN already normalised
    residual: Tensor  # (T, D) what the residual connection adds
    W_V: Tensor  # (H, D, d)
    b_V: Tensor  # (H, d)
    W_O: Tensor  # (H, d, D)
    b_O: Tensor  # (D,)
    gamma: Tensor | None  # (D,) the LayerNorm after the residual; None under pre-LN
    beta: Tensor | None  # (D,)
    eps: float | None
    output: Tensor  # (T, D) the model's own tensor: the end of this block
    # None unless the feed-forward network follows, with a LayerNorm after its residual:
    before_second_norm: Tensor | None = None  # (T, D) what that LayerNorm reads
    second_gamma: Tensor | None = None  # (D,)
    second_eps: float | None = None
    # None unless an RMSNorm stands between W_O and the residual (Gemma 2 and 3):
    inner_gamma: Tensor | None = None  # (D,)
    inner_eps: float | None = None
    # What the terms of an equation share, in the copy on which one call of a measure works.
    parts: dict | None = field(default=None, init=False)

    def sharing(self) -> "Block":
        """A copy for one call of a measure, which keeps what the terms of its equation share."""
        copy = replace(self)
        object.__setattr__(copy, "parts", {})
        return copy


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One text in one model: L layers, H heads, T queries, S keys (S = T in self-attention).

    A snapshot: later changes to the network do not reach it. A change to `attention` or to a tensor
    of a block reaches every measure, whatever was asked before.
    """

    tokens: list[str]  # T queries, readable; in a decoder, the tokens fed in, start symbol first
    keys: list[str]  # S keys
    ids: list[int]  # the numbers of `tokens` in the vocabulary
    # T and S entries: what a special token is for, such as "[CLS]"; None for tokens of the text.
    roles: list[str | None]
    key_roles: list[str | None]
    segments: list[int | None]  # of the keys: 0 for text, 1 for pair, None for tokens around them
    word_lists: tuple[Words | None, Words | None]  # `words` and `key_words`, None if not known
    attention: Tensor  # (L, H, T, S), rows sum to 1
    blocks: list[Block]
    is_cross: bool = False  # whether queries and keys are different tokens
    # Why measures of vectors cannot be read: a layer computes something else than its weights say.
    fault: str = ""
    whole: Tensor | None = None  # the attention that the blocks were made with; see below

    def __post_init__(self) -> None:
        """Give `attention` and the blocks one memory; the one that was exchanged counts.

        Raises ValueError where both were, and differ.
        """
        attention, own = self.attention, [block.attention for block in self.blocks]
        if not _validate.one(own, attention):
            if self.whole is None or not _validate.one(own, self.whole):
                shapes = {tuple(part.shape) for part in own}
                attention = torch.stack(own) if len(shapes) == 1 else attention[:0]
            exchanged = self.whole is None or not _validate.one(list(self.attention), self.whole)
            both = exchanged and not torch.equal(attention, self.attention)
            heads = {len(block.W_V) for block in self.blocks} == {attention.shape[1]}
            if both or not heads or attention.shape != (len(own), *own[0].shape):
                raise ValueError(_validate.DIFFER)
            blocks = zip(self.blocks, attention, strict=True)
            object.__setattr__(self, "blocks", [replace(b, attention=a) for b, a in blocks])
        object.__setattr__(self, "attention", attention)
        object.__setattr__(self, "whole", attention)

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state, whole=None)
        self.__post_init__()

    @property
    def words(self) -> Words:
        """The word, from 0, that each query belongs to; None for special tokens but the mask.

        Raises ValueError where the tokenizer does not say which tokens make a word.
        """
        return _validate.known_words("words", self.word_lists[0])

    @property
    def key_words(self) -> Words:
        """The word, from 0, that each key belongs to, as in `words`."""
        return _validate.known_words("key_words", self.word_lists[1])

    @property
    def stages(self) -> tuple[str, ...]:
        """Those of STAGES that this architecture has."""
        from helpers.block import stages_of  # the stages are made of Blocks, so they come later

        return stages_of(self)

    def __repr__(self) -> str:
        layers, heads, T, S = self.attention.shape
        return f"Trace({layers} layers, {heads} heads, {T} queries, {S} keys: {self.tokens[:4]}…)"
