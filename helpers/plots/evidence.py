"""Whole figures of a map beside its judge: gold links, or the effect of perturbing the model.

Arguments, titles and figures are as in `figures`.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import _validate
from helpers.alignment import SETTINGS, align, score_words
from helpers.datasets import AlignedPair
from helpers.plots.bars import token_bars
from helpers.plots.figures import Size, one_map, row_shares, two_bars
from helpers.plots.maps import heatmap, links, map_size
from helpers.plots.style import OTHERS, appearance, picture, styled
from helpers.tables import YARDSTICKS, Measured, rank_correlation
from helpers.tracing import Trace


@styled()
def draw_alignment(
    run: Trace,
    pair: AlignedPair,
    layer: int,
    head: int | None = None,
    *,
    measure: str = "norm",
    setting: str = "AWO",
    vmax: float | None = 1.0,
    figsize: Size = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw one cross-attention map by words, with the links read off it and the gold links.

    Each row is divided by its sum; the last column is what falls on the end symbol, which means no
    link (Kobayashi et al. 2020, section 5).

    run: trace(model, pair.source, target=pair.target).
    pair: two sentences, words separated by spaces, and the gold links between them.
    layer, head: from 0; None is all heads.
    measure: "weight" or "norm".
    setting: "AWO" or "AWI", as in `alignment.align`.
    vmax: the last colour; None is the largest share.
    ax: where to draw; without it, in a figure of its own.

    Raises ValueError for a run that is not cross-attention over sentences of as many words, and for
    a layer, head, measure or setting that does not exist.

    Example: `plots.draw_alignment(run, pair, layer=4)`.
    """
    values, name = one_map(run, measure, layer, head)
    scores = values, run.words, run.key_words, setting
    sides = _sides(run, pair)
    if ax is None:
        width, height = map_size(*sides)
        ax = picture(*figsize or (max(width, 4.2), height + 0.2)).subplots()
    title = f"{setting}, {measure}, {name}"
    options = {"title": title, "cmap": f"{measure}s", "vmax": vmax}
    heatmap(row_shares(score_words(*scores)), *sides, **options, ax=ax)
    links(align(*scores), pair.gold, ax=ax)
    if ax.get_ylabel():
        side = "written by" if setting == SETTINGS[0] else "fed to"
        ax.set_ylabel(f"target word ({side} the row)")
    return ax.figure


@styled()
def draw_yardstick(
    measured: Measured,
    map_name: str,
    layer: int,
    yardstick: str = YARDSTICKS[0],
    *,
    figsize: Size = None,
) -> Figure:
    """Draw the row of [MASK] in one map beside one yardstick, with their rank correlation.

    The map is shown as shares of all tokens but [MASK], the yardstick as it is.

    measured: what `tables.measure` returned.
    map_name: one of `tables.MAPS`.
    layer: from 0.
    yardstick: one of those that were measured.

    Raises ValueError for a map, a yardstick or a layer that was not measured.

    Example: `plots.draw_yardstick(measure(model, text), "rollout Attn-W", layer=-1)`.
    """
    _validate.instance("measured", measured, Measured, "make one with tables.measure()")
    _validate.choice("map_name", map_name, tuple(measured.rows))
    _validate.choice("yardstick", yardstick, tuple(measured.yardsticks))
    layer = _validate.index("layer", layer, len(measured.rows[map_name]))
    row, effect = measured.rows[map_name][layer].clone(), measured.yardsticks[yardstick]
    row[measured.mask] = float("nan")
    figure, (left, right) = two_bars(measured.tokens, figsize)
    options = {"title": f"{map_name}, layer {layer + 1}: row of [MASK]", "label": "share"}
    options |= {"vmax": None, "color": appearance(map_name, 0)[0], "ax": left}
    token_bars(row / row.nansum(), measured.tokens, **options)
    agreement = f"{rank_correlation(row, effect):.2f}".replace("-", "−")
    title = f"{yardstick}, rank correlation {agreement}"
    options |= {"title": title, "label": "size of the effect", "color": OTHERS[-1], "ax": right}
    token_bars(effect, measured.tokens, **options)
    return figure


def _sides(run: Trace, pair: AlignedPair) -> tuple[list[str], list[str]]:
    """The words of the target and of the source, with a last one for no link."""
    _validate.instance("pair", pair, AlignedPair, "take one of read_alignments()")
    for side, read in (("target", run.words), ("source", run.key_words)):
        given, there = len(getattr(pair, side).split()), len(set(read) - {None})
        if not run.is_cross or given != there:
            raise ValueError(
                f"run must be cross-attention over pair, whose {side} has {given} words, got "
                f"{there}; trace(model, pair.source, target=pair.target)."
            )
    return pair.target.split(), [*pair.source.split(), "(no link)"]
