"""Controls around `figures`: pick a text, a layer, a head, and look.

Each widget calls a pure function of `figures`, so that what a control shows is what a cell can
draw. Layers and heads are numbered from 1, as in the papers.
"""

from collections.abc import Callable
from functools import lru_cache

import ipywidgets as widgets
import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure

from helpers.corpus import AlignedPair
from helpers.figures import (
    ALL_HEADS,
    MEASURES,
    RESIDUALS,
    SETTINGS,
    draw_alignment,
    draw_attention,
    draw_flow,
    draw_rollout,
    draw_stage,
    draw_weight_and_norm,
)
from helpers.models import Model
from helpers.stages import STAGES
from helpers.trace import Trace, trace
from helpers.yardsticks import MAPS, YARDSTICKS, draw_yardstick, measure

HEIGHT = "760px"  # fixed, so that the page does not jump while a picture is redrawn


def explore(model: Model, text: str) -> widgets.VBox:
    """Look at the attention weights of a text: choose the layer and the head, or type a text."""
    layers, heads = trace(model, text).attention.shape[:2]
    full_range = widgets.Checkbox(True, description="Colours from 0 to 1")
    controls = {"layer": _layer(layers), "head": _head(heads), "full_range": full_range}
    return _board(model, text, draw_attention, controls)


def compare_weight_and_norm(model: Model, text: str) -> widgets.VBox:
    """Look at weights and norms side by side, for the same layer and head."""
    layers, heads = trace(model, text).attention.shape[:2]
    controls = {"layer": _layer(layers), "head": _head(heads)}
    return _board(model, text, draw_weight_and_norm, controls)


def explore_stages(model: Model, text: str) -> widgets.VBox:
    """Look at the five stages: the map of one layer beside its mixing ratios."""
    run = trace(model, text)
    stage = widgets.Dropdown(options=run.stages, value=run.stages[-1], description="Stage")
    return _board(model, text, draw_stage, {"stage": stage, "layer": _layer(len(run.blocks))})


def explore_rollout(model: Model, text: str) -> widgets.VBox:
    """Look at rollout: over which stage, with which residual, up to which layer, for which query.

    The residual only matters for the stages Attn-W and Attn-N; the others hold it in their map.
    """
    return _board(model, text, draw_rollout, _path_controls(trace(model, text)))


def explore_flow(model: Model, text: str) -> widgets.VBox:
    """Look at rollout beside flow: over which stage, with which residual, layer and query.

    The residual only matters for the stages Attn-W and Attn-N; the others hold it in their map.
    """
    return _board(model, text, draw_flow, _path_controls(trace(model, text)))


def explore_alignment(model: Model, pairs: list[AlignedPair]) -> widgets.VBox:
    """Look at links over cross-attention: choose a sentence pair, layer, head, measure, setting."""
    listed = isinstance(pairs, list) and pairs
    if not listed or not all(isinstance(pair, AlignedPair) for pair in pairs):
        raise TypeError(
            f"pairs must be a list of AlignedPair, got {type(pairs).__name__}; take "
            "read_alignments()."
        )
    layers, heads = trace(model, pairs[0].source, target=pairs[0].target).attention.shape[:2]
    options = [(f"{k}: {pair.source}", k - 1) for k, pair in enumerate(pairs, start=1)]
    subject = widgets.Dropdown(options=options, description="Pair")
    controls = {
        "setting": widgets.Dropdown(options=SETTINGS, description="Setting"),
        "measure": widgets.Dropdown(options=MEASURES, value=MEASURES[1], description="Measure"),
        "layer": _layer(layers),
        "head": _head(heads),
    }

    def traced(number: int):
        return trace(model, pairs[number].source, target=pairs[number].target), pairs[number]

    return _assemble(
        subject, traced, lambda both, **values: draw_alignment(*both, **values), controls
    )


def explore_yardsticks(model: Model, text: str) -> widgets.VBox:
    """Look at the row of [MASK] beside what disturbing the model shows: map, layer, yardstick.

    `model` is load_model("verb-number") or another that gives one number a token.
    """
    measured = lru_cache(maxsize=8)(lambda text: measure(model, text))
    layers = len(measured(text).rows[MAPS[0]])
    controls = {
        "map_name": widgets.Dropdown(options=MAPS, value=MAPS[0], description="Map"),
        "layer": widgets.IntSlider(layers, 1, layers, description="Layer", continuous_update=False),
        "yardstick": widgets.Dropdown(options=YARDSTICKS, description="Yardstick"),
    }
    field = widgets.Text(text, description="Text", continuous_update=False)
    return _assemble(field, measured, draw_yardstick, controls)


def _path_controls(run: Trace) -> dict:
    """Controls for what goes through several layers: stage, residual, layer and query."""
    L, T = len(run.blocks), len(run.tokens)
    return {
        "stage": widgets.Dropdown(options=run.stages, value=STAGES[0], description="Stage"),
        "residual": widgets.Dropdown(options=RESIDUALS, value=RESIDUALS[0], description="Residual"),
        "layer": widgets.IntSlider(L, 1, L, description="Layer", continuous_update=False),
        "query": widgets.IntSlider(1, 1, T, description="Query", continuous_update=False),
    }


def _board(model: Model, text: str, draw: Callable[..., Figure], controls: dict) -> widgets.VBox:
    """A text field, the controls, and below them the picture `draw(run, **controls)`."""

    def redraw(run: Trace, **values) -> Figure:
        if "query" in controls:
            controls["query"].max = len(run.tokens)
            values["query"] = min(values["query"], len(run.tokens))
        return draw(run, **values)

    field = widgets.Text(text, description="Text", continuous_update=False)
    return _assemble(field, lambda text: trace(model, text), redraw, controls)


def _assemble(subject: widgets.Widget, traced: Callable, draw: Callable, controls: dict):
    """What is looked at on top, then the controls, then the picture `draw(traced(subject))`."""
    run_of = lru_cache(maxsize=8)(traced)
    figure = None

    def show(subject, **values) -> None:
        nonlocal figure
        try:
            figure = draw(run_of(subject), **values)
        except ValueError as error:
            print(error)  # above the last picture, which stays
        if figure is not None:
            display(figure)
            plt.close(figure)

    subject.layout.width = "95%"
    picture = widgets.interactive_output(show, {"subject": subject, **controls})
    picture.layout.height, picture.layout.overflow = HEIGHT, "auto"
    row = widgets.HBox(list(controls.values()))
    row.layout.flex_flow = "row wrap"
    return widgets.VBox([subject, row, picture])


def _layer(layers: int) -> widgets.IntSlider:
    return widgets.IntSlider(1, 1, layers, description="Layer", continuous_update=False)


def _head(heads: int) -> widgets.Dropdown:
    options = [ALL_HEADS, *range(1, heads + 1)]
    return widgets.Dropdown(options=options, value=ALL_HEADS, description="Head")
