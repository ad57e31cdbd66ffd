"""The only room that knows where an architecture keeps W_V, b_V, W_O, b_O and its LayerNorms.

Each family has one short function, which yields one `Anatomy` per layer: the weights of one
attention block in the papers' shapes, and the modules at which its tensors pass in a forward pass.
The functions stand by kind of block in `post_norm`, `pre_norm` and `encoder_decoder`.
"""

from collections.abc import Callable, Iterator
from typing import Literal, get_args

from transformers import PreTrainedModel

from helpers import _validate
from helpers.anatomy import encoder_decoder, post_norm, pre_norm
from helpers.anatomy.record import Anatomy, Tap

__all__ = [
    "FAMILIES",
    "WHY_NOT",
    "Anatomy",
    "Attention",
    "Tap",
    "blocks",
    "max_tokens",
    "require_family",
    "which",
]

Attention = Literal["cross", "encoder", "decoder"]  # the three of an encoder-decoder

FAMILIES: dict[str, Callable[..., Iterator[Anatomy]]] = {
    "albert": post_norm.albert,
    "bart": encoder_decoder.bart,
    "bert": post_norm.bert,
    "biogpt": pre_norm.biogpt,
    "blenderbot": encoder_decoder.mbart,
    "bloom": pre_norm.bloom,
    "camembert": post_norm.bert,
    "cohere": pre_norm.cohere,
    "data2vec-text": post_norm.bert,
    "deberta-v2": post_norm.bert,
    "distilbert": post_norm.distilbert,
    "electra": post_norm.bert,
    "ernie": post_norm.bert,
    "falcon": pre_norm.falcon,
    "gemma": pre_norm.llama,
    "gemma2": pre_norm.llama,
    "gemma3_text": pre_norm.llama,
    "gpt2": pre_norm.gpt2,
    "gpt_bigcode": pre_norm.gpt_bigcode,
    "gpt_neo": pre_norm.gpt_neo,
    "gpt_neox": pre_norm.gpt_neox,
    "gptj": pre_norm.gptj,
    "llama": pre_norm.llama,
    "m2m_100": encoder_decoder.mbart,
    "marian": encoder_decoder.bart,
    "mbart": encoder_decoder.mbart,
    "megatron-bert": pre_norm.megatron,
    "mistral": pre_norm.llama,
    "mixtral": pre_norm.llama,
    "modernbert": pre_norm.modernbert,
    "mpnet": post_norm.mpnet,
    "mt5": encoder_decoder.t5,
    "olmo": pre_norm.llama,
    "olmo2": pre_norm.olmo2,
    "olmo3": pre_norm.olmo2,
    "opt": pre_norm.opt,
    "pegasus": encoder_decoder.mbart,
    "phi": pre_norm.cohere,
    "phi3": pre_norm.phi3,
    "qwen2": pre_norm.llama,
    "qwen2_moe": pre_norm.llama,
    "qwen3": pre_norm.llama,
    "qwen3_moe": pre_norm.llama,
    "rembert": post_norm.bert,
    "roberta": post_norm.bert,
    "roformer": post_norm.bert,
    "smollm3": pre_norm.llama,
    "stablelm": pre_norm.stablelm,
    "starcoder2": pre_norm.llama,
    "t5": encoder_decoder.t5,
    "xlm-roberta": post_norm.bert,
    "xlm-roberta-xl": pre_norm.megatron,
}


# Popular families that are not read, and why.
WHY_NOT = {
    "big_bird": "its sparse attention has no matrix of weights",
    "codegen": "its queries, keys and values are interleaved in four parts",
    "deberta": "its b_V is added outside the matrix of the values (deberta-v2 is read)",
    "deepseek_v3": "its values come from two matrices with a norm between them",
    "gpt_oss": "its weights do not sum to 1, because a part goes to no token",
    "granite": "it multiplies the attention output by a constant",
    "jamba": "most of its layers have no attention",
    "lfm2": "most of its layers have no attention",
    "longformer": "its sparse attention has no matrix of weights",
    "mamba": "it has no attention",
    "qwen3_next": "most of its layers have no attention",
    "xglm": "its class of transformers cannot be computed in float64",
    "xlnet": "it attends in two streams",
}


SETTINGS = {"clip_qkv": "clips values", "rotary_value": "turns values by their positions"}


def setting(network: PreTrainedModel) -> str:
    """Why a configuration makes values that weights do not tell, as half a sentence, or ""."""
    found = [name for name in SETTINGS if getattr(network.config, name, None)]
    return "".join(f"its {name} {SETTINGS[name]} after their weights" for name in found[:1])


def blocks(network: PreTrainedModel, attention: Attention | None = None) -> list[Anatomy]:
    """The attention blocks of a network, first layer first; a task head is looked through.

    Raises ValueError for a family that is not supported, with the list of those that are, for an
    `attention` that the network does not have, and for modules that are not the family's.
    """
    require_family(network)
    attention = which(network, attention)
    side, family = () if attention is None else (attention,), network.config.model_type
    try:
        return list(FAMILIES[family](network.base_model, *side))
    except (AttributeError, RuntimeError) as error:  # a module is missing, or a size does not fit
        raise ValueError(
            f"model.network has other modules than a {family!r} has ({error}); take out what was "
            "put around or in the place of its attention or LayerNorms."
        ) from error


def require_family(network: PreTrainedModel) -> None:
    """Raise ValueError, with the reason or the supported families, unless this is one of them."""
    family = network.config.model_type
    if family not in FAMILIES:
        why = f"; supported are: {', '.join(sorted(FAMILIES))}"
        if family in WHY_NOT:
            why = f", because {WHY_NOT[family]}; README.md lists those that are"
        raise ValueError(f"The architecture {family!r} is not supported{why}.")


def which(network: PreTrainedModel, attention: Attention | None) -> Attention | None:
    """The attention that is meant: in an encoder-decoder "cross" by default, otherwise None.

    Raises ValueError for a name that is unknown, or given where there is only one attention.
    """
    if not network.config.is_encoder_decoder:
        if attention is not None:
            raise ValueError(
                f"attention={_validate.shown(attention)} is for encoder-decoder models; this "
                f"{network.config.model_type!r} has one kind of attention; leave it out."
            )
        return None
    if attention is None:
        return "cross"
    _validate.choice("attention", attention, get_args(Attention))
    return attention


def max_tokens(network: PreTrainedModel) -> int | None:
    """The longest input, in tokens, that the position embeddings allow; None if any length is."""
    positions = getattr(network.base_model, "embeddings", network.base_model)
    table = getattr(positions, "position_embeddings", getattr(positions, "wpe", None))
    if table is None:
        limit = getattr(network.config, "max_position_embeddings", None)
        return None if limit == -1 else limit  # XLNet's way to say that there is no limit
    # RoBERTa counts positions from padding_idx + 1, so that its table has rows no token uses.
    unused = 0 if table.padding_idx is None else table.padding_idx + 1
    return table.num_embeddings - unused
