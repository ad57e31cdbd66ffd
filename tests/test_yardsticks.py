"""Every map's row of [MASK], the yardsticks beside it, and their rank correlation."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.compare import close, refused
from oracle.tiny_models import save

from helpers import (
    Model,
    blank_out,
    flow,
    globenc,
    input_gradients,
    load_model,
    rollout,
    stage_map,
    trace,
    value_zeroing,
)
from helpers.tables import MAPS, YARDSTICKS, measure, rank_correlation
from helpers.tables.yardsticks import RESIDUAL

TEXT = "the keys, [MASK] on them."

pytestmark = pytest.mark.usefixtures("warnings_are_errors")


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function: a family and the end of a class's name give a tiny model with random weights."""

    def made(family: str = "bert", head: str = "BertForTokenClassification", labels: int = 1):
        folder = tmp_path_factory.mktemp("scorer")
        kind = getattr(transformers, head)
        save(family, folder, lambda config: kind(set_labels(config, labels)), seed=3)
        return load_model(folder)

    return made


def set_labels(config, number: int):
    config.num_labels = number
    return config


@pytest.fixture(scope="module")
def scorer(make):
    """One number per token."""
    return make()


@pytest.fixture(scope="module")
def measured(scorer):
    return measure(scorer, TEXT)


def test_the_names_and_shapes(measured):
    T = len(measured.tokens)
    assert measured.tokens[measured.mask] == "[MASK]"
    assert tuple(measured.rows) == MAPS and tuple(measured.yardsticks) == YARDSTICKS
    assert len(MAPS) == 16
    assert {tuple(row.shape) for row in measured.rows.values()} == {(3, T)}
    assert {row.dtype for row in measured.rows.values()} == {torch.float64}
    for values in measured.yardsticks.values():
        assert torch.equal(values.isnan(), torch.arange(T) == measured.mask)
        assert (values.nan_to_num(0.0) >= 0).all()


def test_rows(scorer, measured):
    run, mask, rows = trace(scorer, TEXT), measured.mask, measured.rows
    for stage in RESIDUAL:
        maps = stage_map(run, stage).double()
        residual = 0.0 if stage.startswith("AttnRes") else 0.5
        assert torch.equal(rows[stage], maps[:, mask])
        assert torch.equal(rows[f"rollout {stage}"], rollout(maps, residual)[:, mask])
        water = torch.stack([flow(maps, residual, layer=layer)[mask] for layer in range(3)])
        torch.testing.assert_close(rows[f"flow {stage}"], water, rtol=0, atol=1e-9)
        assert torch.equal(rows[f"flow {stage}"], rows[f"flow {stage}"].round(decimals=9))
    local = {"GlobEnc": globenc(run), "value zeroing": value_zeroing(scorer, TEXT)}
    for name, maps in local.items():
        assert torch.equal(rows[name], maps.double()[:, mask])
        assert torch.equal(rows[f"rollout {name}"], rollout(maps.double(), 0)[:, mask])


def test_yardsticks(scorer, measured):
    mask, names = measured.mask, measured.yardsticks

    def score(output):
        return output.logits[0, mask, 0]

    kept = torch.arange(len(measured.tokens)) != mask
    for name, values in {
        "blank-out": blank_out(scorer, TEXT, score, blank="[UNK]"),
        "blank-out, [MASK]": blank_out(scorer, TEXT, score),
        "gradient × input": input_gradients(scorer, TEXT, score, "dot"),
        "gradient length": input_gradients(scorer, TEXT, score),
    }.items():
        assert torch.equal(names[name][kept], values[kept])
        alone = measure(scorer, TEXT, [name])
        assert list(alone.yardsticks) == [name]
        assert torch.equal(alone.yardsticks[name][kept], values[kept])
    assert not measure(scorer, TEXT, ()).yardsticks


def test_what_is_disturbed_can_be_the_same_network_in_double_precision(scorer, measured):
    finer = measure(scorer, TEXT, scorer=scorer.double())
    for name, values in finer.yardsticks.items():
        assert values.dtype == torch.float64
        coarse = measured.yardsticks[name].double()
        torch.testing.assert_close(values, coarse, rtol=1e-4, atol=1e-5, equal_nan=True)
        assert not torch.equal(values.nan_to_num(), coarse.nan_to_num())
    assert all(torch.equal(finer.rows[name], measured.rows[name]) for name in MAPS)


