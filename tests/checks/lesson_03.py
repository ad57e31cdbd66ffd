"""Exercises of lesson 3, as in lesson_01.py."""

import torch

from helpers import checks
from helpers.alignment import Gold, align, alignment_error_rate, to_words

SURE = [frozenset({(0, 0), (1, 1)}), frozenset({(0, 0)})]
GOLD = [Gold(SURE[0], SURE[0] | {(2, 2), (2, 3)}), Gold(SURE[1], SURE[1] | {(1, 1)})]
FOUND = [{(0, 0), (2, 2), (0, 3)}, {(0, 0)}]
WORDS, KEY_WORDS = [None, 0, 1, 1, 2], [0, 0, 1, 2, None]  # old wo·man laughs, al·te Frau lacht
SCORES = torch.tensor(
    [
        [0.3, 0.4, 0.1, 0.1, 0.1],
        [0.1, 0.1, 0.5, 0.1, 0.2],
        [0.2, 0.2, 0.3, 0.1, 0.2],
        [0.1, 0.1, 0.1, 0.3, 0.4],
        [0.1, 0.2, 0.1, 0.2, 0.4],
    ]
)


def exercises(model, run):
    score = alignment_error_rate(FOUND, GOLD)
    # |A∩S| = 2, |A∩P| = 3, |A| = 4, |S| = 3, |P| = 6
    yield (
        checks.check_aer,
        (FOUND, GOLD),
        1 - 5 / 7,
        {
            "error rate is low": 5 / 7,
            "add the counts": ((1 - 3 / 5) + (1 - 2 / 2)) / 2,
            "second is |A ∩ P|": 1 - 4 / 7,
            "first is |A ∩ S|": 1 - 6 / 7,
            "not |A| + |P|": torch.tensor(1 - 5 / 10),
            "mean of precision": 1 - (score.precision + score.recall) / 2,
            "differ": 0.9,
            "2 of them": torch.zeros(2),
            "type bool": True,
        },
    )
    right = to_words(SCORES[1:], WORDS[1:], KEY_WORDS)
    pieces, key_pieces = torch.tensor([[1], [2], [1]]), torch.tensor([2, 1, 1, 1])
    yield (
        checks.check_to_words,
        (SCORES[1:], WORDS[1:], KEY_WORDS),
        right,
        {
            "adds over the pieces of a target word": right * pieces,
            "mean over the pieces of a source word": right / key_pieces,
            "swapped: sum over source": right * pieces / key_pieces,
            "last column is missing": right[:, :-1],
            "rows and columns": right.T,
            "differ": right + 1,
            "got torch.complex": right + 0j,
        },
    )
    links = align(SCORES, WORDS, KEY_WORDS, "AWI")
    assert links == {(1, 0), (0, 1)}
    yield (
        checks.check_awi,
        (SCORES, WORDS, KEY_WORDS),
        links,
        {
            "links of AWO": align(SCORES, WORDS, KEY_WORDS, "AWO"),
            "not its second best": links | {(0, 2)},
            "here it is linked": links | {(3, 2)},
            "counted from 1": {(s, t + 1) for s, t in links},
            "1 of the 2 links are there": {(1, 0), (2, 2)},
            "type list": list(links),
        },
    )
    turned = SCORES.clone()
    turned[1, 3] = 0.9  # old goes to lacht
    yield (
        checks.check_awi,
        (turned, WORDS, KEY_WORDS),
        {(2, 0), (0, 1)},
        {"wrong way round": {(0, 2), (1, 0)}},
    )
