"""Word alignment: words, gold files, the score and links, by hand and against naive loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.alignment import (
    AlignmentScore,
    Gold,
    align,
    alignment_error_rate,
    read_gold,
    to_words,
    word_of,
    words,
)

fixed = settings(max_examples=60)
close = torch.testing.assert_close


def gold_of(sure, maybe=()) -> Gold:
    """A record from its sure links and those that are possible only."""
    return Gold(frozenset(sure), frozenset(sure) | frozenset(maybe))


# --- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The keys, she saw them.", ["The", "keys", ",", "she", "saw", "them", "."]),
        ("a well-known dog's 2 toys", ["a", "well-known", "dog's", "2", "toys"]),
        ("Für Größe – ja!", ["Für", "Größe", "–", "ja", "!"]),
        ("'no' ... -", ["'", "no", "'", ".", ".", ".", "-"]),
        ("  l’eau\t3.5\n", ["l’eau", "3", ".", "5"]),
    ],
)
def test_words(text, wanted):
    assert words(text) == wanted
    assert words(" ".join(wanted)) == wanted


@pytest.mark.parametrize("text", ["", " \t\n"])
def test_a_text_without_words(text):
    with pytest.raises(ValueError, match="^text must hold at least one word, got .*empty lines"):
        words(text)


@pytest.mark.parametrize("text", [None, 3, ["The", "keys"], b"keys"])
def test_words_of_what_is_no_text(text):
    with pytest.raises(TypeError, match="^text must be one string, got "):
        words(text)


# --- words from pieces -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        (["▁The", "▁ke", "ys", "▁", "<unk>", "▁.", "</s>"], [0, 1, 1, 2, 2, 3, None]),
        (["The", "▁keys"], [0, 1]),
        (["▁", "▁The", "▁", "▁", "x", "▁y"], [0, 0, 1, 1, 1, 2]),
        (["▁a", "Ġb", "##c", "▁d"], [0, 0, 0, 1]),
        (["<s>", "The", "Ġke", "ys", "##", "Ġ.", "</s>", "<pad>"], [None, 0, 1, 1, 1, 2, None, None]),
        (["<s>", "Ġa", "</s>", "</s>", "b", "c", "</s>"], [None, 0, None, None, 1, 1, None]),
        (["[CLS]", "the", "ke", "##ys", ".", "[SEP]"], [None, 0, 1, 1, 2, None]),
        (["##ys", "a"], [0, 1]),
        (["Ke", "ys", "</s>"], [0, 0, None]),
        (["<pad>"], [None]),
        ([], []),
    ],
)  # fmt: skip
def test_word_of(pieces, wanted):
    assert word_of(pieces) == wanted
    assert word_of(tuple(pieces)) == wanted


def test_special_pieces_can_be_named():
    pieces = ["de_DE", "▁ja", "</s>"]
    assert word_of(pieces, special=("de_DE", "</s>")) == [None, 0, None]
    assert word_of(pieces) == [0, 1, None]


# Target words die | Schlüssel (two pieces) | hier; source words the | keys (three pieces) and </s>.
TARGET = [0, 1, 1, 2]
SOURCE = [0, 1, 1, 1, None]
PIECES = torch.tensor(
    [
        [0.6, 0.1, 0.1, 0.1, 0.1],
        [0.4, 0.2, 0.2, 0.1, 0.1],
        [0.2, 0.1, 0.1, 0.3, 0.3],
        [0.1, 0.2, 0.0, 0.1, 0.6],
    ]
)


def test_to_words_by_hand():
    # Sums over the source pieces:  .6 .3 .1 | .4 .5 .1 and .2 .5 .3 | .1 .3 .6
    # Mean over the rows of the second target word: .3 .5 .2. A sum would give .6 1 .4; a mean over
    # the source pieces .3 .167 .2, and the second word would go to the wrong one.
    wanted = [[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.1, 0.3, 0.6]]
    close(to_words(PIECES, TARGET, SOURCE), torch.tensor(wanted, dtype=torch.float64))


def test_all_special_source_pieces_are_one_column():
    scores = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
    close(to_words(scores, [0], [None, 0, None, None]).tolist(), [[2.0, 13.0]])
    close(to_words(scores, [0], [0, 0, 1, 2]).tolist(), [[3.0, 4.0, 8.0, 0.0]])


@st.composite
def numbers(draw, least=1, most=6):
    """Words of pieces as `word_of` gives them: 0, 1, 2, …, some in several pieces, None between."""
    sizes = draw(st.lists(st.sampled_from([None, 1, 1, 2, 3]), min_size=least, max_size=most))
    found, word = [], 0
    for size in sizes:
        found += [None] if size is None else [word] * size
        word += size is not None
    return found


@st.composite
def pieces_and_words(draw):
    target, source = draw(numbers()), draw(numbers())
    size = len(target) * len(source)
    values = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    return torch.tensor(values).reshape(len(target), len(source)), target, source


def naive_to_words(scores, target_word, source_word):
    """The same by loops: for each pair of words, add the source pieces, average the target's."""
    rows = sorted({t for t in target_word if t is not None})
    columns = sorted({s for s in source_word if s is not None})
    table = []
    for row in rows:
        line = []
        for column in [*columns, None]:
            sums = []
            for t, target in enumerate(target_word):
                if target == row:
                    total = 0.0
                    for s, source in enumerate(source_word):
                        if source == column:
                            total += float(scores[t, s])
                    sums.append(total)
            line.append(sum(sums) / len(sums))
        table.append(line)
    return torch.tensor(table, dtype=torch.float64).reshape(len(rows), len(columns) + 1)


