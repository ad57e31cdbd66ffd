"""Every kind of text through every function that takes one: the right result, or one sentence."""

import io
import re

import ipywidgets
import pytest
import torch
from tiny_models import POSITIONS

from helpers import (
    blank_out,
    corpus,
    figures,
    input_gradients,
    reconstruction_error,
    rollout,
    stage_map,
    trace,
    value_zeroing,
    widgets,
)
from helpers.alignment import word_of

TEXTS = {
    "one letter": "a",
    "marks": r"$ _ \ < & # ^ % { } ~ ` ' " + '"',
    "mathematics": "$x^2$ _a_ \\alpha",
    "newlines and tabs": "the\nkeys\tto\r\n\n the   table\n",
    "a long word": "x" * 30,
    "Chinese": "你好，世界",
    "Arabic": "مرحبا",
    "emoji with joiners": "👨‍👩‍👧",
    "emoji with a skin tone": "👍🏽 a",
    "combining accents": "e\u0301cole n\u0303",
    "control and zero width": "a\u200bb\ufeff \x1b",
    "unknown letters only": "☃ ☃",
    "special tokens as text": "[SEP] a </s> <pad> [MASK]",
}
REFUSED = {
    "empty": ("", "{} is empty; give at least one word"),
    "white space": (" \t\n ", "{} is empty; give at least one word"),
    "half a character": ("a\ud83d", "{} .* holds half of a character"),
    "None": (None, "{} must be one string, got NoneType"),
    "bytes": (b"a", "{} must be one string, got bytes"),
    "a list": (["the", "keys"], "{} must be one string, got list"),
    "a number": (3, "{} must be one string, got int"),
}
ONE_SIDED = ("bert", "gpt2", "roberta")  # WordPiece, byte-level, byte-level with marks
TWO_SIDED = ("t5", "marian")


def total(output):
    """A score of every model: the sum of its first output."""
    return output[0].sum()


FUNCTIONS = {
    "trace": trace,
    "value_zeroing": value_zeroing,
    "blank_out": lambda model, text: blank_out(model, text, total),
    "input_gradients": lambda model, text: input_gradients(model, text, total, length=True),
    "token_table": lambda model, text: corpus.token_table(model, [text]),
    "category_shares": lambda model, text: corpus.category_shares(model, [text]),
    "mixing_table": lambda model, text: corpus.mixing_table(model, [text]),
    "explore": widgets.explore,
    "compare_weight_and_norm": widgets.compare_weight_and_norm,
    "explore_stages": widgets.explore_stages,
    "explore_rollout": widgets.explore_rollout,
    "explore_flow": widgets.explore_flow,
}


pytestmark = pytest.mark.usefixtures("warnings_are_errors")


@pytest.fixture(params=("minilm", *ONE_SIDED))
def model(request, minilm, tiny):
    return minilm if request.param == "minilm" else tiny(request.param)


def _fits(run) -> None:
    """The run has the right shapes, rows that sum to 1, and parts that add up."""
    L, H, T, S = run.attention.shape
    assert (len(run.tokens), len(run.ids), len(run.keys), len(run.blocks)) == (T, T, S, L)
    torch.testing.assert_close(run.attention.sum(dim=-1), torch.ones(L, H, T))
    for stage in run.stages:
        maps = stage_map(run, stage)
        assert maps.shape == (L, T, S) and maps.isfinite().all() and (maps >= 0).all()
    assert (reconstruction_error(run) < 1e-5).all()
    assert len(word_of(run.keys)) == S


@pytest.mark.parametrize("kind", TEXTS)
def test_any_text_gives_the_right_result(model, kind):
    text = TEXTS[kind]
    run = trace(model, text)
    _fits(run)
    L, T = len(run.blocks), len(run.tokens)
    for maps in (rollout(stage_map(run, "Attn-W")), value_zeroing(model, text)):
        sums = maps.sum(dim=-1)
        assert maps.shape == (L, T, T) and ((sums - 1).abs() < 1e-4).logical_or(sums == 0).all()
    moved = blank_out(model, text, total, blank=5, exclude=[])
    assert moved.shape == (T,) and not moved.isinf().any()
    gradients = input_gradients(model, text, total, length=True)
    assert gradients.shape == (T,) and gradients.isfinite().all()
    H = run.attention.shape[1]
    assert len(corpus.token_table(model, [text])) == L * H * T
    table = corpus.mixing_table(model, [text])
    assert len(table) == len(run.stages) * L * T and table["ratio"].between(0, 1).all()
    shares = corpus.category_shares(model, [text]).groupby(["layer", "head"])["weight"].sum()
    assert ((shares - 1).abs() < 1e-4).all()


@pytest.mark.parametrize("kind", TEXTS)
def test_any_text_can_be_the_second_one(tiny, kind):
    for family in ("bert", "roberta"):
        run = trace(tiny(family), "the", pair=TEXTS[kind])
        _fits(run)
        assert len(run.tokens) > len(trace(tiny(family), TEXTS[kind]).tokens)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("family", TWO_SIDED)
