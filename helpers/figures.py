"""From a Trace to a figure: one pure function a picture, shared by the cells and the widgets.

Layers, heads and queries are numbered from 1, as in the papers; −1 is the last, as in Python.
"""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import plots
from helpers.alignment import SETTINGS, Gold, align, score_words, word_of
from helpers.arguments import check_choice, check_index, check_links
from helpers.corpus import AlignedPair
from helpers.flow import flow
from helpers.labels import short
from helpers.rollout import rollout
from helpers.stages import check_stage, mixing_ratio, stage_map, weighted_norms
from helpers.trace import Trace, check_run

ALL_HEADS = "all heads"
MEASURES = ("weight", "norm")
RESIDUALS = ("0.5 everywhere", "measured, 1 − r", "none")


def draw_attention(
    run: Trace, layer: int, head: int | str = ALL_HEADS, full_range: bool = True
) -> Figure:
    """Draw the attention weights of one layer and of one head, or the mean over all heads.

    `full_range` colours from 0 to 1, so that pictures compare; otherwise up to the map's maximum.
    Raises ValueError for a layer or head that the model does not have.
    """
    layer, head = _numbers(run, layer, head)
    check_choice("full_range", full_range, (True, False))
    weights = _measured(run, MEASURES[0], layer, head)
    title = f"Attention weights, layer {layer}, {_head_name(head)}"
    options = {"title": title, "vmax": 1 if full_range else None}
    return plots.heatmap(weights, run.tokens, run.keys, **options).figure


def draw_weight_and_norm(run: Trace, layer: int, head: int | str = ALL_HEADS) -> Figure:
    """Draw weights and norms of the same layer and head, each row divided by its sum.

    Both maps share one colour range, 0 to the larger maximum. For all heads they are Attn-W and
    Attn-N, for one head α and ‖αf(x)‖. Raises ValueError for a layer or head out of range.
    """
    layer, head = _numbers(run, layer, head)
    maps = [_measured(run, measure, layer, head) for measure in MEASURES]
    maps = [m / m.sum(dim=-1, keepdim=True) for m in maps]
    vmax = max(float(m.max()) for m in maps)
    size = (5.5 + 0.4 * len(run.keys), 2.2 + 0.24 * len(run.tokens))
    figure, axes = plt.subplots(1, 2, figsize=size, layout="constrained")
    for ax, values, name in zip(axes, maps, MEASURES, strict=True):
        title = f"Share of {name}, layer {layer}, {_head_name(head)}"
        plots.heatmap(
            values, run.tokens, run.keys, title=title, label="share of the row", vmax=vmax, ax=ax
        )
    return figure


def draw_stage(run: Trace, stage: str, layer: int) -> Figure:
    """Draw one stage's map, each row divided by its sum, beside its mixing ratios.

    Raises ValueError for a stage that this run does not have or a layer out of range.
    """
    layer, _ = _numbers(run, layer)
    values, ratios = stage_map(run, stage)[layer - 1], mixing_ratio(run, stage)[layer - 1]
    figure, (left, right) = _map_and_bars(run)
    title = f"{stage}, layer {layer}"
    shares = values / values.sum(dim=-1, keepdim=True)
    plots.heatmap(shares, run.tokens, title=title, label="share of the row", vmax=1, ax=left)
    title = f"Mixing ratio, mean {ratios.mean():.2f}"
    plots.token_bars(ratios, run.tokens, title=title, label="mixing ratio", ax=right)
    return figure


def residual_of(run: Trace, stage: str, residual: str):
    """The residual for `rollout` and `flow`: a number, or (L, T), out of a name in RESIDUALS.

    It is 0 for the stages that hold the residual in their map. Measured is 1 minus the mixing
    ratio of the last stage that the run has. Raises ValueError for an unknown name or stage.
    """
    check_stage(run, stage)
    check_choice("residual", residual, RESIDUALS)
    if stage.startswith("AttnRes") or residual == "none":
        return 0.0
    return 0.5 if residual == RESIDUALS[0] else 1 - mixing_ratio(run, run.stages[-1])


def draw_rollout(run: Trace, stage: str, residual: str, layer: int, query: int) -> Figure:
    """Draw rollout up to a layer, beside the row of one query; both counted from 1.

    Raises ValueError for an unknown stage or residual, and a layer or query out of range.
    """
    maps = stage_map(_self_attention(run), stage)
    layer, query = _numbers(run, layer)[0], check_index("query", query, len(run.tokens), 1) + 1
    values = rollout(maps, residual_of(run, stage, residual))[layer - 1]
    figure, (left, right) = _map_and_bars(run)
    title = f"Rollout over {stage}, after layer {layer}"
    plots.heatmap(values, run.tokens, title=title, label="share of the input", ax=left)
    title = f"Query {query}: {short(run.tokens[query - 1])}"
    row = values[query - 1]
    plots.token_bars(
        row, run.tokens, title=title, label="share", vmax=float(row.max()) * 1.05, ax=right
    )
    return figure