@fixed
@given(pieces_and_words())
def test_to_words_equals_naive_loops(example):
    close(to_words(*example), naive_to_words(*example))


@fixed
@given(pieces_and_words())
def test_rows_that_sum_to_one_still_do(example):
    scores, target, source = example
    scores = (scores + 1) / (scores + 1).sum(dim=1, keepdim=True)
    merged = to_words(scores, target, source)
    close(merged.sum(dim=1), torch.ones(len(merged), dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_scores_of_other_types(dtype):
    scores = torch.tensor([[2, 1, 0], [0, 4, 1], [1, 1, 3]]).to(dtype)
    before = scores.clone()
    assert to_words(scores, [0, 0, 1], [0, 1, None]).tolist() == [[1, 2.5, 0.5], [1, 1, 3]]
    assert align(scores, ["<pad>", "▁a", "▁b"], ["▁x", "▁y", "</s>"], "AWO") == {(0, 0), (1, 1)}
    assert torch.equal(scores, before)


# --- links -----------------------------------------------------------------------------------

TOKENS = ["<pad>", "▁die", "▁Schlüs", "sel", "▁hier"]
KEYS = ["▁the", "▁k", "ey", "s", "</s>"]


def test_three_by_three_by_hand():
    # Row 0 is highest at x, row 1 at y, row 2 at </s>.
    # AWO: a has row 0, b has row 1, and row 2 (where the end comes out) goes.
    # AWI: row 0 (where the start goes in) goes, a has row 1, b has row 2: no link.
    scores = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]])
    tokens, keys = ["<pad>", "▁a", "▁b"], ["▁x", "▁y", "</s>"]
    assert align(scores, tokens, keys, "AWO") == {(0, 0), (1, 1)}
    assert align(scores, tokens, keys, "AWI") == {(1, 0)}


def test_sub_words_by_hand():
    # The rows of PIECES belong to die | Schlüs | sel | hier; their words link to the, keys and
    # nothing (see above). The piece that is highest for Schlüs is "the": .4 against .2, .2 and .1.
    spare = torch.full((1, 5), 0.2)
    wanted = {(0, 0), (1, 1)}
    assert align(torch.cat([PIECES, spare]), TOKENS, KEYS, "AWO") == wanted
    assert align(torch.cat([spare, PIECES]), TOKENS, KEYS, "AWI") == wanted
    # The other setting reads one row too early or too late, and mixes rows of different words:
    # spare+die+Schlüs+sel: die .2 .6 .2 → keys; (die + Schlüs) / 2 = .5 .4 .1 → the; sel → keys.
    assert align(torch.cat([spare, PIECES]), TOKENS, KEYS, "AWO") == {(1, 0), (0, 1), (1, 2)}


