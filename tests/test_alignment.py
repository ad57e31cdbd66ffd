"""Word alignment: words, scores by word, links and their score, by hand and against naive loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.compare import close, refused

from helpers import load_model, stage_map, trace
from helpers.alignment import (
    AlignmentScore,
    Gold,
    align,
    align_pair,
    align_states,
    alignment_error_rate,
    score_words,
    to_words,
    words,
)
from helpers.datasets import read_alignments

fixed = settings(max_examples=60)


def gold_of(sure, maybe=()) -> Gold:
    """A record from its sure links and those that are only possible."""
    return Gold(frozenset(sure), frozenset(sure) | frozenset(maybe))


# --- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The keys, she saw them.", ["The", "keys", ",", "she", "saw", "them", "."]),
        ("a well-known dog's 2 toys", ["a", "well-known", "dog's", "2", "toys"]),
        ("Für Größe – ja!", ["Für", "Größe", "–", "ja", "!"]),
        ("'no' ... -", ["'", "no", "'", ".", ".", ".", "-"]),
        ("  l’eau\t3.5\n", ["l’eau", "3.5"]),
        ("हिन्दी भाषा है।", ["हिन्दी", "भाषा", "है", "।"]),  # vowel signs belong to their letters
        ("cafe\u0301 noir", ["cafe\u0301", "noir"]),
    ],
)
def test_words(text, wanted):
    assert words(text) == wanted
    assert words(" ".join(wanted)) == wanted


def test_a_text_without_words():
    refused(lambda: words(" \t\n"), "text must hold at least one word", "empty lines")
    refused(lambda: words(["The", "keys"]), "text must be one string, got list")


# --- from tokens to words --------------------------------------------------------------------

# Target words die | Schlüssel (two tokens) | hier; source words the | keys (three) and </s>.
TARGET = [0, 1, 1, 2]
SOURCE = [0, 1, 1, 1, None]
SCORES = torch.tensor(
    [
        [0.6, 0.1, 0.1, 0.1, 0.1],
        [0.4, 0.2, 0.2, 0.1, 0.1],
        [0.2, 0.1, 0.1, 0.3, 0.3],
        [0.1, 0.2, 0.0, 0.1, 0.6],
    ]
)


def test_to_words_by_hand():
    # Sums over the source tokens:  .6 .3 .1 | .4 .5 .1 and .2 .5 .3 | .1 .3 .6
    # Mean over the rows of the second target word: .3 .5 .2. A sum would give .6 1 .4; a mean over
    # the source tokens .3 .167 .2, and the second word would go to the wrong one.
    found = to_words(SCORES, TARGET, SOURCE)
    close(found, [[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.1, 0.3, 0.6]], 1e-6)
    assert found.dtype == torch.float64


def test_all_source_tokens_without_a_word_are_one_column():
    scores = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
    close(to_words(scores, [0], [None, 0, None, None]), [[2.0, 13.0]])
    close(to_words(scores, [0], [0, 0, 1, 2]), [[3.0, 4.0, 8.0, 0.0]])


@st.composite
def numbers(draw):
    """Words of tokens as `run.words` has them: 0, 1, 2, …, some in several tokens, None between."""
    sizes = draw(st.lists(st.sampled_from([None, 1, 1, 2, 3]), min_size=1, max_size=6))
    found, word = [], 0
    for size in sizes:
        found += [None] if size is None else [word] * size
        word += size is not None
    return found


@st.composite
def maps(draw, fed: bool = False):
    """A map of small whole numbers with its words; ties are frequent. `fed`: to a decoder."""
    target, source = draw(numbers()), draw(numbers())
    if fed:  # a start symbol, and a word at the end
        target = [None, *target, max((n for n in target if n is not None), default=-1) + 1]
    size = len(target) * len(source)
    values = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    return torch.tensor(values).reshape(len(target), len(source)), target, source


def naive_to_words(scores, target_words, source_words):
    """The same by loops: for each pair of words, add the source tokens, average the target's."""
    rows = sorted({t for t in target_words if t is not None})
    columns = [*sorted({s for s in source_words if s is not None}), None]
    table = []
    for row in rows:
        line = []
        for column in columns:
            sums = []
            for t, target in enumerate(target_words):
                if target == row:
                    total = 0.0
                    for s, source in enumerate(source_words):
                        if source == column:
                            total += float(scores[t, s])
                    sums.append(total)
            line.append(sum(sums) / len(sums))
        table.append(line)
    return torch.tensor(table, dtype=torch.float64).reshape(len(rows), len(columns))


