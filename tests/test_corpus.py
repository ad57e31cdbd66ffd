"""Passages, categories, ranks, and tables held against slow recomputations."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import mixing_ratio, stage_map, trace, transformed_norms, weighted_norms
from helpers.corpus import (
    CATEGORIES,
    categories,
    category_shares,
    frequency_ranks,
    mixing_table,
    read_passages,
    token_table,
    traces,
)

TEXTS = [
    "She saw them, on the table.",
    "the keys are on the table",  # neither comma nor full stop
    "The keys, the cabinet. She saw them!",
]


# --- passages --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def passages():
    return read_passages()


def test_there_are_200_different_passages(passages):
    assert len(passages) == 200
    assert len(set(passages)) == 200
    assert len({passage[:30].lower() for passage in passages}) == 200, "no near copies either"
    assert all(passage == passage.strip() and "\n" not in passage for passage in passages)


def test_each_passage_has_25_to_80_tokens(passages, minilm):
    numbers = [len(minilm.tokenizer.tokenize(passage)) for passage in passages]
    assert min(numbers) >= 25 and max(numbers) <= 80


def test_each_passage_has_two_sentences_or_more(passages):
    for passage in passages:
        ends = re.findall(r"[.!?…][\"'”’)\]]*(?=\s|$)|:\s|;\s", passage)
        assert len(ends) >= 2, passage


def test_passages_hold_what_breaks_code(passages):
    everything = "\n".join(passages)
    assert all(character in everything for character in "$%()[]\"'-0123456789")


def test_no_passage_has_a_word_that_the_tokenizer_does_not_know(passages, minilm):
    for passage in passages:
        assert "[UNK]" not in minilm.tokenizer.tokenize(passage), passage


@pytest.mark.parametrize("form", [str, lambda path: path])
def test_a_file_of_one_s_own(tmp_path, form):
    file = tmp_path / "mine.txt"
    file.write_text("One text.\n\n  Über zwei.  \n\t\n三。\n", encoding="utf-8")
    assert read_passages(form(file)) == ["One text.", "Über zwei.", "三。"]


def test_a_file_with_the_line_ends_of_windows(tmp_path):
    (tmp_path / "mine.txt").write_bytes(b"One.\r\nTwo.\r\n")
    assert read_passages(tmp_path / "mine.txt") == ["One.", "Two."]


def test_a_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.txt.* is not a file"):
        read_passages(tmp_path / "nothing.txt")
    with pytest.raises(ValueError, match="is not a file"):
        read_passages(tmp_path)


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_an_empty_file(tmp_path, content):
    (tmp_path / "empty.txt").write_text(content)
    with pytest.raises(ValueError, match=r"empty\.txt.* holds no text"):
        read_passages(tmp_path / "empty.txt")


# --- categories and ranks --------------------------------------------------------------------


def test_categories_of_bert():
    tokens = ["[CLS]", "the", ",", "##s", ".", "!", "[MASK]", "...", "[UNK]", "[PAD]", "[SEP]"]
    assert categories(tokens) == (
        ["[CLS]", "other", "punctuation", "other", "punctuation", "other", "[MASK]"]
        + ["other"] * 3
        + ["[SEP]"]
    )


def test_categories_of_roberta():
    tokens = ["<s>", "Ġthe", "Ġ,", ",", ".", "Ġ.", "<mask>", "</s>", "</s>", "▁.", "▁", "Ġ"]
    assert categories(tokens) == (
        ["[CLS]", "other"]
        + ["punctuation"] * 4
        + ["[MASK]", "[SEP]", "[SEP]", "punctuation", "other", "other"]
    )


def test_every_category_is_known():
    assert set(categories(["[CLS]", "[SEP]", "[MASK]", ",", "x"])) == set(CATEGORIES)
    assert categories([]) == []


def test_frequency_ranks_are_ids_of_whole_words(minilm):
    words = ["the", "of", "keys", "cabinet"]
    ids = minilm.tokenizer.convert_tokens_to_ids(words)
    ranks = frequency_ranks(minilm, ids)
    assert ranks.tolist() == ids
    assert ranks[0] == 1996 and ranks[1] == 1997


def test_frequency_ranks_of_what_is_no_word(minilm):
    others = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", ",", "##s", "12", "a", "1990"]
    ids = minilm.tokenizer.convert_tokens_to_ids(others)
    assert ids[others.index("a")] < 1996 < ids[others.index("##s")]
    assert np.isnan(frequency_ranks(minilm, ids)).all()


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_frequency_ranks_of_another_vocabulary(tiny, family):
    ranks = frequency_ranks(tiny(family), [0, 5, 20])
    assert ranks.shape == (3,) and np.isnan(ranks).all()


# --- tables ----------------------------------------------------------------------------------


def test_traces_follow_the_texts(tiny):
    found = [run.tokens for run in traces(tiny("bert"), TEXTS)]
    assert found == [trace(tiny("bert"), text).tokens for text in TEXTS]


@pytest.fixture(scope="module", params=["minilm", "bert", "roberta", "gpt2"])
def model(request, minilm, tiny):
    return minilm if request.param == "minilm" else tiny(request.param)


@pytest.fixture(scope="module")
def runs(model):
    return [trace(model, text) for text in TEXTS]


def test_category_shares_against_plain_loops(model, runs):
    """Row by row, key by key: the share of each category, averaged over all rows of all texts."""
    table = category_shares(model, TEXTS)
    rows = sum(len(run.tokens) for run in runs)
    L, H = runs[0].attention.shape[:2]
    expected = {}
    for run in runs:
        maps = {"all": (stage_map(run, "Attn-W"), stage_map(run, "Attn-N"))}
        for h in range(H):
            maps[h + 1] = (run.attention[:, h], weighted_norms(run)[:, h])
        names = categories(run.keys)
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
        (row.layer, row.head, row.category): [row.weight, row.norm, row.norm_sum]
        for row in table.itertuples()
    }
    assert len(found) == len(table)
    assert set(found) == set(expected)
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, rel=2e-5, abs=1e-6), key


def test_shares_sum_to_one(model):
    table = category_shares(model, TEXTS)
    assert not table.isna().any().any()
    sums = table.groupby(["layer", "head"])[["weight", "norm"]].sum()
    np.testing.assert_allclose(sums, 1, atol=1e-5)
    assert (table["norm_sum"] > 0).all()


def test_a_text_without_punctuation_counts_as_zero(minilm):
    """Alone it has no such category; beside others it only makes the share smaller."""
    alone = category_shares(minilm, TEXTS[1:2])
    assert "punctuation" not in set(alone["category"])
    assert not alone.isna().any().any()
    one, two = (
        category_shares(minilm, texts).query("category == 'punctuation'")["weight"].to_numpy()
        for texts in (TEXTS[:1], TEXTS[:2])
    )
    first, second = (len(trace(minilm, text).tokens) for text in TEXTS[:2])
    np.testing.assert_allclose(two, one * first / (first + second), rtol=1e-5)


def test_token_table_holds_what_the_runs_hold(model, runs):
    table = token_table(model, TEXTS)
    L, H = runs[0].attention.shape[:2]
    assert len(table) == sum(L * H * len(run.keys) for run in runs)
    names = {"text", "layer", "head", "position", "token", "category", "rank"}
    assert set(table.columns) == names | {"weight", "norm", "weighted_norm", "input_norm"}
    indexed = table.set_index(["text", "layer", "head", "position"])
    assert indexed.index.is_unique
    for number, run in enumerate(runs):
        norms, weighted = transformed_norms(run), weighted_norms(run)
        for layer, head, position in [(0, 0, 0), (1, 2, 3), (2, 3, 5), (L - 1, H - 1, 1)]:
            row = indexed.loc[number, layer + 1, head + 1, position]
            assert row["token"] == run.tokens[position]
            assert row["category"] == categories(run.tokens)[position]
            attention = run.attention[layer, head, :, position]
            assert row["weight"] == pytest.approx(attention.mean().item(), rel=1e-5)
            assert row["norm"] == pytest.approx(norms[layer, head, position].item(), rel=1e-5)
            mean = weighted[layer, head, :, position].mean().item()
            assert row["weighted_norm"] == pytest.approx(mean, rel=1e-5)
            length = run.blocks[layer].x[position].norm().item()
            assert row["input_norm"] == pytest.approx(length, rel=1e-5)
            rank = frequency_ranks(model, run.ids)[position]
            assert row["rank"] == rank or (math.isnan(row["rank"]) and math.isnan(rank))


def test_categories_of_the_table_are_in_order(minilm):
    table = token_table(minilm, TEXTS[:1])
    assert list(table["category"].cat.categories) == list(CATEGORIES)


def test_mixing_table_holds_all_stages(model, runs):
    table = mixing_table(model, TEXTS)
    assert list(table["stage"].unique()) == list(runs[0].stages)
    indexed = table.set_index(["text", "stage", "layer", "position"])["ratio"].sort_index()
    assert indexed.index.is_unique
    for number, run in enumerate(runs):
        for stage in run.stages:
            expected = mixing_ratio(run, stage)
            assert len(indexed.loc[number, stage]) == expected.numel()
            for layer in range(len(expected)):
                found = indexed.loc[number, stage, layer + 1].to_numpy()
                np.testing.assert_allclose(found, expected[layer].numpy(), atol=1e-6)


# --- masking ---------------------------------------------------------------------------------


def _tokens(table: pd.DataFrame, text: int) -> list[str]:
    part = table[(table["text"] == text) & (table["layer"] == 1) & (table["stage"] == "Attn-W")]
    return part.sort_values("position")["token"].tolist()


def test_masking_replaces_twelve_percent_but_one_at_least(minilm):
    texts = [*read_passages()[:4], "keys"]
    table = mixing_table(minilm, texts, masked=0.12)
    for number, text in enumerate(texts):
        before, after = trace(minilm, text).tokens, _tokens(table, number)
        changed = [i for i, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1]
        assert {after[i] for i in changed} == {"[MASK]"}
        assert len(changed) == max(1, math.floor(0.12 * (len(before) - 2)))
        assert after[0] == "[CLS]" and after[-1] == "[SEP]"
    assert _tokens(table, len(texts) - 1) == ["[CLS]", "[MASK]", "[SEP]"]


def test_special_tokens_are_never_masked(tiny):
    table = mixing_table(tiny("roberta"), ["she saw </s> them"], masked=1.0)
    tokens = _tokens(table, 0)
    assert (tokens[0], tokens[-1]) == ("<s>", "</s>")
    assert tokens.count("</s>") == 2, "nor one inside the text"
    assert set(tokens[1:-1]) == {"<mask>", "</s>"}


def test_the_masked_model_runs_on_the_mask(minilm):
    """The ratios are those of the masked text, not of the original."""
    table = mixing_table(minilm, ["she saw keys"], masked=1.0)
    expected = mixing_ratio(trace(minilm, "[MASK] [MASK] [MASK]"), "AttnRes-N").flatten()
    found = table[table["stage"] == "AttnRes-N"].sort_values(["layer", "position"])["ratio"]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    assert set(table.loc[table["category"] == "[MASK]", "position"]) == {1, 2, 3}
    assert table.loc[table["category"] == "[MASK]", "rank"].isna().all()


def test_masking_does_not_depend_on_the_order(minilm):
    texts = read_passages()[:4]
    forward = mixing_table(minilm, texts, masked=0.12)
    backward = mixing_table(minilm, texts[::-1], masked=0.12)
    alone = mixing_table(minilm, texts[2:3], masked=0.12)
    for number in range(4):
        assert _tokens(forward, number) == _tokens(backward, 3 - number)
    assert _tokens(forward, 2) == _tokens(alone, 0)


def test_masking_is_seeded(minilm):
    texts = read_passages()[:4]
    first, again, other = (mixing_table(minilm, texts, masked=0.12, seed=s) for s in (1, 1, 2))
    pd.testing.assert_frame_equal(first, again)
    assert any(_tokens(first, n) != _tokens(other, n) for n in range(4))


def test_masking_leaves_the_random_numbers_of_others_alone(tiny):
    model = tiny("bert")  # made before the state is read: making it draws random numbers
    state = torch.get_rng_state()
    mixing_table(model, TEXTS[:1], masked=0.5)
    assert torch.equal(torch.get_rng_state(), state)


def test_no_mask_where_none_is_asked(minilm):
    assert "[MASK]" not in set(mixing_table(minilm, TEXTS)["token"])


def test_a_model_without_a_mask_token(tiny):
    with pytest.raises(ValueError, match="no mask token"):
        mixing_table(tiny("gpt2"), TEXTS, masked=0.12)
    assert len(mixing_table(tiny("gpt2"), TEXTS[:1])) > 0