def test_the_mean_counts_every_piece_of_a_target_word():
    # The first piece says x (.6 to .4), the second y (.1 to .9): together .35 to .65.
    scores = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.9, 0.0], [1.0, 0.0, 0.0]])
    assert align(scores, ["<pad>", "▁a", "b"], ["▁x", "▁y", "</s>"], "AWO") == {(1, 0)}


@pytest.mark.parametrize("start", ["<pad>", "</s>", "<s>", "[CLS]", "<BOS>", "de_DE"])
def test_any_start_symbol_is_no_word(start):
    scores = torch.eye(3)
    tokens, keys = [start, "▁a", "▁b"], ["▁x", "▁y", "</s>"]
    assert align(scores, tokens, keys, "AWO") == {(0, 0), (1, 1)}
    assert align(scores, tokens, keys, "AWI") == {(1, 0)}


def test_a_second_special_token_keeps_its_row_and_gets_no_link():
    scores, tokens = torch.eye(4), ["</s>", "<s>", "The", "Ġkeys"]
    keys = ["<s>", "Die", "ĠSchlüssel", "</s>"]
    assert align(scores, tokens, keys, "AWI") == {(1, 0)}
    assert align(scores, tokens, keys, "AWO") == {(0, 0), (1, 1)}


def test_the_first_of_equal_scores_wins_and_a_word_wins_over_the_end():
    tokens, keys = ["<pad>", "▁a"], ["▁x", "▁y", "▁z", "</s>"]
    for row, wanted in (
        ([0.1, 0.4, 0.4, 0.1], {(1, 0)}),
        ([0.2, 0.1, 0.3, 0.3], {(2, 0)}),
        ([0.0, 0.0, 0.0, 0.0], {(0, 0)}),
        ([0.1, 0.2, 0.3, 0.4], set()),
    ):
        assert align(torch.tensor([row, row]), tokens, keys, "AWO") == wanted


def test_without_an_end_symbol_every_word_is_linked():
    scores = torch.tensor([[0.0, 0.1], [0.3, 0.2], [0.0, 0.0]])
    assert align(scores, ["<pad>", "▁a", "▁b"], ["▁x", "▁y"], "AWO") == {(1, 0), (0, 1)}


def test_a_text_of_no_word_has_no_link():
    assert align(torch.ones(1, 3), ["<pad>"], ["▁x", "▁y", "</s>"], "AWO") == set()
    assert align(torch.ones(2, 1), ["<pad>", "▁a"], ["</s>"], "AWI") == set()


@st.composite
def runs(draw):
    """A map of small whole numbers with its tokens and keys; ties are frequent."""
    spell = {None: "</s>"} | {True: "▁a", False: "a"}
    kinds = st.lists(st.booleans(), min_size=1, max_size=5)
    tokens = ["<pad>", *(spell[kind] for kind in draw(kinds))]
    keys = [*(spell[kind] for kind in draw(kinds)), "</s>"]
    size = len(tokens) * len(keys)
    values = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    return torch.tensor(values).reshape(len(tokens), len(keys)), tokens, keys


@fixed
@given(runs())
def test_input_is_output_one_row_later(example):
    scores, tokens, keys = example
    assert align(scores, tokens, keys, "AWO") == align(scores.roll(1, 0), tokens, keys, "AWI")


@fixed
@given(runs(), st.sampled_from(["AWO", "AWI"]))
def test_links_equal_naive_loops(example, setting):
    scores, tokens, keys = example
    rows = scores[: len(tokens) - 1] if setting == "AWO" else scores[1:]
    table = naive_to_words(rows, word_of(tokens[1:]), word_of(keys)).tolist()
    best = [(row.index(max(row)), target) for target, row in enumerate(table)]
    wanted = {link for link in best if link[0] < len(table[0]) - 1}
    assert align(scores, tokens, keys, setting) == wanted
    assert align(scores * 0.25, tokens, keys, setting) == wanted


# --- gold files ------------------------------------------------------------------------------


def write(tmp_path, content: str | bytes):
    path = tmp_path / "gold.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


FIRST = gold_of({(0, 0), (2, 1)}, {(1, 2)})
SECOND = gold_of({(1, 0)})
BLANK = gold_of(())


