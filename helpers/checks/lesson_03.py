"""Checks of lesson 3, word alignment."""

import torch
from torch import Tensor

from helpers.alignment import Gold, Link, align, alignment_error_rate, score_words, to_words
from helpers.checks.judge import judge, kind


def check_aer(answer, predicted: list[set[Link]], gold: list[Gold]) -> None:
    """The alignment error rate over all sentences together, one number in [0, 1]."""
    correct, precision, recall = alignment_error_rate(predicted, gold)
    if isinstance(answer, bool) or not isinstance(answer, int | float | Tensor):
        print(f"Not yet: expected one number, got {kind(answer)}.")
        return
    pairs = list(zip(predicted, gold, strict=True))
    each = [alignment_error_rate([a], [g]).aer for a, g in pairs if g.sure]
    size, sure = sum(len(a) for a, _ in pairs), sum(len(g.sure) for _, g in pairs)
    possible = sum(len(g.possible) for _, g in pairs)
    in_sure = sum(len(a & g.sure) for a, g in pairs)
    in_possible = sum(len(a & g.possible) for a, g in pairs)
    mistakes = {
        "this is 1 minus the rate; an error rate is low when the links are good": 1 - correct,
        "this is the mean of the sentences' rates; add the counts of all sentences first": (
            sum(each) / max(len(each), 1)
        ),
        "both counts are of sure links; the second is |A ∩ P|": 1 - 2 * in_sure / (size + sure),
        "both counts are of possible links; the first is |A ∩ S|": (
            1 - 2 * in_possible / (size + sure)
        ),
        "the denominator is |A| + |S|, not |A| + |P|": (
            1 - (in_sure + in_possible) / (size + possible)
        ),
        "this is 1 minus the mean of precision and recall": 1 - (precision + recall) / 2,
    }
    if isinstance(answer, Tensor) and answer.numel() != 1:
        print(f"Not yet: expected one number, got {answer.numel()} of them.")
        return
    number = answer.reshape(()) if isinstance(answer, Tensor) else _number(answer)
    judge(number, _number(correct), {why: _number(m) for why, m in mistakes.items()})


def check_to_words(answer, scores: Tensor, target_words: list, source_words: list) -> None:
    """Scores of pieces merged into scores of words, (target words, source words + 1)."""
    correct = to_words(scores, target_words, source_words).float()
    counts = correct.new_tensor([[target_words.count(n)] for n in range(len(correct))])
    sources = (*range(correct.shape[1] - 1), None)  # None: the end symbol, which is no word
    widths = correct.new_tensor([source_words.count(n) for n in sources]).clamp(min=1)
    mistakes = {
        "this adds over the pieces of a target word; take their mean": correct * counts,
        "this is the mean over the pieces of a source word; add them up": correct / widths,
        "sum and mean are swapped: sum over source pieces, mean over target pieces": (
            correct * counts / widths
        ),
        "the last column is missing: what falls on the end symbol": correct[:, :-1],
        "rows and columns are swapped: row = target word, column = source word": correct.T,
    }
    judge(answer, correct, mistakes)


def check_awi(answer, scores: Tensor, words: list, key_words: list) -> None:
    """The links that one map gives under AWI, a set of (source word, target word)."""
    correct = align(scores, words, key_words, "AWI")
    if not isinstance(answer, set | frozenset):
        print(f"Not yet: expected a set of pairs (source word, target word), got {kind(answer)}.")
        return
    by_word = score_words(scores, words, key_words, "AWI")
    mistakes = {
        "these are the links of AWO; under AWI the row of the start symbol is dropped": (
            align(scores, words, key_words, "AWO")
        ),
        "the pairs are the wrong way round: the source word comes first": {
            (t, s) for s, t in correct
        },
        "a word whose maximum is the end symbol gets no link, not its second best": {
            (s, t) for t, s in enumerate(by_word[:, :-1].argmax(dim=1).tolist())
        },
        "a word whose maximum is the end symbol gets no link; here it is linked to it": {
            (s, t) for t, s in enumerate(by_word.argmax(dim=1).tolist())
        },
        "the target words are counted from 1; count from 0": {(s, t + 1) for s, t in correct},
    }
    found = [reason for reason, wrong in mistakes.items() if answer == wrong]
    if answer == correct:
        print("Correct.")
    elif found:
        print(f"Not yet: {found[0]}.")
    else:
        print(
            f"Not yet: {len(answer & correct)} of the {len(correct)} links are there, and "
            f"{len(answer - correct)} others do not belong."
        )


def _number(value: float) -> Tensor:
    return torch.tensor(float(value), device="cpu")
