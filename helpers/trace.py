"""One forward pass, read from the outside: text in, a `Trace` out. Nothing in the model changes."""

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from helpers import anatomy
from helpers.arguments import check_exact
from helpers.encode import encode, readable
from helpers.fitness import check_code, check_finite, check_network
from helpers.models import Model, check_model

STAGES = ("Attn-W", "Attn-N", "AttnRes-W", "AttnRes-N", "AttnResLn-N")


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """What the stage algebra needs of one attention block (H heads of width d, hidden size D).

    T queries read S keys. In cross-attention x are the encoder's last states.
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

    tokens: list[str]  # T queries, readable; of a decoder those fed in, the start symbol first
    keys: list[str]  # S keys
    ids: list[int]  # the numbers of `tokens` in the vocabulary
    attention: Tensor  # (L, H, T, S), rows sum to 1
    blocks: list[Block]
    stages: tuple[str, ...]  # those of STAGES that this architecture has

    @property
    def is_cross(self) -> bool:
        """Whether queries and keys are different tokens, so that no stage has the residual."""
        return "AttnRes-W" not in self.stages

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

    `text` is used whole: nothing is padded or cut off. `pair` is BERT's second segment; of an
    encoder-decoder its encoder alone takes it. An encoder-decoder reads `text` in its encoder, while
    its decoder is fed `target`, word for word, whatever it would have said itself (teacher forcing;
    K20, section 5). `attention` chooses among its three: "cross" (the default; queries are target
    tokens, keys are source tokens), "decoder", or "encoder", which needs no target. Shapes are given at `Trace` and `Block`; all tensors are
    detached, without a batch axis, and float32, or float64 where the network is.

    Raises TypeError for a text that is no string, and ValueError in one sentence for a text that
    is empty or over the model's maximum or has a token without an embedding, for an architecture
    that is not supported, for an encoder-decoder without a target, for a network in training mode,
    in part too, or coarser than float32 or with other than eager attention, and for numbers that
    are not finite.
    """
    check_model(model)
    anatomy.check_family(model.network)
    return read(model, encode(model, text, pair, target, attention), attention)


def read(
    model: Model, inputs: dict[str, Tensor], attention: anatomy.Attention | None = None
) -> Trace:
    """The same as `trace` for a text that is token ids already, a batch of one from `encode`."""
    check_model(model)
    attention = anatomy.which(model.network, attention)
    parts = anatomy.blocks(model.network, attention)
    check_network(model)
    check_code(model.network)
    seen: dict[anatomy.Tap, list[Tensor]] = {tap: [] for part in parts for tap in _taps(part)}
    with ExitStack() as hooks, torch.no_grad():
        for tap in seen:
            hooks.callback(_listen(tap, seen).remove)
        # Without the head, since some ask for more than one text, and without a cache for a next one.
        output = model.network.base_model(**inputs, output_attentions=True, use_cache=False)
    weights = _attention(output, attention, len(parts))
    check_finite(model, weights, *chain(*seen.values()))
    source = inputs["input_ids"][0].tolist()
    fed = attention in ("cross", "decoder")
    ids = inputs["decoder_input_ids"][0].tolist() if fed else source
    tokens = readable(model.tokenizer, ids, of_target=fed)
    keys = readable(model.tokenizer, source) if attention == "cross" else list(tokens)
    blocks = [_block(part, alpha, seen) for part, alpha in zip(parts, weights, strict=True)]
    if attention == "cross":
        stages = STAGES[:2]
    else:
        stages = STAGES if all(part.norm is not None for part in parts) else STAGES[:-1]
    return Trace(tokens, keys, ids, weights, blocks, stages)


def check_run(run: Trace) -> None:
    """Raise TypeError, naming the remedy, unless this is a Trace that can be read exactly."""
    check_exact()
    if not isinstance(run, Trace):
        raise TypeError(
            f"run must be a Trace, got {type(run).__name__}; make one with trace(model, text)."
        )


def _taps(part: anatomy.Anatomy) -> set[anatomy.Tap]:
    """The places in the network where this block's tensors pass."""
    taps = {part.x, part.residual, part.output}
    if part.norm is not None:
        taps.add((part.norm, "input"))  # for a look at its size: what comes out hides an overflow
    return taps if part.second_norm is None else taps | {(part.second_norm, "input")}


def _listen(tap: anatomy.Tap, seen: dict[anatomy.Tap, list[Tensor]]):
    """Hook one place of the network; each tensor that passes there is added to `seen`, (T, D)."""
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
    """The attention weights, (L, H, T, S), or a sentence saying why there are none."""
    name = "attentions" if attention is None else f"{attention}_attentions"
    weights = getattr(output, name, None) or ()
    if len(weights) != layers or any(layer is None for layer in weights):
        raise ValueError(
            f"The model returned {len(weights)} attention tensors for {layers} layers; load it "
            'with load_model, or with attn_implementation="eager".'
        )
    return torch.cat(list(weights)).detach()


def _block(
    part: anatomy.Anatomy, attention: Tensor, seen: dict[anatomy.Tap, list[Tensor]]
) -> Block:
    inner = part.inner_norm
    # Layers that share their weights pass the same place again, in the order of the layers.
    here = {tap: seen[tap].pop(0) for tap in _taps(part)}
    gamma, beta, eps = _affine(part.norm, part.b_O)
    second_gamma, _, second_eps = _affine(part.second_norm, part.b_O)
    output = here[part.output]
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
        output=output + here[part.residual] if part.parallel else output,
        before_second_norm=here.get((part.second_norm, "input")),
        second_gamma=second_gamma,
        second_eps=second_eps,
        inner_gamma=None if inner is None else 1 + inner.weight.detach(),
        inner_eps=None if inner is None else inner.eps,
    )


def _affine(
    norm: nn.LayerNorm | None, bias: Tensor
) -> tuple[Tensor | None, Tensor | None, float | None]:
    """γ, β and eps of a LayerNorm; where it has no γ or β, as if they were 1 or 0."""
    if norm is None:
        return None, None, None
    gamma = torch.ones_like(bias) if norm.weight is None else norm.weight.detach()
    beta = torch.zeros_like(bias) if norm.bias is None else norm.bias.detach()
    return gamma, beta, norm.eps