@fixed
@given(maps())
def test_to_words_equals_naive_loops_and_keeps_sums(example):
    scores, target, source = example
    close(to_words(*example), naive_to_words(*example), 1e-12)
    shares = (scores + 1) / (scores + 1).sum(dim=1, keepdim=True)
    merged = to_words(shares, target, source)
    close(merged.sum(dim=1), torch.ones(len(merged)), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_scores_of_other_types(dtype):
    scores = torch.tensor([[2, 1, 0], [0, 4, 1], [1, 1, 3]]).to(dtype)
    before = scores.clone()
    assert to_words(scores, [0, 0, 1], [0, 1, None]).tolist() == [[1, 2.5, 0.5], [1, 1, 3]]
    assert align(scores, [None, 0, 1], [0, 1, None], "AWO") == {(0, 0), (1, 1)}
    assert torch.equal(scores, before)


# --- links -----------------------------------------------------------------------------------


def test_three_by_three_by_hand():
    # Row 0 is highest at x, row 1 at y, row 2 at </s>.
    # AWO: a has row 0, b has row 1, and row 2 (where the end comes out) goes.
    # AWI: row 0 (where the start goes in) goes, a has row 1, b has row 2: no link.
    scores = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]])
    map_of_run = scores, [None, 0, 1], [0, 1, None]
    assert align(*map_of_run, "AWO") == {(0, 0), (1, 1)}
    assert align(*map_of_run, "AWI") == {(1, 0)}
    close(score_words(*map_of_run, "AWO"), scores[:2], 1e-6)
    close(score_words(*map_of_run, "AWI"), scores[1:], 1e-6)


def test_sub_words_by_hand():
    # The rows of SCORES belong to die | Schlüs | sel | hier; their words link to the, keys and
    # nothing (see above). The token that is highest for Schlüs is "the": .4 against .2, .2 and .1.
    spare, fed = torch.full((1, 5), 0.2), [None, *TARGET]
    assert align(torch.cat([SCORES, spare]), fed, SOURCE, "AWO") == {(0, 0), (1, 1)}
    assert align(torch.cat([spare, SCORES]), fed, SOURCE, "AWI") == {(0, 0), (1, 1)}
    # The other setting reads one row too early, and mixes rows of different words:
    # spare+die+Schlüs+sel: die .2 .6 .2 → keys; (die + Schlüs) / 2 = .5 .4 .1 → the; sel → keys.
    assert align(torch.cat([spare, SCORES]), fed, SOURCE, "AWO") == {(1, 0), (0, 1), (1, 2)}


def test_the_mean_counts_every_token_of_a_target_word():
    # The first token says x (.6 to .4), the second y (.1 to .9): together .35 to .65.
    scores = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.9, 0.0], [1.0, 0.0, 0.0]])
    assert align(scores, [None, 0, 0], [0, 1, None], "AWO") == {(1, 0)}


def test_a_second_special_token_keeps_its_row_and_gets_no_link():
    fed, keys = [None, None, 0, 1], [None, 0, 1, None]  # as BART has them
    assert align(torch.eye(4), fed, keys, "AWI") == {(1, 0)}
    assert align(torch.eye(4), fed, keys, "AWO") == {(0, 0), (1, 1)}


def test_the_first_of_equal_scores_wins_and_a_word_wins_over_the_end():
    for row, wanted in (
        ([0.1, 0.4, 0.4, 0.1], {(1, 0)}),
        ([0.2, 0.1, 0.3, 0.3], {(2, 0)}),
        ([0.0, 0.0, 0.0, 0.0], {(0, 0)}),
        ([0.1, 0.2, 0.3, 0.4], set()),
    ):
        assert align(torch.tensor([row, row]), [None, 0], [0, 1, 2, None], "AWO") == wanted


def test_without_an_end_symbol_every_word_is_linked():
    scores = torch.tensor([[0.0, 0.1], [0.3, 0.2], [0.0, 0.0]])
    assert align(scores, [None, 0, 1], [0, 1], "AWO") == {(1, 0), (0, 1)}
    assert align(torch.ones(2, 1), [None, 0], [None], "AWI") == set(), "or none, without a word"


