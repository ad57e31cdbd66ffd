"""One forward pass, read from the outside: text in, a `Trace` out. Nothing in the model changes."""

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from helpers import anatomy
from helpers.models import Model, check_model

STAGES = ("Attn-W", "Attn-N", "AttnRes-W", "AttnRes-N", "AttnResLn-N")


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """What the stage algebra needs of one attention block (H heads of width d, hidden size D).

    W_V, b_V, W_O, b_O, γ and β are the model's own tensors, not copies: clone before you change one.
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


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One text in one model: L layers, H heads, T queries, S keys (S = T in self-attention)."""

    tokens: list[str]  # T queries
    keys: list[str]  # S keys
    ids: list[int]  # the tokens' numbers in the vocabulary
    attention: Tensor  # (L, H, T, S), rows sum to 1
    blocks: list[Block]
    stages: tuple[str, ...]  # those of STAGES that this architecture has

    def __repr__(self) -> str:
        layers, heads, T, S = self.attention.shape
        return f"Trace({layers} layers, {heads} heads, {T} queries, {S} keys: {self.tokens[:4]}…)"


def trace(model: Model, text: str, pair: str | None = None) -> Trace:
    """Run the model once on one text and keep what its attention blocks read, weigh and write.

    `text` is used whole: nothing is padded or cut off. `pair` is BERT's second segment. Shapes
    are given at `Trace` and `Block`; all tensors are detached, float32, without a batch axis.

    Raises TypeError for a text that is no string, and ValueError in one sentence for a text that
    is empty or over the model's maximum, for an architecture that is not supported, for a network
    in training mode, and where the model returns no attentions or numbers that are not finite.
    """
    return read(model, encode(model, text, pair))


def read(model: Model, inputs: dict[str, Tensor]) -> Trace:
    """The same as `trace` for a text that is token ids already, a batch of one from `encode`."""
    check_model(model)
    parts = anatomy.blocks(model.network)
    if model.network.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"model.network is in {model.network.dtype}, which is too coarse for exact parts; call "
            "model.network.float() first."
        )
    if model.network.training:
        raise ValueError(
            "model.network is in training mode, where dropout changes every output at random; "
            "call model.network.eval() first."
        )
    taps = {tap for part in parts for tap in (part.x, part.residual, part.output)}
    seen: dict[anatomy.Tap, Tensor] = {}
    with ExitStack() as hooks, torch.no_grad():
        for tap in taps:
            hooks.callback(_listen(tap, seen).remove)
        output = model.network(**inputs, output_attentions=True)
    attention = _attention(output, len(parts))
    if not all(tensor.isfinite().all() for tensor in (attention, *seen.values())):
        raise ValueError("The model's layers give NaN or infinite numbers; check its weights.")
    ids = inputs["input_ids"][0].tolist()
    tokens = model.tokenizer.convert_ids_to_tokens(ids)
    blocks = [_block(part, weights, seen) for part, weights in zip(parts, attention, strict=True)]
    has_norm = all(part.norm is not None for part in parts)
    return Trace(tokens, tokens, ids, attention, blocks, STAGES if has_norm else STAGES[:-1])


def check_run(run: Trace) -> None:
    """Raise TypeError, naming the remedy, unless this is a Trace."""
    if not isinstance(run, Trace):
        raise TypeError(
            f"run must be a Trace, got {type(run).__name__}; make one with trace(model, text)."
        )


def encode(model: Model, text: str, pair: str | None = None) -> dict[str, Tensor]:
    """Token ids as tensors with a batch axis of 1, after every check a text can fail."""
    check_model(model)
    for name, value in (("text", text), ("pair", pair)):
        if value is None and name == "pair":
            continue
        if not isinstance(value, str):
            raise TypeError(f"{name} must be one string, got {type(value).__name__}.")
        if not value.strip():
            raise ValueError(f"{name} is empty; give at least one word.")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{name} {value!r} holds half of a character; decode it again.")
        if not model.tokenizer(value, add_special_tokens=False, verbose=False)["input_ids"]:
            raise ValueError(
                f"{name} {value!r} has no token left after the model's tokenizer; give at least "
                "one word."
            )
    inputs = model.tokenizer(
        text, pair, return_tensors="pt", truncation=False, padding=False, verbose=False
    )
    length = inputs["input_ids"].shape[1]
    limit = anatomy.max_tokens(model.network)
    if limit is not None and length > limit:
        raise ValueError(
            f"{'text' if pair is None else 'text and pair together'} has {length} tokens with the "
            f"special ones, and this model reads at most "
            f"{limit}; shorten the text or split it, nothing is cut off silently."
        )
    return inputs.to(model.network.device)


def _listen(tap: anatomy.Tap, seen: dict[anatomy.Tap, Tensor]):
    """Hook one place of the network; the tensor that passes there is kept in `seen`."""
    module, side = tap

    def keep_input(_module, args, kwargs):
        seen[tap] = (args[0] if args else kwargs["hidden_states"])[0].detach()

    def keep_output(_module, _args, result):
        seen[tap] = (result[0] if isinstance(result, tuple) else result)[0].detach()

    if side == "input":
        return module.register_forward_pre_hook(keep_input, with_kwargs=True)
    return module.register_forward_hook(keep_output)


def _attention(output, layers: int) -> Tensor:
    """The attention weights, (L, H, T, S), or a sentence saying why there are none."""
    weights = getattr(output, "attentions", None) or ()
    if len(weights) != layers or any(layer is None for layer in weights):
        raise ValueError(
            f"The model returned {len(weights)} attention tensors for {layers} layers; load it "
            'with load_model, or with attn_implementation="eager".'
        )
    return torch.cat(list(weights)).detach()


def _block(part: anatomy.Anatomy, attention: Tensor, seen: dict[anatomy.Tap, Tensor]) -> Block:
    norm = part.norm
    return Block(
        attention=attention,
        x=seen[part.x],
        residual=seen[part.residual],
        W_V=part.W_V,
        b_V=part.b_V,
        W_O=part.W_O,
        b_O=part.b_O,
        gamma=None if norm is None else norm.weight.detach(),
        beta=None if norm is None else norm.bias.detach(),
        eps=None if norm is None else norm.eps,
        output=seen[part.output],
    )
