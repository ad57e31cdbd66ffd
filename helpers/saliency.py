"""Measures that perturb the model: a token blanked, a gradient taken, a value vector zeroed.

Abnar & Zuidema 2020 (AZ20, arXiv 2005.00928) compare attention with the first two.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from inspect import signature
from numbers import Integral

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from helpers import _validate, anatomy
from helpers.models import Model
from helpers.norms import values
from helpers.tokens import encode
from helpers.tracing import Block, trace

Score = Callable[[ModelOutput], Tensor]  # the output for one text, batch axis 1 → one number
KINDS = ("norm", "dot", "sum")
TOKENS = 1024  # the most that one pass reads, which bounds the memory


def blank_out(
    model: Model,
    text: str,
    score: Score,
    blank: str | int | None = None,
    *,
    exclude: int | Sequence[int] | None = None,
) -> Tensor:
    """How far the score moves if token t is replaced, |score − score without t|: (T,), ≥ 0 (AZ20).

    model, text: as in `trace`; the whole network runs, its task head included.
    score: a function from the network's whole output for one text, with a batch axis of 1, to one
        number, a tensor.
    blank: what replaces each token in turn, special tokens too: a token or its id; "[MASK]" and
        "[UNK]", which AZ20 use, work for every model that has them. By default, the first of the
        two that it has.
    exclude: positions that are not measured, by default those of the mask token, because its
        prediction is what such a text asks for. They are NaN, and so is a token that is the blank.

    Raises ValueError as `trace` does, and for a model that does not read one text, a `blank` that
    is not a token, an `exclude` outside the text, and a score that is not one finite number.

    Example: blank_out(model, text, lambda output: output.logits[0, -1, 0]) has one entry per token.
    """
    inputs = _inputs(model, text, score)
    ids, blank_id = inputs["input_ids"][0], _blank_id(model, blank)
    if blank_id is None:
        raise ValueError(
            f"blank {_validate.shown(blank)} is not a token of this model (by default [MASK] or "
            "[UNK]); give a token of its vocabulary, or an id with an embedding."
        )
    skipped = ids == blank_id
    for position in _excluded(model, ids, exclude):
        skipped[_validate.index("every position in exclude", position, len(ids))] = True
    texts = ids.repeat(len(ids) + 1, 1)  # the text itself, then one copy per token
    texts[1:].fill_diagonal_(blank_id)
    scores = []
    with torch.no_grad():
        for rows in texts.split(max(1, TOKENS // len(ids)) if _reads_batches(model) else 1):
            batch = {name: tensor.repeat(len(rows), 1) for name, tensor in inputs.items()}
            output = _output(model, batch | {"input_ids": rows})
            scores += [_validate.score(score(_one(output, n)), model) for n in range(len(rows))]
    whole, *without = scores
    return (torch.stack(without) - whole).abs().masked_fill(skipped, torch.nan)


def input_gradients(model: Model, text: str, score: Score, kind: str = "norm") -> Tensor:
    """How steeply the score changes with each token's input vector x_t: (T,), ≥ 0.

    model, text, score: as in `blank_out`.
    kind: "norm" is ‖∂score/∂x_t‖ and "dot" is gradient × input, |Σ_d x_td ∂score/∂x_td|, both at
        the word embeddings. "sum" is |Σ_d ∂score/∂e_td| at e_t, what enters the first layer: the
        embeddings after their LayerNorm (AZ20). Where only LayerNorms read a vector, the sum is 0
        up to rounding, because they subtract its mean: before that LayerNorm, and in GPT-2.

    Raises ValueError for an unknown kind, and as `embedding_gradient` does.

    Example: input_gradients(model, text, score, kind="dot") has one entry per token.
    """
    _validate.choice("kind", kind, KINDS)
    gradient, x = embedding_gradient(model, text, score, after_norm=kind == "sum")
    if kind == "norm":
        return gradient.norm(dim=-1)
    return (gradient * x if kind == "dot" else gradient).sum(dim=-1).abs()


@torch.inference_mode(False)  # where no gradient exists
def embedding_gradient(
    model: Model, text: str, score: Score, *, after_norm: bool = False
) -> tuple[Tensor, Tensor]:
    """∂score/∂x_t and the vectors x_t themselves: (T, D) each. No parameter's .grad changes.

    model, text, score: as in `blank_out`.
    after_norm: whether x_t is what enters the first layer, after the LayerNorm of the embeddings
        where there is one, instead of the word embedding.

    Raises ValueError as `blank_out` does, and for a score without a finite gradient.

    Example: gradient, x = embedding_gradient(model, text, score)
    """
    inputs, seen = _inputs(model, text, score), []

    def start_here(x: Tensor) -> Tensor:
        seen.append(x.detach().requires_grad_())
        return seen[-1]

    def enter(_layer, args):  # layers can be shared: only the first time counts
        return args if seen else (start_here(args[0]), *args[1:])

    with torch.enable_grad(), ExitStack() as hooks:
        if after_norm:
            layer = anatomy.blocks(model.network)[0].layer
            hooks.enter_context(layer.register_forward_pre_hook(enter))
        for table in [] if after_norm else _tables(model.network):
            hooks.enter_context(table.register_forward_hook(lambda *call: start_here(call[-1])))
        value = _validate.score(score(_output(model, inputs)), model)
    x, gradient = seen[0], None
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, x, allow_unused=True)
    if gradient is None:
        raise ValueError(
            "score does not depend on the embeddings as far as gradients can tell; compute it from "
            "the model's output, without .item(), .detach() or torch.no_grad()."
        )
    if not gradient.isfinite().all():
        raise ValueError("The gradient of score is NaN or infinite; choose a smoother score.")
    return gradient[0], x.detach()[0]


def value_zeroing(model: Model, text: str) -> Tensor:
    """How far the output at i turns when token j's value vectors are zeroed: (L, T, T), in [0, 1].

    In one layer at a time the value vectors of token j are set to zero in all heads, and the whole
    layer, feed-forward network included, runs again on its true input: 1 − cosine(new output of i,
    true output of i), rows divided by their sums (Mohebbi et al. 2023, arXiv 2301.12971). Turns no
    larger than rounding count as 0; a row where nothing turns stays 0.

    model, text: as in `trace`; in an encoder-decoder, the encoder is read.

    Raises ValueError as `trace` does, and where a layer is not what its weights say.

    Example: value_zeroing(load_model(), "The keys are here.")[0] is the map of the first layer.
    """
    _validate.model(model)
    attention = "encoder" if model.network.config.is_encoder_decoder else None
    parts = anatomy.blocks(model.network, attention)
    calls = []
    with ExitStack() as hooks:
        for layer in dict.fromkeys(part.layer for part in parts):  # layers can be shared
            hooks.enter_context(
                layer.register_forward_hook(lambda _, *call: calls.append(call), with_kwargs=True)
            )
        run = trace(model, text, attention=attention)
    _validate.values(run)
    _validate.states(model, *(_states(output) for *_, output in calls))
    with torch.no_grad():
        layers = zip(parts, run.blocks, calls, strict=True)
        return torch.stack([_turns(part, block, *call) for part, block, call in layers])


def _inputs(model: Model, text: str, score: Score) -> dict[str, Tensor]:
    """The text as a batch of one, after the checks that blank-out and gradients share."""
    _validate.model(model)
    _validate.network(model)
    _validate.one_text(model)
    _validate.function("score", score, "from the model's output to one number")
    return dict(encode(model, text))


def _blank_id(model: Model, blank: str | int | None) -> int | None:
    """The id of the token that replaces the others; None if the model has no such token."""
    words, rows = model.tokenizer, model.network.get_input_embeddings().num_embeddings
    named = {"[MASK]": words.mask_token_id, "[UNK]": words.unk_token_id}
    known = {token: number for token, number in named.items() if number is not None}
    number = next(iter(known.values()), None) if blank is None else blank
    if isinstance(blank, str):
        number = known.get(blank, words.get_vocab().get(blank))
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    return int(number) if whole and 0 <= number < rows else None


def _excluded(model: Model, ids: Tensor, exclude: int | Sequence[int] | None) -> Sequence[int]:
    """The positions that are not measured."""
    if exclude is None:
        return [t for t, number in enumerate(ids) if number == model.tokenizer.mask_token_id]
    return exclude if isinstance(exclude, list | tuple | range | set) else [exclude]


def _reads_batches(model: Model) -> bool:
    """Whether the whole network reads texts of one length together."""
    # These heads look for the last token before the padding; without padding they refuse a batch.
    looks = type(model.network).__name__.endswith("ForSequenceClassification")
    return not looks or model.network.config.pad_token_id is not None


def _tables(network: nn.Module) -> list[nn.Module]:
    """The network's embedding tables: T5's encoder has one of its own with the same weights."""
    weight = network.get_input_embeddings().weight
    tables = [module for module in network.modules() if isinstance(module, nn.Embedding)]
    return [table for table in tables if table.weight is weight]


def _output(model: Model, inputs: dict[str, Tensor]) -> ModelOutput:
    """The network's whole output, with no cache for later calls."""
    caches = "use_cache" in signature(model.network.forward).parameters
    return model.network(**inputs, **{"use_cache": False} if caches else {})