@pytest.mark.parametrize(
    "content",
    [
        "1-1 3-2 2p3\n2-1\n",
        "1-1 3-2 2p3\n2-1",
        "1-1 3-2 2p3\n2-1\n\n \n\n",
        "1-1 3-2 2p3\r\n2-1\r\n",
        "1-1 3-2 2p3\r2-1\r",
        "\t3-2  1-1\t2p3 1-1 1p1 \n 2-1 2p1",
        b"\xef\xbb\xbf1-1 3-2 2p3\n2-1\n",
        b"1-1 3-2\xa02p3\n\xa02-1\xa0\n",  # Latin-1, with its space that does not break
    ],
    ids=["plain", "no newline", "blank end", "CRLF", "CR", "spaces", "UTF-8 mark", "Latin-1"],
)
def test_read_gold(tmp_path, content):
    path = write(tmp_path, content)
    for given_path in (path, str(path)):
        assert read_gold(given_path, one_indexed=True) == [FIRST, SECOND]
    assert read_gold(path, one_indexed=True, lengths=[(3, 3), (2, 1)]) == [FIRST, SECOND]


def test_records_count_from_zero_and_have_names(tmp_path):
    (record,) = read_gold(write(tmp_path, "0-0 2-1 1p2\n"), one_indexed=False)
    assert record == FIRST
    assert record.sure == {(0, 0), (2, 1)} and record.possible == {(0, 0), (2, 1), (1, 2)}
    assert isinstance(record.sure, frozenset) and isinstance(record.possible, frozenset)


def test_lines_that_were_read_already(tmp_path):
    path = write(tmp_path, "1-1 3-2 2p3\n2-1\n")
    with path.open() as lines:
        assert read_gold(lines, one_indexed=True) == [FIRST, SECOND]
    assert read_gold(("1-1 3-2 2p3", "2-1"), one_indexed=True) == [FIRST, SECOND]


def test_blank_lines_are_sentences_without_links(tmp_path):
    path = write(tmp_path, "\n1-1 3-2 2p3\n \n2-1\n\n\n")
    assert read_gold(path, one_indexed=True) == [BLANK, FIRST, BLANK, SECOND]
    assert read_gold(path, one_indexed=True, skip_blank=True) == [FIRST, SECOND]


def test_blank_lines_at_the_end_count_as_far_as_the_sentences_go(tmp_path):
    path = write(tmp_path, "1-1 3-2 2p3\n2-1\n\n\n")  # two blank lines after the second
    for more in (0, 1, 2):
        lengths = [(3, 3)] * (2 + more)
        assert (
            read_gold(path, one_indexed=True, lengths=lengths) == [FIRST, SECOND] + [BLANK] * more
        )
    with pytest.raises(ValueError, match="same sentences, got 4 and 5"):
        read_gold(path, one_indexed=True, lengths=[(3, 3)] * 5)


@fixed
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


def test_the_base_must_be_said():
    with pytest.raises(TypeError, match="one_indexed"):
        read_gold(FIVE)
    with pytest.raises(TypeError, match="positional"):
        read_gold(FIVE, True)


def test_a_wrong_base_gives_a_bad_score_that_looks_like_one(tmp_path):
    # Why a wrong base is refused: perfect links score 0 with the right one, .6 with the wrong one.
    right = read_gold(["1-1 2-2 3-2 4-3 4-4"], one_indexed=True)
    wrong = read_gold(["1-1 2-2 3-2 4-3 4-4"], one_indexed=False)
    predicted = [set(right[0].sure)]
    assert alignment_error_rate(predicted, right).aer == 0
    assert alignment_error_rate(predicted, wrong).aer == pytest.approx(1 - 4 / 10)


def test_word_zero_in_no_link_of_few_sentences_is_believed():
    assert len(read_gold(FIVE[:-1], one_indexed=False)) == 5  # four with links
    assert len(read_gold(FIVE, one_indexed=False, lengths=[(4, 4)] * 6)) == 6
    assert len(read_gold([*FIVE, "4p0"], one_indexed=False)) == 7
    assert len(read_gold([*FIVE, "0-4"], one_indexed=False)) == 7
    assert len(read_gold(FIVE, one_indexed=True)) == 6


# --- the score -------------------------------------------------------------------------------