@fixed
@given(maps(fed=True), st.sampled_from(["AWO", "AWI"]))
def test_links_equal_naive_loops(example, setting):
    scores, fed, keys = example
    rows = scores[:-1] if setting == "AWO" else scores[1:]
    table = naive_to_words(rows, fed[1:], keys)
    close(score_words(*example, setting), table, 1e-12)
    best = [(row.index(max(row)), target) for target, row in enumerate(table.tolist())]
    wanted = {link for link in best if link[0] < table.shape[1] - 1}
    assert align(*example, setting) == wanted == align(scores * 0.25, fed, keys, setting)
    assert align(*example, "AWO") == align(scores.roll(1, 0), fed, keys, "AWI"), "one row later"


# --- links of a run --------------------------------------------------------------------------

PAIR = "Die Schlüssel liegen auf dem Tisch .", "The keys are on the table ."


@pytest.mark.parametrize("family", ["t5", "bart", "marian"])
def test_a_run_is_aligned_by_its_words(tiny, family):
    """T5 and BART have fast tokenizers, Marian pieces; BART's decoder is fed two special tokens."""
    run = trace(tiny(family), PAIR[0], target=PAIR[1])
    sizes = [len(side.split()) for side in PAIR]
    for side, size in zip((run.key_words, run.words), sizes, strict=True):
        assert set(side) - {None} == set(range(size))
    for setting in ("AWO", "AWI"):
        rows = slice(None, -1) if setting == "AWO" else slice(1, None)
        for scores in stage_map(run, "Attn-N"):
            table = naive_to_words(scores[rows], run.words[1:], run.key_words)
            found = score_words(scores, run.words, run.key_words, setting)
            close(found, table)
            assert found.shape == (sizes[1], sizes[0] + 1)
            links = align(scores, run.words, run.key_words, setting)
            assert all(s < sizes[0] and t < sizes[1] for s, t in links)
            with torch.device("meta"):
                assert align(scores, run.words, run.key_words, setting) == links


def test_the_course_s_translation_model_writes_a_word_from_its_source_word():
    """Its links agree with the gold better than the diagonal, and under AWI are of another word."""
    model, pairs = load_model("de-en"), read_alignments()[:10]
    gold = [pair.gold for pair in pairs]
    runs = [trace(model, pair.source, target=pair.target) for pair in pairs]
    maps = [(stage_map(run, "Attn-N")[4], run.words, run.key_words) for run in runs]
    awo, awi = (
        alignment_error_rate([align(*one, setting) for one in maps], gold).aer
        for setting in ("AWO", "AWI")
    )
    diagonal = [{(t, t) for t in range(len(pair.target.split()))} for pair in pairs]
    assert awo < 0.45 < alignment_error_rate(diagonal, gold).aer < 0.7 < awi


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
    assert score == pytest.approx((2 / 7, 3 / 4, 2 / 3)) and isinstance(score, AlignmentScore)
    assert score._fields == ("aer", "precision", "recall")
    assert all(type(value) is float for value in score)
    alone = [alignment_error_rate([a], [g]).aer for a, g in zip(predicted, gold, strict=True)]
    assert alone == pytest.approx([0.4, 0]) and sum(alone) / 2 != pytest.approx(score.aer)


def test_conventions():
    sure, maybe = {(0, 0), (1, 1)}, {(2, 1), (2, 2)}
    gold = (gold_of(sure, maybe),)
    for links, wanted in (
        (sure, (0, 1, 1)),
        (sure | {(2, 1)}, (0, 1, 1)),
        (frozenset(sure | maybe), (0, 1, 1)),
        ({(np.int64(0), np.int64(0)), (1, 1)}, (0, 1, 1)),
        (maybe, (0.5, 1, 0)),
        ({(0, 1)}, (1, 0, 0)),
        (set(), (1, 1, 0)),
        ({(0, 0)}, (1 - 2 / 3, 1, 0.5)),
    ):
        assert alignment_error_rate((links,), gold) == pytest.approx(wanted)
    # Sentences without a gold link count where something is predicted.
    gold = [gold_of({(0, 0)}), gold_of(()), gold_of(())]
    assert alignment_error_rate([{(0, 0)}, set(), set()], gold) == (0, 1, 1)
    assert alignment_error_rate([{(0, 0)}, {(0, 0)}, set()], gold) == pytest.approx((1 / 3, 0.5, 1))


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
    wanted = 1 - (a_and_s + a_and_p) / (A + S), a_and_p / A if A else 1, a_and_s / S
    assert score == pytest.approx(wanted) and all(0 <= value <= 1 for value in score)


