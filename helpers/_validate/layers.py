"""Whether what a layer computes is what its weights say."""

import torch
from torch import Tensor, nn

WHAT = {
    "projection": "what attention reads, through its projection,",
    "x": "what makes its values",
    "values": "what makes its values",
    "residual": "what its residual connection adds",
    "inner norm": "the RMSNorm of its attention output",
    "output": "its residual connection, which adds attention alone,",
    "mlp": "its feed-forward network",
    "layer": "its residual connection",
    "before norm": "its LayerNorm",
    "norm": "its LayerNorm",
    "after": "what reads its output",
    "before second norm": "the LayerNorm at its end",
    "second norm": "the LayerNorm at its end",
}
# The largest difference that counts as rounding, as a share of the largest value in its row.
ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-6}


def fault(number: int, part, block, here: dict[str, Tensor | None]) -> str:
    """Why one layer's weights do not say what it computes, as half a sentence; "" where they do.

    Compared row by row with the layer's own tensors, because one very long vector would hide the
    error of all the others. number: of the layer, from 0. part: its modules. block: its weights and
    what they read. here: what passed in its modules, by name, (T, D) each, or None.
    """
    layer = f"layer {number} (counted from 0)"
    remedy = (
        "merge adapters with merge_and_unload(), or take out the hook or wrapper, and trace again"
    )
    for name, what in WHAT.items():
        if name in here and here[name] is None:
            return f"{layer} does not call {what} as a module, so that it cannot be read; {remedy}"
    try:
        said = _said(part, block, here)
    except RuntimeError:
        return f"the sizes of {layer} do not fit together; {remedy}"
    for name, (own, expected, size) in said.items():
        # No sum can be more exact than its longest part.
        gap = (own - expected).abs() - 4 * torch.finfo(own.dtype).eps * expected.abs()  # (T, D)
        worst = gap.amax(dim=-1).clamp(min=0)  # (T,)
        error = torch.where(worst == 0, 0.0, worst / size.abs().amax(dim=-1)).max().item()
        if not error <= ROUNDING[gap.dtype]:
            return (
                f"{layer} computes something else than its weights say: {WHAT[name]} gives "
                f"another result, off by {error:.2g} of the largest value in its row; {remedy}"
            )
    return ""


def _said(part, b, here: dict[str, Tensor]) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """What passed, what the weights say in its place, and what an error of it is measured by."""
    D, F = b.b_O.shape, nn.functional
    v = torch.einsum("sd,hde->hse", b.x, b.W_V) + b.b_V[:, None]  # (H, S, d)
    values = here["values"] if part.columns is None else part.columns(here["values"])
    values = values.unflatten(-1, (-1, v.shape[-1]))  # (S, groups of heads, d)
    values = values.repeat_interleave(len(v) // values.shape[1], dim=1).flatten(1)
    added = here["projection"]  # (T, D)
    read = (b.attention @ v).transpose(0, 1).flatten(1) @ b.W_O.flatten(0, 1)  # (T, D)
    said = {
        "values": (values, v.transpose(0, 1).flatten(1), values),
        "projection": (added, read + b.b_O, added - b.b_O),
    }
    if b.inner_gamma is not None:
        own = here["inner norm"]
        said["inner norm"] = own, F.rms_norm(added, D, b.inner_gamma, b.inner_eps), own
        added = own
    total = b.output if b.gamma is None else here["before norm"]
    if part.parallel:  # no tensor of the model holds this sum alone
        said["output"] = here["layer"], b.residual + added + here["mlp"], added
    else:
        said["output"] = total, b.residual + added, added
    if b.gamma is not None:
        own = here["norm"]
        said["norm"] = own, F.layer_norm(total, D, b.gamma, b.beta, b.eps), own
    if part.after is not None:
        said["after"] = here["after"], b.output, b.output
    if b.second_gamma is not None:
        own, beta = here["second norm"], _inside(part.second_norm, "bias")
        expected = F.layer_norm(b.before_second_norm, D, b.second_gamma, beta, b.second_eps)
        said["second norm"] = own, expected, own
    return said


def _inside(norm: nn.Module, name: str) -> Tensor | None:
    """A parameter of a norm, or of the norm inside a wrapper."""
    return next((getattr(m, name, None) for m in norm.modules() if hasattr(m, "weight")), None)