def draw_flow(run: Trace, stage: str, residual: str, layer: int, query: int) -> Figure:
    """Draw what one query gets from each input token, by rollout and by flow; counted from 1.

    Both panels share one range, 0 to the larger maximum. Raises ValueError for an unknown stage
    or residual, and a layer or query out of range.
    """
    maps = stage_map(_self_attention(run), stage)
    layer, query = _numbers(run, layer)[0], check_index("query", query, len(run.tokens), 1) + 1
    kept = residual_of(run, stage, residual)
    rows = {
        "Rollout": rollout(maps, kept)[layer - 1, query - 1],
        "Flow": flow(maps, kept, layer=layer - 1, query=query - 1),
    }
    vmax = max(float(row.max()) for row in rows.values())
    size = (10, 1.8 + 0.24 * len(run.tokens))
    figure, axes = plt.subplots(1, 2, figsize=size, layout="constrained")
    token = short(run.tokens[query - 1])
    for ax, (name, row) in zip(axes, rows.items(), strict=True):
        title = f"{name} over {stage}, layer {layer}, query {query}: {token}"
        plots.token_bars(row, run.tokens, title=title, label="share", vmax=vmax, ax=ax)
    return figure


def draw_alignment(
    run: Trace,
    pair: AlignedPair,
    layer: int,
    head: int | str = ALL_HEADS,
    measure: str = MEASURES[1],
    setting: str = SETTINGS[0],
    ax: Axes | None = None,
) -> Figure:
    """Draw one cross-attention map by words, with the links read off it and the gold links.

    Each row is divided by its sum; the last column is what falls on the end symbol, which means no
    link. `measure` is "weight" or "norm", `setting` "AWO" or "AWI" (K20, section 5). Raises
    ValueError for a run that is no cross-attention or of other sentences than the pair's, a gold
    link outside them, a layer or head out of range, or another measure or setting.
    """
    _check_pair(run, pair)
    layer, head = _numbers(run, layer, head)
    scores = _measured(run, measure, layer, head), run.tokens, run.keys, setting
    by_word = score_words(*scores)
    shares = by_word / by_word.sum(dim=-1, keepdim=True)
    title = f"{setting}, {measure}, layer {layer}, {_head_name(head)}"
    ax = plots.heatmap(
        shares,
        pair.target.split(),
        [*pair.source.split(), "(no link)"],
        title=title,
        label="share of the row",
        vmax=1,
        ax=ax,
    )
    plots.links(ax, align(*scores), pair.gold)
    side = "written by" if setting == "AWO" else "fed to"
    few = len(by_word) < 7  # then the axis is shorter than the label in one line
    ax.set_ylabel(f"target word{chr(10) if few else ' '}({side} the row)")
    if few:
        ax.figure.draw_without_rendering()  # with much above so small a map, one layout is not enough
    return ax.figure


def _map_and_bars(run: Trace):
    """A figure with room for a map of the run and, to its right, a bar for each token."""
    size = (6.5 + 0.25 * len(run.keys), 2.2 + 0.24 * len(run.tokens))
    return plt.subplots(1, 2, figsize=size, width_ratios=(3, 1), layout="constrained")


def _self_attention(run: Trace) -> Trace:
    """The run, unless it is cross-attention, whose layers can not be put after each other."""
    check_run(run)
    if run.is_cross:
        raise ValueError(
            "run is cross-attention, from target to source, which does not go through layers; "
            'trace with attention="encoder" or "decoder".'
        )
    return run


def _check_pair(run: Trace, pair: AlignedPair) -> None:
    """Raise unless the run is cross-attention over the very sentences of the pair."""
    check_run(run)
    if not isinstance(pair, AlignedPair) or not isinstance(pair.gold, Gold):
        raise TypeError(
            f"pair must be an AlignedPair with a Gold, got {type(pair).__name__}; take one of "
            "read_alignments()."
        )
    if not run.is_cross:
        raise ValueError(
            'run is not cross-attention; trace(model, source, target=…, attention="cross").'
        )
    sides = {"source": pair.source.split(), "target": pair.target.split()}
    for (side, given), pieces in zip(sides.items(), (run.keys, run.tokens[1:]), strict=True):
        read = _words_of(pieces)
        # A tokenizer may write some letters otherwise, or as unknown: half of the words are enough.
        same = sum(a == b or "<unk>" in b for a, b in zip(given, read, strict=False))
        if len(read) != len(given) or 2 * same < len(given):
            raise ValueError(
                f"pair.{side} has the words {' '.join(given)[:60]!r} and run has "
                f"{' '.join(read)[:60]!r}; trace the pair's own text, words separated by spaces."
            )
    links = pair.gold.possible | pair.gold.sure
    check_links("pair.gold", links, *map(len, sides.values()))


def _words_of(pieces: list[str]) -> list[str]:
    """The words that the pieces of a text make up; special pieces are no words."""
    found: dict[int, str] = {}
    for piece, number in zip(pieces, word_of(pieces), strict=True):
        if number is not None:
            found[number] = found.get(number, "") + piece.lstrip("▁Ġ")
    return list(found.values())


def _head_name(head: int | str) -> str:
    return head if head == ALL_HEADS else f"head {head}"


def _numbers(run: Trace, layer: int, head: int | str = ALL_HEADS) -> tuple[int, int | str]:
    """Layer and head, counted from 1, if the run has them."""
    check_run(run)
    _, heads = run.attention.shape[:2]
    layer = check_index("layer", layer, len(run.blocks), 1) + 1
    if isinstance(head, str) and head == ALL_HEADS:
        return layer, head
    return layer, check_index(f'head, if not "{ALL_HEADS}",', head, heads, 1) + 1


def _measured(run: Trace, measure: str, layer: int, head: int | str):
    """Weights or norms of one layer and one head, or of all heads together: (T, S)."""
    check_choice("measure", measure, MEASURES)
    weight = measure == MEASURES[0]
    if head == ALL_HEADS:
        return stage_map(run, "Attn-W" if weight else "Attn-N")[layer - 1]
    return (run.attention if weight else weighted_norms(run))[layer - 1, head - 1]