@fixed
@given(corpora(maybe=st.just(frozenset())))
def test_without_merely_possible_links_the_score_is_one_minus_f1(corpus):
    aer, precision, recall = alignment_error_rate(*corpus)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    assert aer == pytest.approx(1 - f1)


@fixed
@given(corpora(), st.randoms(use_true_random=False))
def test_the_order_of_sentences_and_of_languages_does_not_matter(corpus, random):
    score, pairs = alignment_error_rate(*corpus), list(zip(*corpus, strict=True))
    random.shuffle(pairs)
    assert alignment_error_rate(*map(list, zip(*pairs, strict=True))) == score
    turn = [{(t, s) for s, t in links} for links in corpus[0]]
    turned = [Gold(*(frozenset((t, s) for s, t in links) for links in g)) for g in corpus[1]]
    assert alignment_error_rate(turn, turned) == score


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
    subset = [st.sets(st.sampled_from(sorted(g.possible or {(0, 0)}))) for g in corpus[1]]
    extra = [data.draw(one) if g.possible else set() for one, g in zip(subset, corpus[1])]
    predicted = [set(g.sure) | more for g, more in zip(corpus[1], extra, strict=True)]
    assert alignment_error_rate(predicted, corpus[1]) == (0, 1, 1)


# --- mistakes --------------------------------------------------------------------------------

ONE = [gold_of({(0, 0)})]
BAD_SCORE = {
    "one set": (
        {(0, 0)},
        ONE,
        "predicted, every set of it, must be a set of pairs (source, target)",
    ),
    "a list of links": ([(0, 0)], ONE, "predicted, every set of it, must be a set of pairs"),
    "text": ([{"0-0"}], ONE, "counted from 0, got {'0-0'}"),
    "below 0": ([{(-1, 0)}], ONE, "counted from 0, got {(-1, 0)}"),
    "gold for predicted": (ONE, ONE, "predicted, every set of it, must be a set of pairs"),
    "more sentences": ([set(), set()], ONE, "one per set of predicted", "got 1 for 2 sets"),
    "gold as sets": ([{(0, 0)}], [{(0, 0)}], "gold must be a list of records from read_gold"),
    "one record": ([set(), set()], ONE[0], "gold must be a list of records from read_gold"),
    "sure but not possible": (
        [{(0, 0)}],
        [Gold(frozenset({(0, 0)}), frozenset())],
        "sure links that are possible too",
    ),
    "no sure link": ([{(0, 0)}], [gold_of((), {(0, 0)})], "at least one in all"),
    "nothing": ([], [], "at least one in all", "got 0 for 0 sets"),
}


@pytest.mark.parametrize("case", BAD_SCORE)
def test_links_and_gold_that_cannot_be_scored(case):
    predicted, gold, *words = BAD_SCORE[case]
    refused(lambda: alignment_error_rate(predicted, gold), *words)


def _map(value: float = 0.2, t: int = 3, s: int = 1) -> torch.Tensor:
    scores = torch.full((5, 5), 0.2)
    scores[t, s] = value
    return scores


