"""Families with three attentions: in the encoder, in the decoder, and from one to the other."""

from collections.abc import Iterator

from torch import nn

from helpers.anatomy.record import Anatomy, anatomy


def bart(base: nn.Module, attention: str | None = None) -> Iterator[Anatomy]:
    """BART, Marian: post-LN. Cross-attention reads the encoder's last states.

    Its residual connection adds the queries. `attention` is None for a decoder that stands alone.
    """
    part = "encoder_attn" if attention == "cross" else "self_attn"
    for layer in base.encoder.layers if attention == "encoder" else base.decoder.layers:
        reader, norm = getattr(layer, part), getattr(layer, f"{part}_layer_norm")
        # After a decoder's self-attention comes cross-attention, not the feed-forward network.
        norms = norm, layer.final_layer_norm, layer.fc1
        if attention == "decoder":
            norms = norm, None, layer.encoder_attn
        projections = reader.v_proj, reader.out_proj, reader.num_heads
        yield anatomy(layer, *projections, *norms, residual=(reader, "input"))


def mbart(base: nn.Module, attention: str | None = None) -> Iterator[Anatomy]:
    """mBART, Pegasus, M2M-100, NLLB, Blenderbot: BART's layers, pre-LN."""
    part = "encoder_attn" if attention == "cross" else "self_attn"
    for layer in base.encoder.layers if attention == "encoder" else base.decoder.layers:
        reader, norm = getattr(layer, part), getattr(layer, f"{part}_layer_norm")
        after = layer.encoder_attn_layer_norm if attention == "decoder" else layer.final_layer_norm
        taps = {"residual": (norm, "input"), "end": (after, "input")}
        yield anatomy(layer, reader.v_proj, reader.out_proj, reader.num_heads, **taps)


def t5(base: nn.Module, attention: str = "encoder") -> Iterator[Anatomy]:
    """T5, mT5: pre-LN (RMSNorm), no biases; heads need not be D / H wide.

    An encoder can stand alone.
    """
    place, name = (1, "EncDecAttention") if attention == "cross" else (0, "SelfAttention")
    for block in base.encoder.block if attention == "encoder" else base.decoder.block:
        layer, reader = block.layer[place], getattr(block.layer[place], name)
        taps = {"residual": (layer, "input"), "end": (layer, "output")}
        yield anatomy(block, reader.v, reader.o, reader.n_heads, **taps)
