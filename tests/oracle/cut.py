"""Attention blocks cut out of a network by hand: what the helpers are compared with.

No layout of a weight is known here. Modules are told by their names and by the order in which a
forward pass calls them, and linear maps are measured: the identity goes in, the matrix comes out.
"""

import copy
import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Place:
    """Where a family keeps one attention block; names of modules within a layer."""

    layer: str  # pattern of the layers' own names
    value: str  # its output holds the value vectors
    project: str  # reads the contexts of all heads
    end: str  # the block ends at this module's output, or at its input where "<" stands before it
    norm: str | None = None  # the LayerNorm after the residual connection
    second_norm: str | None = None  # the LayerNorm that ends the layer
    inner_norm: str | None = None  # between the output projection and the residual connection
    # The residual connection adds this module's input, or output after ">"; "" is the layer.
    residual: str = ""
    columns: str = "all"  # which of `value`'s outputs are values


def _post_ln(layer: str, value: str, project: str, norm: str, second: str | None, **more) -> Place:
    return Place(layer, value, project, norm, norm, second, **more)


_BERT = _post_ln(
    r"encoder\.layer\.\d+",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "output.LayerNorm",
)
_LLAMA = (r"layers\.\d+", "self_attn.v_proj", "self_attn.o_proj")
_GEMMA_2 = Place(*_LLAMA, "<pre_feedforward_layernorm", inner_norm="post_attention_layernorm")
_NEOX = (r"layers\.\d+", "attention.query_key_value", "attention.dense")
_OPT = (r"decoder\.layers\.\d+", "self_attn.v_proj", "self_attn.out_proj")


def _bart(side: str, part: str, second: str | None) -> Place:
    names = (f"{part}.v_proj", f"{part}.out_proj", f"{part}_layer_norm")
    return _post_ln(rf"{side}\.layers\.\d+", *names, second, residual=part)


def _mbart(side: str, part: str, end: str) -> Place:
    names = (f"{part}.v_proj", f"{part}.out_proj", f"<{end}_layer_norm")
    return Place(rf"{side}\.layers\.\d+", *names, residual=f"{part}_layer_norm")


_MBART = {
    "cross": _mbart("decoder", "encoder_attn", "final"),
    "decoder": _mbart("decoder", "self_attn", "encoder_attn"),
    "encoder": _mbart("encoder", "self_attn", "final"),
}
_PRE_BERT = (r"encoder\.layer\.\d+", "attention.self.value", "attention.output.dense")
_GPT = (r"h\.\d+", "attn.c_attn", "attn.c_proj", "<ln_2")
_BIOGPT = Place(r"layers\.\d+", "self_attn.v_proj", "self_attn.out_proj", "<final_layer_norm")
_FALCON = (r"h\.\d+", "self_attention.query_key_value", "self_attention.dense")
_OLMO_2 = Place(*_LLAMA, "<mlp", inner_norm="post_attention_layernorm")
_PARALLEL = Place(*_LLAMA, "self_attn.o_proj")


def _t5(side: str, part: str, end: str) -> Place:
    names = (f"{part}.v", f"{part}.o", end)
    return Place(rf"{side}\.block\.\d+", *names, residual=part.partition(".")[0] + "." + part[6])


