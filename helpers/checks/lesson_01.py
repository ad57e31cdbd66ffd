"""Checks of lesson 1, raw attention."""

import torch

from helpers.arguments import check_index
from helpers.checks.judge import judge, kind, whole
from helpers.corpus import categories
from helpers.trace import Trace, check_run


def check_head_weights(answer, run: Trace, layer: int, head: int) -> None:
    """The attention weights of one head, (T, T), from queries and keys."""
    check_run(run)
    layer = check_index("layer", layer, len(run.blocks))
    head = check_index("head", head, run.attention.shape[1])
    weights = run.attention[layer, head]
    d = run.blocks[layer].W_V.shape[-1]
    unscaled = (weights.clamp(min=1e-30).log() * d**0.5).softmax(dim=-1)
    mistakes = {
        "rows and columns are exchanged: scores are Q @ K.T, row = query": weights.T,
        "the division by the square root of d is missing": unscaled,
        "the softmax runs over the queries; it belongs over the keys, dim=-1": (
            weights.clamp(min=1e-30).log().softmax(dim=0)
        ),
        "this is another head; head and layer count from 0 in code": run.attention[layer],
    }
    judge(answer, weights, mistakes)


def check_cls_share(answer, run: Trace) -> None:
    """The share of attention weight that goes to the first token, by layer, (L,)."""
    check_run(run)
    mean = run.attention.mean(dim=1)
    mistakes = {
        "this is what the first token reads, a row; wanted is what is read of it, a column": (
            mean[:, 0, :].mean(dim=-1)
        ),
        "this is the sum over the queries; the mean is wanted": mean[:, :, 0].sum(dim=-1),
        "this is the sum over heads; the mean is wanted": (
            run.attention[..., 0].sum(dim=1).mean(dim=-1)
        ),
        "this is the weight from the first token to itself": mean[:, 0, 0],
    }
    judge(answer, mean[:, :, 0].mean(dim=-1), mistakes)


def check_punctuation_share(answer, run: Trace) -> None:
    """The share of attention weight that goes to comma and full stop, by layer, (L,)."""
    check_run(run)
    member = torch.tensor([name == "punctuation" for name in categories(run.keys)])
    mean = run.attention.mean(dim=1)
    mistakes = {
        "this is what punctuation reads, rows; wanted is what is read of it, columns": (
            mean[:, member].sum(dim=1).mean(dim=-1)
        ),
        "this is the mean over the marks; add up their columns": mean[..., member].mean(dim=(1, 2)),
        "this is the sum over the queries; the mean is wanted": mean[..., member].sum(dim=(1, 2)),
        "this is the sum over heads; the mean is wanted": (
            run.attention[..., member].sum(dim=-1).sum(dim=1).mean(dim=-1)
        ),
    }
    judge(answer, mean[..., member].sum(dim=-1).mean(dim=-1), mistakes)


def check_two_back_head(answer, run: Trace) -> None:
    """The pair (layer, head), from 0, of the head that reads the token two before the most."""
    check_run(run)
    best = _strongest(run, offset=-2)
    mistakes = {
        _strongest(run, offset=2): "this head reads the token two places after; row = query, "
        "column = key, so the token before is to the left: offset=-2",
        _strongest(run, offset=-1): "this head reads the token one place before; use offset=-2",
        (best[0] + 1, best[1] + 1): "count layers and heads from 0",
        (best[1], best[0]): "first the layer, then the head",
    }
    pair = whole(answer, 2)
    if pair is None:
        print(f"Not yet: expected a pair (layer, head) of whole numbers, got {kind(answer)}.")
    elif pair == best:
        print(f"Correct: layer {best[0] + 1}, head {best[1] + 1} in the papers' counting.")
    else:
        reason = mistakes.get(pair, "take the mean of the diagonal, then the argmax")
        print(f"Not yet: {reason}.")


def _strongest(run: Trace, offset: int) -> tuple[int, int]:
    """The head with the largest mean weight on the diagonal that is `offset` from the main one."""
    strength = run.attention.diagonal(offset=offset, dim1=-2, dim2=-1).mean(dim=-1)
    return divmod(int(strength.argmax()), strength.shape[1])
