"""The only file that knows where an architecture keeps its weights and how a block is wired.

One short function a family. It gives an `Anatomy` a layer: the weights of one attention block in
the papers' shapes, and the modules at which its tensors pass in a forward pass.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import transformers
from torch import Tensor, nn

from helpers.arguments import shown

Tap = tuple[nn.Module, Literal["input", "output"]]  # where in the forward pass a tensor is read
Attention = Literal["cross", "encoder", "decoder"]  # those of an encoder-decoder


@dataclass(frozen=True)
class Anatomy:
    """One attention block. H heads of width d, hidden size D, T queries, S keys."""

    W_V: Tensor  # (H, D, d)
    b_V: Tensor  # (H, d)
    W_O: Tensor  # (H, d, D)
    b_O: Tensor  # (D,)
    x: Tap  # what f reads, (S, D): the block's input, after LayerNorm where that comes first
    residual: Tap  # what the residual connection adds, (T, D)
    norm: nn.LayerNorm | None  # the LayerNorm after the residual connection; None if there is none
    output: Tap  # the block's own output, (T, D): after `norm`, or after the residual connection
    project: nn.Module  # the module of W_O and b_O; reads the contexts of all heads, (T, H d)
    layer: nn.Module  # the whole Transformer layer; called with the hidden states first
    # The LayerNorm that ends the layer, if the feed-forward network follows `norm`.
    second_norm: nn.LayerNorm | None = None
    # Gemma 2 and 3: an RMSNorm between W_O and the residual connection.
    inner_norm: nn.Module | None = None
    # GPT-NeoX: no tensor of the model holds x + attention, and `output` is the attention alone.
    parallel: bool = False


def blocks(
    network: transformers.PreTrainedModel, attention: Attention | None = None
) -> list[Anatomy]:
    """The attention blocks of a network, first layer first; a task head is looked through.

    Raises ValueError for a family that is not supported, with the list of those that are, and for
    an `attention` that the network does not have.
    """
    check_family(network)
    attention = which(network, attention)
    side = () if attention is None else (attention,)
    return list(FAMILIES[network.config.model_type](network.base_model, *side))


def check_family(network: transformers.PreTrainedModel) -> None:
    """Raise ValueError, naming those that are supported, unless this network's family is."""
    if network.config.model_type not in FAMILIES:
        raise ValueError(
            f"The architecture {network.config.model_type!r} is not supported; supported are: "
            f"{', '.join(sorted(FAMILIES))}."
        )


def which(network: transformers.PreTrainedModel, attention: Attention | None) -> Attention | None:
    """The attention that is meant: of an encoder-decoder "cross" by default, else always None."""
    if not network.config.is_encoder_decoder:
        if attention is not None:
            raise ValueError(
                f"attention={shown(attention)} is for encoder-decoder models; this "
                f"{network.config.model_type!r} has one kind of attention, leave it out."
            )
        return None
    if attention is None:
        return "cross"
    if attention not in get_args(Attention):
        raise ValueError(
            f"attention {shown(attention)} is unknown; give {', '.join(map(repr, get_args(Attention)))}."
        )
    return attention


def max_tokens(network: transformers.PreTrainedModel) -> int | None:
    """The longest input the position embeddings allow, in tokens; None if there is no limit."""
    positions = getattr(network.base_model, "embeddings", network.base_model)
    table = getattr(positions, "position_embeddings", getattr(positions, "wpe", None))
    if table is None:
        limit = getattr(network.config, "max_position_embeddings", None)
        return None if limit == -1 else limit  # XLNet's way to say that there is none
    # RoBERTa counts positions from padding_idx + 1, so that its table has rows no token uses.
    unused = 0 if table.padding_idx is None else table.padding_idx + 1
    return table.num_embeddings - unused


def _bert(base: nn.Module) -> Iterator[Anatomy]:
    """BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA: post-LN, separate projections."""
    for layer in base.encoder.layer:
        reads, writes = layer.attention.self, layer.attention.output
        norms = writes.LayerNorm, layer.output.LayerNorm
        yield _anatomy(layer, reads.value, writes.dense, reads.num_attention_heads, *norms)