PLACES = {
    **{
        f"{name} {side}": place
        for name in ("blenderbot", "m2m_100", "mbart", "pegasus")
        for side, place in _MBART.items()
    },
    "biogpt": _BIOGPT,
    "bloom": Place(
        *_FALCON,
        "<post_attention_layernorm",
        residual="input_layernorm",
        columns="third of each head",
    ),
    "bloom, residual after LayerNorm": Place(
        *_FALCON,
        "<post_attention_layernorm",
        residual=">input_layernorm",
        columns="third of each head",
    ),
    "cohere": _PARALLEL,
    "data2vec-text": _BERT,
    "deberta-v2": _post_ln(
        r"encoder\.layer\.\d+",
        "attention.self.value_proj",
        "attention.output.dense",
        "attention.output.LayerNorm",
        "output.LayerNorm",
    ),
    "ernie": _BERT,
    "falcon": Place(*_FALCON, "self_attention.dense", columns="last 1"),
    "falcon, groups": Place(*_FALCON, "self_attention.dense", columns="last of 2 groups"),
    "falcon, sequential": Place(
        *_FALCON, "<post_attention_layernorm", columns="third of each head"
    ),
    "gpt_bigcode": Place(*_GPT, columns="last 1"),
    "gpt_bigcode, no sharing": Place(*_GPT, columns="third of each head"),
    "gpt_neo": Place(r"h\.\d+", "attn.attention.v_proj", "attn.attention.out_proj", "<ln_2"),
    "gptj": Place(r"h\.\d+", "attn.v_proj", "attn.out_proj", "attn.out_proj"),
    "megatron-bert": Place(*_PRE_BERT, "<ln"),
    "mixtral": Place(*_LLAMA, "<post_attention_layernorm"),
    "mpnet": _post_ln(
        r"encoder\.layer\.\d+",
        "attention.attn.v",
        "attention.attn.o",
        "attention.LayerNorm",
        "output.LayerNorm",
    ),
    "olmo": Place(*_LLAMA, "<post_attention_layernorm"),
    "olmo2": _OLMO_2,
    "olmo3": _OLMO_2,
    "phi": Place(r"layers\.\d+", "self_attn.v_proj", "self_attn.dense", "self_attn.dense"),
    "phi3": Place(
        r"layers\.\d+",
        "self_attn.qkv_proj",
        "self_attn.o_proj",
        "<post_attention_layernorm",
        columns="last 2",
    ),
    "qwen2_moe": Place(*_LLAMA, "<post_attention_layernorm"),
    "qwen3_moe": Place(*_LLAMA, "<post_attention_layernorm"),
    "rembert": _BERT,
    "roformer": _BERT,
    "stablelm": Place(*_LLAMA, "<post_attention_layernorm"),
    "stablelm, parallel": _PARALLEL,
    "starcoder2": Place(*_LLAMA, "<post_attention_layernorm"),
    "xlm-roberta-xl": Place(*_PRE_BERT, "<LayerNorm"),
    "albert": _post_ln(
        r"albert_layers\.\d+",
        "attention.value",
        "attention.dense",
        "attention.LayerNorm",
        "full_layer_layer_norm",
    ),
    "bart cross": _bart("decoder", "encoder_attn", "final_layer_norm"),
    "bart decoder": _bart("decoder", "self_attn", None),
    "bart encoder": _bart("encoder", "self_attn", "final_layer_norm"),
    "bert": _BERT,
    "camembert": _BERT,
    "distilbert": _post_ln(
        r"transformer\.layer\.\d+",
        "attention.v_lin",
        "attention.out_lin",
        "sa_layer_norm",
        "output_layer_norm",
    ),
    "electra": _BERT,
    "gemma": Place(*_LLAMA, "<post_attention_layernorm"),
    "gemma2": _GEMMA_2,
    "gemma3_text": _GEMMA_2,
    "gpt2": Place(r"h\.\d+", "attn.c_attn", "attn.c_proj", "<ln_2", columns="last third"),
    "gpt_neox": Place(*_NEOX, "attention.dense", columns="third of each head"),
    "gpt_neox, sequential": Place(
        *_NEOX, "<post_attention_layernorm", columns="third of each head"
    ),
    "llama": Place(*_LLAMA, "<post_attention_layernorm"),
    "marian cross": _bart("decoder", "encoder_attn", "final_layer_norm"),
    "marian decoder": _bart("decoder", "self_attn", None),
    "marian encoder": _bart("encoder", "self_attn", "final_layer_norm"),
    "mistral": Place(*_LLAMA, "<post_attention_layernorm"),
    "modernbert": Place(r"layers\.\d+", "attn.Wqkv", "attn.Wo", "<mlp_norm", columns="last third"),
    "mt5 cross": _t5("decoder", "layer.1.EncDecAttention", "<layer.2"),
    "mt5 decoder": _t5("decoder", "layer.0.SelfAttention", "<layer.1"),
    "mt5 encoder": _t5("encoder", "layer.0.SelfAttention", "<layer.1"),
    "opt": Place(*_OPT, "<final_layer_norm"),
    "opt, post-LN": _post_ln(*_OPT, "self_attn_layer_norm", "final_layer_norm"),
    "qwen2": Place(*_LLAMA, "<post_attention_layernorm"),
    "qwen3": Place(*_LLAMA, "<post_attention_layernorm"),
    "roberta": _BERT,
    "smollm3": Place(*_LLAMA, "<post_attention_layernorm"),
    "t5 cross": _t5("decoder", "layer.1.EncDecAttention", "<layer.2"),
    "t5 decoder": _t5("decoder", "layer.0.SelfAttention", "<layer.1"),
    "t5 encoder": _t5("encoder", "layer.0.SelfAttention", "<layer.1"),
    "xlm-roberta": _BERT,
}


