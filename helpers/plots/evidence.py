"""Whole figures of a map beside its judge: gold links, or the effect of perturbing the model.

Arguments, titles and figures are as in `figures`.
"""

import unicodedata

import numpy as np
import regex
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import _validate
from helpers.alignment import SETTINGS, align, score_words
from helpers.datasets import AlignedPair, Gold, Link
from helpers.plots import labels, windows
from helpers.plots.bars import token_bars
from helpers.plots.figures import Size, Window, one_map, row_shares, two_bars
from helpers.plots.maps import heatmap, links, map_size
from helpers.plots.style import OTHERS, appearance, inches, picture, styled
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
    queries: Window = None,
    keys: Window = None,
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
    queries, keys: the target words and the source words that are shown, from 0 or negative from the
        end; the last column always is. Shares are those of the whole sentence.
    ax: where to draw; without it, in a figure of its own.

    Raises ValueError for a run that is not cross-attention over the words of this pair, and for a
    layer, head, measure, setting or part that does not exist.

    Example: `plots.draw_alignment(run, pair, layer=4)`.
    """
    values, name = one_map(run, measure, layer, head)
    scores = values, run.words, run.key_words, setting
    target, source = _sides(run, pair)
    _validate.links("gold", pair.gold.possible | pair.gold.sure, len(source), len(target))
    rows = windows.positions("queries", queries, len(target))
    columns = windows.positions("keys", keys, len(source))
    part = {"rows": rows, "columns": [*columns, len(source)]}
    source.append("(no link)")
    if ax is None:
        sides = [target[n] for n in rows], [source[n] for n in part["columns"]]
        width, height = map_size(*sides)
        ax = picture(*inches(figsize, (max(width, 4.2), height + 0.2))).subplots()
    options = {"title": f"{setting}, {measure}, {name}", "cmap": f"{measure}s", "vmax": vmax}
    heatmap(row_shares(score_words(*scores)), target, source, **part, **options, ax=ax)
    labels.name_units(ax.yaxis, "word", windows.span(rows, len(target), "word"))
    labels.name_units(ax.xaxis, "word", windows.span(columns, len(source) - 1, "word"))
    gold = Gold(*(_moved(found, columns, rows) for found in pair.gold))
    links(_moved(align(*scores), columns, rows), gold, ax=ax)
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
    keys: Window = None,
    figsize: Size = None,
) -> Figure:
    """Draw the row of [MASK] in one map beside one yardstick, with their rank correlation.

    The map is shown as shares of all tokens but [MASK], the yardstick as it is.

    measured: what `tables.measure` returned.
    map_name: one of `tables.MAPS`.
    layer: from 0.
    yardstick: one of those that were measured.
    keys: the tokens that are shown; shares and the correlation are those of the whole text.

    Raises ValueError for a map, a yardstick, a layer or tokens that were not measured.

    Example: `plots.draw_yardstick(measure(model, text), "rollout Attn-W", layer=-1)`.
    """
    _validate.instance("measured", measured, Measured, "make one with tables.measure()")
    _validate.choice("map_name", map_name, tuple(measured.rows))
    _validate.choice("yardstick", yardstick, tuple(measured.yardsticks))
    layer = _validate.index("layer", layer, len(measured.rows[map_name]))
    row, effect = measured.rows[map_name][layer].clone(), measured.yardsticks[yardstick]
    row[measured.mask] = float("nan")
    shown = windows.positions("keys", keys, len(measured.tokens))
    figure, (left, right) = two_bars([measured.tokens[n] for n in shown], figsize)
    options = {"title": f"{map_name}, layer {layer + 1}: row of [MASK]", "label": "share"}
    options |= {"vmax": None, "rows": keys, "color": appearance(map_name, 0)[0], "ax": left}
    token_bars(row / row.nansum(), measured.tokens, **options)
    agreement = f"{rank_correlation(row, effect):.2f}".replace("-", "−")
    title = f"{yardstick}, rank correlation {agreement}"
    options |= {"title": title, "label": "size of the effect", "color": OTHERS[-1], "ax": right}
    token_bars(effect, measured.tokens, **options)
    return figure


def _sides(run: Trace, pair: AlignedPair) -> tuple[list[str], list[str]]:
    """The words of the target and of the source, with a last one for no link."""
    _validate.instance("pair", pair, AlignedPair, "take one of read_alignments()")
    sides = ("target", run.words, run.tokens), ("source", run.key_words, run.keys)
    remedy = "trace(model, pair.source, target=pair.target)"
    for side, read, tokens in sides:
        given, there = getattr(pair, side).split(), len(set(read) - {None})
        if not run.is_cross or len(given) != there:
            raise ValueError(
                f"run must be cross-attention over pair, whose {side} has {len(given)} words, got "
                f"{there}; {remedy}."
            )
        for number, word in enumerate(_joined(tokens, read)):
            if not _is_same(given[number], word):
                raise ValueError(
                    f"run must be cross-attention over pair, whose {side} has the word "
                    f"{given[number]!r} at position {number} (counted from 0), got {word!r}; "
                    f"{remedy}."
                )
    return pair.target.split(), pair.source.split()


def _joined(tokens: list[str], words: list[int | None]) -> list[str]:
    """The tokens of each word in one piece."""
    found = [""] * len(set(words) - {None})
    for token, number in zip(tokens, words, strict=True):
        if number is not None:
            found[number] += token
    return found


def _is_same(word: str, tokens: str) -> bool:
    """Whether these can be the tokens of a word: by its letters, without accents and capitals.

    Unknown tokens and bytes, such as <unk> and <0xE4>, can be those of any word.
    """
    if regex.search(r"<.+?>|\[UNK\]", tokens):
        return True
    return _letters(word) == _letters(tokens)


def _letters(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.replace("Ġ", "")).casefold()
    return regex.sub(r"[^\p{L}\p{N}]", "", plain)


def _moved(found: set[Link], columns: np.ndarray, rows: np.ndarray) -> frozenset[Link]:
    """The links between words that are shown, counted as on the picture."""
    column, row = ({place: n for n, place in enumerate(of.tolist())} for of in (columns, rows))
    return frozenset((column[s], row[t]) for s, t in found if s in column and t in row)
