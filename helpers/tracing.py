"""One forward pass, read from the outside: text in, a `Trace` out. Nothing in the model changes.

This is the only place where a network and a text are checked. Whoever gets a Trace can trust it.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn
from transformers import BatchEncoding

from helpers import _validate, anatomy
from helpers.models import Model
from helpers.tokens import encode, read_back


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """What the stage algebra needs of one attention block (H heads of width d, hidden size D).

    T queries read S keys. In cross-attention x are the encoder's last states.
    W_V, b_V, W_O, b_O, γ and β are the model's own tensors, not copies: clone one to change it.
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


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One text in one model: L layers, H heads, T queries, S keys (S = T in self-attention)."""

    tokens: list[str]  # T queries, readable; in a decoder, the tokens fed in, start symbol first
    keys: list[str]  # S keys
    ids: list[int]  # the numbers of `tokens` in the vocabulary
    # T and S entries: the word, from 0, that each token belongs to; None for special tokens. The
    # lists themselves are None where the tokenizer does not say.
    words: list[int | None] | None
    key_words: list[int | None] | None
    attention: Tensor  # (L, H, T, S), rows sum to 1
    blocks: list[Block]
    is_cross: bool = False  # whether queries and keys are different tokens

    @property
    def stages(self) -> tuple[str, ...]:
        """Those of STAGES that this architecture has."""
        from helpers.block import stages_of  # the stages are made of Blocks, so they come later

        return stages_of(self)

    def __repr__(self) -> str:
        layers, heads, T, S = self.attention.shape
        return f"Trace({layers} layers, {heads} heads, {T} queries, {S} keys: {self.tokens[:4]}…)"


def trace(
    model: Model,
    text: str,
    pair: str | None = None,
    *,
    target: str | None = None,
    attention: anatomy.Attention | None = None,
) -> Trace:
    """Run the model once on one text and keep what its attention blocks read, weigh and write.

    Shapes are given at `Trace` and `Block`; all tensors are detached, without a batch axis, on the
    network's device, and float32, or float64 where the network is.

    model: what `load_model` returned, or Model(network, tokenizer).
    text: used whole; nothing is padded or cut off.
    pair: a second segment (BERT); in an encoder-decoder, only the encoder accepts it.
    target: what the decoder of an encoder-decoder is fed, word for word, whatever it would have
        said itself (teacher forcing; K20, section 5), while `text` is read by its encoder.
    attention: which one of an encoder-decoder: "cross" (the default; queries are target tokens,
        keys are source tokens), "decoder", or "encoder", which needs no target.

    Raises TypeError for a text that is not a string. Raises ValueError for a text that is empty,
    too long or has a token without an embedding; for an architecture that is not supported; for an
    encoder-decoder without a target; for a network that is even partly in training mode, coarser
    than float32, or with an attention other than eager; and for numbers that are not finite.

    Example: trace(load_model(), "The keys are here.").attention has the shape (6, 12, 7, 7).
    """
    _validate.model(model)
    anatomy.require_family(model.network)
    return read(model, encode(model, text, pair, target, attention), attention)


def read(model: Model, inputs: BatchEncoding, attention: anatomy.Attention | None = None) -> Trace:
    """What `trace` returns, from what `encode` returned; the network is checked first."""
    attention = anatomy.which(model.network, attention)
    parts = anatomy.blocks(model.network, attention)
    _validate.network(model)
    _validate.eager(model)
    seen: dict[anatomy.Tap, list[Tensor]] = {tap: [] for part in parts for tap in _taps(part)}
    with ExitStack() as hooks, torch.no_grad():
        for tap in seen:
            hooks.callback(_listen(tap, seen).remove)
        # Without the head, because some need several texts, and with no cache for later calls.
        output = model.network.base_model(**inputs, output_attentions=True, use_cache=False)
    weights = _attention(output, attention, len(parts))
    _validate.states(model, weights, *chain(*seen.values()))
    blocks = [_block(part, alpha, seen) for part, alpha in zip(parts, weights, strict=True)]
    fed = attention in ("cross", "decoder")
    ids, tokens, words = read_back(model.tokenizer, inputs, of_target=fed)
    _, keys, key_words = read_back(model.tokenizer, inputs, of_target=attention == "decoder")
    return Trace(tokens, keys, ids, words, key_words, weights, blocks, attention == "cross")


def _taps(part: anatomy.Anatomy) -> set[anatomy.Tap]:
    """The places in the network where this block's tensors pass."""
    norms = [(norm, "input") for norm in (part.norm, part.second_norm) if norm is not None]
    return {part.x, part.residual, part.output, *norms}


def _listen(tap: anatomy.Tap, seen: dict[anatomy.Tap, list[Tensor]]):
    """Hook one place of the network; each tensor that passes there is added to `seen`: (T, D)."""
    module, side = tap

    def keep(tensor: Tensor) -> None:
        seen[tap].append(tensor.detach().flatten(0, -2))  # a batch of one, or no batch axis

    def keep_input(_module, args, kwargs):
        keep(args[0] if args else kwargs["hidden_states"])

    def keep_output(_module, _args, result):
        keep(result[0] if isinstance(result, tuple) else result)

    if side == "input":
        return module.register_forward_pre_hook(keep_input, with_kwargs=True)
    return module.register_forward_hook(keep_output)


def _attention(output, attention: anatomy.Attention | None, layers: int) -> Tensor:
    """The attention weights, (L, H, T, S); ValueError where the network does not return them."""
    kind = "" if attention is None else f"{attention}_"
    weights = getattr(output, f"{kind}attentions", None) or ()
    if len(weights) != layers or any(layer is None for layer in weights):
        raise ValueError(
            f"The model returned {len(weights)} attention tensors for {layers} layers; load it "
            'with load_model, or with attn_implementation="eager".'
        )
    return torch.cat(list(weights)).detach()


def _block(
    part: anatomy.Anatomy, attention: Tensor, seen: dict[anatomy.Tap, list[Tensor]]
) -> Block:
    # Layers that share their weights pass the same place again, in the order of the layers.
    here = {tap: seen[tap].pop(0) for tap in _taps(part)}
    gamma, beta, eps = _affine(part.norm, part.b_O)
    second_gamma, _, second_eps = _affine(part.second_norm, part.b_O)
    output, inner = here[part.output], part.inner_norm
    output = output + here[part.residual] if part.parallel else output
    return Block(
        attention=attention,
        x=here[part.x],
        residual=here[part.residual],
        W_V=part.W_V,
        b_V=part.b_V,
        W_O=part.W_O,
        b_O=part.b_O,
        gamma=gamma,
        beta=beta,
        eps=eps,
        output=output,
        before_second_norm=here.get((part.second_norm, "input")),
        second_gamma=second_gamma,
        second_eps=second_eps,
        inner_gamma=None if inner is None else 1 + inner.weight.detach(),
        inner_eps=None if inner is None else inner.eps,
    )


def _affine(
    norm: nn.LayerNorm | None, bias: Tensor
) -> tuple[Tensor | None, Tensor | None, float | None]:
    """γ, β and eps of a LayerNorm; where it has no γ or no β, 1 or 0 stands in."""
    if norm is None:
        return None, None, None
    gamma = torch.ones_like(bias) if norm.weight is None else norm.weight.detach()
    beta = torch.zeros_like(bias) if norm.bias is None else norm.bias.detach()
    return gamma, beta, norm.eps