def _distilbert(base: nn.Module) -> Iterator[Anatomy]:
    """DistilBERT: post-LN."""
    for layer in base.transformer.layer:
        reader = layer.attention
        norms = layer.sa_layer_norm, layer.output_layer_norm
        yield _anatomy(layer, reader.v_lin, reader.out_lin, reader.n_heads, *norms)


def _albert(base: nn.Module) -> Iterator[Anatomy]:
    """ALBERT: post-LN; a few layers in groups, called again and again."""
    groups, calls = base.encoder.albert_layer_groups, base.config.num_hidden_layers
    for call in range(calls):
        for layer in groups[int(call / (calls / len(groups)))].albert_layers:
            reader = layer.attention
            norms = reader.LayerNorm, layer.full_layer_layer_norm
            yield _anatomy(layer, reader.value, reader.dense, reader.num_attention_heads, *norms)


def _modernbert(base: nn.Module) -> Iterator[Anatomy]:
    """ModernBERT: pre-LN; query, key and value in one matrix. Some layers attend locally."""
    for layer in base.layers:
        heads, end = base.config.num_attention_heads, (layer.mlp_norm, "input")
        yield _anatomy(layer, layer.attn.Wqkv, layer.attn.Wo, heads, end=end, columns=_last_third)


def _gpt2(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-2: pre-LN; query, key and value in one matrix."""
    for layer in base.h:
        reader, end = layer.attn, (layer.ln_2, "input")
        yield _anatomy(
            layer, reader.c_attn, reader.c_proj, reader.num_heads, end=end, columns=_last_third
        )


def _gpt_neox(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-NeoX: pre-LN; query, key and value side by side in each head; mostly parallel residual."""
    heads = base.config.num_attention_heads

    def columns(matrix: Tensor) -> Tensor:
        return matrix.unflatten(-1, (heads, 3, -1))[..., 2, :].flatten(-2)

    for layer in base.layers:
        reader, parallel = layer.attention, layer.use_parallel_residual
        end = (reader, "output") if parallel else (layer.post_attention_layernorm, "input")
        options = {"end": end, "columns": columns, "parallel": parallel}
        yield _anatomy(layer, reader.query_key_value, reader.dense, heads, **options)


def _opt(base: nn.Module) -> Iterator[Anatomy]:
    """OPT: pre-LN, or post-LN in some sizes; its configuration says which."""
    for layer in base.decoder.layers:
        reader = layer.self_attn
        if layer.do_layer_norm_before:
            norms, end = (), (layer.final_layer_norm, "input")
        else:
            norms, end = (layer.self_attn_layer_norm, layer.final_layer_norm), None
        yield _anatomy(layer, reader.v_proj, reader.out_proj, reader.num_heads, *norms, end=end)


def _llama(base: nn.Module) -> Iterator[Anatomy]:
    """LLaMA, Mistral, Qwen 2 and 3, SmolLM 3, Gemma: pre-LN (RMSNorm); heads share values in groups.

    Gemma 2 and 3 have one more RMSNorm, over the attention output before the residual connection.
    """
    for layer in base.layers:
        reader, norm, inner = layer.self_attn, layer.post_attention_layernorm, None
        if hasattr(layer, "pre_feedforward_layernorm"):
            norm, inner = layer.pre_feedforward_layernorm, norm
        heads, end = base.config.num_attention_heads, (norm, "input")
        yield _anatomy(layer, reader.v_proj, reader.o_proj, heads, end=end, inner_norm=inner)


def _bart(base: nn.Module, attention: Attention | None = None) -> Iterator[Anatomy]:
    """Marian, BART: post-LN; cross-attention reads the encoder's last states, its residual queries.

    `attention` is None for a decoder that stands alone.
    """
    part = "encoder_attn" if attention == "cross" else "self_attn"
    for layer in base.encoder.layers if attention == "encoder" else base.decoder.layers:
        reader, norm = getattr(layer, part), getattr(layer, f"{part}_layer_norm")
        # In a decoder's self-attention, cross-attention comes between.
        norms = norm, None if attention == "decoder" else layer.final_layer_norm
        taps = {"residual": (reader, "input")}
        yield _anatomy(layer, reader.v_proj, reader.out_proj, reader.num_heads, *norms, **taps)


def _t5(base: nn.Module, attention: Attention = "encoder") -> Iterator[Anatomy]:
    """T5, mT5: pre-LN (RMSNorm), no biases; heads need not be D / H wide. An encoder can stand alone."""
    place, name = (1, "EncDecAttention") if attention == "cross" else (0, "SelfAttention")
    for block in base.encoder.block if attention == "encoder" else base.decoder.block:
        layer, reader = block.layer[place], getattr(block.layer[place], name)
        taps = {"residual": (layer, "input"), "end": (layer, "output")}
        yield _anatomy(block, reader.v, reader.o, reader.n_heads, **taps)


FAMILIES: dict[str, Callable[..., Iterator[Anatomy]]] = {
    "albert": _albert,
    "bart": _bart,
    "bert": _bert,
    "camembert": _bert,
    "distilbert": _distilbert,
    "electra": _bert,
    "gemma": _llama,
    "gemma2": _llama,
    "gemma3_text": _llama,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "marian": _bart,
    "mistral": _llama,
    "modernbert": _modernbert,
    "mt5": _t5,
    "opt": _opt,
    "qwen2": _llama,
    "qwen3": _llama,
    "roberta": _bert,
    "smollm3": _llama,
    "t5": _t5,
    "xlm-roberta": _bert,
}


def _anatomy(
    layer: nn.Module,
    value: nn.Module,
    project: nn.Module,
    heads: int,
    norm: nn.LayerNorm | None = None,
    second_norm: nn.LayerNorm | None = None,
    *,
    residual: Tap | None = None,
    end: Tap | None = None,
    columns: Callable[[Tensor], Tensor] | None = None,
    inner_norm: nn.Module | None = None,
    parallel: bool = False,
) -> Anatomy:
    """Split the weights into heads; values that heads share are repeated.

    `value` reads what f reads; `columns` picks W_V and b_V where it makes queries and keys too. The
    residual is the layer's input, and the block ends after `norm`, unless told otherwise.
    """
    W_V, b_V = (columns(part) if columns else part for part in _linear(value))
    W_O, b_O = _linear(project)
    d = len(W_O) // heads
    W_V, b_V = W_V.unflatten(1, (-1, d)).transpose(0, 1), b_V.unflatten(0, (-1, d))
    if len(W_V) < heads:  # grouped-query attention
        W_V, b_V = (part.repeat_interleave(heads // len(part), dim=0) for part in (W_V, b_V))
    return Anatomy(
        W_V=W_V,
        b_V=b_V,
        W_O=W_O.unflatten(0, (heads, d)),
        b_O=b_O,
        x=(value, "input"),
        residual=residual or (layer, "input"),
        norm=norm,
        output=end or (norm, "output"),
        project=project,
        layer=layer,
        second_norm=second_norm,
        inner_norm=inner_norm,
        parallel=parallel,
    )


def _linear(module: nn.Module) -> tuple[Tensor, Tensor]:
    """A module's matrix (in, out) and bias (out,); a missing bias is 0."""
    # A Linear stores (out, in), GPT-2's Conv1D (in, out).
    matrix = module.weight.T if isinstance(module, nn.Linear) else module.weight
    bias = matrix.new_zeros(matrix.shape[1]) if module.bias is None else module.bias
    return matrix.detach(), bias.detach()


def _last_third(matrix: Tensor) -> Tensor:
    """The values' columns where query, key and value are in one matrix."""
    return matrix.chunk(3, dim=-1)[2]
