"""Attention rollout: how much of each input token is in each position, layer after layer.

The method is that of Abnar & Zuidema 2020 (AZ20), for maps of any stage. Row = query, column = key.
"""

from numbers import Real

import torch
from torch import Tensor

from helpers.arguments import check_exact


def rollout(maps: Tensor, residual: float | Tensor = 0.5) -> Tensor:
    """Share of input token j in position i after each layer: (L, T, T), in [0, 1], rows sum to 1.

    `maps` is (L, T, T), ≥ 0, first layer first; `residual` is explained at `with_residual`.
    R_1 = Â_1 and R_l = Â_l R_{l−1} (AZ20, section 3). Rows and columns must be the same tokens: maps
    of cross-attention have no rollout, and where they are square nothing here can tell.

    Raises ValueError for maps and residuals that `with_residual` refuses.
    """
    A = with_residual(maps, residual)
    R = [A[0]]
    for A_l in A[1:]:
        R.append(torch.einsum("ik,kj->ij", A_l, R[-1]))
    return torch.stack(R)


def with_residual(maps: Tensor, residual: float | Tensor = 0.5) -> Tensor:
    """Rows divided by their sums, then mixed with the residual: Â, (L, T, T), rows sum to 1.

    `residual` is one number c in [0, 1], Â = (1 − c) A + c I (AZ20, section 3, with c = 0.5);
    0 is for maps that hold the residual already. Or it is a tensor (L, T) of what each position
    keeps, 1 − r_i with r_i a measured mixing ratio: Â_ii = 1 − r_i, and the rest of the row
    shares r_i in its own proportions. A position that reads only itself keeps all of itself.

    Raises ValueError for maps that are no (L, T, T) tensor, are empty, hold negative, NaN or
    infinite entries or a row without a usable sum, and for a residual outside [0, 1].
    """
    maps = check_maps(maps)
    residual = _check_residual(residual, maps)
    I = torch.eye(maps.shape[-1]).to(maps)
    if not isinstance(residual, Tensor):
        return (1 - residual) * (maps / maps.sum(dim=-1, keepdim=True)) + residual * I
    # A plain blend would count a_ii twice, so the map's own diagonal gives way to 1 − r_i.
    others = maps * (1 - I)
    # The sum of the others, not 1 − a_ii, which rounds to 0 while the others still differ.
    total = others.sum(dim=-1, keepdim=True)
    keep = torch.where(total > 0, residual[..., None], 1.0)
    return keep * I + (1 - keep) * (others / torch.where(total > 0, total, 1.0))


def check_maps(maps: Tensor) -> Tensor:
    """The maps in float64 as they came, or else in float32; ValueError as in `with_residual`."""
    got = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
    square = isinstance(maps, Tensor) and maps.ndim == 3 and maps.shape[1] == maps.shape[2]
    if not square or not maps.numel() or maps.is_complex():
        remedy = "combine the heads first and stack one square map a layer"
        if isinstance(maps, Tensor) and maps.ndim == 3 and not square:
            remedy = (
                "a map must be square, and those of cross-attention have no rollout and no flow"
            )
        raise ValueError(
            f"maps must be a real tensor of shape (L, T, T) with L and T at least 1, got {got}; "
            f"{remedy}."
        )
    check_exact()
    maps = maps.to(torch.float64 if maps.dtype == torch.float64 else torch.float32)
    for n, i, j in (~(maps.isfinite() & (maps >= 0))).nonzero()[:1].tolist():
        raise ValueError(
            f"maps must hold finite numbers ≥ 0, got {maps[n, i, j].item():g} in layer {n}, row "
            f"{i}, column {j} (counted from 0); use weights or norms, not signed scores."
        )
    sums = maps.sum(dim=-1)
    for n, i in (~(sums.isfinite() & (sums > 0))).nonzero()[:1].tolist():
        raise ValueError(
            f"maps can not be normalised: layer {n}, row {i} (counted from 0) sums to "
            f"{sums[n, i].item():g}; every row needs a finite sum > 0."
        )
    return maps


def _check_residual(residual: float | Tensor, maps: Tensor) -> float | Tensor:
    """The residual as a float or as a tensor like the maps, or a ValueError that says why not."""
    shape = tuple(maps.shape[:2])
    number = isinstance(residual, Real) and not isinstance(residual, bool)
    tensor = isinstance(residual, Tensor)
    got = f"a tensor of shape {tuple(residual.shape)}" if tensor else type(residual).__name__
    if number or (tensor and residual.shape == shape):
        value = float(residual) if number else residual.to(maps)
        values = value.flatten().tolist() if tensor else [value]
        outside = [c for c in values if not 0 <= c <= 1]
        if not outside:
            return value
        got = f"{outside[0]:g}"
    wanted = f"a number in [0, 1], or a tensor of shape (L, T) = {shape} of 1 − r_i in [0, 1]"
    raise ValueError(f"residual must be {wanted}, got {got}.")
