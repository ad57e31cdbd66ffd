"""From a Trace to a whole figure: one pure function per picture, shared by cells and widgets.

Arguments count from 0, negative ones from the end; titles count from 1, as in the papers. A Figure
is made outside pyplot: a cell that ends with it shows one picture, and none of yours is closed.
`figsize` is in inches; without it a figure fits its tokens, and is never too wide for a notebook.

`queries` and `keys` choose the part of a long text that is shown: a range, a slice or a list of
positions, such as `queries=range(200, 260)`. Colours and shares stay those of the whole text.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from helpers import _validate
from helpers.block import mixing_ratio, stage_map
from helpers.norms import transformed_norms
from helpers.plots import labels, windows
from helpers.plots.bars import token_bars
from helpers.plots.maps import AROUND, BAR, cells, heatmap, map_height, map_size
from helpers.plots.style import colour, inches, picture, stage_cmap, styled
from helpers.tracing import Trace

MEASURES = ("weight", "norm")
BARS = 2.4  # inches of a panel of bars
Size = tuple[float, float] | None
Window = windows.Window


@styled()
def draw_attention(
    run: Trace,
    layer: int,
    head: int | None = None,
    *,
    vmax: float | None = 1.0,
    queries: Window = None,
    keys: Window = None,
    figsize: Size = None,
    **kwargs,
) -> Figure:
    """Draw the attention weights of one layer and one head, or their mean over all heads.

    run: what `trace` returned.
    layer, head: from 0; None is all heads.
    vmax: the last colour; 1 makes pictures comparable, None is the largest weight of this map.
    queries, keys: the part that is shown; its colours are those of the whole map.
    **kwargs: go to `plots.heatmap`: title, cmap, …

    Raises ValueError for a layer, a head or a part that the run does not have.

    Example: `plots.draw_attention(run, layer=0, head=2, queries=range(5))`.
    """
    weights, name = one_map(run, MEASURES[0], layer, head)
    part, *sides = window(run, queries, keys)
    figure = picture(*inches(figsize, map_size(*sides)))
    options = {"title": f"Attention weights, {name}", "vmax": vmax, **part} | kwargs
    heatmap(weights, run.tokens, run.keys, ax=figure.subplots(), **options)
    return figure


@styled()
def draw_weight_and_norm(
    run: Trace,
    layer: int,
    head: int | None = None,
    *,
    queries: Window = None,
    keys: Window = None,
    figsize: Size = None,
) -> Figure:
    """Draw weights and norms of the same layer and head side by side, rows divided by their sums.

    Both maps share one range, 0 to the larger maximum. For all heads they are Attn-W and Attn-N,
    for one head α and ‖αf(x)‖ (Kobayashi et al. 2020).

    run: what `trace` returned.
    layer, head: from 0; None is all heads.
    queries, keys: the part that is shown; rows are divided by their sums over all keys.

    Raises ValueError for a layer, a head or a part that the run does not have.

    Example: `plots.draw_weight_and_norm(run, layer=3)`.
    """
    maps = [one_map(run, measure, layer, head) for measure in MEASURES]
    shares = [row_shares(values) for values, _ in maps]
    part, shown, read = window(run, queries, keys)
    width = AROUND + labels.room(shown) + 2 * (cells(len(read)) + BAR)
    figure = picture(*inches(figsize, (width, map_height(shown, read))))
    options = {"vmax": max(float(share.max()) for share in shares), **part}
    for n, ax in enumerate(figure.subplots(1, 2, sharey=True)):
        title = f"{MEASURES[n].capitalize()}s, {maps[n][1]}"
        cmap = f"{MEASURES[n]}s"
        heatmap(shares[n], run.tokens, run.keys, title=title, cmap=cmap, ax=ax, **options)
    return figure


@styled()
def draw_stage(
    run: Trace,
    stage: str,
    layer: int,
    *,
    vmax: float | None = 1.0,
    queries: Window = None,
    keys: Window = None,
    figsize: Size = None,
) -> Figure:
    """Draw one stage's map, rows divided by their sums, beside its mixing ratios.

    run: what `trace` returned.
    stage: one of `run.stages`.
    layer: from 0.
    vmax: the last colour of the map; None is its largest share.
    queries, keys: the part that is shown; shares and the mean ratio are those of the whole text.

    Raises ValueError for a stage, a layer or a part that this run does not have.

    Example: `plots.draw_stage(run, "AttnRes-N", layer=2)`.
    """
    maps, ratios = stage_map(run, stage), mixing_ratio(run, stage)
    layer = _validate.index("layer", layer, len(maps))
    part, *sides = window(run, queries, keys)
    figure, (left, right) = map_and_bars(*sides, sides[0], figsize)
    options = {
        "title": f"{stage}, layer {layer + 1}",
        "cmap": stage_cmap(stage),
        "vmax": vmax,
        "ax": left,
        **part,
    }
    heatmap(row_shares(maps[layer]), run.tokens, **options)
    title = f"Mixing ratio, mean {ratios[layer].mean():.2f}"
    options = {"label": "mixing ratio", "color": colour(stage), "rows": queries, "ax": right}
    token_bars(ratios[layer], run.tokens, title=title, **options)
    return figure


def one_map(run: Trace, measure: str, layer: int, head: int | None) -> tuple[Tensor, str]:
    """Weights or norms of one layer and head, or of all heads together, (T, S), and their name."""
    _validate.run(run)
    _validate.choice("measure", measure, MEASURES)
    layer = _validate.index("layer", layer, len(run.blocks))
    if head is None:
        stage = "Attn-W" if measure == "weight" else "Attn-N"
        return stage_map(run, stage)[layer], f"layer {layer + 1}, all heads"
    head = _validate.index("head", head, run.attention.shape[1])
    values = run.attention[layer, head]
    if measure == "norm":
        values = values * transformed_norms(run)[layer, head]  # ‖αf(x)‖ of one head alone
    return values, f"layer {layer + 1}, head {head + 1}"


def row_shares(values: Tensor) -> Tensor:
    """Each row divided by its sum; a row of zeros stays one: the shape of `values`."""
    total = values.sum(dim=-1, keepdim=True)
    return values / total.where(total > 0, 1.0)


def window(run: Trace, queries: Window, keys: Window) -> tuple[dict, list[str], list[str]]:
    """What `heatmap` is told of a part of a text, and the names of its rows and columns."""
    rows = windows.positions("queries", queries, len(run.tokens))
    columns = windows.positions("keys", keys, len(run.keys))
    sides = [run.tokens[n] for n in rows], [run.keys[n] for n in columns]
    return {"rows": rows, "columns": columns}, *sides


def map_and_bars(
    rows: list[str], columns: list[str], bars: list[str], figsize: Size, sharey: bool = True
) -> tuple[Figure, tuple[Axes, Axes]]:
    """A figure with room for a map and, to its right, bars: one per row, or with names of theirs.

    rows, columns, bars: the names of each. sharey: whether the bars are those of the rows.
    """
    width, height = map_size(rows, columns)
    own = 0 if sharey else labels.room(bars)
    usual = width + BARS + own, max(height, map_height(bars, columns))
    figure = picture(*inches(figsize, usual))
    side = figure.get_figwidth() - BARS - own
    return figure, figure.subplots(1, 2, width_ratios=(side, BARS + own), sharey=sharey)


def two_bars(tokens: list[str], figsize: Size) -> tuple[Figure, tuple[Axes, Axes]]:
    """A figure with room for two panels of bars, one per token."""
    figure = picture(*inches(figsize, (8.0, map_height(tokens, []))))
    return figure, figure.subplots(1, 2, sharey=True)
