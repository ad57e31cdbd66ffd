"""Whole figures of what goes through several layers: rollout and flow.

Arguments, titles and figures are as in `figures`.
"""

from typing import Literal

from matplotlib.figure import Figure
from torch import Tensor

from helpers import _validate
from helpers.block import MEASURED, TABLE, mixing_ratio, stage_map
from helpers.paths import flow, rollout
from helpers.plots import labels
from helpers.plots.bars import token_bars
from helpers.plots.figures import Size, Window, map_and_bars, two_bars, window
from helpers.plots.maps import heatmap
from helpers.plots.style import colour, stage_cmap, styled
from helpers.tracing import Trace


@styled()
def draw_rollout(
    run: Trace,
    stage: str = "Attn-W",
    residual: float | Tensor | Literal["measured"] = 0.5,
    layer: int = -1,
    query: int = 0,
    *,
    vmax: float | None = None,
    queries: Window = None,
    keys: Window = None,
    figsize: Size = None,
) -> Figure:
    """Draw rollout up to a layer, beside the row of one query (Abnar & Zuidema 2020, section 3).

    run: what `trace` returned, of self-attention.
    stage: one of `run.stages`.
    residual: as in `residual_of`.
    layer, query: from 0, negative ones from the end.
    vmax: the last colour of the map; None is its largest share.
    queries, keys: the part that is shown: rows of the map, and its columns, which are also the
        bars. It is cut out of rollout over the whole text.

    Raises ValueError for a stage, layer, query or part that this run does not have, an invalid
    residual, and a run of cross-attention.

    Example: `plots.draw_rollout(run, "Attn-N", "measured", query=2)`.
    """
    maps, kept, layer, query = _path(run, stage, residual, layer, query)
    values = rollout(maps, kept)[layer]
    part, *sides = window(run, queries, keys)
    # The bars are keys: they stand beside the rows only where these are the same tokens.
    same = part["rows"].tolist() == part["columns"].tolist()
    figure, (left, right) = map_and_bars(*sides, sides[1], figsize, sharey=same)
    title = f"Rollout over {stage}, layer {layer + 1}"
    options = {"title": title, "cmap": stage_cmap(stage), "vmax": vmax, **part}
    heatmap(values, run.tokens, ax=left, **options)
    options = {"label": "share of the row", "color": colour(stage), "vmax": None, "rows": keys}
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
    keys: Window = None,
    figsize: Size = None,
) -> Figure:
    """Draw what one query gets from each input token, by rollout and by flow, on one range.

    Arguments and errors are those of `draw_rollout` (Abnar & Zuidema 2020, section 3); `keys` are
    the input tokens that are shown.

    Example: `plots.draw_flow(run, "AttnResLn-N", query=2)`.
    """
    maps, kept, layer, query = _path(run, stage, residual, layer, query)
    rows = {
        "Rollout": rollout(maps, kept)[layer, query],
        "Flow": flow(maps, kept, layer=layer, query=query),
    }
    figure, axes = two_bars(window(run, None, keys)[2], figsize)
    options = {"vmax": 1.05 * max(float(row.max()) for row in rows.values())}
    options |= {"label": f"share of the row ({_query(run, query)})", "color": colour(stage)}
    options |= {"rows": keys}
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
        # The last of them raises the reason where a run has neither.
        stage = next((name for name in MEASURED if name in run.stages), MEASURED[-1])
        return 1 - mixing_ratio(run, stage)
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


def _query(run: Trace, query: int) -> str:
    return f"query {query + 1}: {labels.short(run.tokens[query])}"