@dataclass(frozen=True)
class Cut:
    """One attention block as plain tensors."""

    parts: dict  # what the naive reference takes, in float64
    output: Tensor  # (T, D) the model's own tensor, as it passed
    second: tuple | None  # what the layer's second LayerNorm reads, its γ and its eps


@dataclass(frozen=True)
class _Call:
    name: str
    module: nn.Module
    entering: Tensor
    leaving: Tensor


def inputs(model, text: str, pair: str | None = None, target: str | None = None) -> dict:
    """Token ids as the tokenizer gives them; the decoder's start symbol and no end symbol."""
    ids = dict(model.tokenizer(text, pair, return_tensors="pt"))
    if target is not None:
        end = model.tokenizer.eos_token_id
        fed = [n for n in model.tokenizer(text_target=target)["input_ids"] if n != end]
        ids["decoder_input_ids"] = torch.tensor(
            [[model.network.config.decoder_start_token_id, *fed]]
        )
    return ids


def place(name: str, attention: str | None = None) -> Place:
    """That of a tiny architecture by its name: a variant may have a row of its own."""
    if attention is not None:
        return PLACES[f"{name} {attention}"]
    return PLACES.get(name) or PLACES[name.partition(",")[0]]


def blocks(network, where: Place, ids: dict, attention: str | None = None) -> list[Cut]:
    """The network's attention blocks in the order in which one forward pass calls them."""
    seen, output = _record(network, ids)
    weights = output["attentions" if attention is None else f"{attention}_attentions"]

    def calls(part: str | None):
        return [None] * len(weights) if part is None else _calls(seen, where, part)

    rows = zip(
        weights,
        *map(calls, (where.value, where.project, where.residual.removeprefix(">"))),
        calls(where.end.removeprefix("<")),
        *map(calls, (where.norm, where.second_norm, where.inner_norm)),
        strict=True,
    )
    return [_cut(where, *row) for row in rows]


def value_zeroing(network, where: Place, ids: dict) -> Tensor:
    """1 − cosine of each layer's output with and without j's values, one pass for each of both."""
    seen, _ = _record(network, ids)
    heads = network.config.num_attention_heads
    true = [call.leaving for call in _calls(seen, where, "")]
    values, projects = (_calls(seen, where, part) for part in (where.value, where.project))
    maps = torch.zeros(len(true), *[true[0].shape[-2]] * 2, dtype=torch.float64)
    for n, call in enumerate(values):
        earlier = sum(other.module is call.module for other in values[:n])  # shared by layers
        d = projects[n].entering.shape[-1] // heads
        hidden = _columns(where.columns, call.leaving.shape[-1], heads, d)
        for j in range(maps.shape[-1]):
            count = iter(range(len(values)))

            def without(_module, _args, result, count=count, j=j, hidden=hidden, earlier=earlier):
                if next(count) == earlier:
                    result = result.clone()
                    result[..., j, hidden] = 0
                return result

            with call.module.register_forward_hook(without):
                again, _ = _record(network, ids)
            new = _calls(again, where, "")[n].leaving
            turn = nn.functional.cosine_similarity(new.double(), true[n].double(), dim=-1)
            maps[n, :, j] = 1 - turn.flatten()
    return maps / maps.sum(dim=-1, keepdim=True)


