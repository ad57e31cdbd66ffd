"""Families whose LayerNorm comes after the residual connection."""

from collections.abc import Iterator

from torch import nn

from helpers.anatomy.record import Anatomy, anatomy


def bert(base: nn.Module) -> Iterator[Anatomy]:
    """BERT, RoBERTa, ELECTRA and their like; DeBERTa 2 and 3, whose values have another name."""
    for layer in base.encoder.layer:
        reads, writes = layer.attention.self, layer.attention.output
        value = reads.value_proj if hasattr(reads, "value_proj") else reads.value
        norms = writes.LayerNorm, layer.output.LayerNorm, layer.intermediate
        yield anatomy(layer, value, writes.dense, reads.num_attention_heads, *norms)


def mpnet(base: nn.Module) -> Iterator[Anatomy]:
    """MPNet: BERT's block under other names."""
    for layer in base.encoder.layer:
        reader, norm = layer.attention.attn, layer.attention.LayerNorm
        norms = norm, layer.output.LayerNorm, layer.intermediate
        yield anatomy(layer, reader.v, reader.o, reader.num_attention_heads, *norms)


def distilbert(base: nn.Module) -> Iterator[Anatomy]:
    """DistilBERT: BERT's block under other names."""
    for layer in base.transformer.layer:
        reader = layer.attention
        norms = layer.sa_layer_norm, layer.output_layer_norm, layer.ffn
        yield anatomy(layer, reader.v_lin, reader.out_lin, reader.n_heads, *norms)


def albert(base: nn.Module) -> Iterator[Anatomy]:
    """ALBERT: a few layers in groups, called again and again."""
    groups, calls = base.encoder.albert_layer_groups, base.config.num_hidden_layers
    for call in range(calls):
        for layer in groups[int(call / (calls / len(groups)))].albert_layers:
            reader = layer.attention
            norms = reader.LayerNorm, layer.full_layer_layer_norm, layer.ffn
            yield anatomy(layer, reader.value, reader.dense, reader.num_attention_heads, *norms)
