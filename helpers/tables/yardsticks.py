"""One text with a [MASK]: its row in every map, and the effect of perturbing the model.

This is the evaluation of Abnar & Zuidema 2020 (AZ20, section 4) for a model that scores a masked
token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from helpers import _validate
from helpers.block import TABLE, globenc, stage_map
from helpers.models import Model
from helpers.paths import flow, rollout
from helpers.saliency import blank_out, embedding_gradient, value_zeroing
from helpers.tokens import encode
from helpers.tracing import trace

COMPARED = ("Attn-W", "Attn-N", "AttnRes-N", "AttnResLn-N")
RESIDUAL = {stage: 0.0 if TABLE[stage].residual else 0.5 for stage in COMPARED}
LOCAL = ("GlobEnc", "value zeroing")  # they hold the residual, and no flow is taken over them
MAPS = (
    *RESIDUAL,
    *(f"rollout {stage}" for stage in RESIDUAL),
    *(f"flow {stage}" for stage in RESIDUAL),
    *LOCAL,
    *(f"rollout {name}" for name in LOCAL),
)
YARDSTICKS = ("blank-out", "gradient × input", "gradient length", "blank-out, [MASK]")


@dataclass(frozen=True)
class Measured:
    """One text with a [MASK]: what the maps say about it, and what perturbing the model shows.

    All tensors are on the CPU; those of the maps are float64.
    """

    tokens: list[str]  # T of them
    mask: int  # the position of [MASK]
    rows: dict[str, Tensor]  # for each of MAPS the row of [MASK] after each layer, (L, T)
    yardsticks: dict[str, Tensor]  # for each yardstick (T,), ≥ 0, NaN at [MASK]


def measure(
    model: Model,
    text: str,
    yardsticks: Sequence[str] = YARDSTICKS,
    *,
    scorer: Model | None = None,
) -> Measured:
    """The row of [MASK] in all MAPS beside some YARDSTICKS; the score is the output at [MASK].

    model: such as load_model("verb-number"), which gives one number per token.
    text: with the mask token exactly once.
    yardsticks: some of YARDSTICKS. "blank-out" puts [UNK] in the place of each token, as AZ20 do.
    scorer: what is disturbed, by default `model` itself. Give model.double() where the ranks of
        small effects matter, because these are differences of two large numbers.

    Raises ValueError as `trace` does, for a text without exactly one mask token, an unknown
    yardstick, a model that lacks one of the maps or does not give one number per token, and a
    scorer that reads other tokens than the model.

    Example: measure(load_model("verb-number"), "The keys [MASK] here.").rows["Attn-W"][-1]
    """
    run, scorer = trace(model, text), model if scorer is None else scorer
    _validate.strings("yardsticks", yardsticks)
    for name in yardsticks:
        _validate.choice("every entry of yardsticks", name, YARDSTICKS)
    mask_token, mask_id = model.tokenizer.mask_token, model.tokenizer.mask_token_id
    if run.ids.count(mask_id) != 1:
        raise ValueError(
            f"text must hold {mask_token or '[MASK]'} as one token exactly once, got it "
            f"{run.ids.count(mask_id)} times in {text!r}."
        )
    if encode(scorer, text)["input_ids"][0].tolist() != run.ids:
        raise ValueError(
            "scorer must read the same tokens as model; give the same network in double precision, "
            "model.double()."
        )
    mask = run.ids.index(mask_id)
    maps = {stage: stage_map(run, stage) for stage in RESIDUAL}
    maps |= dict(zip(LOCAL, (globenc(run), value_zeroing(model, text)), strict=True))

    def score(output) -> Tensor:
        logits = getattr(output, "logits", torch.empty(0))
        if logits.shape != (1, len(run.tokens), 1):
            raise ValueError(
                f"{scorer.name!r} does not give one number per "
                'token; use load_model("verb-number").'
            )
        return logits[0, mask, 0]

    gradient = x = None
    if any(name.startswith("gradient") for name in yardsticks):
        gradient, x = embedding_gradient(scorer, text, score)
    ask = {
        "blank-out": lambda: blank_out(scorer, text, score, blank="[UNK]"),
        "gradient × input": lambda: (gradient * x).sum(dim=-1).abs(),
        "gradient length": lambda: gradient.norm(dim=-1),
        "blank-out, [MASK]": lambda: blank_out(scorer, text, score, blank="[MASK]"),
    }
    found = {name: ask[name]().cpu() for name in yardsticks}
    for values in found.values():
        values[mask] = torch.nan
    rows = _rows(maps, mask)
    return Measured(run.tokens, mask, {name: rows[name] for name in MAPS}, found)


def rank_correlation(a: Sequence[float] | Tensor, b: Sequence[float] | Tensor) -> float:
    """Spearman's rank correlation of two vectors (n,), in [−1, 1]; equal values share a mean rank.

    a, b: only positions that are finite in both count. The correlation is NaN, which means missing,
        where fewer than 3 are left or one side is constant there.

    Raises ValueError unless both are vectors of one length.

    Example: rank_correlation(measured.rows["Attn-W"][-1], measured.yardsticks["blank-out"])
    """
    a, b = _validate.real("a", a), _validate.real("b", b)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"a and b must be vectors of one length, got {a.shape} and {b.shape}.")
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _rows(maps: dict[str, Tensor], mask: int) -> dict[str, Tensor]:
    """The row of [MASK] in each map (L, T, T), in its rollout and in its flow: (L, T) each."""
    rows = {}
    for name, stack in maps.items():
        stack = stack.to("cpu", torch.float64)  # not every GPU has float64
        rows[name] = stack[:, mask]
        rows[f"rollout {name}"] = rollout(stack, RESIDUAL.get(name, 0.0))[:, mask]
        if name in RESIDUAL:
            water = [flow(stack, RESIDUAL[name], layer, query=mask) for layer in range(len(stack))]
            rows[f"flow {name}"] = torch.stack(water).round(decimals=9)  # equal but for rounding
    return rows
