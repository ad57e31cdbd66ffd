"""Widgets: controls that count from 1, and call the functions of `plots`, which count from 0."""

import ipywidgets
import matplotlib.pyplot as plt
import pytest

from helpers import STAGES, load_model, plots, trace, widgets
from helpers._keys import MARK, keep_keys
from helpers.datasets import read_alignments
from helpers.tables import MAPS, YARDSTICKS

TEXT = "she saw"
OVER_A_TEXT = {
    "explore": "draw_attention",
    "compare_weight_and_norm": "draw_weight_and_norm",
    "explore_stages": "draw_stage",
    "explore_rollout": "draw_rollout",
    "explore_flow": "draw_flow",
}

pytestmark = pytest.mark.usefixtures("warnings_are_errors")


def _controls(board) -> dict[str, ipywidgets.Widget]:
    """Each control by its description."""
    found, waiting = {}, [board]
    while waiting:
        widget = waiting.pop()
        waiting.extend(getattr(widget, "children", ()))
        if hasattr(widget, "value") and not isinstance(widget, ipywidgets.Output):
            found[widget.description] = widget
    return found


@pytest.fixture
def calls(monkeypatch):
    """A function: the name of a drawing function gives the list of its calls from now on."""

    def record(name: str) -> list:
        made, draw = [], getattr(plots, name)

        def recorded(*subject, **values):
            made.append((subject, values))
            return draw(*subject, **values)

        monkeypatch.setattr(plots, name, recorded)
        return made

    return record


@pytest.mark.parametrize("name", OVER_A_TEXT)
def test_every_control_has_a_description_and_can_be_moved(tiny, calls, capsys, name):
    made = calls(OVER_A_TEXT[name])
    board = getattr(widgets, name)(tiny("bert"), TEXT)
    assert isinstance(board, ipywidgets.VBox) and isinstance(board.children[2], ipywidgets.Output)
    controls = _controls(board)
    assert "" not in controls and controls["Text"].value == TEXT
    assert (controls["Layer"].min, controls["Layer"].max) == (1, 3)
    for control in controls.values():
        before = len(made)
        if hasattr(control, "options"):
            control.index = (control.index + 1) % len(control.options)
        elif hasattr(control, "max"):
            control.value = control.min + (control.value == control.min)
        else:
            control.value = "the keys" if isinstance(control.value, str) else not control.value
        assert len(made) == before + 1, "one picture per change"
    assert ["[CLS]", "the", "keys", "[SEP]"] in [run.tokens for (run,), _ in made]
    assert "Error" not in capsys.readouterr().out and not plt.get_fignums()


def test_a_board_carries_the_script_that_keeps_keys_and_shows_nothing_of_it(tiny, capsys):
    board = widgets.explore(tiny("bert"), TEXT)
    capsys.readouterr()
    *_, hidden = board.children
    (output,) = hidden.outputs
    assert hidden.layout.display == "none" and [*output["data"]] == ["application/javascript"]
    assert MARK in board._dom_classes and f".{MARK}" in output["data"]["application/javascript"]
    assert keep_keys(ipywidgets.HBox()).children[-1].outputs == hidden.outputs
    assert capsys.readouterr().out == "", "nothing is displayed that a notebook would store"


def test_the_first_and_the_last_layer_and_head(tiny, calls):
    made = calls("draw_attention")
    controls = _controls(widgets.explore(tiny("bert"), TEXT))
    assert controls["Head"].options == ("all heads", 1, 2, 3, 4)
    assert made[-1][1] == {"layer": 0, "head": None, "vmax": 1.0}
    controls["Layer"].value, controls["Head"].value = 3, 4
    controls["Colours from 0 to 1"].value = False
    assert made[-1][1] == {"layer": 2, "head": 3, "vmax": None}


def test_only_stages_that_exist_can_be_chosen(tiny, calls):
    made = calls("draw_stage")
    for family, stages in (("bert", STAGES), ("gpt2", STAGES[:-1])):
        control = _controls(widgets.explore_stages(tiny(family), "key"))["Stage"]
        assert tuple(control.options) == stages and control.value == stages[-1]
        assert made[-1][1] == {"stage": stages[-1], "layer": 0}


