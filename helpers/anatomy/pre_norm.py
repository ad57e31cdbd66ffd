"""Families whose LayerNorm, or RMSNorm, comes before attention."""

from collections.abc import Iterator

from torch import Tensor, nn

from helpers.anatomy.record import Anatomy, anatomy, last_third


def gpt2(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-2: query, key and value in one matrix."""
    for layer in base.h:
        reader, end = layer.attn, (layer.ln_2, "input")
        projections = reader.c_attn, reader.c_proj, reader.num_heads
        yield anatomy(layer, *projections, end=end, columns=last_third)


def gpt_neox(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-NeoX: query, key and value side by side in each head; mostly a parallel residual."""
    heads = base.config.num_attention_heads

    def columns(matrix: Tensor) -> Tensor:
        return matrix.unflatten(-1, (heads, 3, -1))[..., 2, :].flatten(-2)

    for layer in base.layers:
        reader, parallel = layer.attention, layer.use_parallel_residual
        end = (reader, "output") if parallel else (layer.post_attention_layernorm, "input")
        options = {"end": end, "columns": columns, "parallel": parallel}
        yield anatomy(layer, reader.query_key_value, reader.dense, heads, **options)


def modernbert(base: nn.Module) -> Iterator[Anatomy]:
    """ModernBERT: query, key and value in one matrix. Some layers attend locally."""
    for layer in base.layers:
        heads, end = base.config.num_attention_heads, (layer.mlp_norm, "input")
        yield anatomy(layer, layer.attn.Wqkv, layer.attn.Wo, heads, end=end, columns=last_third)


def opt(base: nn.Module) -> Iterator[Anatomy]:
    """OPT: pre-LN, but post-LN in some sizes; its configuration says which."""
    for layer in base.decoder.layers:
        reader, norms, end = layer.self_attn, (), (layer.final_layer_norm, "input")
        if not layer.do_layer_norm_before:
            norms, end = (layer.self_attn_layer_norm, layer.final_layer_norm, layer.fc1), None
        yield anatomy(layer, reader.v_proj, reader.out_proj, reader.num_heads, *norms, end=end)


def llama(base: nn.Module) -> Iterator[Anatomy]:
    """LLaMA, Mistral, Qwen 2 and 3, SmolLM 3, Gemma: RMSNorm; groups of heads share their values.

    Gemma 2 and 3 have one more RMSNorm, over the attention output before the residual connection.
    """
    for layer in base.layers:
        reader, norm, inner = layer.self_attn, layer.post_attention_layernorm, None
        if hasattr(layer, "pre_feedforward_layernorm"):
            norm, inner = layer.pre_feedforward_layernorm, norm
        heads, end = base.config.num_attention_heads, (norm, "input")
        yield anatomy(layer, reader.v_proj, reader.o_proj, heads, end=end, inner_norm=inner)
