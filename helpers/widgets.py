"""Controls around `plots`: pick a text, a layer, a head, and look.

Each widget calls a pure function of `plots`, so that what a control shows is what a cell can draw.
Sliders and menus count from 1, as in the papers; the functions count from 0.
"""

from collections.abc import Callable
from functools import lru_cache

import ipywidgets as widgets
from IPython.display import display
from matplotlib.figure import Figure

from helpers import _validate, plots
from helpers._keys import keep_keys
from helpers.alignment import SETTINGS
from helpers.datasets import AlignedPair
from helpers.models import Model
from helpers.tables import MAPS, YARDSTICKS, measure
from helpers.tracing import Trace, trace

HEIGHT = "520px"  # fixed, so that the page does not jump while a picture is redrawn
ALL_HEADS = "all heads"
RESIDUALS = [("0.5 everywhere", 0.5), ("measured, 1 − r", "measured"), ("none", 0.0)]
COUNTED = ("layer", "head", "query")  # from 1 on the page, from 0 in a call


def explore(model: Model, text: str) -> widgets.VBox:
    """Look at the attention weights of a text: choose the layer and the head, or type a text.

    Example: `widgets.explore(model, "The keys are on the table.")`.
    """
    layers, heads = trace(model, text).attention.shape[:2]
    full_range = widgets.Checkbox(True, description="Colours from 0 to 1")
    controls = {"layer": _slider("Layer", layers), "head": _head(heads), "full_range": full_range}

    def draw(run: Trace, full_range: bool, **values) -> Figure:
        return plots.draw_attention(run, vmax=1.0 if full_range else None, **values)

    return _board(model, text, draw, controls)


def compare_weight_and_norm(model: Model, text: str) -> widgets.VBox:
    """Look at weights and norms side by side, for the same layer and head.

    Example: `widgets.compare_weight_and_norm(model, "The keys are on the table.")`.
    """
    layers, heads = trace(model, text).attention.shape[:2]
    controls = {"layer": _slider("Layer", layers), "head": _head(heads)}
    return _board(model, text, plots.draw_weight_and_norm, controls)


def explore_stages(model: Model, text: str) -> widgets.VBox:
    """Look at the five stages: the map of one layer beside its mixing ratios.

    Example: `widgets.explore_stages(model, "The keys are on the table.")`.
    """
    run = trace(model, text)
    stage = widgets.Dropdown(options=run.stages, value=run.stages[-1], description="Stage")
    controls = {"stage": stage, "layer": _slider("Layer", len(run.blocks))}
    return _board(model, text, plots.draw_stage, controls)


def explore_rollout(model: Model, text: str) -> widgets.VBox:
    """Look at rollout: over which stage, with which residual, up to which layer, for which query.

    The residual matters only for the stages Attn-W and Attn-N; the others hold it in their map.
    Example: `widgets.explore_rollout(model, "The keys are on the table.")`.
    """
    return _board(model, text, plots.draw_rollout, _path_controls(trace(model, text)))


def explore_flow(model: Model, text: str) -> widgets.VBox:
    """Look at rollout beside flow; the controls are those of `explore_rollout`.

    Example: `widgets.explore_flow(model, "The keys are on the table.")`.
    """
    return _board(model, text, plots.draw_flow, _path_controls(trace(model, text)))


def explore_alignment(model: Model, pairs: list[AlignedPair]) -> widgets.VBox:
    """Look at links over cross-attention: choose a sentence pair, layer, head, measure, setting.

    Example: `widgets.explore_alignment(load_model("de-en"), read_alignments())`.
    """
    for pair in pairs or [None]:
        _validate.instance("every entry of pairs", pair, AlignedPair, "take read_alignments()")
    layers, heads = trace(model, pairs[0].source, target=pairs[0].target).attention.shape[:2]
    options = [(f"{n}: {pair.source}", n - 1) for n, pair in enumerate(pairs, start=1)]
    controls = {
        "setting": widgets.Dropdown(options=SETTINGS, description="Setting"),
        "measure": widgets.Dropdown(options=("norm", "weight"), description="Measure"),
        "layer": _slider("Layer", layers),
        "head": _head(heads),
    }

    def traced(number: int):
        return trace(model, pairs[number].source, target=pairs[number].target), pairs[number]

    def draw(both, **values) -> Figure:
        return plots.draw_alignment(*both, **values)

    return _assemble(widgets.Dropdown(options=options, description="Pair"), traced, draw, controls)


def explore_yardsticks(model: Model, text: str) -> widgets.VBox:
    """Look at the row of [MASK] beside the effect of perturbing the model: map, layer, yardstick.

    `model` is load_model("verb-number"), or another that gives one number per token.
    Example: `widgets.explore_yardsticks(model, "The keys [MASK] gone.")`.
    """
    measured = lru_cache(maxsize=8)(lambda text: measure(model, text))
    layers = len(measured(text).rows[MAPS[0]])
    controls = {
        "map_name": widgets.Dropdown(options=MAPS, description="Map"),
        "layer": _slider("Layer", layers, layers),
        "yardstick": widgets.Dropdown(options=YARDSTICKS, description="Yardstick"),
    }
    return _assemble(_field(text), measured, plots.draw_yardstick, controls)


def _path_controls(run: Trace) -> dict:
    """Controls for what goes through several layers: stage, residual, layer and query."""
    return {
        "stage": widgets.Dropdown(options=run.stages, value="Attn-W", description="Stage"),
        "residual": widgets.Dropdown(options=RESIDUALS, description="Residual"),
        "layer": _slider("Layer", len(run.blocks), len(run.blocks)),
        "query": _slider("Query", len(run.tokens)),
    }


def _board(model: Model, text: str, draw: Callable[..., Figure], controls: dict) -> widgets.VBox:
    """A text field, the controls, and below them the picture `draw(run, **controls)`."""

    def redraw(run: Trace, **values) -> Figure:
        if "query" in controls:
            controls["query"].max = len(run.tokens)
            values["query"] = min(values["query"], len(run.tokens) - 1)
        return draw(run, **values)

    return _assemble(_field(text), lambda text: trace(model, text), redraw, controls)


def _assemble(subject: widgets.Widget, traced: Callable, draw: Callable, controls: dict):
    """What is looked at on top, then the controls, then the picture `draw(traced(subject))`."""
    run_of = lru_cache(maxsize=8)(traced)
    figure = None

    def show(subject, **values) -> None:
        nonlocal figure
        try:
            figure = draw(run_of(subject), **_from_zero(values))
        except ValueError as error:
            print(error)  # above the last picture, which stays
        if figure is not None:
            display(figure)

    subject.layout.width = "95%"
    picture = widgets.interactive_output(show, {"subject": subject, **controls})
    picture.layout.height, picture.layout.overflow = HEIGHT, "auto"
    row = widgets.HBox(list(controls.values()))
    row.layout.flex_flow = "row wrap"
    return keep_keys(widgets.VBox([subject, row, picture]))


def _from_zero(values: dict) -> dict:
    """What the controls show, as the functions of `plots` take it."""
    shown = {name: values[name] for name in COUNTED if name in values}
    return values | {name: None if n == ALL_HEADS else n - 1 for name, n in shown.items()}


def _field(text: str) -> widgets.Text:
    return widgets.Text(text, description="Text", continuous_update=False)


def _slider(description: str, last: int, value: int = 1) -> widgets.IntSlider:
    return widgets.IntSlider(value, 1, last, description=description, continuous_update=False)


def _head(heads: int) -> widgets.Dropdown:
    return widgets.Dropdown(options=[ALL_HEADS, *range(1, heads + 1)], description="Head")
