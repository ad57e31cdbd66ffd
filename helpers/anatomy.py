"""The only file that knows where an architecture keeps its weights and how a block is wired.

One short function a family. Each returns an `Anatomy`: the weights of one attention block in the
papers' shapes, and the modules at which its tensors pass in a forward pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import transformers
from torch import Tensor, nn

Tap = tuple[nn.Module, Literal["input", "output"]]  # where in the forward pass a tensor is read


@dataclass(frozen=True)
class Anatomy:
    """One attention block. H heads of width d, hidden size D."""

    W_V: Tensor  # (H, D, d)
    b_V: Tensor  # (H, d)
    W_O: Tensor  # (H, d, D)
    b_O: Tensor  # (D,)
    x: Tap  # what f reads, (S, D): the block's input, after LayerNorm where that comes first
    residual: Tap  # what the residual connection adds, (T, D)
    norm: nn.LayerNorm | None  # the LayerNorm after the residual connection; None if there is none
    output: Tap  # the block's own output, (T, D): after `norm`, or after the residual connection


def blocks(network: transformers.PreTrainedModel) -> list[Anatomy]:
    """The attention blocks of a network, first layer first; a task head is looked through.

    Raises ValueError for a family that is not supported, with the list of those that are.
    """
    family = network.config.model_type
    if family not in FAMILIES:
        raise ValueError(
            f"The architecture {family!r} is not supported; supported are: "
            f"{', '.join(sorted(FAMILIES))}."
        )
    return FAMILIES[family](network.base_model)


def max_tokens(network: transformers.PreTrainedModel) -> int | None:
    """The longest input the position embeddings allow, in tokens; None if there is no limit."""
    positions = getattr(network.base_model, "embeddings", network.base_model)
    table = getattr(positions, "position_embeddings", getattr(positions, "wpe", None))
    if table is None:
        return getattr(network.config, "max_position_embeddings", None)
    # RoBERTa counts positions from padding_idx + 1, so that its table has rows no token uses.
    unused = 0 if table.padding_idx is None else table.padding_idx + 1
    return table.num_embeddings - unused


def _bert(base: nn.Module) -> list[Anatomy]:
    """BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA: post-LN, separate projections."""
    return [
        _anatomy(
            value=(layer.attention.self.value.weight.T, layer.attention.self.value.bias),
            output=(layer.attention.output.dense.weight.T, layer.attention.output.dense.bias),
            heads=layer.attention.self.num_attention_heads,
            x=(layer, "input"),
            residual=(layer, "input"),
            norm=layer.attention.output.LayerNorm,
            end=(layer.attention.output, "output"),
        )
        for layer in base.encoder.layer
    ]


def _gpt2(base: nn.Module) -> list[Anatomy]:
    """GPT-2: pre-LN; query, key and value in one matrix, stored (in, out)."""
    return [
        _anatomy(
            value=(layer.attn.c_attn.weight.chunk(3, 1)[2], layer.attn.c_attn.bias.chunk(3)[2]),
            output=(layer.attn.c_proj.weight, layer.attn.c_proj.bias),
            heads=layer.attn.num_heads,
            x=(layer.attn, "input"),
            residual=(layer, "input"),
            norm=None,
            end=(layer.ln_2, "input"),
        )
        for layer in base.h
    ]


FAMILIES: dict[str, Callable[[nn.Module], list[Anatomy]]] = {
    "bert": _bert,
    "camembert": _bert,
    "electra": _bert,
    "gpt2": _gpt2,
    "roberta": _bert,
    "xlm-roberta": _bert,
}


def _anatomy(value, output, heads: int, x: Tap, residual: Tap, norm, end: Tap) -> Anatomy:
    """Split a value and an output projection, each (in, out) with a bias, into heads."""
    (W_V, b_V), (W_O, b_O) = value, output
    d = W_V.shape[1] // heads
    return Anatomy(
        W_V=W_V.unflatten(1, (heads, d)).transpose(0, 1).detach(),
        b_V=b_V.unflatten(0, (heads, d)).detach(),
        W_O=W_O.unflatten(0, (heads, d)).detach(),
        b_O=b_O.detach(),
        x=x,
        residual=residual,
        norm=norm,
        output=end,
    )
