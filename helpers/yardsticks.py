"""The row of [MASK] in every map of the course, beside what disturbing the model shows.

This is the evaluation of Abnar & Zuidema 2020 (AZ20, section 4) for a model that scores [MASK].
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor

from helpers import plots
from helpers.arguments import check_choice, check_index, check_strings, check_type, nearest, shown
from helpers.encode import readable
from helpers.flow import flow
from helpers.models import Model, check_model
from helpers.rollout import rollout
from helpers.saliency import blank_out, embedding_gradient, rank_correlation, value_zeroing
from helpers.stages import globenc, stage_map
from helpers.trace import Trace, trace

RESIDUAL = {"Attn-W": 0.5, "Attn-N": 0.5, "AttnRes-N": 0.0, "AttnResLn-N": 0.0}
LOCAL = ("GlobEnc", "value zeroing")  # they hold the residual, and no flow is taken over them
MAPS = (
    *RESIDUAL,
    *(f"rollout {stage}" for stage in RESIDUAL),
    *(f"flow {stage}" for stage in RESIDUAL),
    *LOCAL,
    *(f"rollout {name}" for name in LOCAL),
)
YARDSTICKS = ("blank-out", "gradient × input", "gradient length", "blank-out, [MASK]")
REMEDY = 'use load_model("verb-number")'
DECIMALS = 9  # equal flows differ in their last digits


@dataclass(frozen=True)
class Measured:
    """One text with a [MASK]: what the maps say about it, and what disturbing the model says."""

    tokens: list[str]
    mask: int  # the position of [MASK]
    rows: dict[str, Tensor]  # for each of MAPS the row of [MASK] after each layer, (L, T)
    yardsticks: dict[str, Tensor]  # for each yardstick (T,), NaN at [MASK]


def measure(
    model: Model,
    text: str,
    yardsticks: Sequence[str] = YARDSTICKS,
    *,
    scorer: Model | None = None,
) -> Measured:
    """All MAPS and some YARDSTICKS of one text; the score is the model's output at [MASK].

    "blank-out" puts [UNK] in the place of each token, as AZ20 do. `scorer` is what is disturbed, by
    default `model` itself. Give the same network in double precision where ranks of small effects
    count: they are differences of two large numbers. Raises ValueError as `trace` does, for a text
    without exactly one [MASK], an unknown yardstick, a model that has not all the maps or does not
    give one number a token, and a scorer that reads other tokens than the model.
    """
    check_model(model)
    role = "model" if scorer is None else "scorer"
    scorer = model if scorer is None else scorer
    check_type("scorer", scorer, Model, "make one with load_model(), or leave it out")
    check_strings("yardsticks", yardsticks)
    for name in yardsticks or [None]:
        check_choice("yardsticks, each of them,", name, YARDSTICKS)
    run = trace(model, text)
    mask = _mask(model, run)
    _check_tokens(scorer, text, run.tokens)

    def score(output) -> Tensor:
        logits = getattr(output, "logits", None)
        if logits is None or logits.shape != (1, len(run.tokens), 1):
            raise ValueError(f"{role} {scorer.name!r} does not give one number a token; {REMEDY}.")
        return logits[0, mask, 0]

    gradient, x = None, None
    if any(name.startswith("gradient") for name in yardsticks):
        gradient, x = embedding_gradient(scorer, text, score)
    ask = {
        "blank-out": lambda: blank_out(scorer, text, score, blank="[UNK]"),
        "gradient × input": lambda: (gradient * x).sum(dim=-1).abs(),
        "gradient length": lambda: gradient.norm(dim=-1),
        "blank-out, [MASK]": lambda: blank_out(scorer, text, score, blank="[MASK]"),
    }
    here = torch.arange(len(run.tokens)) == mask
    measured = {name: ask[name]().masked_fill(here, torch.nan) for name in yardsticks}
    local = dict(zip(LOCAL, (globenc(run), value_zeroing(model, text)), strict=True))
    rows = _rows({stage: stage_map(run, stage) for stage in RESIDUAL} | local, mask)
    return Measured(run.tokens, mask, {name: rows[name] for name in MAPS}, measured)


def draw_yardstick(
    measured: Measured, map_name: str, layer: int, yardstick: str = YARDSTICKS[0]
) -> Figure:
    """Draw the row of [MASK] in one map beside one yardstick, with their rank correlation.

    The map is shown as shares of all tokens but [MASK], the yardstick as it is. Raises ValueError
    for an unknown map, a yardstick that was not measured, and a layer out of range; −1 is the last.
    """
    check_type("measured", measured, Measured, "take one of measure()")
    if near := nearest(map_name, MAPS):
        raise ValueError(f"map_name {shown(map_name)} is unknown{near} Maps: {', '.join(MAPS)}.")
    check_choice("map_name", map_name, MAPS)
    check_choice("yardstick", yardstick, YARDSTICKS)
    if yardstick not in measured.yardsticks:
        raise ValueError(
            f"yardstick {yardstick!r} was not measured, only {', '.join(measured.yardsticks)}; "
            f'call measure(model, text, ["{yardstick}"]).'
        )
    layer = check_index("layer", layer, len(measured.rows[map_name]), 1) + 1
    row, effect = measured.rows[map_name][layer - 1].clone(), measured.yardsticks[yardstick]
    row[measured.mask] = float("nan")
    agreement = rank_correlation(row, effect)
    size = (10, 1.8 + 0.24 * len(row))
    figure, axes = plt.subplots(1, 2, figsize=size, layout="constrained")
    panels = (
        (row / row.nansum(), f"{map_name}, layer {layer}: row of [MASK]", "share"),
        (effect, f"{yardstick}, rank correlation {agreement:.2f}", "size of the effect"),
    )
    for ax, (values, title, label) in zip(axes, panels, strict=True):
        vmax = float(values.nan_to_num(0.0).max()) * 1.05 or None
        plots.token_bars(values, measured.tokens, title=title, label=label, vmax=vmax, ax=ax)
    return figure


def _mask(model: Model, run: Trace) -> int:
    """The position of [MASK], if the model and the text are such as MAPS can be read off."""
    if "[MASK]" not in model.tokenizer.get_vocab():
        raise ValueError(f"model {model.name!r} has no token [MASK], whose row is read; {REMEDY}.")
    if run.tokens.count("[MASK]") != 1:
        raise ValueError(
            f"text must hold [MASK] once, it has it {run.tokens.count('[MASK]')} times."
        )
    if "AttnResLn-N" not in run.stages:
        raise ValueError(
            f"model {model.name!r} has no LayerNorm after the residual connection, and some of MAPS "
            f"are read after it; {REMEDY}."
        )
    return run.tokens.index("[MASK]")


def _check_tokens(scorer: Model, text: str, tokens: list[str]) -> None:
    """Raise ValueError unless the scorer cuts the text into these tokens."""
    read = readable(scorer.tokenizer, scorer.tokenizer(text, verbose=False)["input_ids"])
    if read != tokens:
        raise ValueError(
            f"scorer {scorer.name!r} must cut text into the same tokens as model, got {shown(read)} "
            f"for {shown(tokens)}; give the same network in double precision."
        )


def _rows(maps: dict[str, Tensor], mask: int) -> dict[str, Tensor]:
    """The row of [MASK] in each map (L, T, T), in its rollout and in its flow: (L, T) each."""
    rows = {}
    for name, stack in maps.items():
        stack = stack.double()
        rows[name] = stack[:, mask]
        rows[f"rollout {name}"] = rollout(stack, RESIDUAL.get(name, 0.0))[:, mask]
        if name in RESIDUAL:
            water = [flow(stack, RESIDUAL[name], layer, query=mask) for layer in range(len(stack))]
            rows[f"flow {name}"] = torch.stack(water).round(decimals=DECIMALS)
    return rows