def test_any_text_can_be_translated(tiny, family, kind):
    model, text = tiny(family), TEXTS[kind]
    for attention in ("cross", "decoder", "encoder"):
        run = trace(model, text, target=text, attention=attention)
        _fits(run)
        assert run.is_cross == (attention == "cross")
    assert value_zeroing(model, text).shape[1] == len(run.tokens)


@pytest.mark.parametrize("kind", TEXTS)
def test_any_text_can_be_drawn(minilm, kind):
    run = trace(minilm, TEXTS[kind])
    figures.draw_attention(run, -1, -1).savefig(io.BytesIO(), format="png", dpi=20)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_text_that_is_none_is_refused(tiny, name, kind):
    text, words = REFUSED[kind]
    with pytest.raises((ValueError, TypeError), match="^" + words.format("text")) as error:
        FUNCTIONS[name](tiny("bert"), text)
    assert "\n" not in str(error.value) and str(error.value).endswith(".")


@pytest.mark.parametrize("kind", [kind for kind in REFUSED if kind != "None"])
def test_a_second_text_that_is_none_is_refused_by_its_name(tiny, kind):
    text, words = REFUSED[kind]
    for model, name in (("bert", "pair"), ("marian", "target"), ("t5", "target")):
        with pytest.raises((ValueError, TypeError), match="^" + words.format(name)):
            trace(tiny(model), "the", **{name: text})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_text_refuse_a_translation_model(tiny, name):
    if name == "value_zeroing":  # reads the encoder
        return
    with pytest.raises(ValueError, match="target is missing|is an encoder-decoder") as error:
        FUNCTIONS[name](tiny("marian"), "the")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("family", ["bert", "gpt2", "roberta", "marian"])
def test_exactly_the_maximum_length_and_one_more(tiny, family):
    model = tiny(family)
    both = {"attention": "encoder"} if family == "marian" else {}

    def text(tokens: int) -> str:
        made = (more + "z " * n for n in range(tokens) for more in ("", "Z", "die "))
        return next(t for t in made if len(model.tokenizer(t)["input_ids"]) == tokens)

    limit = {"roberta": POSITIONS - 2}.get(family, POSITIONS)
    run = trace(model, text(limit), **both)
    assert len(run.tokens) == limit
    _fits(run)
    wanted = f"text has {limit + 1} tokens .* reads at most {limit}; .* nothing is cut off"
    functions = [lambda model, text: trace(model, text, **both), value_zeroing]
    if family != "marian":
        functions = FUNCTIONS.values()
    for function in functions:
        with pytest.raises(ValueError, match=wanted):
            function(model, text(limit + 1))


def test_the_maximum_length_of_the_default_model(minilm):
    run = trace(minilm, "the " * 510)
    assert len(run.tokens) == 512 and (reconstruction_error(run) < 1e-5).all()
    with pytest.raises(ValueError, match="text has 513 tokens .* at most 512"):
        trace(minilm, "the " * 511)


def test_words_of_60_letters(minilm):
    run = trace(minilm, "Donaudampfschifffahrtsgesellschaftskapitänsmützenfabrikanten " + "x" * 60)
    _fits(run)
    assert len(run.tokens) > 30


def test_no_token_but_the_special_ones(minilm):
    for text in ("\u200b", "\x1b", "\ufeff"):
        with pytest.raises(ValueError, match="^text .* has no token left|^text is empty"):
            trace(minilm, text)
    with pytest.raises(ValueError, match="only special tokens, so there is nothing to mask"):
        corpus.mixing_table(minilm, ["[SEP] [CLS]"], masked=0.5)


def _found(board, kind) -> list:
    found, waiting = [], [board]
    while waiting:
        widget = waiting.pop()
        waiting.extend(getattr(widget, "children", ()))
        found += [widget] * isinstance(widget, kind)
    return found


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "ex" in name or "com" in name])
def test_texts_typed_into_a_widget_give_a_picture_or_one_sentence(tiny, monkeypatch, capsys, name):
    shown = []
    monkeypatch.setattr(widgets, "display", shown.append)
    board = FUNCTIONS[name](tiny("bert"), "the keys")
    (field,) = _found(board, ipywidgets.Text)
    for kind in ("mathematics", "Chinese", "emoji with joiners"):
        number = len(shown)
        field.value = TEXTS[kind]
        assert len(shown) > number and shown[-1] is not shown[number - 1]
    picture = shown[-1]
    for text in ("", " \t\n ", "a\ud83d", "z " * POSITIONS):
        capsys.readouterr()
        field.value = text
        said = capsys.readouterr().out.replace("\x1b[2K\r", "").strip()  # what clears the output
        assert re.fullmatch(r"text .*\.", said)
        assert shown[-1] is picture, "the last picture stays"
