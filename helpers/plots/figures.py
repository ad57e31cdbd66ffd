"""From a Trace to a whole figure: one pure function per picture, shared by cells and widgets.

Arguments count from 0, negative ones from the end; titles count from 1, as in the papers. A Figure
is made outside pyplot: a cell that ends with it shows one picture, and none of yours is closed.
`figsize` is in inches; without it a figure fits its tokens, and is never too wide for a notebook.
"""

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from helpers import _validate
from helpers.block import MEASURED, TABLE, mixing_ratio, stage_map
from helpers.norms import weighted_norms
from helpers.paths import flow, rollout
from helpers.plots import labels
from helpers.plots.bars import token_bars
from helpers.plots.maps import AROUND, BAR, cells, heatmap, map_height, map_size
from helpers.plots.style import colour, picture, stage_cmap, styled
from helpers.tracing import Trace

MEASURES = ("weight", "norm")
BARS = 2.4  # inches of a panel of bars
Size = tuple[float, float] | None


@styled()
def draw_attention(
    run: Trace,
    layer: int,
    head: int | None = None,
    *,
    vmax: float | None = 1.0,
    figsize: Size = None,
    **kwargs,
) -> Figure:
    """Draw the attention weights of one layer and one head, or their mean over all heads.

    run: what `trace` returned.
    layer, head: from 0; None is all heads.
    vmax: the last colour; 1 makes pictures comparable, None is the largest weight of this map.
    **kwargs: go to `plots.heatmap`: title, cmap, …

    Raises ValueError for a layer or head that the model does not have.

    Example: `plots.draw_attention(run, layer=0, head=2)`.
    """
    weights, name = one_map(run, MEASURES[0], layer, head)
    figure = picture(*figsize or map_size(run.tokens, run.keys))
    options = {"title": f"Attention weights, {name}", "vmax": vmax} | kwargs
    heatmap(weights, run.tokens, run.keys, ax=figure.subplots(), **options)
    return figure


@styled()
def draw_weight_and_norm(
    run: Trace, layer: int, head: int | None = None, *, figsize: Size = None
) -> Figure:
    """Draw weights and norms of the same layer and head side by side, rows divided by their sums.

    Both maps share one range, 0 to the larger maximum. For all heads they are Attn-W and Attn-N,
    for one head α and ‖αf(x)‖ (Kobayashi et al. 2020).

    run: what `trace` returned.
    layer, head: from 0; None is all heads.

    Raises ValueError for a layer or head that the model does not have.

    Example: `plots.draw_weight_and_norm(run, layer=3)`.
    """
    maps = [one_map(run, measure, layer, head) for measure in MEASURES]
    shares = [row_shares(values) for values, _ in maps]
    width = AROUND + labels.room(run.tokens) + 2 * (cells(len(run.keys)) + BAR)
    figure = picture(*figsize or (width, map_height(run.tokens, run.keys)))
    options = {"vmax": max(float(share.max()) for share in shares)}
    for n, ax in enumerate(figure.subplots(1, 2, sharey=True)):
        title = f"{MEASURES[n].capitalize()}s, {maps[n][1]}"
        cmap = f"{MEASURES[n]}s"
        heatmap(shares[n], run.tokens, run.keys, title=title, cmap=cmap, ax=ax, **options)
    return figure


@styled()
def draw_stage(
    run: Trace, stage: str, layer: int, *, vmax: float | None = 1.0, figsize: Size = None
) -> Figure:
    """Draw one stage's map, rows divided by their sums, beside its mixing ratios.

    run: what `trace` returned.
    stage: one of `run.stages`.
    layer: from 0.
    vmax: the last colour of the map; None is its largest share.

    Raises ValueError for a stage or a layer that this run does not have.

    Example: `plots.draw_stage(run, "AttnRes-N", layer=2)`.
    """
    maps, ratios = stage_map(run, stage), mixing_ratio(run, stage)
    layer = _validate.index("layer", layer, len(maps))
    figure, (left, right) = _map_and_bars(run, figsize)
    options = {
        "title": f"{stage}, layer {layer + 1}",
        "cmap": stage_cmap(stage),
        "vmax": vmax,
        "ax": left,
    }
    heatmap(row_shares(maps[layer]), run.tokens, **options)
    title = f"Mixing ratio, mean {ratios[layer].mean():.2f}"
    options = {"label": "mixing ratio", "color": colour(stage), "ax": right}
    token_bars(ratios[layer], run.tokens, title=title, **options)
    return figure