GOOD = {"scores": _map(), "words": [None, *TARGET], "key_words": SOURCE, "setting": "AWO"}
BAD_RUN = {
    "all layers": ({"scores": torch.ones(6, 5, 5)}, "got (6, 5, 5); choose a layer"),
    "start left out": ({"scores": torch.ones(4, 5)}, "(T, S) = (5, 5), got (4, 5)"),
    "array": ({"scores": np.ones((5, 5))}, "scores must be one real map", "ndarray"),
    "negative": ({"scores": _map(-0.5)}, "scores must be", "≥ 0", "-0.5 in row 3, column 1"),
    "NaN": ({"scores": _map(torch.nan), "setting": "AWI"}, "nan in row 3, column 1"),
    "small letters": ({"setting": "awo"}, 'setting must be "AWO" or "AWI"', "'awo'"),
    "end symbol fed": ({"words": [None, 0, 1, 2, None]}, "the start symbol (None) first", "no end"),
    "no start": ({"words": TARGET, "scores": torch.ones(4, 5)}, "words must be those of the"),
    "swapped": ({"words": SOURCE, "key_words": [None, *TARGET]}, "words must be those"),
    "unknown": ({"words": None}, "words must be those of the tokens fed", "got None"),
    "tokens": ({"words": [None, *"abcd"]}, "list of word numbers 0, 1, 2, …", "run.words"),
    "gap": ({"words": [None, 0, 2, 2, 3]}, "target_words must be a list of word numbers"),
    "no keys": ({"key_words": None}, "source_words must be a list of word numbers", "got None"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_RUN)
def test_maps_that_cannot_be_aligned(case):
    change, *words = BAD_RUN[case]
    refused(lambda: align(**GOOD | change), *words)


# --- one encoder for both sentences --------------------------------------------------------------


def naive_states(model, source, target, layer, kind) -> set:
    """Words one by one: the mean of their tokens' states, compared by cosine in both directions."""
    sides = []
    for text in (source, target):
        run = trace(model, text, attention=kind)
        states = run.blocks[layer].residual
        count = len(set(run.words) - {None})
        sides.append(
            [
                torch.stack([x for x, n in zip(states, run.words, strict=True) if n == w]).mean(0)
                for w in range(count)
            ]
        )
    S, T = sides
    cosine = [[torch.cosine_similarity(s, t, dim=0).item() for s in S] for t in T]
    links = set()
    for t, row in enumerate(cosine):
        s = row.index(max(row))
        column = [other[s] for other in cosine]
        if column.index(max(column)) == t:
            links.add((s, t))
    return links


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "marian", "t5", "deberta-v2"])
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_links_from_states(tiny, name, layer):
    model = tiny(name)
    kind = "encoder" if model.network.config.is_encoder_decoder else None
    pair = (
        ("Die Schlüssel liegen hier", "The keys are on the table")
        if name == "marian"
        else ("the keys, she saw them", "she saw the cabinet")
    )
    found = align_states(model, *pair, layer)
    assert found == naive_states(model, *pair, layer, kind) and found


def test_the_same_sentence_is_linked_word_by_word(minilm):
    text = "The old cabinet in the kitchen was locked yesterday."
    count = len(set(trace(minilm, text).words) - {None})
    assert align_states(minilm, text, text) == {(n, n) for n in range(count)}
    words = ["Locked", "cabinets", "stay", "unopened"]
    assert align_states(minilm, words, words, layer=2) == {(n, n) for n in range(4)}
    crossed = align_states(minilm, "the keys and the cabinet", "cabinet and keys", layer=1)
    assert {(1, 2), (4, 0)} <= crossed


def test_links_from_the_attention_between_two_segments(minilm):
    run = trace(minilm, "She saw the keystrokes.", pair="The keys were seen.")
    scores = stage_map(run, "Attn-N")[3]
    source = [n for n, k in zip(run.words, run.segments, strict=True) if k == 0]
    first, last = max(source) + 1, max(n for n in run.words if n is not None) + 1
    tokens = [[i for i, n in enumerate(run.words) if n == w] for w in range(last)]

    def reads(one, other):
        return sum(scores[i, j].item() for i in tokens[one] for j in tokens[other]) / len(
            tokens[one]
        )

    expected = set()
    for t in range(first, last):
        s = max(range(first), key=lambda s, t=t: reads(t, s))
        if max(range(first, last), key=lambda t, s=s: reads(s, t)) == t:
            expected.add((s, t - first))
    assert align_pair(scores, run) == expected and expected


def test_one_encoder_refuses_in_one_sentence(minilm):
    refused(lambda: align_states(minilm, "the", "keys", layer=6), "layer must be a whole number")
    refused(lambda: align_states(minilm, "", "keys"), "text is empty")
    refused(lambda: align_states(minilm, "[SEP]", "keys"), "must hold a word each")
    refused(lambda: align_states(minilm.network, "the", "keys"), "Model(network, tokenizer)")
    run = trace(minilm, "the keys")
    refused(lambda: align_pair(stage_map(run, "Attn-W")[0], run), "pair=target")
    pair = trace(minilm, "the keys", pair="she saw")
    refused(lambda: align_pair(stage_map(pair, "Attn-W"), pair), "choose a layer")
