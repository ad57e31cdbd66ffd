"""Exercises of lesson 7, as in lesson_01.py."""

import numpy as np
import torch
from scipy.stats import rankdata

from helpers import checks
from helpers.tables import rank_correlation


def ranked_by(rank):
    return lambda a, b: np.corrcoef(rank(a.numpy()), rank(b.numpy()))[0, 1]


def by_squares(a, b):
    d, n = rankdata(a.numpy()) - rankdata(b.numpy()), len(a)
    return 1 - 6 * (d**2).sum() / (n * (n**2 - 1))


def strongest(row, mask):
    row = row.clone()
    row[mask] = -1
    return int(row.argmax())


def of_templates(combine):
    return lambda values, templates, drawn: combine(
        [values[[t == name for t in templates]] for name in drawn]
    )


def exercises(model, run):
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
            "the function's numbers differ by up to": lambda a, b: 0.123,
            "got shape (2,)": lambda a, b: a[:2],
        },
    )
    yield checks.check_spearman, (), rank_correlation, {}
    gradient, x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
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
            "summed over the tokens": product.sum(dim=0).abs(),
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
            "numbers differ by up to": lambda row, mask: row.argsort()[-2],
            "raises IndexError": lambda row, mask: row[99],
        },
    )
    templates = ["near", "far", "near", "report", "far", "clause"]
    yield (
        checks.check_template_mean,
        (torch.tensor([0.1, 0.4, 0.3, -0.2, 0.8, 0.5]), templates),
        of_templates(lambda groups: torch.cat(groups).mean()),
        {
            "counts twice": lambda v, t, drawn: v[[one in drawn for one in t]].mean(),
            "mean of all sentences": lambda v, t, drawn: v.mean(),
            "this is the sum": of_templates(lambda groups: torch.cat(groups).sum()),
            "take all of them": of_templates(
                lambda groups: torch.stack([group[0] for group in groups]).mean()
            ),
            "raises KeyError": lambda v, t, drawn: {}[drawn[0]],
        },
    )