def test_score_by_hand():
    # First sentence: S = {0-0, 1-1}, P = S and 2-1, A = {0-0, 2-1, 2-2}.
    #   |A| = 3, |S| = 2, |A∩S| = 1, |A∩P| = 2; alone: AER = 1 − 3/5 = .4
    # Second sentence: S = P = A = {0-1}; alone: AER = 0
    # Together: |A| = 4, |S| = 3, |A∩S| = 2, |A∩P| = 3
    #   precision = 3/4, recall = 2/3, AER = 1 − 5/7 = 2/7, not the mean of .4 and 0
    gold = [gold_of({(0, 0), (1, 1)}, {(2, 1)}), gold_of({(0, 1)})]
    predicted = [{(0, 0), (2, 1), (2, 2)}, {(0, 1)}]
    score = alignment_error_rate(predicted, gold)
    assert score == pytest.approx((2 / 7, 3 / 4, 2 / 3))
    assert score.aer == pytest.approx(2 / 7) and isinstance(score, AlignmentScore)
    assert score._fields == ("aer", "precision", "recall")
    assert all(type(value) is float for value in score)
    alone = [alignment_error_rate([a], [g]).aer for a, g in zip(predicted, gold, strict=True)]
    assert alone == pytest.approx([0.4, 0]) and sum(alone) / 2 != pytest.approx(score.aer)


def test_conventions():
    sure, maybe = {(0, 0), (1, 1)}, {(2, 1), (2, 2)}
    gold = [gold_of(sure, maybe)]
    assert alignment_error_rate([sure], gold) == (0, 1, 1)
    assert alignment_error_rate([sure | {(2, 1)}], gold) == (0, 1, 1)
    assert alignment_error_rate([sure | maybe], gold) == (0, 1, 1)
    assert alignment_error_rate([maybe], gold) == (0.5, 1, 0)
    assert alignment_error_rate([{(0, 1)}], gold) == (1, 0, 0)
    assert alignment_error_rate([set()], gold) == (1, 1, 0)
    assert alignment_error_rate([{(0, 0)}], gold) == pytest.approx((1 - 2 / 3, 1, 0.5))


def test_sentences_without_a_link_count_where_something_is_predicted():
    gold = [gold_of({(0, 0)}), BLANK, BLANK]
    assert alignment_error_rate([{(0, 0)}, set(), set()], gold) == (0, 1, 1)
    assert alignment_error_rate([{(0, 0)}, {(0, 0)}, set()], gold) == pytest.approx((1 / 3, 0.5, 1))


def test_other_kinds_of_sets_lists_and_numbers():
    gold = (gold_of({(0, 1)}),)
    for links in ({(0, 1)}, frozenset({(0, 1)}), {(np.int64(0), np.int64(1))}):
        assert alignment_error_rate((links,), gold) == (0, 1, 1)


link_sets = st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8)


@st.composite
def corpora(draw, maybe=link_sets):
    """Predicted sets and gold records, at least one link of them sure."""
    rows = draw(st.lists(st.tuples(link_sets, link_sets, maybe), min_size=1, max_size=4))
    rows[0] = (rows[0][0], rows[0][1] | {(0, 0)}, rows[0][2])
    return [set(row[0]) for row in rows], [gold_of(row[1], row[2]) for row in rows]


@fixed
@given(corpora())
def test_score_equals_naive_counts(corpus):
    A = S = a_and_s = a_and_p = 0
    for predicted, gold in zip(*corpus, strict=True):
        for link in predicted:
            A += 1
            a_and_s += link in gold.sure
            a_and_p += link in gold.possible
        for _ in gold.sure:
            S += 1
    score = alignment_error_rate(*corpus)
    assert score.aer == pytest.approx(1 - (a_and_s + a_and_p) / (A + S))
    assert score.precision == pytest.approx(a_and_p / A if A else 1)
    assert score.recall == pytest.approx(a_and_s / S)
    assert all(0 <= value <= 1 for value in score)


@fixed
@given(corpora(maybe=st.just(frozenset())))
def test_without_merely_possible_links_the_score_is_one_minus_f1(corpus):
    aer, precision, recall = alignment_error_rate(*corpus)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    assert aer == pytest.approx(1 - f1)


