"""The agreement sentences: what the file holds, what it must not give away, how it is made."""

import os
import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pandas as pd
import pytest

from helpers.corpus import read_agreement

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "training" / "agreement.py"
FILE = ROOT / "helpers" / "data" / "agreement.tsv"
CARD = FILE.with_name("agreement.card.md").read_text(encoding="utf-8")
GRAMMAR = run_path(str(SCRIPT))
KINDS, plural = GRAMMAR["KINDS"], GRAMMAR["plural"]
TELLS = """a an this these those their its his hers them they it one two three both all each every
many few several some any another is are was were be am has have had do does did isn aren hasn
together themselves itself himself herself other others"""
PAST = "bought found sold lost met knew fed saw bit said heard thought"


@pytest.fixture(scope="module")
def table():
    return read_agreement()


def listed(split: str) -> list[str]:
    return [noun for kind in KINDS for noun in GRAMMAR["nouns"](kind, split)]


def both(nouns) -> set[str]:
    return {form for noun in nouns for form in (noun, plural(noun))}


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.replace("[MASK]", "").lower())


# --- the file --------------------------------------------------------------------------------


def test_columns_and_size(table):
    assert list(table) == GRAMMAR["COLUMNS"]
    assert table["split"].value_counts().to_dict() == {"train": 1248, "test": 624}
    assert set(table["number"]) == {"singular", "plural"}
    assert not table.isna().any().any()
    assert not table["text"].str.lower().duplicated().any()


def test_each_text_has_one_mask_and_8_to_22_tokens(table, minilm):
    for text in table["text"]:
        tokens = minilm.tokenizer.tokenize(text)
        assert tokens.count("[MASK]") == 1 and text.count("[MASK]") == 1
        assert 8 <= len(tokens) and len(tokens) + 2 <= 22  # without, and with [CLS] and [SEP]
        assert re.fullmatch(r"[A-Z][A-Za-z,]*( ([A-Za-z]+,?|\[MASK\]))+\.", text), text


def test_every_word_is_one_token(table, minilm):
    vocabulary = minilm.tokenizer.get_vocab()
    assert {word for text in table["text"] for word in words(text)} <= set(vocabulary)
    assert both(listed("train") + listed("test")) <= set(vocabulary)


def test_numbers_balance_in_every_template(table):
    assert table["template"].nunique() == len(GRAMMAR["FRAMES"]) >= 10
    for (_, attractors, split), part in table.groupby(["template", "attractors", "split"]):
        assert len(part) == 2 * GRAMMAR["PAIRS"][split]
        cells = part.groupby(["number", "opposite"]).size().unstack()
        expected = {0: [1], 1: [0.5, 0.5], 2: [0.25, 0.5, 0.25]}[attractors]
        for number in ("singular", "plural"):
            shares = cells.loc[number] / GRAMMAR["PAIRS"][split]
            assert shares.tolist() == expected and list(shares.index) == [*range(attractors + 1)]


def test_the_columns_say_what_the_texts_hold(table):
    nouns = listed("train") + listed("test")
    plurals, forms = {plural(noun) for noun in nouns}, both(nouns)
    for row in table.itertuples():
        before = words(row.text.partition("[MASK]")[0])
        found = [word for word in before if word in forms]
        subject = plural(row.noun) if row.number == "plural" else row.noun
        assert found.count(subject) == 1
        others = [word for word in found if word != subject]
        assert len(others) == row.attractors
        assert sum((o in plurals) != (row.number == "plural") for o in others) == row.opposite
        assert not forms & set(words(row.text.partition("[MASK]")[2])), "no noun of the lists"


# --- what must not tell the number ---------------------------------------------------------------


def test_neighbours_differ_in_the_subject_alone(table):
    """So any other word is as frequent with a singular as with a plural."""
    for first, second in zip(table[::2].itertuples(), table[1::2].itertuples(), strict=True):
        assert (first.number, second.number) == ("singular", "plural")
        assert first.noun == second.noun and first.template == second.template
        pairs = zip(first.text.split(), second.text.split(), strict=True)
        assert [p for p in pairs if p[0] != p[1]] == [(first.noun, plural(first.noun))]


def test_no_word_agrees_with_the_subject(table):
    tells = set(TELLS.split())
    for text in table["text"]:
        assert not tells & set(words(text)), text


def test_the_verbs_of_clauses_are_in_the_past_tense():
    phrases = [p for kind in KINDS.values() for p in (kind.done, kind.clauses, kind.who) if p]
    for phrase in "|".join([*phrases, GRAMMAR["REPORTS"]]).split("|"):
        verb = phrase.split()[-1]
        assert verb.endswith("ed") or verb in PAST.split(), phrase


def test_the_masked_verb_shows_its_number():
    for kind in KINDS.values():
        for predicate in kind.predicates.split("|"):
            one, many = predicate.split()[0].split("/")
            assert one != many and one in ("is", "has", many + "s"), predicate


# --- the nouns -----------------------------------------------------------------------------------


def test_training_and_testing_share_no_noun(table):
    train, test = listed("train"), listed("test")
    assert len(set(train)) == len(train) >= 120 and len(set(test)) == len(test) >= 60
    assert not both(train) & both(test)
    for split, foreign in (("train", both(test)), ("test", both(train))):
        part = table[table["split"] == split]
        assert set(part["noun"]) == set(listed(split)), "each is a subject"
        assert not foreign & {word for text in part["text"] for word in words(text)}


@pytest.mark.parametrize(
    ("noun", "expected"),
    [("key", "keys"), ("lady", "ladies"), ("box", "boxes"), ("church", "churches")],
)
def test_plurals(noun, expected):
    assert plural(noun) == expected


# --- how it is made --------------------------------------------------------------------------


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_script_writes_the_committed_file(tmp_path, hash_seed):
    out = tmp_path / "agreement.tsv"
    result = subprocess.run(
        [sys.executable, SCRIPT, "--out", out],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.read_bytes() == FILE.read_bytes()
    assert result.stdout.strip() in CARD, "the card's table of counts"


def test_the_table_is_the_file(table):
    pd.testing.assert_frame_equal(table, GRAMMAR["sentences"](), check_dtype=False)


def test_the_card_counts_the_nouns_and_tokens(table, minilm):
    for split, title in (("train", "training"), ("test", "testing")):
        sizes = [len(GRAMMAR["nouns"](kind, split)) for kind in KINDS]
        row = " | ".join(str(size) for size in [*sizes, sum(sizes)])
        assert f"| {title} | {row} |" in CARD
    lengths = [len(minilm.tokenizer(text)["input_ids"]) for text in table["text"]]
    assert f"| Shortest / longest | {min(lengths)} / {max(lengths)} tokens |" in CARD
    assert f"| Mean | {sum(lengths) / len(lengths):.1f} tokens |" in CARD
    assert f"| Sentences | {len(table):,} |" in CARD
    uses = table.groupby("split")["noun"].value_counts().groupby("split").agg(["min", "max"])
    for split, title in (("train", "training"), ("test", "testing")):
        low, high = uses.loc[split]
        assert f"| A {title} noun is the subject of | {low} to {high} sentences |" in CARD
