"""The translation model, the gold pairs, the picture of links and its widget."""

from pathlib import Path

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers import (
    corpus,
    figures,
    load_model,
    plots,
    reconstruction_error,
    stage_map,
    trace,
    weighted_norms,
    widgets,
)
from helpers.alignment import (
    Gold,
    align,
    alignment_error_rate,
    read_gold,
    to_words,
    words,
)

LAYERS, HEADS = (1, 2, 3, 4, 5, 6), 8


@pytest.fixture(scope="module")
def model():
    return load_model("de-en")


@pytest.fixture(scope="module")
def pair():
    return corpus.read_alignments()[2]


@pytest.fixture(scope="module")
def run(model, pair):
    return trace(model, pair.source, target=pair.target)


def test_the_embedded_model_is_stock_and_translates(model):
    assert type(model.network).__name__ == "MarianMTModel"
    assert model.network.dtype == torch.float32 and not model.network.training
    said = model.tokenizer("Zwei Männer spielen Fußball .", return_tensors="pt")
    ids = model.network.generate(**said, num_beams=1, max_new_tokens=20)
    assert (
        model.tokenizer.decode(ids[0], skip_special_tokens=True) == "Two men are playing soccer ."
    )


def test_parts_add_up_in_all_three_attentions(model, pair):
    for attention in ("cross", "encoder", "decoder"):
        run = trace(model, pair.source, target=pair.target, attention=attention)
        assert reconstruction_error(run).max() < 1e-5


def test_the_best_layer_beats_the_diagonal(model):
    """What lesson 3 rests on: the model aligns, if not well."""
    pairs = corpus.read_alignments()[::4]
    found, diagonal = [], []
    for p in pairs:
        run = trace(model, p.source, target=p.target)
        found.append(align(stage_map(run, "Attn-W")[4], run.tokens, run.keys, "AWO"))
        S, T = len(p.source.split()), len(p.target.split())
        diagonal.append({(int((t + 0.5) * S / T), t) for t in range(T)})
    gold = [p.gold for p in pairs]
    assert alignment_error_rate(found, gold).aer < alignment_error_rate(diagonal, gold).aer


def test_gold_pairs_are_what_the_card_says():
    pairs = corpus.read_alignments()
    assert len(pairs) == 160
    assert sum(len(p.gold.sure) for p in pairs) == 1848
    assert sum(len(p.gold.possible - p.gold.sure) for p in pairs) == 307
    for p in pairs:
        for side in (p.source, p.target):
            assert " ".join(words(side)) == side
        S, T = len(p.source.split()), len(p.target.split())
        assert all(s < S and t < T for s, t in p.gold.possible)


@pytest.mark.parametrize("setting", figures.SETTINGS)
@pytest.mark.parametrize("measure", figures.MEASURES)
@pytest.mark.parametrize("head", [figures.ALL_HEADS, 3])
def test_the_picture_shows_the_map_and_the_links(run, pair, setting, measure, head):
    figure = figures.draw_alignment(run, pair, 5, head, measure, setting)
    assert isinstance(figure, Figure)
    ax = figure.axes[0]
    mesh = ax.collections[0].get_array()
    assert np.allclose(mesh.sum(axis=1), 1) and mesh.shape[1] == len(pair.source.split()) + 1
    if head == figures.ALL_HEADS:
        scores = stage_map(run, "Attn-W" if measure == "weight" else "Attn-N")[4]
    else:
        scores = (run.attention if measure == "weight" else weighted_norms(run))[4, 2]
    dots = {(round(x - 0.5), round(y - 0.5)) for x, y in ax.lines[0].get_xydata()}
    assert dots == align(scores, run.tokens, run.keys, setting)
    frames = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert len(frames) == len(pair.gold.possible)
    assert sum(patch.get_linestyle() in ("-", "solid") for patch in frames) == len(pair.gold.sure)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels[-1] == "(no link)" and labels[0] == pair.source.split()[0]
    plt.close(figure)


def test_a_pair_without_links_and_with_odd_words(model, recwarn):
    source = "Ein $Mann$ mit <b> & _x_ \\ # 中文 ."
    pair = corpus.AlignedPair(" ".join(words(source)), "A man .", Gold(frozenset(), frozenset()))
    run = trace(model, pair.source, target=pair.target)
    figure = figures.draw_alignment(run, pair, 1)
    figure.canvas.draw()
    assert not [w for w in recwarn if "sacremoses" not in str(w.message)]
    plt.close(figure)


def test_words_of_a_byte_level_vocabulary_are_those_of_the_pair(tiny):
    pair = corpus.AlignedPair("sie sah é 你", "the keys you saw", Gold(frozenset(), frozenset()))
    run = trace(tiny("bart"), pair.source, target=pair.target)
    figure = figures.draw_alignment(run, pair, 1)
    assert len(figure.axes[0].get_xticklabels()) == 5
    plt.close(figure)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": 0}, "layer must be a whole number from 1 to 6"),
        ({"layer": 7}, "layer must be"),
        ({"layer": 1, "head": 9}, 'head, if not "all heads", must be a whole number from 1 to 8'),
        ({"layer": 1, "measure": "norms"}, 'measure must be "weight" or "norm", got .norms.'),
        ({"layer": 1, "setting": "OWA"}, "setting must be"),
    ],
)
def test_options_that_do_not_exist(run, pair, change, message):
    with pytest.raises(ValueError, match=message):
        figures.draw_alignment(run, pair, **change)


def test_labels_must_fit(run, pair):
    other = corpus.read_alignments()[3]
    with pytest.raises(ValueError, match="pair.source has the words"):
        figures.draw_alignment(run, other, 1)


