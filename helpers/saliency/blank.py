"""Blank-out: one token after the other is replaced, and the score moves (AZ20)."""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from helpers import _validate
from helpers.models import Model
from helpers.saliency.scored import TOKENS, Score, inputs_of, is_hooked, output_of
from helpers.tokens import Text


def blank_out(
    model: Model,
    text: Text,
    score: Score,
    blank: str | int | None = None,
    *,
    pair: Text | None = None,
    exclude: int | Sequence[int] | None = None,
) -> Tensor:
    """How far the score moves if token t is replaced, |score − score without t|: (T,), ≥ 0 (AZ20).

    model, text, pair: as in `trace`; the whole network runs, its task head included.
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
    inputs = inputs_of(model, text, pair, score)
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
            output = output_of(model, batch | {"input_ids": rows})
            outputs = [_one(output, n) for n in range(len(rows))] if len(rows) > 1 else [output]
            scores += [_validate.score(score(one), model) for one in outputs]
    whole, *without = scores
    return (torch.stack(without) - whole).abs().masked_fill(skipped, torch.nan)


def _blank_id(model: Model, blank: str | int | None) -> int | None:
    """The id of the token that replaces the others; None if the model has no such token."""
    words, rows = model.tokenizer, len(model.network.get_input_embeddings().weight)
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
    if is_hooked(model.network) or getattr(model.network.config, "output_router_logits", False):
        return False  # a router's output has no axis of texts
    return not looks or model.network.config.pad_token_id is not None


def _one(value, n: int):
    """A batch's output for its n-th text alone; every tensor keeps a batch axis of 1."""
    if isinstance(value, Tensor):
        return value[n : n + 1] if value.ndim else value  # a loss has no axis of texts
    if isinstance(value, tuple):
        return tuple(_one(part, n) for part in value)
    if isinstance(value, ModelOutput):
        return type(value)(**{name: _one(part, n) for name, part in value.items()})
    return None  # a cache, which no score needs