@fixed
@given(corpora(), st.randoms(use_true_random=False))
def test_the_order_of_sentences_and_of_languages_is_free(corpus, random):
    pairs = list(zip(*corpus, strict=True))
    random.shuffle(pairs)
    assert alignment_error_rate(*map(list, zip(*pairs, strict=True))) == alignment_error_rate(
        *corpus
    )
    turn = [{(t, s) for s, t in links} for links in corpus[0]]
    turned = [Gold(*(frozenset((t, s) for s, t in links) for links in g)) for g in corpus[1]]
    assert alignment_error_rate(turn, turned) == alignment_error_rate(*corpus)


@fixed
@given(corpora(), st.integers(0, 3), st.integers(0, 3))
def test_one_more_link(corpus, source, target):
    predicted, gold = corpus
    link, before = (source, target), alignment_error_rate(*corpus)
    if link in predicted[0]:
        return
    after = alignment_error_rate([predicted[0] | {link}, *predicted[1:]], gold)
    slack = 1e-12
    if link in gold[0].sure:
        assert after.recall > before.recall and after.precision >= before.precision - slack
        assert after.aer < before.aer
    elif link in gold[0].possible:
        assert after.recall == before.recall and after.precision >= before.precision - slack
        assert after.aer <= before.aer + slack
    else:
        assert after.recall == before.recall and after.precision <= before.precision + slack
        assert after.aer >= before.aer - slack


@fixed
@given(corpora(), st.data())
def test_anything_between_sure_and_possible_is_perfect(corpus, data):
    gold = corpus[1]
    extra = [
        data.draw(st.sets(st.sampled_from(sorted(g.possible)))) if g.possible else set()
        for g in gold
    ]
    predicted = [set(g.sure) | more for g, more in zip(gold, extra, strict=True)]
    assert alignment_error_rate(predicted, gold) == (0, 1, 1)


# --- bad input -------------------------------------------------------------------------------

ONE = [gold_of({(0, 0)})]
BAD_GOLD = {
    "colon": (["1-1", "1:2"], {}, ["path, line 2", "'1:2'", "1-1 or 1p1"]),
    "letters": (["a-b"], {}, ["path, line 1", "'a-b'"]),
    "dash of another kind": (["1–1"], {}, ["path, line 1", "'1–1'"]),
    "one number": (["1-1 2"], {}, ["path, line 1", "'2'"]),
    "negative": (["-1-1"], {}, ["path, line 1", "'-1-1'"]),
    "three numbers": (["1-1-1"], {}, ["path, line 1", "'1-1-1'"]),
    "score after a link": (["1-1:0.5"], {}, ["path, line 1", "'1-1:0.5'"]),
    "other digits": (["１-1"], {}, ["path, line 1", "looks like"]),
    "endless number": (["1-" + "9" * 9000], {}, ["path, line 1", "looks like"]),
    "blank lines are counted": (["", "", "x"], {"skip_blank": True}, ["path, line 3", "'x'"]),
    "nothing": ([], {}, ["path", "got none"]),
    "blank only": (["", " "], {"lengths": [(1, 1)] * 2}, ["path", "got none"]),
    "no lines": (None, {}, ["path", "lines as strings", "None"]),
    "bytes": ([b"1-1"], {}, ["path", "lines as strings"]),
    "base by name": (["1-1"], {"one_indexed": "yes"}, ["one_indexed", "True or False", "'yes'"]),
    "base not known": (["1-1"], {"one_indexed": None}, ["one_indexed", "None"]),
    "lengths of one side": (["1-1"], {"lengths": [3]}, ["lengths", "(source words, target words)"]),
    "lengths as a number": (["1-1"], {"lengths": 3}, ["lengths", "got 3"]),
    "too few lengths": (
        ["1-1", "", "1-1"],
        {"lengths": [(1, 1)] * 2},
        ["path and lengths", "3 and 2", "skip_blank=True"],
    ),
    "no lengths": (["1-1"], {"lengths": []}, ["path and lengths", "1 and 0"]),
    "zero from one, source": (["1-1", "0-1"], {}, ["path, line 2", "link 0-1", "0-indexed?", "=False"]),
    "zero from one, target": (["1-1", "", "2p0"], {}, ["path, line 3", "link 2p0", "0-indexed?"]),
    "zero from one, with lengths": (
        ["0-1"],
        {"lengths": [(2, 2)]},
        ["path, line 1", "link 0-1", "0-indexed?", "one_indexed=False"],
    ),
    "beyond from zero, source": (
        ["0-0", "2-1"],
        {"lengths": [(2, 2)] * 2, "one_indexed": False},
        ["path, line 2", "link 2-1", "2 source", "1-indexed?", "one_indexed=True"],
    ),
    "beyond from zero, target": (
        ["0p3"],
        {"lengths": [(2, 3)], "one_indexed": False},
        ["path, line 1", "link 0p3", "3 target", "1-indexed?"],
    ),
    "beyond from one": (["3-1"], {"lengths": [(2, 2)]}, ["path, line 1", "link 3-1", "2 source"]),
    "never zero": (
        FIVE,
        {"one_indexed": False},
        ["path, line 1", "link 1-1", "word 0", "1-indexed?", "one_indexed=True", "lengths"],
    ),
    "never zero, first line blank": (
        ["", *FIVE],
        {"one_indexed": False},
        ["path, line 2", "link 1-1", "1-indexed?"],
    ),
}  # fmt: skip