def _one(value, n: int):
    """A batch's output for its n-th text alone; every tensor keeps a batch axis of 1."""
    if isinstance(value, Tensor):
        return value[n : n + 1]
    if isinstance(value, tuple):
        return tuple(_one(part, n) for part in value)
    if isinstance(value, ModelOutput):
        return type(value)(**{name: _one(part, n) for name, part in value.items()})
    return None  # a cache, which no score needs


def _turns(part: anatomy.Anatomy, block: Block, args, kwargs, output) -> Tensor:
    """One layer's map from its true call: (T, T)."""
    true, T = _unit(output), block.attention.shape[-1]
    columns = []
    for tokens in torch.arange(T, device=block.x.device).split(max(1, TOKENS // T)):
        # Without j's values a context loses α_ij v_j: the same as α_ij = 0, not normalised again.
        alpha = block.attention.repeat(len(tokens), 1, 1, 1)  # (tokens, H, T, T)
        alpha[tokens - tokens[0], :, :, tokens] = 0
        context = (alpha @ values(block)).transpose(1, 2).flatten(2)  # (tokens, T, H d)
        with part.project.register_forward_pre_hook(lambda *_, context=context: context):
            new = part.layer(args[0].expand(len(tokens), -1, -1), *args[1:], **kwargs)
        # 1 − cosine without its loss of digits: half the squared distance of the unit vectors.
        columns.append((_unit(new) - true).square().sum(dim=-1) / 2)
    turns = torch.cat(columns).T
    turns[turns < (16 * torch.finfo(block.x.dtype).eps) ** 2] = 0  # rounding
    total = turns.sum(dim=-1, keepdim=True)
    return (turns / total.where(total > 0, 1.0)).to(block.x)


def _unit(output: Tensor | tuple) -> Tensor:
    """A layer's output states at length 1, (batch, T, D), in float64, which not every GPU has."""
    return nn.functional.normalize(_states(output).to("cpu", torch.float64), dim=-1)


def _states(output: Tensor | tuple) -> Tensor:
    """The hidden states among what a layer returns: (batch, T, D)."""
    return output[0] if isinstance(output, tuple) else output
