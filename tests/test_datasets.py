"""The course's passages, sentences and gold links, and how files of one's own are read."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from runpy import run_path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.compare import refused

from helpers.alignment import alignment_error_rate
from helpers.datasets import Gold, read_agreement, read_alignments, read_gold, read_passages

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "training" / "agreement.py"
FILE = ROOT / "helpers" / "data" / "agreement.tsv"


# --- passages --------------------------------------------------------------------------------


def test_the_200_passages(minilm):
    passages = read_passages()
    assert len(passages) == 200 == len({passage[:30].lower() for passage in passages}), "no copies"
    for passage in passages:
        assert passage == passage.strip() and "\n" not in passage
        tokens = minilm.tokenizer.tokenize(passage)
        assert 25 <= len(tokens) <= 80 and "[UNK]" not in tokens
        ends = re.findall(r"[.!?…][\"'”’)\]]*(?=\s|$)|:\s|;\s", passage)
        assert len(ends) >= 2, "two sentences or more"
    everything = "\n".join(passages)
    assert all(sign in everything for sign in "$%()[]\"'-0123456789"), "what breaks code"


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("One text.\n\n  Über zwei.  \n\t\n三。\n".encode(), ["One text.", "Über zwei.", "三。"]),
        (b"One.\r\nTwo.\r\n", ["One.", "Two."]),
        ("\ufeffOne.\n".encode(), ["One."]),
    ],
    ids=["plain", "Windows", "UTF-8 mark"],
)
def test_passages_of_one_s_own(tmp_path, content, wanted):
    file = tmp_path / "mine.txt"
    file.write_bytes(content)
    assert read_passages(file) == read_passages(str(file)) == wanted


def test_files_without_passages(tmp_path, monkeypatch):
    file = tmp_path / "mine.txt"
    for path in (file, tmp_path):
        refused(lambda path=path: read_passages(path), "cannot be read", "one text per line")
    for content in (b"", b"\n \n\t\n"):
        file.write_bytes(content)
        refused(lambda: read_passages(file), "mine.txt", "holds no text", "one text per line")
    for content in ("é".encode("latin-1"), "One.".encode("utf-16")):
        file.write_bytes(content)
        refused(lambda: read_passages(file), "mine.txt", "is not in UTF-8")
        if content[:2] == b"\xff\xfe":
            refused(lambda: read_gold(file, one_indexed=True), "is not in UTF-8")
    refused(lambda: read_passages(3), "path must be a string or a path, got int")
    monkeypatch.setenv("HOME", str(tmp_path))
    file.write_text("1-1")
    assert read_passages("~/mine.txt") == ["1-1"]
    assert len(read_gold("~/mine.txt", one_indexed=True)) == 1


# --- gold links ------------------------------------------------------------------------------


def gold_of(sure, maybe=()) -> Gold:
    return Gold(frozenset(sure), frozenset(sure) | frozenset(maybe))


FIRST = gold_of({(0, 0), (2, 1)}, {(1, 2)})
SECOND = gold_of({(1, 0)})
BLANK = gold_of(())


@pytest.mark.parametrize(
    "content",
    [
        b"1-1 3-2 2p3\n2-1\n",
        b"1-1 3-2 2p3\n2-1",
        b"1-1 3-2 2p3\n2-1\n\n \n\n",
        b"1-1 3-2 2p3\r\n2-1\r\n",
        b"1-1 3-2 2p3\r2-1\r",
        b"\t3-2  1-1\t2p3 1-1 1p1 \n 2-1 2p1",
        b"\xef\xbb\xbf1-1 3-2 2p3\n2-1\n",
        b"1-1 3-2\xa02p3\n\xa02-1\xa0\n",  # Latin-1, with its space that does not break
    ],
    ids=["plain", "no newline", "blank end", "CRLF", "CR", "spaces", "UTF-8 mark", "Latin-1"],
)
def test_gold_files(tmp_path, content):
    path = tmp_path / "gold.txt"
    path.write_bytes(content)
    for given_path in (path, str(path)):
        assert read_gold(given_path, one_indexed=True) == [FIRST, SECOND]
    assert read_gold(path, one_indexed=True, lengths=[(3, 3), (2, 1)]) == [FIRST, SECOND]


def test_records_and_lines_that_were_read_already():
    (record,) = read_gold(["0-0 2-1 1p2"], one_indexed=False)
    assert record == FIRST
    assert record.sure == {(0, 0), (2, 1)} and record.possible == {(0, 0), (2, 1), (1, 2)}
    for lines in (("1-1 3-2 2p3", "2-1\n"), iter(["1-1 3-2 2p3\n", "2-1\n"])):
        assert read_gold(lines, one_indexed=True) == [FIRST, SECOND]


def test_blank_lines():
    """Each is a sentence without links; at the end they count as far as the sentences go."""
    lines = ["", "1-1 3-2 2p3", " ", "2-1", "", ""]
    assert read_gold(lines, one_indexed=True) == [BLANK, FIRST, BLANK, SECOND]
    assert read_gold(lines, one_indexed=True, skip_blank=True) == [FIRST, SECOND]
    for more in (0, 1, 2):
        found = read_gold(lines, one_indexed=True, lengths=[(3, 3)] * (4 + more))
        assert found == [BLANK, FIRST, BLANK, SECOND] + [BLANK] * more
    call = partial(read_gold, lines, one_indexed=True, lengths=[(3, 3)] * 7)
    refused(call, "same sentences, got 6 and 7")


@settings(max_examples=60)
@given(
    st.lists(
        st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from("-p"))),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_what_is_written_is_read(sentences, one_indexed):
    sentences = [*sentences, {(0, 0, "-")}]  # word 0 shows the base, and the end is not blank
    lines = [
        " ".join(f"{s + one_indexed}{kind}{t + one_indexed}" for s, t, kind in items)
        for items in sentences
    ]
    wanted = [
        gold_of({(s, t) for s, t, kind in items if kind == "-"}, {(s, t) for s, t, _ in items})
        for items in sentences
    ]
    assert read_gold(lines, one_indexed=one_indexed) == wanted
    lengths = [(13, 13)] * len(lines)
    assert read_gold(lines, one_indexed=one_indexed, lengths=lengths) == wanted


FIVE = ["1-1", "", "1-2 2-1", "2p2", "1-1 2-2", "3-1"]  # five with links, counted from 1


def test_a_wrong_base_is_found_where_it_can_be():
    # Why it is refused: perfect links score 0 with the right base, and .6 with the wrong one.
    right, wrong = (read_gold(["1-1 2-2 3-2 4-3 4-4"], one_indexed=one) for one in (True, False))
    assert alignment_error_rate([set(right[0].sure)], right).aer == 0
    assert alignment_error_rate([set(right[0].sure)], wrong).aer == pytest.approx(1 - 4 / 10)
    # It must be said, and word 0 in no link of few sentences is believed.
    refused(lambda: read_gold(FIVE), "one_indexed")
    assert len(read_gold(FIVE[:-1], one_indexed=False)) == 5  # four with links
    assert len(read_gold(FIVE, one_indexed=False, lengths=[(4, 4)] * 6)) == 6
    assert len(read_gold([*FIVE, "4p0"], one_indexed=False)) == 7
    assert len(read_gold(FIVE, one_indexed=True)) == 6


BAD_GOLD = {
    "colon": (["1-1", "1:2"], {}, "path, line 2: a link looks like 1-1 or 1p1, got '1:2'"),
    "dash of another kind": (["1–1"], {}, "path, line 1", "'1–1'"),
    "one number": (["1-1 2"], {}, "path, line 1", "got '2'"),
    "three numbers": (["1-1-1"], {}, "path, line 1", "'1-1-1'"),
    "endless number": (["1-" + "9" * 9000], {}, "path, line 1", "looks like"),
    "blank lines are counted": (["", "", "x"], {"skip_blank": True}, "path, line 3", "'x'"),
    "nothing": ([], {}, "path must hold links", "got none"),
    "blank only": (["", " "], {"lengths": [(1, 1)] * 2}, "path must hold links", "got none"),
    "not lines": (None, {}, "path must be a file or its lines as strings", "None"),
    "a file of links": ("1-1 2p3", {}, "path '1-1 2p3' cannot be read", "or a list of its lines"),
    "base by name": (["1-1"], {"one_indexed": "yes"}, "one_indexed must be True or False", "'yes'"),
    "lengths of one side": (["1-1"], {"lengths": [3]}, "list of (source words, target words)"),
    "lengths as a number": (["1-1"], {"lengths": 3}, "lengths must be a list", "got 3"),
    "too few lengths": (
        ["1-1", "", "1-1"],
        {"lengths": [(1, 1)] * 2},
        "path and lengths",
        "3 and 2; if blank lines only separate, pass skip_blank=True",
    ),
    "zero from one": (["1-1", "0-1"], {}, "line 2: link 0-1 has word 0; is the file 0-indexed"),
    "zero from one, target": (["1-1", "", "2p0"], {}, "path, line 3: link 2p0 has word 0"),
    "beyond from zero, source": (
        ["0-0", "2-1"],
        {"lengths": [(2, 2)] * 2, "one_indexed": False},
        "path, line 2: link 2-1 is outside its 2 source and 2 target words",
        "1-indexed? Then pass one_indexed=True",
    ),
    "beyond from zero, target": (
        ["0p3"],
        {"lengths": [(2, 3)], "one_indexed": False},
        "path, line 1: link 0p3 is outside its 2 source and 3 target words",
    ),
    "beyond from one": (["3-1"], {"lengths": [(2, 2)]}, "outside its 2 source and 2 target words."),
    "never zero": (
        ["", *FIVE],
        {"one_indexed": False},
        "path, line 2: neither link 1-1 nor any other has word 0; is the file 1-indexed?",
        "one_indexed=True, or else lengths",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_GOLD)
def test_gold_that_cannot_be_read(case):
    path, options, *words = BAD_GOLD[case]
    refused(lambda: read_gold(path, **{"one_indexed": True} | options), *words)


def test_the_course_s_gold_links():
    pairs = read_alignments()
    assert len(pairs) == 160 == len({pair.source for pair in pairs})
    for source, target, (sure, possible) in pairs:
        assert sure and sure <= possible
        assert all(s < len(source.split()) and t < len(target.split()) for s, t in possible)


# --- agreement: what the file holds ----------------------------------------------------------

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


def test_columns_and_size(table):
    assert list(table) == GRAMMAR["COLUMNS"]
    assert table["split"].value_counts().to_dict() == {"train": 1248, "test": 624}
    assert set(table["number"]) == {"singular", "plural"}
    assert not table.isna().any().any()
    assert not table["text"].str.lower().duplicated().any()
    pd.testing.assert_frame_equal(table, GRAMMAR["sentences"](), check_dtype=False)


def test_each_text_has_one_mask_8_to_22_tokens_and_known_words(table, minilm):
    vocabulary = minilm.tokenizer.get_vocab()
    assert both(listed("train") + listed("test")) <= set(vocabulary)
    for text in table["text"]:
        tokens = minilm.tokenizer.tokenize(text)
        assert tokens.count("[MASK]") == 1 and text.count("[MASK]") == 1
        assert 8 <= len(tokens) and len(tokens) + 2 <= 22  # without, and with [CLS] and [SEP]
        assert re.fullmatch(r"[A-Z][A-Za-z,]*( ([A-Za-z]+,?|\[MASK\]))+\.", text), text
        assert set(words(text)) <= set(vocabulary), "every word is one token"


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


# --- agreement: what must not tell the number ------------------------------------------------


def test_neighbours_differ_in_the_subject_alone(table):
    """So any other word is as frequent with a singular as with a plural."""
    for first, second in zip(table[::2].itertuples(), table[1::2].itertuples(), strict=True):
        assert (first.number, second.number) == ("singular", "plural")
        assert first.noun == second.noun and first.template == second.template
        pairs = zip(first.text.split(), second.text.split(), strict=True)
        assert [p for p in pairs if p[0] != p[1]] == [(first.noun, plural(first.noun))]


def test_no_word_agrees_with_the_subject_and_the_masked_verb_does(table):
    tells = set(TELLS.split())
    for text in table["text"]:
        assert not tells & set(words(text)), text
    phrases = [p for kind in KINDS.values() for p in (kind.done, kind.clauses, kind.who) if p]
    for phrase in "|".join([*phrases, GRAMMAR["REPORTS"]]).split("|"):
        verb = phrase.split()[-1]
        assert verb.endswith("ed") or verb in PAST.split(), phrase
    for predicate in "|".join(kind.predicates for kind in KINDS.values()).split("|"):
        one, many = predicate.split()[0].split("/")
        assert one != many and one in ("is", "has", many + "s"), predicate


def test_training_and_testing_share_no_noun(table):
    train, test = listed("train"), listed("test")
    assert len(set(train)) == len(train) >= 120 and len(set(test)) == len(test) >= 60
    assert not both(train) & both(test)
    for split, foreign in (("train", both(test)), ("test", both(train))):
        part = table[table["split"] == split]
        assert set(part["noun"]) == set(listed(split)), "each is a subject"
        assert not foreign & {word for text in part["text"] for word in words(text)}
    assert [plural(noun) for noun in ("key", "lady", "box", "church")] == (
        ["keys", "ladies", "boxes", "churches"]
    )


# --- agreement: how it is made ---------------------------------------------------------------


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
