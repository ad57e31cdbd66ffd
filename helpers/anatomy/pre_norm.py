"""Families whose LayerNorm, or RMSNorm, comes before attention."""

from collections.abc import Iterator

from torch import Tensor, nn

from helpers.anatomy.record import Anatomy, anatomy, last, last_third, third_of_each


def gpt2(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-2: query, key and value in one matrix."""
    for layer in base.h:
        reader, end = layer.attn, (layer.ln_2, "input")
        projections = reader.c_attn, reader.c_proj, reader.num_heads
        yield anatomy(layer, *projections, end=end, columns=last_third)


def gpt_neox(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-NeoX: query, key and value side by side in each head; mostly a parallel residual."""
    heads = base.config.num_attention_heads
    for layer in base.layers:
        reader, parallel = layer.attention, layer.use_parallel_residual
        end = (reader, "output") if parallel else (layer.post_attention_layernorm, "input")
        options = {"end": end, "columns": third_of_each(heads), "parallel": parallel}
        yield anatomy(layer, reader.query_key_value, reader.dense, heads, **options)


def falcon(base: nn.Module) -> Iterator[Anatomy]:
    """Falcon, mostly with a parallel residual: all heads, or groups of them, share their values."""
    config = base.config
    parallel = config.parallel_attn or config.new_decoder_architecture
    shared = config.multi_query and not config.new_decoder_architecture
    groups = 1 if shared else config.num_kv_heads
    for layer in base.h:
        reader = layer.self_attention
        end = (reader, "output") if parallel else (layer.post_attention_layernorm, "input")

        def columns(matrix: Tensor, d: int = reader.head_dim) -> Tensor:
            return matrix.unflatten(-1, (groups, -1, d))[..., -1, :].flatten(-2)

        options = {"end": end, "columns": columns, "parallel": parallel}
        yield anatomy(layer, reader.query_key_value, reader.dense, reader.num_heads, **options)


def bloom(base: nn.Module) -> Iterator[Anatomy]:
    """BLOOM: query, key and value side by side in each head."""
    heads = base.config.n_head
    for layer in base.h:
        reader, norm = layer.self_attention, layer.input_layernorm
        options = {
            "residual": (norm, "input"),
            "end": (layer.post_attention_layernorm, "input"),
            "columns": third_of_each(heads),
        }
        if layer.apply_residual_connection_post_layernorm:
            options["residual"] = norm, "output"
        yield anatomy(layer, reader.query_key_value, reader.dense, heads, **options)


def gptj(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-J: attention and feed-forward network are added to x in one step."""
    for layer in base.h:
        reader = layer.attn
        projections = reader.v_proj, reader.out_proj, reader.num_attention_heads
        yield anatomy(layer, *projections, end=(reader, "output"), parallel=True)


def gpt_neo(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-Neo: some layers attend locally."""
    for layer in base.h:
        reader, end = layer.attn.attention, (layer.ln_2, "input")
        yield anatomy(layer, reader.v_proj, reader.out_proj, reader.num_heads, end=end)


def gpt_bigcode(base: nn.Module) -> Iterator[Anatomy]:
    """GPT-BigCode (StarCoder): all heads share their values, in most sizes."""
    for layer in base.h:
        reader, end = layer.attn, (layer.ln_2, "input")
        columns = last(reader.kv_dim) if reader.multi_query else third_of_each(reader.num_heads)
        projections = reader.c_attn, reader.c_proj, reader.num_heads
        yield anatomy(layer, *projections, end=end, columns=columns)


def megatron(base: nn.Module) -> Iterator[Anatomy]:
    """Megatron-BERT, XLM-RoBERTa XL: BERT's projections, pre-LN."""
    for layer in base.encoder.layer:
        reads, norm = layer.attention.self, layer.ln if hasattr(layer, "ln") else layer.LayerNorm
        projections = reads.value, layer.attention.output.dense, reads.num_attention_heads
        yield anatomy(layer, *projections, end=(norm, "input"))


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


def biogpt(base: nn.Module) -> Iterator[Anatomy]:
    """BioGPT: OPT's layers."""
    for layer in base.layers:
        reader, end = layer.self_attn, (layer.final_layer_norm, "input")
        yield anatomy(layer, reader.v_proj, reader.out_proj, reader.num_heads, end=end)


def llama(base: nn.Module) -> Iterator[Anatomy]:
    """LLaMA and its many like: RMSNorm or LayerNorm; groups of heads share their values.

    Gemma 2 and 3 have one more RMSNorm, over the attention output before the residual connection.
    """
    for layer in base.layers:
        reader, norm, inner = layer.self_attn, layer.post_attention_layernorm, None
        if hasattr(layer, "pre_feedforward_layernorm"):
            norm, inner = layer.pre_feedforward_layernorm, norm
        heads, options = base.config.num_attention_heads, {"inner_norm": inner, "inner_plus": 1.0}
        yield anatomy(layer, reader.v_proj, reader.o_proj, heads, end=(norm, "input"), **options)


def olmo2(base: nn.Module) -> Iterator[Anatomy]:
    """OLMo 2 and 3: an RMSNorm over the attention output, and none before attention."""
    for layer in base.layers:
        reader, end, norm = layer.self_attn, (layer.mlp, "input"), layer.post_attention_layernorm
        heads = base.config.num_attention_heads
        yield anatomy(layer, reader.v_proj, reader.o_proj, heads, end=end, inner_norm=norm)


def phi3(base: nn.Module) -> Iterator[Anatomy]:
    """Phi 3 and 4: query, key and value in one matrix; groups of heads share their values."""
    config = base.config
    for layer in base.layers:
        reader, end = layer.self_attn, (layer.post_attention_layernorm, "input")
        columns = last(config.num_key_value_heads * reader.head_dim)
        options = {"end": end, "columns": columns}
        yield anatomy(layer, reader.qkv_proj, reader.o_proj, config.num_attention_heads, **options)


def cohere(base: nn.Module) -> Iterator[Anatomy]:
    """Cohere, Phi 1 and 2: attention and feed-forward network are added to x in one step."""
    for layer in base.layers:
        reader, heads = layer.self_attn, base.config.num_attention_heads
        project = reader.dense if hasattr(reader, "dense") else reader.o_proj
        options = {"end": (reader, "output"), "parallel": True}
        yield anatomy(layer, reader.v_proj, project, heads, **options)


def stablelm(base: nn.Module) -> Iterator[Anatomy]:
    """StableLM: LLaMA's layers; in some sizes a parallel residual."""
    return cohere(base) if base.config.use_parallel_residual else llama(base)
