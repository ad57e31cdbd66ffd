"""What is found by disturbing the model: a token blanked, a gradient taken, a value vector zeroed.

AZ20 is Abnar & Zuidema 2020, which compares attention with the first two.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from inspect import signature

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from transformers.utils import ModelOutput

from helpers import anatomy
from helpers.arguments import check_choice, real_array
from helpers.encode import blank_id, encode, excluded
from helpers.fitness import (
    check_finite,
    check_network,
    check_one_text,
    check_weights,
    reads_batches,
)
from helpers.models import Model, check_model
from helpers.parts import values
from helpers.trace import Block, trace

Score = Callable[[ModelOutput], Tensor]  # the output for one text, batch axis 1 → one number
TOKENS = 1024  # at most so many in one pass, which bounds the memory


def blank_out(
    model: Model,
    text: str,
    score: Score,
    blank: str | int | None = None,
    *,
    exclude: int | Sequence[int] | None = None,
) -> Tensor:
    """How far the score moves if token t is replaced, |score − score without t|: (T,), ≥ 0 (AZ20).

    `score` gets the network's whole output for one text, with a batch axis of 1, and returns one
    number. `blank` replaces each token in turn, the special tokens at both ends too: by default
    the mask token, or the unknown token where there is none. Another is given by its text or its
    number; "[MASK]" and "[UNK]" (which AZ20 use) are understood for every model that has them.

    NaN stands where nothing was measured: at tokens that are `blank` already, and at the positions
    `exclude`, by default those of the mask token, whose prediction is what such a text asks for.

    Raises ValueError as `trace` does, and for a model that does not read one text, a `blank` that
    is no token, an `exclude` outside the text, and a score that is not one finite number.
    """
    inputs = _inputs(model, text, score)
    ids, number = inputs["input_ids"][0], blank_id(model, blank)
    skipped = (ids == number) | excluded(model, ids, exclude)
    texts = ids.repeat(len(ids) + 1, 1)  # the text itself, then one copy a token
    texts[1:].fill_diagonal_(number)
    scores = []
    with torch.no_grad():
        for rows in texts.split(max(1, TOKENS // len(ids)) if reads_batches(model) else 1):
            batch = {name: tensor.repeat(len(rows), 1) for name, tensor in inputs.items()}
            output = _output(model, batch | {"input_ids": rows})
            scores += [_value(model, score, _one(output, n)) for n in range(len(rows))]
    whole, *without = scores
    return (torch.stack(without) - whole).abs().masked_fill(skipped, torch.nan)


def input_gradients(
    model: Model, text: str, score: Score, times_input: bool = False, *, length: bool = False
) -> Tensor:
    """Gradient of the score at each word embedding x_t, |Σ_d ∂score/∂x_td|: (T,), ≥ 0 (AZ20).

    With `times_input` it is |Σ_d x_td ∂score/∂x_td|, with `length` ‖∂score/∂x_t‖. Mind the plain
    sum: where a LayerNorm reads x_t + positions, as in BERT, adding one number to all entries of
    x_t changes nothing, so the sum is 0 for every token but for rounding. Take one of the other two
    there. `score` as in `blank_out`.

    Raises ValueError as `embedding_gradient` does, and for both options at once.
    """
    for name, flag in (("times_input", times_input), ("length", length)):
        check_choice(name, flag, (True, False))
    if times_input and length:
        raise ValueError("times_input and length exclude each other; choose one.")
    gradient, x = embedding_gradient(model, text, score)
    if length:
        return gradient.norm(dim=-1)
    return (gradient * x if times_input else gradient).sum(dim=-1).abs()


@torch.inference_mode(False)  # where no gradient exists
def embedding_gradient(model: Model, text: str, score: Score) -> tuple[Tensor, Tensor]:
    """∂score/∂x_t and the word embeddings x_t themselves: (T, D) each.

    x_t is the output of the network's embedding table, before positions are added. `score` as in
    `blank_out`. Nothing is added to the parameters' .grad.

    Raises ValueError as `trace` does, and for a model that does not read one text, a score that is
    not one finite number or does not depend on the embeddings, and a gradient that is not finite.
    """
    inputs = _inputs(model, text, score)
    seen = []

    def start_here(_module, _args, embedded):
        seen.append(embedded.detach().requires_grad_())
        return seen[-1]

    weight = model.network.get_input_embeddings().weight
    with torch.enable_grad(), ExitStack() as hooks:
        for table in model.network.modules():
            # T5's encoder has a table of its own with the same weights.
            if isinstance(table, nn.Embedding) and table.weight is weight:
                hooks.enter_context(table.register_forward_hook(start_here))
        value = _value(model, score, _output(model, inputs))
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
    """How far position i turns in a layer if j's value vectors are zero: (L, T, T), in [0, 1].

    In one layer at a time the value vectors of token j are set to zero in all heads, and the whole
    layer, feed-forward network included, runs again on its true input: 1 − cosine(new output of i,
    true output of i), rows divided by their sums (Mohebbi et al. 2023, arXiv 2301.12971). Turns
    that are no larger than rounding count as 0; a row where nothing turns stays 0. Of an
    encoder-decoder, the encoder is read.

    Raises ValueError as `trace` does.
    """
    check_model(model)
    attention = "encoder" if model.network.config.is_encoder_decoder else None
    parts = anatomy.blocks(model.network, attention)
    calls = []
    with ExitStack() as hooks:
        for layer in dict.fromkeys(part.layer for part in parts):  # layers can be shared
            hooks.enter_context(
                layer.register_forward_hook(lambda _, *call: calls.append(call), with_kwargs=True)
            )
        run = trace(model, text, attention=attention)
    check_finite(model, *(_states(output) for *_, output in calls))
    with torch.no_grad():
        layers = zip(parts, run.blocks, calls, strict=True)
        return torch.stack([_turns(part, block, *call) for part, block, call in layers])


def rank_correlation(a: Sequence[float] | Tensor, b: Sequence[float] | Tensor) -> float:
    """Spearman's rank correlation of two vectors (n,), in [−1, 1]; equal values share a mean rank.

    Only positions finite in both count. NaN, which means missing, where fewer than 3 are left or
    one side is constant there. Raises ValueError unless both are vectors of one length.
    """
    a, b = (real_array(name, v) for name, v in (("a", a), ("b", b)))
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"a and b must be vectors of one length, got {a.shape} and {b.shape}.")
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _inputs(model: Model, text: str, score: Score) -> dict[str, Tensor]:
    """The text as a batch of one, once model and score are fit to be used."""
    check_model(model)
    check_network(model)
    check_one_text(model)
    if not callable(score):
        raise TypeError(
            "score must be a function from the model's output to one number, got "
            f"{type(score).__name__}."
        )
    return dict(encode(model, text))


def _output(model: Model, inputs: dict[str, Tensor]) -> ModelOutput:
    """The network's whole output, without a cache for a next call where it would make one."""
    caches = "use_cache" in signature(model.network.forward).parameters
    return model.network(**inputs, **{"use_cache": False} if caches else {})


