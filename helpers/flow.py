"""Attention flow: how much could pass from each input token to a position, pipe by pipe.

The method is Abnar & Zuidema 2020 (AZ20): a stack of maps is read as a network of pipes. Rollout
multiplies along every path and adds up; flow asks for the most that fits through all pipes at once.
"""

from itertools import product

import igraph
import torch
from torch import Tensor

from helpers.arguments import check_choice, check_index
from helpers.progress import progress
from helpers.rollout import check_maps, with_residual


def flow(
    maps: Tensor,
    residual: float | Tensor = 0.5,
    layer: int = -1,
    query: int | None = None,
    normalize: bool = True,
) -> Tensor:
    """Maximum flow from each position after a layer to each input token: (T, T), in [0, 1].

    `maps` is (L, T, T), ≥ 0, first layer first; `residual` is explained at `with_residual`.
    `layer` and `query` count from 0, negative ones from the end; one query gives its row, (T,).
    The pipe from position i after layer l to position j below it has capacity Â_l[i, j] (AZ20,
    section 3). As there, each row is divided by its sum; `normalize=False` leaves the flow itself.
    Rows and columns must be the same tokens: maps of cross-attention have no flow, and where they
    are square nothing here can tell. Many values are equal up to the last bits of rounding: round
    them before ranking.

    Raises ValueError for maps and residuals that `with_residual` refuses, and for a layer or a
    query that does not exist.
    """
    maps = check_maps(maps)
    check_choice("normalize", normalize, (True, False))
    L, T, _ = maps.shape
    top = check_index("layer", layer, L) + 1
    queries = range(T) if query is None else [check_index("query", query, T)]
    # Nothing above the layer can be reached from it, so those pipes are not built.
    A = with_residual(maps.detach().cpu().double(), residual)[:top]
    n, i, j = A.nonzero(as_tuple=True)
    ends = torch.stack([(n + 1) * T + i, n * T + j], dim=1)  # node = layer · T + position
    graph = igraph.Graph(n=(top + 1) * T, edges=ends.numpy(), directed=True)
    capacity = A[n, i, j].tolist()
    pairs = list(product(queries, range(T)))
    values = [
        graph.maxflow_value(top * T + query, key, capacity)
        for query, key in progress(pairs, "flow")
    ]
    values = torch.tensor(values, dtype=torch.float64).reshape(-1, T)
    if normalize:
        values = values / values.sum(dim=-1, keepdim=True)
    return values.to(maps) if query is None else values[0].to(maps)
