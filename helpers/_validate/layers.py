"""Whether what a layer computes is what its weights say."""

import torch
from torch import Tensor, nn

# The largest difference that counts as rounding, as a share of the largest value in its row.
ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-6}


def fault(number: int, part, block, here: dict[tuple, Tensor]) -> str:
    """Why one layer's weights do not say what it computes, as half a sentence; "" where they do.

    Compared row by row with the layer's own tensors, because one very long vector would hide the
    error of all the others. number: of the layer, from 0. part: its modules. block: its weights and
    what they read. here: what entered and left its modules, (T, D) each.
    """
    b, D = block, block.b_O.shape
    seen = {
        "projection": here[part.project, "output"],
        "inner norm": here.get((part.inner_norm, "output")),
        "sum": b.output if part.norm is None else here[part.norm, "input"],
        "norm": b.output,
        "after": here.get(part.after),
        "second norm": here.get((part.second_norm, "output")),
    }
    v = torch.einsum("sd,hde->hse", b.x, b.W_V) + b.b_V[:, None]  # (H, S, d)
    said = {
        "projection": (b.attention @ v).transpose(0, 1).flatten(1) @ b.W_O.flatten(0, 1) + b.b_O
    }
    added = seen["projection"]  # (T, D)
    if b.inner_gamma is not None:
        said["inner norm"] = nn.functional.rms_norm(added, D, b.inner_gamma, b.inner_eps)
        added = seen["inner norm"]
    said["sum"] = b.residual + added
    if b.gamma is not None:
        said["norm"] = nn.functional.layer_norm(seen["sum"], D, b.gamma, b.beta, b.eps)
    if b.second_gamma is not None:
        second = b.second_gamma, getattr(part.second_norm, "bias", None), b.second_eps
        said["second norm"] = nn.functional.layer_norm(b.before_second_norm, D, *second)
    if seen["after"] is not None:
        said["after"] = b.output
    what = {
        "projection": "its values and their projection give another attention output",
        "inner norm": "the RMSNorm of its attention output gives something else",
        "sum": "something beside attention is added to the residual connection",
        "norm": "its LayerNorm gives something else",
        "after": "its output is changed before it is read",
        "second norm": "the LayerNorm at its end gives something else",
    }
    for place, expected in said.items():
        gap = (seen[place] - expected).abs()  # (T, D)
        # A sum cannot be more exact than its longest part.
        if place == "sum":
            gap = (gap - 4 * torch.finfo(gap.dtype).eps * expected.abs()).clamp(min=0)
        size = (added if place == "sum" else seen[place]).abs().amax(dim=-1)  # (T,)
        worst = gap.amax(dim=-1)  # (T,)
        error = torch.where(worst == 0, 0.0, worst / size).max().item()
        if not error <= ROUNDING[gap.dtype]:
            return (
                f"layer {number} (counted from 0) computes something else than its weights say: "
                f"{what[place]}, off by {error:.2g} of the largest value in its row; merge "
                "adapters with merge_and_unload(), or take out the hook or wrapper, and trace again"
            )
    return ""
