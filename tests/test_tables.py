"""Categories, ranks, and tidy tables held against slow recomputations."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from oracle.compare import close, refused

from helpers import (
    Model,
    mixing_ratio,
    stage_map,
    trace,
    transformed_norms,
    weighted_norms,
)
from helpers.datasets import read_passages
from helpers.tables import (
    CATEGORIES,
    categories,
    category_shares,
    frequency_ranks,
    mixing_table,
    token_table,
    traces,
)

TEXTS = [
    "She saw them, on the table.",
    "the keys are on the table",  # neither comma nor full stop
    "The keys, the cabinet. She saw them!",
]
# What a row is about, in the order of the columns.
ABOUT = ["text_id", "stage", "layer", "head", "position", "token", "category", "rank"]
TABLES = {
    "token_table": (token_table, {"stage"}, ["weight", "norm", "weighted_norm", "input_norm"]),
    "mixing_table": (mixing_table, {"head"}, ["ratio"]),
    "category_shares": (
        category_shares,
        {"text_id", "stage", "position", "token", "rank"},
        ["weight", "norm", "norm_sum"],
    ),
}


@pytest.fixture(scope="module", params=["minilm", "bert", "roberta", "gpt2"])
def model(request, minilm, tiny):
    return minilm if request.param == "minilm" else tiny(request.param)


@pytest.fixture(scope="module")
def runs(model):
    return [trace(model, text) for text in TEXTS]


# --- categories and ranks --------------------------------------------------------------------


def test_categories(minilm):
    run = trace(minilm, "Keys")
    for wanted, tokens in {
        "punctuation": [",", ".", "Ġ,", "Ġ.", "▁."],
        "other": ["the", "##s", "!", "...", "[UNK]", "<bos>", "[CLS]", "Ġthe", "▁", "Ġ", ""],
    }.items():
        none = [None] * len(tokens)
        assert categories(replace(run, keys=tokens, key_roles=none)) == [wanted] * len(tokens)
    roles = ["[CLS]", "[BOS]", "[SEP]", "[EOS]", "[MASK]", "special"]
    assert categories(replace(run, keys=["."] * 6, key_roles=roles)) == roles
    assert (*roles, "punctuation", "other") == CATEGORIES
    refused(lambda: categories(["[CLS]"]), "run must be a Trace, got list")


@pytest.mark.parametrize("name", ["gpt2", "gemma", "llama", "qwen2", "opt", "modernbert"])
def test_the_first_token_of_no_model_is_filed_with_the_words(tiny, name):
    """The sink of a decoder is its first token, which a table must be able to tell from words."""
    model, role = tiny(name), "[BOS]" if name in ("gpt2", "qwen2") else "[CLS]"
    text = "<|endoftext|>the keys." if role == "[BOS]" else "the keys."
    weight = trace(model, text).attention[0, :, :, 0].mean()
    table = category_shares(model, [text]).query("layer == 1 and head.isna()")
    assert table.query("category == @role")["weight"].item() == pytest.approx(weight.item())


def test_frequency_ranks_are_ids_of_whole_words(minilm, tiny):
    words = ["the", "of", "keys", "cabinet"]
    others = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", ",", "##s", "12", "a", "1990"]
    ids = minilm.tokenizer.convert_tokens_to_ids([*words, *others])
    assert ids[:2] == [1996, 1997] and ids[-2] < 1996 < ids[-4]
    ranks = frequency_ranks(minilm, ids)
    assert ranks[: len(words)].tolist() == ids[: len(words)] and np.isnan(ranks[len(words) :]).all()
    for family in ("bert", "roberta", "gpt2"):
        ranks = frequency_ranks(tiny(family), [0, 5, 20])
        assert ranks.shape == (3,) and np.isnan(ranks).all(), "another vocabulary"
    for wrong in (-1, 10**9, 1996.9, "the"):
        refused(lambda wrong=wrong: frequency_ranks(minilm, [wrong]), "ids must be whole numbers")


# --- the shape of all tables -----------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_all_tables_are_named_and_shaped_alike(minilm, name):
    make, absent, measured = TABLES[name]
    table = make(minilm, TEXTS)
    about = [column for column in ABOUT if column not in absent]
    assert list(table) == about + measured
    assert table.index.equals(pd.RangeIndex(len(table)))
    assert not table.duplicated(about).any()
    for column, first, last in (("text_id", 0, 2), ("layer", 1, 6), ("head", 1, 12)):
        if column in about:
            whole = table[column]
            assert pd.api.types.is_integer_dtype(whole) and whole.min() == first
            assert whole.max() == last and whole.dropna().nunique() == last - first + 1
    assert tuple(table["category"].cat.categories) == CATEGORIES
    assert not table[[c for c in table if c not in ("head", "rank")]].isna().any().any()
    if "stage" in about:
        assert list(table.groupby("stage")["ratio"].mean().index) == list(trace(minilm, "a").stages)


def test_tables_of_one_text_are_a_part_of_those_of_all(minilm):
    for make in (token_table, mixing_table):
        whole, one = make(minilm, TEXTS), make(minilm, TEXTS[1:2])
        part = whole[whole["text_id"] == 1].reset_index(drop=True)
        pd.testing.assert_frame_equal(part.assign(text_id=0), one)
        pd.testing.assert_frame_equal(make(minilm, pd.Series(TEXTS, index=[7, 8, 9])), whole)


def test_a_missing_head_is_all_heads(minilm):
    table = category_shares(minilm, TEXTS)
    assert table["head"].dtype == "Int64" and table["head"].isna().sum() == 6 * 4
    assert table.query("head.isna()").shape == table[table["head"].isna()].shape == (24, 6)
    assert table.groupby("head").ngroups == 12, "pandas leaves all heads together out"
    tokens = token_table(minilm, TEXTS[:1])
    assert len(tokens.merge(table, on=["layer", "head", "category"])) == len(tokens)


# --- what they hold --------------------------------------------------------------------------


def test_category_shares_against_plain_loops(model, runs):
    """Row by row, key by key: the share of each category, averaged over all rows of all texts."""
    table = category_shares(model, TEXTS)
    rows = sum(len(run.tokens) for run in runs)
    L, H = runs[0].attention.shape[:2]
    expected = {}
    for run in runs:
        maps = {None: (stage_map(run, "Attn-W"), stage_map(run, "Attn-N"))}
        for h in range(H):
            maps[h + 1] = (run.attention[:, h], weighted_norms(run)[:, h])
        names = categories(run)
        for head, (weight, norm) in maps.items():
            for layer in range(L):
                for W, N in zip(weight[layer].tolist(), norm[layer].tolist(), strict=True):
                    total = sum(N)
                    for j, name in enumerate(names):
                        cell = expected.setdefault((layer + 1, head, name), [0.0, 0.0, 0.0])
                        cell[0] += W[j] / rows
                        cell[1] += N[j] / total / rows
                        cell[2] += N[j] / rows
    found = {
        (row.layer, None if row.head is pd.NA else row.head, row.category): list(row[4:])
        for row in table.itertuples()
    }
    assert len(found) == len(table) and set(found) == set(expected)
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, rel=2e-5, abs=1e-6), key
    sums = table.groupby(["layer", "head"], dropna=False)[["weight", "norm"]].sum()
    close(sums.to_numpy(copy=True), np.ones((L * (H + 1), 2)))


def test_a_text_without_punctuation_counts_as_zero(minilm):
    """Alone it has no such category; beside others it only makes the share smaller."""
    assert "punctuation" not in set(category_shares(minilm, TEXTS[1:2])["category"])
    one, two = (
        category_shares(minilm, texts)
        .query("category == 'punctuation'")["weight"]
        .to_numpy(copy=True)
        for texts in (TEXTS[:1], TEXTS[:2])
    )
    first, second = (len(trace(minilm, text).tokens) for text in TEXTS[:2])
    close(two, one * first / (first + second))


def test_token_table_holds_what_the_runs_hold(model, runs):
    table = token_table(model, TEXTS)
    L, H = runs[0].attention.shape[:2]
    assert len(table) == sum(L * H * len(run.keys) for run in runs)
    indexed = table.set_index(["text_id", "layer", "head", "position"])
    for number, run in enumerate(runs):
        norms, weighted = transformed_norms(run), weighted_norms(run)
        for layer, head, position in [(0, 0, 0), (1, 2, 3), (2, 3, 5), (L - 1, H - 1, 1)]:
            row = indexed.loc[number, layer + 1, head + 1, position]
            assert row["token"] == run.tokens[position]
            assert row["category"] == categories(run)[position]
            expected = {
                "weight": run.attention[layer, head, :, position].mean(),
                "norm": norms[layer, head, position],
                "weighted_norm": weighted[layer, head, :, position].mean(),
                "input_norm": run.blocks[layer].x[position].norm(),
            }
            for column, value in expected.items():
                assert row[column] == pytest.approx(value.item(), rel=1e-5)
            rank = frequency_ranks(model, run.ids)[position]
            assert row["rank"] == rank or (math.isnan(row["rank"]) and math.isnan(rank))


def test_mixing_table_holds_all_stages(model, runs):
    table = mixing_table(model, TEXTS)
    assert list(table["stage"].unique()) == list(runs[0].stages)
    assert len(table) == sum(mixing_ratio(r, s).numel() for r in runs for s in r.stages)
    indexed = table.set_index(["text_id", "stage", "layer", "position"])["ratio"].sort_index()
    for number, run in enumerate(runs):
        for stage in run.stages:
            found = indexed.loc[number, stage].unstack().to_numpy(copy=True)
            close(found, mixing_ratio(run, stage), 1e-6)


def test_traces_follow_the_texts(tiny):
    found = [run.tokens for run in traces(tiny("bert"), TEXTS)]
    assert found == [trace(tiny("bert"), text).tokens for text in TEXTS]


# --- masking ---------------------------------------------------------------------------------


def _tokens(table: pd.DataFrame, text_id: int) -> list[str]:
    first = (table["layer"] == 1) & (table["stage"] == "Attn-W") & (table["text_id"] == text_id)
    return table[first].sort_values("position")["token"].tolist()


def test_masking_replaces_twelve_percent_but_one_at_least(minilm):
    texts = [*read_passages()[:4], "keys"]
    table = mixing_table(minilm, texts, masked=0.12)
    for number, text in enumerate(texts):
        before, after = trace(minilm, text).tokens, _tokens(table, number)
        changed = [new for old, new in zip(before, after, strict=True) if old != new]
        assert changed == ["[MASK]"] * max(1, math.floor(0.12 * (len(before) - 2)))
        assert after[0] == "[CLS]" and after[-1] == "[SEP]"
    assert "[MASK]" not in set(mixing_table(minilm, TEXTS)["token"])


def test_special_tokens_are_never_masked(tiny):
    table = mixing_table(tiny("roberta"), ["she saw </s> them"], masked=1.0)
    tokens = _tokens(table, 0)
    assert (tokens[0], tokens[-1]) == ("<s>", "</s>")
    assert tokens.count("</s>") == 2, "nor one inside the text"
    assert set(tokens[1:-1]) == {"<mask>", "</s>"}


def test_the_model_runs_on_the_masked_text(minilm):
    table = mixing_table(minilm, ["she saw keys"], masked=1.0)
    expected = mixing_ratio(trace(minilm, "[MASK] [MASK] [MASK]"), "AttnRes-N").flatten()
    found = table[table["stage"] == "AttnRes-N"].sort_values(["layer", "position"])["ratio"]
    close(found.to_numpy(copy=True), expected, 1e-6)
    masks = table[table["category"] == "[MASK]"]
    assert set(masks["position"]) == {1, 2, 3} and masks["rank"].isna().all()


def test_masking_depends_on_the_seed_and_the_text_alone(minilm):
    texts = read_passages()[:4]
    forward = mixing_table(minilm, texts, masked=0.12)
    backward = mixing_table(minilm, texts[::-1], masked=0.12)
    for number in range(4):
        assert _tokens(forward, number) == _tokens(backward, 3 - number)
    assert _tokens(forward, 2) == _tokens(mixing_table(minilm, texts[2:3], masked=0.12), 0)
    first, again, other = (mixing_table(minilm, texts, masked=0.12, seed=s) for s in (1, 1, 2))
    pd.testing.assert_frame_equal(first, again)
    assert any(_tokens(first, n) != _tokens(other, n) for n in range(4))


def test_masking_leaves_the_random_numbers_of_others_alone(tiny):
    model = tiny("bert")  # made before the state is read: making it draws random numbers
    state = torch.get_rng_state()
    mixing_table(model, TEXTS[:1], masked=0.5)
    assert torch.equal(torch.get_rng_state(), state)


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [traces, token_table, category_shares, mixing_table])
def test_texts_that_are_no_list(tiny, make):
    for wrong in ("she saw", [], None, pd.Series([], dtype=object)):
        refused(
            lambda wrong=wrong: make(tiny("bert"), wrong), "texts must be a list of one text or"
        )
    refused(
        lambda: list(make(tiny("bert"), ["she", 3])),
        "text must be one string, a list of words or a list of token ids, got int",
    )
    refused(lambda: list(make(tiny("bert").network, ["she"])), "Model(network, tokenizer)")
    refused(lambda: list(make(tiny("marian"), ["she"])), "target is missing")


@pytest.mark.parametrize("make", [traces, token_table, category_shares, mixing_table])
def test_a_bad_text_among_many_is_named_before_the_first_is_read(minilm, make):
    read, layer = [], minilm.network.encoder.layer[0]
    hook = layer.register_forward_pre_hook(lambda *call: read.append(call))
    for bad, words in {"": "text is empty", ("the", " "): "pair is empty", 3: "got int"}.items():
        call = partial(make, minilm, ["the keys", "she", bad, "saw"])
        refused(call, "texts[2] of 4 (counted from 0) cannot be read: ", words)
    refused(partial(make, minilm, ["she", ("a", "b", "c")]), "texts[1]", "a text with its pair")
    refused(partial(make, minilm, ["she", "the " * 600]), "texts[1]", "602 tokens")
    if make is mixing_table:
        call = partial(make, minilm, ["she", "[SEP]"], masked=0.1)
        refused(call, "texts[1]", "only special tokens")
    hook.remove()
    assert not read


def test_tables_of_pairs(minilm):
    pair = ("She saw the keys.", "They were on the table.")
    run = trace(minilm, *pair)
    table = token_table(minilm, [pair, "keys"]).query("text_id == 0 and layer == 2 and head == 3")
    assert table["token"].tolist() == run.keys and run.keys.count("[SEP]") == 2
    close(table["norm"].to_numpy(copy=True), transformed_norms(run)[1, 2])
    table = mixing_table(minilm, [pair]).query("stage == 'AttnRes-N' and layer == 4")
    close(table["ratio"].to_numpy(copy=True), mixing_ratio(run, "AttnRes-N")[3])
    found = category_shares(minilm, [pair]).query("layer == 1 and head.isna()")
    weight = stage_map(run, "Attn-W")[0].mean(dim=0)
    ends = torch.tensor([role == "[SEP]" for role in run.key_roles])
    assert found.query("category == '[SEP]'")["weight"].item() == pytest.approx(
        weight[ends].sum().item()
    )
    assert [len(run.tokens) for run in traces(minilm, [["the", "keys"], pair])] == [
        4,
        len(run.keys),
    ]
    masked = mixing_table(minilm, [pair], masked=0.5)
    assert (masked["category"] == "[MASK]").any()


def test_masks_that_cannot_be_put(minilm, tiny):
    for wrong in (-0.1, 1.5, "all"):
        call = partial(mixing_table, minilm, TEXTS, masked=wrong)
        refused(call, "masked must be one finite number from 0 to 1")
    unnamed = Model(tiny("gpt2").network, tiny("gpt2").tokenizer)
    refused(lambda: mixing_table(unnamed, TEXTS, 0.12), "'GPT2Model' has no mask token; use 0")
    refused(lambda: mixing_table(minilm, ["[SEP] [CLS]"], 0.5), "only special tokens")