def one_sentence(error, words):
    text = str(error.value)
    assert text.startswith(words[0]) and text.endswith(".") and "\n" not in text
    assert len(text) < 260 and all(word in text for word in words), text


@pytest.mark.parametrize(("path", "options", "words"), BAD_GOLD.values(), ids=BAD_GOLD.keys())
def test_bad_gold_is_named_in_one_sentence(path, options, words):
    with pytest.raises(ValueError) as error:
        read_gold(path, **{"one_indexed": True} | options)
    one_sentence(error, words)
    if words[-1].startswith("2 source"):
        assert "1-indexed" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", "1-1".encode("utf-16")])
def test_files_without_gold_links(tmp_path, content):
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match="^path.*[.]$"):
        read_gold(path, one_indexed=True)


def test_a_path_that_is_no_file(tmp_path):
    for path in (tmp_path / "none.txt", str(tmp_path / "none.txt"), tmp_path, "1-1 2p3"):
        with pytest.raises(ValueError, match="^path .* is not a file; give a file of gold links"):
            read_gold(path, one_indexed=True)


BAD_SCORE = {
    "one set": ({(0, 0)}, ONE, ["predicted", "a list, one set", "{(0, 0)}"]),
    "a list of links": ([(0, 0)], ONE, ["predicted", "one set of pairs", "[(0, 0)]"]),
    "a list of lists": ([[(0, 0)]], ONE, ["predicted", "one set of pairs"]),
    "triples": ([{(0, 0, 1)}], ONE, ["predicted", "pairs", "(0, 0, 1)"]),
    "numbers": ([{0, 1}], ONE, ["predicted", "pairs"]),
    "text": ([{"0-0"}], ONE, ["predicted", "pairs", "0-0"]),
    "fractions": ([{(0.0, 1.0)}], ONE, ["predicted", "pairs"]),
    "tensors": ([{(torch.tensor(0), torch.tensor(0))}], ONE, ["predicted", "pairs"]),
    "below 0": ([{(-1, 0)}], ONE, ["predicted", "counted from 0", "(-1, 0)"]),
    "none": (None, ONE, ["predicted", "None"]),
    "gold for predicted": (ONE, ONE, ["predicted", "set of pairs"]),
    "more sentences": ([set(), set()], ONE, ["predicted and gold", "2 and 1"]),
    "fewer sentences": ([], ONE, ["predicted and gold", "0 and 1"]),
    "gold as sets": ([{(0, 0)}], [{(0, 0)}], ["gold", "read_gold"]),
    "one record": ([{(0, 0)}], ONE[0], ["gold", "list of records", "read_gold"]),
    "sure but not possible": (
        [{(0, 0)}],
        [Gold(frozenset({(0, 0)}), frozenset())],
        ["gold", "sure link possible too"],
    ),
    "no sure link": ([{(0, 0)}], [gold_of((), {(0, 0)})], ["gold", "at least one sure link"]),
    "nothing": ([], [], ["gold", "at least one sure link"]),
}


@pytest.mark.parametrize(("predicted", "gold", "words"), BAD_SCORE.values(), ids=BAD_SCORE.keys())
def test_bad_links_are_named_in_one_sentence(predicted, gold, words):
    with pytest.raises(ValueError) as error:
        alignment_error_rate(predicted, gold)
    one_sentence(error, words)


