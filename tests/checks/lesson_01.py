"""Exercises of lesson 1: (check, what the notebook gives it, right answer, {hint: wrong one})."""

import torch

from helpers import checks


def exercises(model, run):
    A, mean = run.attention, run.attention.mean(dim=1)
    scores, d = A[1, 8].log(), run.blocks[1].W_V.shape[-1]  # scores up to a constant in each row
    yield (
        checks.check_head_weights,
        (run, 1, 8),
        A[1, 8],
        {
            "swapped": A[1, 8].T,
            "square root": (scores * d**0.5).softmax(dim=-1),
            "over the queries": scores.softmax(dim=0),
            "another head": A[1, 9],
            "the numbers differ by up to 0.25": A[1, 8] + 0.25,
            "NaN": A[1, 8] * torch.nan,
            "got torch.bool": A[1, 8] > 0,
            "got torch.complex64": A[1, 8] + 0j,
            "torch.sparse_coo": A[1, 8].to_sparse(),
            "of type ndarray": A[1, 8].numpy(),
        },
    )
    yield (
        checks.check_cls_share,
        (run,),
        mean[:, :, 0].mean(dim=-1),
        {
            "(a row)": mean[:, 0].mean(dim=-1),
            "sum over the queries": mean[:, :, 0].sum(dim=-1),
            "sum over heads": A[..., 0].sum(dim=1).mean(dim=-1),
            "to itself": mean[:, 0, 0],
        },
    )
    member = torch.tensor([token in ",." for token in run.tokens])
    yield (
        checks.check_punctuation_share,
        (run,),
        mean[..., member].sum(dim=-1).mean(dim=-1),
        {
            "(rows)": mean[:, member].sum(dim=1).mean(dim=-1),
            "mean over the marks": mean[..., member].mean(dim=(1, 2)),
            "sum over the queries": mean[..., member].sum(dim=(1, 2)),
            "sum over heads": A[..., member].sum(dim=(1, 3)).mean(dim=-1),
        },
    )
    strength = {offset: A.diagonal(offset, -2, -1).mean(dim=-1) for offset in (-2, -1, 2)}
    heads = {offset: divmod(int(s.argmax()), s.shape[1]) for offset, s in strength.items()}
    layer, head = heads[-2]
    yield (
        checks.check_two_back_head,
        (run,),
        (layer, head),
        {
            "two places after": heads[2],
            "one place before": heads[-1],
            "from 0": (layer + 1, head + 1),
            "the layer comes first": (head, layer),
            "of the diagonal": (99, 99),
            "of type tuple": (0.9, 2.9),
            "of type int": 7,
        },
    )
