"""Exercises of lesson 3: stub, solution, and the hint for each mistake."""

import pytest
import torch
from exercises import said

from helpers import checks
from helpers.alignment import Gold, align, alignment_error_rate, to_words, word_of

SURE = [frozenset({(0, 0), (1, 1)}), frozenset({(0, 0)})]
GOLD = [Gold(SURE[0], SURE[0] | {(2, 2), (2, 3)}), Gold(SURE[1], SURE[1] | {(1, 1)})]
FOUND = [{(0, 0), (2, 2), (0, 3)}, {(0, 0)}]
TOKENS = ["<pad>", "▁old", "▁wo", "man", "▁laughs"]
KEYS = ["▁al", "te", "▁Frau", "▁lacht", "</s>"]
SCORES = torch.tensor(
    [
        [0.3, 0.4, 0.1, 0.1, 0.1],
        [0.1, 0.1, 0.5, 0.1, 0.2],
        [0.2, 0.2, 0.3, 0.1, 0.2],
        [0.1, 0.1, 0.1, 0.3, 0.4],
        [0.1, 0.2, 0.1, 0.2, 0.4],
    ]
)
WORDS = SCORES[1:], word_of(TOKENS)[1:], word_of(KEYS)


def mistakes():
    """(check, arguments after the answer, right answer, {words of the hint: wrong answer})."""
    score = alignment_error_rate(FOUND, GOLD)
    # |A∩S| = 2, |A∩P| = 3, |A| = 4, |S| = 3, |P| = 6
    yield (
        checks.check_aer,
        (FOUND, GOLD),
        1 - 5 / 7,
        {
            "None": None,
            "error rate is low": 5 / 7,
            "add the counts": ((1 - 3 / 5) + (1 - 2 / 2)) / 2,
            "second is |A ∩ P|": 1 - 4 / 7,
            "first is |A ∩ S|": 1 - 6 / 7,
            "not |A| + |P|": 1 - 5 / 10,
            "mean of precision": 1 - (score.precision + score.recall) / 2,
            "differ": 0.9,
            "2 of them": torch.zeros(2),
            "a str": "0.2",
        },
    )
    right = to_words(*WORDS)
    double = torch.tensor([[1], [2], [1]])
    wide = torch.tensor([2, 1, 1, 1])
    yield (
        checks.check_to_words,
        WORDS,
        right,
        {
            "None": None,
            "adds over the pieces of a target word": right * double,
            "mean over the pieces of a source word": right / wide,
            "exchanged: sum over source": right * double / wide,
            "last column is missing": right[:, :-1],
            "rows and columns": right.T,
            "differ": right + 1,
        },
    )
    links = align(SCORES, TOKENS, KEYS, "AWI")
    assert links == {(1, 0), (0, 1)}
    yield (
        checks.check_awi,
        (SCORES, TOKENS, KEYS),
        links,
        {
            "None": None,
            "links of AWO": align(SCORES, TOKENS, KEYS, "AWO"),
            "not its second best": links | {(0, 2)},
            "here it is linked": links | {(3, 2)},
            "counted from 1": {(s, t + 1) for s, t in links},
            "1 of the 2 links are there": {(1, 0), (2, 2)},
            "a list": list(links),
        },
    )


@pytest.mark.parametrize(("check", "rest", "right", "wrong"), list(mistakes()))
def test_right_and_wrong_answers(capsys, check, rest, right, wrong):
    assert said(capsys, check, right, *rest) == "Correct."
    for words, answer in wrong.items():
        line = said(capsys, check, answer, *rest)
        assert line.startswith("Not yet: ") and words in line, (words, line)
        assert "\n" not in line


def test_turned_pairs(capsys):
    scores = SCORES.clone()
    scores[1, 3] = 0.9  # old goes to lacht
    links = align(scores, TOKENS, KEYS, "AWI")
    assert links == {(2, 0), (0, 1)}
    line = said(capsys, checks.check_awi, {(0, 2), (1, 0)}, scores, TOKENS, KEYS)
    assert "turned round" in line


def test_a_float_tensor_is_a_number_too(capsys):
    assert said(capsys, checks.check_aer, torch.tensor(1 - 5 / 7), FOUND, GOLD) == "Correct."
    assert said(capsys, checks.check_to_words, to_words(*WORDS).float(), *WORDS) == "Correct."
