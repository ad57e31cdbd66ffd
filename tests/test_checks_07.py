"""Exercises of lesson 7: stub, solution, and the hint for each mistake."""

import numpy as np
import pytest
import torch
from exercises import NONSENSE, guides, passes_and_hints, said
from scipy.stats import rankdata

from helpers import checks
from helpers.saliency import rank_correlation


def ranked_by(rank):
    def spearman(a, b):
        return np.corrcoef(rank(a.numpy()), rank(b.numpy()))[0, 1]

    return spearman


def by_squares(a, b):
    d = rankdata(a.numpy()) - rankdata(b.numpy())
    return 1 - 6 * (d**2).sum() / (len(a) * (len(a) ** 2 - 1))


def strongest(row, mask):
    row = row.clone()
    row[mask] = -1
    return int(row.argmax())


def template_mean(values, templates, drawn):
    return torch.cat([values[[t == name for t in templates]] for name in drawn]).mean()


def exercises():
    """(check, the arguments after the answer, right answer, {words of the hint: wrong answer})."""
    yield (
        checks.check_spearman,
        (),
        ranked_by(rankdata),
        {
            "different ranks": ranked_by(lambda v: v.argsort(stable=True).argsort()),
            "dense ranks": ranked_by(lambda v: rankdata(v, "dense")),
            "smallest of their ranks": ranked_by(lambda v: rankdata(v, "min")),
            "correlation of the values": ranked_by(lambda v: v),
            "it takes two": ranked_by(lambda v: v.argsort(stable=True)),
            "squared differences": by_squares,
            "raises ZeroDivisionError": lambda a, b: 1 / 0,
            "got None": lambda a, b: None,
        },
    )
    random = torch.Generator().manual_seed(0)
    gradient, x = torch.randn(2, 5, 8, generator=random)
    product = gradient * x
    yield (
        checks.check_gradient_times_input,
        (gradient, x),
        product.sum(dim=-1).abs(),
        {
            "sum of absolute values": product.abs().sum(dim=-1),
            "only the size": product.sum(dim=-1),
            "length of the product": product.norm(dim=-1),
            "length of the gradient": gradient.norm(dim=-1),
            "this is the mean": product.mean(dim=-1).abs(),
            "added over the tokens": product.sum(dim=0).abs(),
            "expected a tensor of shape (5,), got None": None,
        },
    )
    yield (
        checks.check_strongest,
        (),
        strongest,
        {
            "among the candidates": lambda row, mask: row.argmax(),
            "moved by one": lambda row, mask: int(np.delete(row.numpy(), mask).argmax()),
            "not the value": lambda row, mask: np.delete(row.numpy(), mask).max(),
            "raises IndexError": lambda row, mask: row[99],
            "got None": lambda row, mask: None,
        },
    )
    templates = ["near", "far", "near", "report", "far", "clause"]
    values = torch.tensor([0.1, 0.4, 0.3, -0.2, 0.8, 0.5])
    yield (
        checks.check_template_mean,
        (values, templates),
        template_mean,
        {
            "counts twice": lambda v, t, drawn: v[[one in drawn for one in t]].mean(),
            "mean of all sentences": lambda v, t, drawn: v.mean(),
            "this is the sum": lambda v, t, drawn: torch.cat(
                [v[[one == name for one in t]] for name in drawn]
            ).sum(),
            "take all of them": lambda v, t, drawn: v[[t.index(name) for name in drawn]].mean(),
            "raises KeyError": lambda v, t, drawn: {}[drawn[0]],
            "got None": lambda v, t, drawn: None,
        },
    )


@pytest.mark.parametrize("number", range(4))
def test_the_solution_passes_and_each_mistake_gets_its_hint(capsys, number):
    passes_and_hints(capsys, list(exercises())[number])


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("answer", NONSENSE)
def test_nonsense_gets_one_line_of_guidance(capsys, number, answer):
    guides(capsys, list(exercises())[number], answer)


def test_the_right_correlation_is_the_course_s_own(capsys):
    assert said(capsys, checks.check_spearman, rank_correlation) == "Correct."


def test_the_second_largest_is_not_the_strongest(capsys):
    line = said(capsys, checks.check_strongest, lambda row, mask: row.argsort()[-2])
    assert line.startswith("Not yet: the function's numbers differ by up to")


def test_numbers_of_a_function_have_no_shape(capsys):
    line = said(capsys, checks.check_spearman, lambda a, b: 0.123)
    assert line.startswith("Not yet: the function's numbers differ by up to")