def test_links_leave_the_axes_usable():
    ax = plots.heatmap(np.eye(2), ["a", "b"], ["x", "y"], title="links")
    assert plots.links(ax, set(), Gold(frozenset(), frozenset())) is ax
    plt.close(ax.figure)


def test_links_outside_the_map_or_of_another_kind():
    ax = plots.heatmap(np.eye(2, 3), ["a", "b"], ["x", "y", "z"])
    inside, none = frozenset({(2, 1)}), frozenset()
    plots.links(ax, {(2, 1)}, Gold(inside, inside))
    limits = ax.get_xlim(), ax.get_ylim()
    for predicted, gold, sentence in (
        (
            {(9, 9)},
            Gold(none, none),
            r"predicted has the link \(9, 9\), outside its 3 source and 2",
        ),
        ({(1, 2)}, Gold(none, none), r"predicted has the link \(1, 2\)"),
        (set(), Gold(none, frozenset({(3, 0)})), r"gold has the link \(3, 0\)"),
        (set(), Gold(frozenset({(3, 0)}), none), r"gold has the link \(3, 0\)"),
        (set(), Gold("a", "b"), "gold must hold two sets of pairs"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plots.links(ax, predicted, gold)
    assert (ax.get_xlim(), ax.get_ylim()) == limits


def test_a_sure_link_is_drawn_though_it_is_not_among_the_possible():
    ax = plots.heatmap(np.eye(2), ["a", "b"], ["x", "y"])
    plots.links(ax, set(), Gold(frozenset({(0, 1)}), frozenset()))
    (frame,) = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert frame.get_linestyle() == "-" and frame.get_xy() == (0.1, 1.1)


def test_the_widget_draws_what_the_controls_say(model, monkeypatch):
    calls = []

    def draw(run, pair, **values):
        calls.append((pair.source, values))
        return plt.figure()

    monkeypatch.setattr(widgets, "draw_alignment", draw)
    pairs = corpus.read_alignments()[:3]
    board = widgets.explore_alignment(model, pairs)
    found = {
        child.description: child
        for part in board.children
        for child in (part, *getattr(part, "children", ()))
        if isinstance(child, ipywidgets.ValueWidget) and hasattr(child, "description")
    }
    first = {"setting": "AWO", "measure": "norm", "layer": 1, "head": figures.ALL_HEADS}
    assert calls == [(pairs[0].source, first)]
    found["Pair"].value = 2
    found["Setting"].value = "AWI"
    found["Measure"].value = "weight"
    found["Layer"].value = 6
    found["Head"].value = 8
    last = {"setting": "AWI", "measure": "weight", "layer": 6, "head": 8}
    assert calls[-1] == (pairs[2].source, last) and len(calls) == 6
    assert not plt.get_fignums()


def test_a_run_and_a_pair_that_do_not_belong_together(model, run, pair):
    pairs = corpus.read_alignments()
    sizes = [(len(p.source.split()), len(p.target.split())) for p in pairs]
    twin = next(p for n, p in enumerate(pairs) if sizes[n] == sizes[2] and n != 2)
    outside = pair._replace(gold=Gold(frozenset({(99, 0)}), frozenset({(99, 0)})))
    decoder = trace(model, pair.source, target=pair.target, attention="decoder")
    for wrong_run, wrong_pair, error, message in (
        (run, twin, ValueError, "^pair.source has the words .* trace the pair's own text"),
        (run, pairs[3], ValueError, "^pair.source has the words"),
        (run, outside, ValueError, "outside its .* count from 0"),
        (decoder, pair, ValueError, "^run is not cross-attention"),
        (run, tuple(pair), TypeError, "^pair must be an AlignedPair"),
        (run, pair._replace(gold={(0, 0)}), TypeError, "^pair must be an AlignedPair with a Gold"),
    ):
        with pytest.raises(error, match=message) as caught:
            figures.draw_alignment(wrong_run, wrong_pair, 1)
        assert "\n" not in str(caught.value)


def test_every_gold_pair_can_be_drawn(model):
    for p in corpus.read_alignments():
        figures._check_pair(trace(model, p.source, target=p.target), p)


@pytest.mark.parametrize("draw", [figures.draw_rollout, figures.draw_flow])
def test_paths_through_layers_need_self_attention(model, draw):
    square = trace(model, "Ein Hund läuft im Gras", target="A dog runs in grass")
    with pytest.raises(ValueError, match="^run is cross-attention"):
        draw(square, "Attn-N", "none", 1, 1)


@pytest.mark.parametrize("pairs", [[], None, corpus.read_alignments()[0], [("Ein Hund", "A dog")]])
def test_pairs_that_are_none(model, pairs):
    with pytest.raises(TypeError, match="^pairs must be a list of AlignedPair"):
        widgets.explore_alignment(model, pairs)


def test_names_with_a_space_or_as_a_path():
    for name in ("de-en ", "verb-number ", Path("verb-number")):
        assert load_model(name).network is not None


def test_gold_made_by_hand_and_words_by_mask():
    for gold in (Gold([(0, 0)], [(0, 0)]), Gold({(1, 2, 3)}, {(1, 2, 3)}), Gold({"ab"}, {"ab"})):
        with pytest.raises(ValueError, match="^gold must be"):
            alignment_error_rate([{(0, 0)}], [gold])
    for masks in (([False, False, True], [0, 1]), ([0, 0, 1], [True, False])):
        with pytest.raises(
            ValueError, match="^(target|source)_word must be a list of word numbers"
        ):
            to_words(torch.rand(3, 2), *masks)
    with pytest.raises(ValueError, match="is not a file"):
        read_gold("1-1 " * 3000, one_indexed=True)