@styled()
def draw_rollout(
    run: Trace,
    stage: str = "Attn-W",
    residual: float | Tensor | Literal["measured"] = 0.5,
    layer: int = -1,
    query: int = 0,
    *,
    vmax: float | None = None,
    figsize: Size = None,
) -> Figure:
    """Draw rollout up to a layer, beside the row of one query (Abnar & Zuidema 2020, section 3).

    run: what `trace` returned, of self-attention.
    stage: one of `run.stages`.
    residual: as in `residual_of`.
    layer, query: from 0, negative ones from the end.
    vmax: the last colour of the map; None is its largest share.

    Raises ValueError for a stage, layer or query that this run does not have, an invalid residual,
    and a run of cross-attention.

    Example: `plots.draw_rollout(run, "Attn-N", "measured", query=2)`.
    """
    maps, kept, layer, query = _path(run, stage, residual, layer, query)
    values = rollout(maps, kept)[layer]
    figure, (left, right) = _map_and_bars(run, figsize)
    title = f"Rollout over {stage}, layer {layer + 1}"
    heatmap(values, run.tokens, title=title, cmap=stage_cmap(stage), vmax=vmax, ax=left)
    options = {"label": "share of the row", "color": colour(stage), "vmax": None}
    title = f"Row of {_query(run, query)}"
    token_bars(values[query], run.tokens, title=title, ax=right, **options)
    return figure


@styled()
def draw_flow(
    run: Trace,
    stage: str = "Attn-W",
    residual: float | Tensor | Literal["measured"] = 0.5,
    layer: int = -1,
    query: int = 0,
    *,
    figsize: Size = None,
) -> Figure:
    """Draw what one query gets from each input token, by rollout and by flow, on one range.

    Arguments and errors are those of `draw_rollout` (Abnar & Zuidema 2020, section 3).

    Example: `plots.draw_flow(run, "AttnResLn-N", query=2)`.
    """
    maps, kept, layer, query = _path(run, stage, residual, layer, query)
    rows = {
        "Rollout": rollout(maps, kept)[layer, query],
        "Flow": flow(maps, kept, layer=layer, query=query),
    }
    figure, axes = two_bars(run.tokens, figsize)
    options = {"vmax": 1.05 * max(float(row.max()) for row in rows.values())}
    options |= {"label": f"share of the row ({_query(run, query)})", "color": colour(stage)}
    for ax, (name, row) in zip(axes, rows.items(), strict=True):
        title = f"{name} over {stage}, layer {layer + 1}"
        token_bars(row, run.tokens, title=title, ax=ax, **options)
    return figure


def residual_of(run: Trace, stage: str, residual: float | Tensor | Literal["measured"]):
    """The residual for `rollout` and `flow` over one stage: a number in [0, 1], or (L, T).

    It is 0 for the stages that hold the residual in their map, whatever was asked for. "measured"
    is 1 − the mixing ratio of "AttnResLn-N", or of "AttnRes-N" where there is no LayerNorm.
    """
    if TABLE[stage].residual:
        return 0.0
    if isinstance(residual, str):
        _validate.choice("residual", residual, ("measured",))
        return 1 - mixing_ratio(run, next(name for name in MEASURED if name in run.stages))
    return residual


def _path(run: Trace, stage: str, residual, layer: int, query: int) -> tuple:
    """What goes through several layers: the maps, the residual, the layer and the query."""
    maps = stage_map(run, stage)
    if run.is_cross:
        raise ValueError(
            "run is cross-attention, from target to source, which does not go through layers; "
            'trace with attention="encoder" or "decoder".'
        )
    layer = _validate.index("layer", layer, len(maps))
    query = _validate.index("query", query, len(run.tokens))
    return maps, residual_of(run, stage, residual), layer, query


def one_map(run: Trace, measure: str, layer: int, head: int | None) -> tuple[Tensor, str]:
    """Weights or norms of one layer and head, or of all heads together, (T, S), and their name."""
    _validate.run(run)
    _validate.choice("measure", measure, MEASURES)
    layer = _validate.index("layer", layer, len(run.blocks))
    if head is None:
        stage = "Attn-W" if measure == "weight" else "Attn-N"
        return stage_map(run, stage)[layer], f"layer {layer + 1}, all heads"
    head = _validate.index("head", head, run.attention.shape[1])
    values = run.attention if measure == "weight" else weighted_norms(run)
    return values[layer, head], f"layer {layer + 1}, head {head + 1}"


def row_shares(values: Tensor) -> Tensor:
    """Each row divided by its sum; a row of zeros stays one: the shape of `values`."""
    total = values.sum(dim=-1, keepdim=True)
    return values / total.where(total > 0, 1.0)


def _query(run: Trace, query: int) -> str:
    return f"query {query + 1}: {labels.short(run.tokens[query])}"


def _map_and_bars(run: Trace, figsize: Size) -> tuple[Figure, tuple[Axes, Axes]]:
    """A figure with room for a map of the run and, to its right, a bar per row."""
    width, height = map_size(run.tokens, run.tokens)
    figure = picture(*figsize or (width + BARS, height))
    side = figure.get_figwidth() - BARS
    return figure, figure.subplots(1, 2, width_ratios=(side, BARS), sharey=True)


def two_bars(tokens: list[str], figsize: Size) -> tuple[Figure, tuple[Axes, Axes]]:
    """A figure with room for two panels of bars, one per token."""
    figure = picture(*figsize or (8.0, map_height(tokens, [])))
    return figure, figure.subplots(1, 2, sharey=True)