def _record(network, ids: dict) -> tuple[list[_Call], dict]:
    """Every call of a module in one forward pass, with its first tensor in and first one out."""
    names, seen = {module: name for name, module in network.named_modules()}, []

    def keep(module, args, kwargs, result):
        entering = args[0] if args else kwargs.get("hidden_states")
        leaving = result[0] if isinstance(result, tuple) else result
        seen.append(_Call(names[module], module, entering, leaving))

    handles = [module.register_forward_hook(keep, with_kwargs=True) for module in names]
    with torch.no_grad():
        output = network.base_model(**ids, output_attentions=True, use_cache=False)
    for handle in handles:
        handle.remove()
    return seen, output


def _calls(seen: list[_Call], where: Place, part: str) -> list[_Call]:
    pattern = rf"(.+\.)?{where.layer}" + (rf"\.{re.escape(part)}" if part else "")
    return [call for call in seen if re.fullmatch(pattern, call.name)]


def _cut(where: Place, weights, value, project, residual, end, norm, second, inner) -> Cut:
    H, context = weights.shape[1], project.entering.shape[-1]
    both = _measured(value.module, value.entering.shape[-1])  # the bias is the last row
    d = context // H
    both = both[:, _columns(where.columns, both.shape[1], H, d)]
    groups = both.shape[1] // d
    of_heads = [both[:, h * groups // H * d :][:, :d] for h in range(H)]
    W_O = _measured(project.module, context)
    parts = {
        "attention": weights[0],
        "x": value.entering.flatten(0, -2),
        "residual": (
            residual.leaving if where.residual.startswith(">") else residual.entering
        ).flatten(0, -2),
        "W_V": torch.stack([W[:-1] for W in of_heads]),
        "b_V": torch.stack([W[-1] for W in of_heads]),
        "W_O": torch.stack([W_O[h * d : (h + 1) * d] for h in range(H)]),
        "b_O": W_O[-1],
    }
    if norm is not None:
        parts |= {"gamma": norm.module.weight, "beta": norm.module.bias}
    if inner is not None:
        ones = torch.ones(1, W_O.shape[1])  # RMSNorm turns them into γ / sqrt(1 + eps)
        inner_eps = getattr(inner.module, "eps", getattr(inner.module, "variance_epsilon", None))
        parts["inner_gamma"] = inner.module(ones)[0] * (1 + inner_eps) ** 0.5
    parts = {name: tensor.detach().double() for name, tensor in parts.items()}
    parts["eps"] = None if norm is None else norm.module.eps
    parts["inner_eps"] = None if inner is None else inner_eps
    output = (end.entering if where.end.startswith("<") else end.leaving).flatten(0, -2)
    return Cut(
        parts,
        output,
        None
        if second is None
        else (
            second.entering.flatten(0, -2).double(),
            second.module.weight.detach().double(),
            second.module.eps,
        ),
    )


def _measured(module: nn.Module, size: int) -> Tensor:
    """A linear module's matrix (in, out) with its bias as the last row."""
    module = copy.deepcopy(module).double()
    with torch.no_grad():
        bias = module(torch.zeros(1, 1, size, dtype=torch.float64))[0]
        return torch.cat([module(torch.eye(size, dtype=torch.float64)[None])[0] - bias, bias])


def _columns(which: str, size: int, heads: int, d: int) -> Tensor:
    """Where the values are among the outputs of a module that may hold queries and keys too."""
    every = torch.arange(size)
    if which == "all":
        return every
    if which == "last third":
        return every[2 * size // 3 :]
    if which == "last of 2 groups":
        return every.reshape(2, -1, d)[:, -1].flatten()
    if which.startswith("last "):  # so many heads
        return every[-int(which.removeprefix("last ")) * d :]
    return every.reshape(heads, 3, -1)[:, 2].flatten()
