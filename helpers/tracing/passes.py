"""One forward pass, read from the outside. Nothing in the model changes."""

from contextlib import ExitStack
from itertools import count
from threading import RLock

import torch
from torch import Tensor, nn
from transformers import BatchEncoding

from helpers import _validate, anatomy
from helpers.models import Model
from helpers.tokens import Text, encode, read_back
from helpers.tracing.record import Block, Trace
from helpers.tracing.taps import listen, of_each, taps

_ALONE = RLock()


def trace(
    model: Model,
    text: Text,
    pair: Text | None = None,
    *,
    target: Text | None = None,
    attention: anatomy.Attention | None = None,
) -> Trace:
    """Run the model once on one text and keep what its attention blocks read, weigh and write.

    Shapes are given at `Trace` and `Block`; all tensors are detached, without a batch axis, on the
    network's device, and float32, or float64 where the network is.

    model: what `load_model` returned, or Model(network, tokenizer).
    text: one string; or a list of its words, which are joined by spaces and keep their numbers in
        `run.words`; or a list of token ids, taken as they stand. Used whole; nothing is padded or
        cut off.
    pair: a second segment (BERT); in an encoder-decoder, only the encoder accepts it.
    target: what the decoder of an encoder-decoder is fed, word for word, whatever it would have
        said itself (teacher forcing; K20, section 5), while `text` is read by its encoder.
    attention: which one of an encoder-decoder: "cross" (the default; queries are target tokens,
        keys are source tokens), "decoder", or "encoder", which needs no target.

    Raises TypeError for a text that is none of these. Raises ValueError for a text that is empty,
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
    # Threads that trace one network at a time would hear each other's passes.
    with _ALONE, ExitStack() as hooks, torch.inference_mode(False), torch.no_grad():
        seen, clock = {tap: [] for part in parts for tap in taps(part)}, count()
        for tap in seen:
            hooks.callback(listen(tap, seen, clock).remove)
        # Without the head, because some need several texts, and with no cache for later calls.
        output = model.network.base_model(**inputs, output_attentions=True, use_cache=False)
        weights = _attention(output, attention, len(parts), inputs)
        _validate.states(
            model, weights, *(tensor for event in seen.values() for _, tensor in event)
        )
        # Read after the pass, in which pruned weights are made anew.
        parts = anatomy.blocks(model.network, attention)
        blocks, faults = [], []
        for n, (part, alpha, here) in enumerate(
            zip(parts, weights, of_each(parts, seen), strict=True)
        ):
            blocks.append(_block(part, alpha, here))
            faults.append(_validate.fault(n, part, blocks[-1], here))
    fed = attention in ("cross", "decoder")
    ids, tokens, words, roles = read_back(model, inputs, of_target=fed)
    _, keys, key_words, key_roles = read_back(model, inputs, of_target=attention == "decoder")
    segments = getattr(inputs, "segments", None)
    if attention == "decoder":  # which reads no pair
        segments = [0 if role is None else None for role in roles]
    return Trace(
        tokens,
        keys,
        ids,
        roles,
        key_roles,
        segments,
        (words, key_words),
        weights,
        blocks,
        is_cross=attention == "cross",
        fault=next(filter(None, [anatomy.setting(model.network), *faults]), ""),
    )


def probe(model: Model, attention: anatomy.Attention | None = None) -> Trace:
    """A run of a few tokens, whichever they are, for what is asked of the weights alone."""
    _validate.model(model)
    anatomy.require_family(model.network)
    rows, limit = (
        model.network.get_input_embeddings().weight.shape[0],
        anatomy.max_tokens(model.network),
    )
    ids = torch.arange(min(32, rows, limit or rows), device=model.network.device)[None]
    sides = {"input_ids": ids}
    if anatomy.which(model.network, attention) is not None:
        sides["decoder_input_ids"] = ids
    return read(model, BatchEncoding(sides), attention)


def _attention(
    output, attention: anatomy.Attention | None, layers: int, inputs: BatchEncoding
) -> Tensor:
    """The attention weights, (L, H, T, S); ValueError where the network does not return them."""
    kind = "" if attention is None else f"{attention}_"
    weights = getattr(output, f"{kind}attentions", None) or ()
    if len(weights) != layers or any(layer is None for layer in weights):
        raise ValueError(
            f"The model returned {len(weights)} attention tensors for {layers} layers; load it "
            'with load_model, or with attn_implementation="eager".'
        )
    keys = inputs["decoder_input_ids" if attention == "decoder" else "input_ids"].shape[-1]
    shapes = {tuple(layer.shape[1:]) for layer in weights}
    if len(shapes) > 1 or weights[0].shape[-1] != keys:
        raise ValueError(
            f"The model's layers attend in the shapes {sorted(shapes)} (heads, queries, keys) to "
            f"{keys} tokens; take out pruned heads, prefixes or a cache, which have no token."
        )
    return torch.cat(list(weights)).detach()


def _block(part: anatomy.Anatomy, attention: Tensor, here: dict[str, Tensor | None]) -> Block:
    gamma, beta, eps = _affine(part.norm, part.b_O)
    second_gamma, _, second_eps = _affine(part.second_norm, part.b_O)
    inner_gamma, _, inner_eps = _affine(part.inner_norm, part.b_O)
    _, T, S = attention.shape
    nothing = attention.new_full((T, len(part.b_O)), torch.nan)  # where nothing passed
    residual, output = (nothing if here[n] is None else here[n] for n in ("residual", "output"))
    x = attention.new_full((S, part.W_V.shape[1]), torch.nan) if here["x"] is None else here["x"]
    return Block(
        attention=attention,
        x=x,
        residual=residual,
        W_V=part.W_V.clone(),
        b_V=part.b_V.clone(),
        W_O=part.W_O.clone(),
        b_O=part.b_O.clone(),
        gamma=gamma,
        beta=beta,
        eps=eps,
        output=output + residual if part.parallel else output,
        before_second_norm=here.get("before second norm"),
        second_gamma=second_gamma,
        second_eps=second_eps,
        inner_gamma=None if inner_gamma is None else inner_gamma + part.inner_plus,
        inner_eps=inner_eps,
    )


def _affine(
    norm: nn.Module | None, like: Tensor
) -> tuple[Tensor | None, Tensor | None, float | None]:
    """Copies of γ and β, and eps, of a norm; 1, 0 and 0 stand in for what it does not have."""
    if norm is None:
        return None, None, None
    # A wrapper keeps them in a module inside.
    norm = next((part for part in norm.modules() if hasattr(part, "weight")), norm)
    gamma, beta = (getattr(norm, name, None) for name in ("weight", "bias"))
    gamma = torch.ones_like(like) if gamma is None else gamma.detach().clone()
    beta = torch.zeros_like(like) if beta is None else beta.detach().clone()
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    return gamma, beta, eps or 0.0
