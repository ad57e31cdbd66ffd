"""Checks of lesson 1, raw attention."""

from helpers import _validate
from helpers.checks.judge import judge, kind, whole
from helpers.tables import categories
from helpers.tracing import Trace


def check_head_weights(answer, run: Trace, layer: int, head: int) -> None:
    """The attention weights of one head, (T, T), from queries and keys."""
    _validate.run(run)
    layer = _validate.index("layer", layer, len(run.blocks))
    head = _validate.index("head", head, run.attention.shape[1])
    weights = run.attention[layer, head]
    d = run.blocks[layer].W_V.shape[-1]
    unscaled = (weights.clamp(min=1e-30).log() * d**0.5).softmax(dim=-1)
    mistakes = {
        "rows and columns are swapped: scores are Q @ K.T, row = query": weights.T,
        "the division by the square root of d is missing": unscaled,
        "the softmax runs over the queries; it belongs over the keys, dim=-1": (
            weights.clamp(min=1e-30).log().softmax(dim=0)
        ),
        "this is another head; in code, layers and heads are counted from 0": run.attention[layer],
    }
    judge(answer, weights, mistakes)


def check_cls_share(answer, run: Trace) -> None:
    """The share of attention weight that goes to the first token, per layer, (L,)."""
    _validate.run(run)
    mean = run.attention.mean(dim=1)
    mistakes = {
        "this is what the first token reads (a row); how much it is read is a column": (
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
    """The share of attention weight that goes to comma and full stop, per layer, (L,)."""
    _validate.run(run)
    member = [n for n, name in enumerate(categories(run)) if name == "punctuation"]
    mean = run.attention.mean(dim=1)
    mistakes = {
        "this is what punctuation reads (rows); the question is how much it is read (columns)": (
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
    """The (layer, head), counted from 0, that reads the token two places before it the most."""
    _validate.run(run)
    best = _strongest(run, offset=-2)
    mistakes = {
        _strongest(run, offset=2): "this head reads the token two places after; row = query, "
        "column = key, so the token before is to the left: offset=-2",
        _strongest(run, offset=-1): "this head reads the token one place before; use offset=-2",
        (best[0] + 1, best[1] + 1): "count layers and heads from 0",
        (best[1], best[0]): "the layer comes first, then the head",
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
    """The (layer, head) with the largest mean weight on the diagonal at this offset."""
    strength = run.attention.diagonal(offset=offset, dim1=-2, dim2=-1).mean(dim=-1)
    return divmod(int(strength.argmax()), strength.shape[1])