def _value(model: Model, score: Score, output: ModelOutput) -> Tensor:
    """What the score says, if it is one finite number: ()."""
    value = score(output)
    got = type(value).__name__
    if isinstance(value, Tensor):
        got = f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
        if value.numel() == 1 and value.is_floating_point():
            if value.isfinite():
                return value.reshape(())
            check_weights(model)
            got = f"{value.item()}"
    raise ValueError(
        f"score must return one finite number, a float tensor of one element, got {got}."
    )


def _one(value, n: int):
    """What a batch's output is for its n-th text alone: every tensor keeps a batch axis of 1."""
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
    for tokens in torch.arange(T).split(max(1, TOKENS // T)):
        # Without j's values a context loses α_ij v_j: the same as α_ij = 0, not normalised again.
        alpha = block.attention.repeat(len(tokens), 1, 1, 1)  # (tokens, H, T, T)
        alpha[torch.arange(len(tokens)), :, :, tokens] = 0
        context = (alpha @ values(block)).transpose(1, 2).flatten(2)  # (tokens, T, H d)
        with part.project.register_forward_pre_hook(lambda *_, context=context: context):
            new = part.layer(args[0].expand(len(tokens), -1, -1), *args[1:], **kwargs)
        # 1 − cosine without its loss of digits: half the squared distance of the unit vectors.
        columns.append((_unit(new) - true).square().sum(dim=-1) / 2)
    turns = torch.cat(columns).T
    turns[turns < (16 * torch.finfo(block.x.dtype).eps) ** 2] = 0  # rounding
    total = turns.sum(dim=-1, keepdim=True)
    return (turns / total.where(total > 0, 1.0)).to(block.x.dtype)


def _unit(output: Tensor | tuple) -> Tensor:
    """A layer's output states at length 1, in float64: (batch, T, D)."""
    return nn.functional.normalize(_states(output).double(), dim=-1)


def _states(output: Tensor | tuple) -> Tensor:
    """The hidden states among what a layer returns: (batch, T, D)."""
    return output[0] if isinstance(output, tuple) else output