def _map(value=0.2, t=3, s=1) -> torch.Tensor:
    scores = torch.full((5, 5), 0.2)
    scores[t, s] = value
    return scores


GOOD = {"scores": _map(), "tokens": TOKENS, "keys": KEYS, "setting": "AWO"}
BAD_RUN = {
    "all layers": ({"scores": torch.ones(6, 5, 5)}, ["scores", "(6, 5, 5)", "choose a layer"]),
    "all heads": ({"scores": torch.ones(6, 8, 5, 5)}, ["scores", "(6, 8, 5, 5)", "choose a layer"]),
    "one row": ({"scores": torch.ones(5)}, ["scores", "(T, S) = (5, 5)", "(5,)"]),
    "turned": (
        {"scores": torch.ones(5, 4), "tokens": TOKENS[:-1]},
        ["scores", "(T, S) = (4, 5)", "(5, 4)", "rows are tokens"],
    ),
    "start left out": ({"scores": torch.ones(4, 5)}, ["scores", "(T, S) = (5, 5)", "(4, 5)"]),
    "array": ({"scores": np.ones((5, 5))}, ["scores", "ndarray"]),
    "complex": ({"scores": _map().to(torch.complex64)}, ["scores", "real"]),
    "negative": ({"scores": _map(-0.5)}, ["scores", "-0.5", "row 3, column 1", "≥ 0"]),
    "NaN": ({"scores": _map(torch.nan)}, ["scores", "nan", "row 3, column 1"]),
    "infinite": ({"scores": _map(torch.inf, 4, 4)}, ["scores", "inf", "row 4, column 4"]),
    "small letters": ({"setting": "awo"}, ["setting", '"AWO"', '"AWI"', "'awo'"]),
    "no setting": ({"setting": None}, ["setting", '"AWO"', '"AWI"', "None"]),
    "end symbol fed": (
        {"tokens": [*TOKENS[1:], "</s>"]},
        ["tokens", "start symbol first", "no end symbol", "</s>"],
    ),
    "start and end": (
        {"tokens": [*TOKENS, "</s>"], "scores": torch.ones(6, 5)},
        ["tokens", "no end symbol"],
    ),
    "no start": ({"tokens": TOKENS[1:], "scores": torch.ones(4, 5)}, ["tokens", "start symbol"]),
    "swapped": ({"tokens": KEYS, "keys": TOKENS}, ["tokens", "start symbol first"]),
    "no token": ({"tokens": [], "scores": torch.ones(0, 5)}, ["tokens", "start symbol first"]),
    "text": ({"tokens": "<pad> die"}, ["tokens", "list of strings"]),
    "numbers": ({"tokens": [3, 4, 5, 6, 7]}, ["tokens", "list of strings", "[3, 4"]),
    "keys as text": ({"keys": "▁the▁"}, ["keys", "list of strings"]),
    "no keys": ({"keys": None}, ["keys", "list of strings", "None"]),
}


@pytest.mark.parametrize(("change", "words"), BAD_RUN.values(), ids=BAD_RUN.keys())
def test_bad_runs_are_named_in_one_sentence(change, words):
    with pytest.raises(ValueError) as error:
        align(**GOOD | change)
    one_sentence(error, words)


@pytest.mark.parametrize(
    ("target", "source", "words"),
    [
        ([0, 2, 2, 3], SOURCE, ["target_word must be", "0, 1, 2", "[0, 2, 2, 3]"]),
        ([1, 1, 2, 2], SOURCE, ["target_word must be", "0, 1, 2"]),
        (TARGET, [0, 1, 1, 3, None], ["source_word must be", "None"]),
        (TARGET, SOURCE[:-1], ["scores", "(T, S) = (4, 4)", "(4, 5)"]),
        (TARGET[:-1], SOURCE, ["scores", "(T, S) = (3, 5)", "(4, 5)"]),
    ],
)
def test_words_that_do_not_fit_the_scores(target, source, words):
    with pytest.raises(ValueError) as error:
        to_words(PIECES, target, source)
    one_sentence(error, words)


def test_pieces_that_are_no_list():
    with pytest.raises(ValueError, match="^pieces must be a list of strings, got '▁the'.$"):
        word_of("▁the")
