"""AZ20: from the maps of single layers to paths through all of them.

Abnar & Zuidema 2020 (arXiv 2005.00928), section 3. Row = query i, column = key j, l = layer.

    Â_l = 0.5 A_l + 0.5 I                       the residual connection as half of each row
    R_1 = Â_1,  R_l = Â_l R_{l−1}               rollout: product along each path, summed over paths
    flow: the most that can pass from (l, i) to (0, j) through pipes of capacity Â_l[i, j]

Nothing here knows which stage a map came from. Rows and columns must be the same tokens: a map of
cross-attention has neither rollout nor flow, and a square one cannot be told from the others here.
"""

from itertools import product

import igraph
import torch
from torch import Tensor

from helpers import _validate
from helpers._progress import progress


def with_residual(maps: Tensor, residual: float | Tensor = 0.5) -> Tensor:
    """Rows divided by their sums, then mixed with the residual: Â, (L, T, T), rows sum to 1.

    maps: (L, T, T), ≥ 0, first layer first; a tensor, a numpy array or a list.
    residual: one number c in [0, 1], Â = (1 − c) A + c I (AZ20, section 3, with c = 0.5); 0 is for
        maps that hold the residual already. Or a tensor (L, T) of what each position keeps, 1 − r_i
        with a measured mixing ratio r_i: then Â_ii = 1 − r_i, and the others share r_i in their own
        proportions. A position that reads only itself keeps all of itself.

    Raises ValueError for maps that are not such a tensor, are empty, or hold a negative, NaN or
    infinite entry or a row without a usable sum, and for a residual outside [0, 1].

    Example: with_residual(stage_map(run, "Attn-W"))[0] is Â of the first layer.
    """
    maps = _validate.maps(maps)
    residual = _validate.residual(residual, like=maps)
    I = torch.eye(maps.shape[-1], dtype=maps.dtype, device=maps.device)  # (T, T)
    if not isinstance(residual, Tensor):
        A = maps / maps.sum(dim=-1, keepdim=True)  # (L, T, T)
        return (1 - residual) * A + residual * I
    # A plain blend would count a_ii twice, so the map's own diagonal gives way to 1 − r_i.
    others = maps * (1 - I)  # (L, T, T)
    # The sum of the others, not 1 − a_ii, which rounds to 0 while the others still differ.
    total = others.sum(dim=-1, keepdim=True)  # (L, T, 1)
    keep = torch.where(total > 0, residual[..., None], 1.0)  # (L, T, 1)
    return keep * I + (1 - keep) * (others / torch.where(total > 0, total, 1.0))


def rollout(
    maps: Tensor, residual: float | Tensor = 0.5, *, receptive_field: bool = False
) -> Tensor:
    """Share of input token j in position i after each layer: (L, T, T), in [0, 1], rows sum to 1.

    R_1 = Â_1 and R_l = Â_l R_{l−1} (AZ20, section 3). Parameters and errors are those of
    `with_residual`.

    receptive_field: for maps of a causal model, where the first tokens can be reached from every
        position and so collect most. Divides by the rollout of even causal maps (row i: 1/(i+1) up
        to i), which shows what the position alone explains, and each row by its sum again. AZ20
        ask for such a normalisation without a formula; this one is the course's own. Raises
        ValueError for maps with an entry above the diagonal.

    Example: rollout(stage_map(run, "Attn-W"))[-1] is the map after the last layer.
    """
    A = with_residual(maps, residual)
    R = [A[0]]  # (T, T)
    for A_l in A[1:]:
        R.append(torch.einsum("ik,kj->ij", A_l, R[-1]))
    if receptive_field:
        return per_reach(torch.stack(R), rollout(even_causal(maps), residual))
    return torch.stack(R)


def flow(
    maps: Tensor,
    residual: float | Tensor = 0.5,
    layer: int = -1,
    query: int | None = None,
    normalize: bool = True,
    *,
    receptive_field: bool = False,
) -> Tensor:
    """Maximum flow from each position after a layer to each input token: (T, T), in [0, 1].

    The pipe from position i after layer l to position j below it has capacity Â_l[i, j] (AZ20,
    section 3). Many values are equal up to the last bits of rounding: round them before ranking.

    maps, residual: as in `with_residual`.
    layer, query: count from 0, negative ones from the end; one query gives its row alone, (T,).
    normalize: divide each row by its sum, as AZ20 do; False leaves the maximum flow itself.
    receptive_field: divide by the flow of even causal maps first, as in `rollout`.

    Raises ValueError as `with_residual` does, and for a layer or a query that does not exist.

    Example: flow(stage_map(run, "Attn-W"), query=2) is one share per input token.
    """
    maps = _validate.maps(maps)
    A = with_residual(maps.detach().to("cpu", torch.float64), residual)  # where igraph reads them
    L, T, _ = A.shape
    top = _validate.index("layer", layer, L) + 1
    queries = range(T) if query is None else [_validate.index("query", query, T)]
    A = A[:top]  # nothing above the layer can be reached from it, so those pipes are not built
    n, i, j = A.nonzero(as_tuple=True)
    ends = torch.stack([(n + 1) * T + i, n * T + j], dim=1)  # node = layer · T + position
    graph = igraph.Graph(n=(top + 1) * T, edges=ends.tolist(), directed=True)
    capacity = A[n, i, j].tolist()
    pairs = list(product(queries, range(T)))
    found = [
        graph.maxflow_value(top * T + i, j, capacity) for i, j in progress(pairs, "flow, pairs")
    ]
    F = torch.tensor(found, dtype=A.dtype, device=A.device).reshape(-1, T)  # (queries, T)
    F = F if query is None else F[0]
    if receptive_field:
        even = flow(even_causal(maps), residual, layer, query, normalize=False).to(F)
        F = F / even.where(even > 0, 1.0)
    F = F / F.sum(dim=-1, keepdim=True) if normalize else F
    return F.to(maps)


def even_causal(maps: Tensor) -> Tensor:
    """E, in which a position reads itself and all before it alike, 1/(i+1) each: (L, T, T).

    maps: (L, T, T), whose shape it takes; ValueError unless they are causal too.

    Example: even_causal(torch.ones(1, 2, 2).tril())[0] is [[1, 0], [.5, .5]].
    """
    maps = _validate.causal(_validate.maps(maps))
    E = torch.ones_like(maps).tril()
    return E / E.sum(dim=-1, keepdim=True)


def per_reach(found: Tensor, even: Tensor) -> Tensor:
    """Rollout divided by that of even maps, rows divided by their sums again: like `found`.

    Nothing is where nothing can be reached. Example: per_reach(rollout(A), rollout(E))[-1].
    """
    share = found / even.where(even > 0, 1.0)
    return share / share.sum(dim=-1, keepdim=True)