@pytest.mark.parametrize("name", ["explore_rollout", "explore_flow"])
def test_paths_through_layers(tiny, calls, name):
    made = calls(OVER_A_TEXT[name])
    controls = _controls(getattr(widgets, name)(tiny("bert"), TEXT))
    values = {"stage": "Attn-W", "residual": 0.5, "layer": 2, "query": 0}
    assert made[-1][1] == values
    labels = [label for label, _ in controls["Residual"].options]
    assert labels == ["0.5 everywhere", "measured, 1 − r", "none"]
    controls["Residual"].index, controls["Query"].value = 1, 4
    assert made[-1][1] == values | {"residual": "measured", "query": 3}
    controls["Text"].value = "the keys to the cabinet"
    assert controls["Query"].max == 7, "a longer text has more queries"
    controls["Query"].value = 7
    controls["Text"].value = TEXT
    assert made[-1][1]["query"] == 3 == controls["Query"].max - 1, "and a shorter one fewer"


def test_a_text_that_is_refused_gives_a_sentence(tiny, calls, capsys):
    made = calls("draw_attention")
    controls = _controls(widgets.explore(tiny("bert"), TEXT))
    capsys.readouterr()
    controls["Text"].value = "  "
    assert len(made) == 1 and "text is empty" in capsys.readouterr().out
    controls["Text"].value = "the keys"
    assert len(made) == 2, "and the next text is drawn again"


@pytest.mark.parametrize("name", OVER_A_TEXT)
def test_a_first_text_that_is_refused_raises(tiny, name):
    with pytest.raises(ValueError, match="empty"):
        getattr(widgets, name)(tiny("bert"), "")


def test_explore_alignment(calls):
    made, pairs = calls("draw_alignment"), read_alignments()[:3]
    controls = _controls(widgets.explore_alignment(load_model("de-en"), pairs))
    first = {"setting": "AWO", "measure": "norm", "layer": 0, "head": None}
    ((_, pair), values) = made[-1]
    assert (pair, values) == (pairs[0], first)
    controls["Pair"].value = 2
    controls["Setting"].value = "AWI"
    controls["Measure"].value = "weight"
    controls["Layer"].value = 6
    controls["Head"].value = 8
    ((run, pair), values) = made[-1]
    assert pair == pairs[2] and run.is_cross and len(made) == 6
    assert values == {"setting": "AWI", "measure": "weight", "layer": 5, "head": 7}


@pytest.mark.parametrize("pairs", [[], None, read_alignments()[0], [("Ein Hund", "A dog")]])
def test_pairs_that_are_none(tiny, pairs):
    with pytest.raises(TypeError, match="^every entry of pairs must be a"):
        widgets.explore_alignment(tiny("marian"), pairs)


def test_explore_yardsticks(calls, capsys):
    made = calls("draw_yardstick")
    model = load_model("verb-number")
    controls = _controls(widgets.explore_yardsticks(model, "The keys [MASK] gone."))
    assert tuple(controls["Map"].options) == MAPS
    assert tuple(controls["Yardstick"].options) == YARDSTICKS
    last = controls["Layer"].max
    assert made[-1][1] == {"map_name": MAPS[0], "layer": last - 1, "yardstick": YARDSTICKS[0]}
    controls["Map"].value, controls["Layer"].value = "flow Attn-N", 1
    controls["Yardstick"].value = YARDSTICKS[2]
    assert made[-1][1] == {"map_name": "flow Attn-N", "layer": 0, "yardstick": YARDSTICKS[2]}
    controls["Text"].value = "The door [MASK] open."
    assert made[-1][0][0].tokens == trace(model, "The door [MASK] open.").tokens
    number = len(made)
    capsys.readouterr()
    controls["Text"].value = "The door is open."
    assert len(made) == number and "[MASK]" in capsys.readouterr().out
