"""Figures of a map beside what it is judged by: gold links, and disturbing the model."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from oracle.compare import refused
from plots.reading import bars, drawn, names, png, smallest_letters, title

from helpers import load_model, plots, stage_map, trace
from helpers.alignment import SETTINGS, align, score_words, words
from helpers.datasets import AlignedPair, Gold, read_alignments
from helpers.norms import weighted_norms
from helpers.tables import MAPS, YARDSTICKS, Measured, rank_correlation

NO_GOLD = Gold(frozenset(), frozenset())


@pytest.fixture(scope="module")
def model():
    return load_model("de-en")


@pytest.fixture(scope="module")
def pair():
    return read_alignments()[2]


@pytest.fixture(scope="module")
def run(model, pair):
    return trace(model, pair.source, target=pair.target)


# --- alignment -------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("measure", ["weight", "norm"])
@pytest.mark.parametrize("head", [None, 2])
def test_draw_alignment(run, pair, setting, measure, head):
    figure = plots.draw_alignment(run, pair, 4, head, measure=measure, setting=setting)
    ax = figure.axes[0]
    if head is None:
        scores = stage_map(run, "Attn-W" if measure == "weight" else "Attn-N")[4]
    else:
        scores = (run.attention if measure == "weight" else weighted_norms(run))[4, 2]
    arguments = scores, run.words, run.key_words, setting
    by_word = score_words(*arguments)
    np.testing.assert_allclose(drawn(ax), by_word / by_word.sum(dim=1, keepdim=True), rtol=1e-6)
    dots = {(round(x - 0.5), round(y - 0.5)) for x, y in ax.lines[0].get_xydata()}
    assert dots == align(*arguments)
    assert len(ax.patches) == len(pair.gold.possible)
    assert names(ax.xaxis) == [*pair.source.split(), "(no link)"]
    assert names(ax.yaxis) == pair.target.split()
    which = "all heads" if head is None else "head 3"
    assert title(ax) == f"{setting}, {measure}, layer 5, {which}"
    assert ("written by" if setting == "AWO" else "fed to") in ax.get_ylabel()
    assert not plt.get_fignums()


def test_letters_can_be_read_alone_and_four_at_a_time(model):
    for pair in sorted(read_alignments(), key=lambda pair: len(pair.source))[::159]:
        run = trace(model, pair.source, target=pair.target)
        assert smallest_letters(plots.draw_alignment(run, pair, 4)) >= 10
    figure, axes = plt.subplots(2, 2, figsize=(8.3, 8), sharey=True, layout="constrained")
    for ax in axes.flat:
        assert plots.draw_alignment(run, pair, 4, ax=ax) is figure
    assert smallest_letters(figure) >= 10
    assert axes[0, 0].get_ylabel() and not axes[0, 1].get_ylabel()


def test_odd_words_without_gold_links(model, tiny):
    source = " ".join(words("Ein $Mann$ mit <b> & _x_ \\ # 中文 ."))
    pair = AlignedPair(source, "A man .", NO_GOLD)
    png(plots.draw_alignment(trace(model, pair.source, target=pair.target), pair, 0))
    pair = AlignedPair("sie sah é 你", "the keys you saw", NO_GOLD)
    run = trace(tiny("bart"), pair.source, target=pair.target)
    assert len(names(plots.draw_alignment(run, pair, 0).axes[0].xaxis)) == 5


def test_words_of_every_gold_pair_are_those_of_the_run(model):
    for pair in read_alignments()[::8]:
        run = trace(model, pair.source, target=pair.target)
        for numbers, side in ((run.words, pair.target), (run.key_words, pair.source)):
            assert sorted(set(numbers) - {None}) == list(range(len(side.split())))


def test_a_run_and_a_pair_that_do_not_belong_together(model, run, pair):
    outside = pair._replace(gold=Gold(frozenset({(99, 0)}), frozenset({(99, 0)})))
    decoder = trace(model, pair.source, target=pair.target, attention="decoder")
    for wrong_run, wrong_pair, more, error, sentence in (
        (
            run,
            read_alignments()[3],
            {},
            ValueError,
            "^run must be cross-attention over pair, .*trace",
        ),
        (run, outside, {}, ValueError, "outside its .* count from 0"),
        (decoder, pair, {}, ValueError, "^run must be cross-attention over pair"),
        (run, tuple(pair), {}, TypeError, "^pair must be a"),
        (run, pair, {"layer": 6}, ValueError, "layer must be a whole number from 0 to 5"),
        (run, pair, {"head": 8}, ValueError, "head must be a whole number from 0 to 7"),
        (run, pair, {"measure": "norms"}, ValueError, 'measure must be "weight" or "norm"'),
        (run, pair, {"setting": "OWA"}, ValueError, "setting must be"),
    ):
        with pytest.raises(error, match=sentence):
            plots.draw_alignment(wrong_run, wrong_pair, **{"layer": 0} | more)


def test_other_words_of_the_same_number(model, run, pair):
    target = pair.target.split()
    other = pair._replace(target=" ".join([*target[:2], "elephants", *target[3:]]))
    refused(
        lambda: plots.draw_alignment(run, other, 0),
        "run must be cross-attention over pair",
        f"target has the word 'elephants' at position 2 (counted from 0), got '▁{target[2]}'",
        "trace(model, pair.source, target=pair.target)",
    )
    source = " ".join(["Elefanten", *pair.source.split()[1:]])
    refused(lambda: plots.draw_alignment(run, pair._replace(source=source), 0), "'Elefanten'")
    capitals = pair._replace(source=pair.source.upper(), target=pair.target.upper())
    plots.draw_alignment(run, capitals, 0)  # a tokenizer may not tell them apart


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_part_of_an_alignment_has_the_numbers_and_links_of_the_whole(run, pair, setting):
    pair = pair._replace(gold=Gold(frozenset({(1, 1)}), frozenset({(1, 1), (3, 3), (0, 5)})))
    whole = plots.draw_alignment(run, pair, 4, setting=setting).axes[0]
    part = plots.draw_alignment(
        run, pair, 4, setting=setting, queries=range(1, 4), keys=[1, 2, 3]
    ).axes[0]
    png(part.figure)
    assert names(part.yaxis) == pair.target.split()[1:4]
    assert names(part.xaxis) == [*pair.source.split()[1:4], "(no link)"]
    np.testing.assert_array_equal(drawn(part), drawn(whole)[1:4][:, [1, 2, 3, -1]])
    assert {frame.get_xy() for frame in part.patches} == {(0.1, 0.1), (2.1, 2.1)}
    dots = {tuple(dot) for dot in whole.lines[0].get_xydata() - 1}
    inside = {dot for dot in dots if 0 < dot[0] < 3 and 0 < dot[1] < 3}
    assert {tuple(dot) for dot in part.lines[0].get_xydata()} == inside != dots
    written = "written by" if setting == "AWO" else "fed to"
    n, m = len(pair.target.split()), len(pair.source.split())
    assert part.get_ylabel() == f"target word ({written} the row)\nwords 2 to 4 of {n}"
    assert part.get_xlabel() == f"source word (read from)\nwords 2 to 4 of {m}"
    refused(lambda: plots.draw_alignment(run, pair, 4, keys=[m]), "every position in keys")
    outside = pair._replace(gold=Gold(frozenset(), frozenset({(99, 0)})))
    refused(lambda: plots.draw_alignment(run, outside, 4, keys=[1]), "gold", "outside")


# --- yardsticks ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured():
    """Three layers, five tokens, the third of them [MASK]."""
    generator = torch.Generator().manual_seed(0)
    tokens = ["[CLS]", "she", "[MASK]", "them", "[SEP]"]
    rows = {name: torch.rand(3, 5, generator=generator) for name in MAPS}
    hole = torch.tensor([False, False, True, False, False])
    yardsticks = {
        name: torch.rand(5, generator=generator).masked_fill(hole, torch.nan) for name in YARDSTICKS
    }
    return Measured(tokens, 2, rows, yardsticks)


@pytest.mark.parametrize("yardstick", YARDSTICKS)
@pytest.mark.parametrize("name", ["Attn-W", "rollout AttnResLn-N", "flow Attn-N", "value zeroing"])
def test_draw_yardstick(measured, name, yardstick):
    before = measured.rows[name].clone()
    figure = plots.draw_yardstick(measured, name, -2, yardstick)
    left, right = figure.axes
    row, effect = measured.rows[name][1].clone(), measured.yardsticks[yardstick]
    row[2] = torch.nan
    np.testing.assert_allclose(bars(left), row / row.nansum(), rtol=1e-6)
    np.testing.assert_allclose(bars(right), effect, rtol=1e-6)
    assert names(left.yaxis) == measured.tokens
    assert title(left) == f"{name}, layer 2: row of [MASK]" and yardstick in title(right)
    assert f"{abs(rank_correlation(row, effect)):.2f}" in title(right)
    assert torch.equal(measured.rows[name], before), "drawing changes nothing"
    assert smallest_letters(figure) >= 10 and not plt.get_fignums()
    left, right = (ax._left_title.get_window_extent() for ax in figure.axes)
    assert left.x1 < right.x0 and right.x1 <= figure.bbox.x1, "titles stay apart"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (("Attn-X", 0), "map_name must be .* got 'Attn-X'.*did you mean"),
        (("rolout attn-w", 0), "did you mean 'rollout Attn-W'"),
        (("Attn-W", 0, "taste"), "yardstick must be .* got 'taste'"),
        (("Attn-W", 3), "layer must be a whole number from 0 to 2, .* got 3"),
    ],
)
def test_choices_that_do_not_exist(measured, choice, words):
    with pytest.raises(ValueError, match=words):
        plots.draw_yardstick(measured, *choice)
    few = replace(measured, yardsticks={YARDSTICKS[1]: measured.yardsticks[YARDSTICKS[1]]})
    with pytest.raises(ValueError, match=f'yardstick must be "{YARDSTICKS[1]}", got .blank-out'):
        plots.draw_yardstick(few, "Attn-W", 0)


def test_a_part_of_a_yardstick_keeps_shares_and_correlation(measured):
    whole, part = (plots.draw_yardstick(measured, "Attn-W", 0, keys=k) for k in (None, range(1, 5)))
    png(part)
    for old, new in zip(whole.axes, part.axes, strict=True):
        np.testing.assert_array_equal(bars(new), bars(old)[1:5])
        assert title(old) == title(new)
    assert names(part.axes[0].yaxis) == measured.tokens[1:5]
    assert part.axes[0].get_ylabel() == "tokens 2 to 5 of 5"
    refused(lambda: plots.draw_yardstick(measured, "Attn-W", 0, keys=[9]), "position in keys")