def test_the_model_of_the_lesson():
    model, text = load_model("verb-number"), "The keys near the door [MASK] gone."
    run = measure(model, text)
    assert run.tokens[int(run.yardsticks["blank-out"].nan_to_num(0.0).argmax())] == "keys"


def test_a_mask_token_of_another_name(make):
    """RoBERTa's is <mask>."""
    run = measure(make("roberta", "RobertaForTokenClassification"), "the keys <mask> them")
    assert run.tokens[run.mask] == "<mask>" and tuple(run.rows) == MAPS


# --- mistakes --------------------------------------------------------------------------------


def test_yardsticks_and_texts_that_do_not_fit(scorer, make, tiny):
    refused(lambda: measure(scorer, TEXT, ["taste"]), "every entry of yardsticks", '"blank-out"')
    refused(lambda: measure(scorer, TEXT, "blank-out"), "yardsticks must be a list of strings")
    for text, count in (("the keys", 0), ("[MASK] keys [MASK]", 2)):
        words = "text must hold [MASK] as one token exactly once", f"got it {count} times"
        refused(lambda text=text: measure(scorer, text), *words)
    refused(lambda: measure(tiny("gpt2"), TEXT), "text must hold [MASK]", "got it 0 times")
    refused(lambda: measure("x", TEXT), "model must be a Model, got str")
    refused(lambda: measure(scorer, TEXT, scorer="x"), "must be a Model, got str")
    modern = make("modernbert", "ModernBertForTokenClassification")
    refused(lambda: measure(modern, TEXT), "AttnResLn-N", "no LayerNorm after the residual")


@pytest.mark.parametrize(
    ("head", "labels"),
    [("BertForSequenceClassification", 1), ("BertForTokenClassification", 2), ("BertModel", 1)],
)
def test_a_model_that_does_not_give_one_number_per_token(make, scorer, head, labels):
    model = make(head=head, labels=labels)
    for text in (TEXT, "[MASK]"):  # the mask first too: a whole text's score has a first place
        words = "does not give one number per token; use", 'load_model("verb-number")'
        refused(lambda text=text: measure(model, text), *words)
    unnamed = Model(model.network, model.tokenizer)
    refused(lambda: measure(scorer, TEXT, scorer=unnamed), f"'{head}' does not give one number")


def test_a_scorer_that_reads_other_tokens(tiny, scorer):
    for wrong in (tiny("roberta"), tiny("gpt2")):
        words = "scorer must read the same tokens as model", "model.double()"
        refused(partial(measure, scorer, TEXT, scorer=wrong), *words)


# --- rank correlation ------------------------------------------------------------------------


def test_ties_share_a_mean_rank():
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, squares 4.5 and 5
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert rank_correlation(torch.tensor([1.0, 5, 9]), np.array([3, 2, 1])) == -1


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 1, 1], [1, 2, 3]),
        ([1, 2, 3], [0.1, 0.1, 0.1]),
        ([1, 1, 1, 2], [1, 2, 3, float("nan")]),  # constant where both are there
        ([1, 2], [1, 2]),
        ([1, 2, float("nan"), 4], [1, float("inf"), 3, 4]),
        ([], []),
    ],
)
def test_no_correlation_is_missing_and_not_zero(a, b):
    assert math.isnan(rank_correlation(a, b))


def test_missing_values_are_dropped_in_pairs():
    nan = float("nan")
    a, b = [1, nan, 2, 3, 9, 4], [1, 100, 3, 2, nan, 4]
    close(rank_correlation(a, b), rank_correlation([1, 2, 3, 4], [1, 3, 2, 4]))


@pytest.mark.parametrize(("a", "b"), [([1, 2, 3], [1, 2]), ([[1, 2, 3]], [[1, 2, 3]]), (1, 2)])
def test_shapes_that_do_not_fit(a, b):
    refused(lambda: rank_correlation(a, b), "a and b must be vectors of one length, got")
    refused(lambda: rank_correlation("abc", b), "a must be an array of real numbers")


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=3, max_size=12))
def test_any_correlation_is_that_of_pandas(pairs):
    a, b = (list(side) for side in zip(*pairs, strict=True))
    found = rank_correlation(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert math.isnan(found)
        return
    expected = pd.Series(a).rank().corr(pd.Series(b).rank())
    assert found == pytest.approx(expected, abs=1e-12)
    assert found == pytest.approx(rank_correlation(b, a), abs=1e-12)
    assert found == pytest.approx(rank_correlation(np.exp(a), b), abs=1e-12), "only order counts"
