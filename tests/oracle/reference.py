"""Naive reference for the norm-based analyses: every vector is built in full.

Slow on purpose and close to the papers, so that fast closed forms can be tested against it.

K20   Kobayashi et al. 2020, arXiv 2004.10102 (norms of transformed and weighted vectors)
K21   Kobayashi et al. 2021, arXiv 2109.07152 (residual connection, LayerNorm, mixing ratio)
AZ20  Abnar and Zuidema 2020, arXiv 2005.00928 (rollout and flow)
G22   Modarressi et al. 2022, arXiv 2205.03286 (GlobEnc: to the end of the layer)

Letters: H heads, T queries (rows), S keys (columns), D hidden size, d head width, L layers;
in einsum strings h, t, s, D, d. Vectors are rows. The dtype of the result is that of the input.
"""

from dataclasses import dataclass, fields

import networkx as nx
import torch
from torch import Tensor

STAGES = ("Attn-W", "Attn-N", "AttnRes-W", "AttnRes-N", "AttnResLn-N")


@dataclass(frozen=True)
class Parts:
    """One attention block as plain tensors."""

    attention: Tensor  # (H, T, S)
    x: Tensor  # (S, D) what f reads (for a pre-LN block: already normalised)
    residual: Tensor | None  # (T, D) what the residual connection adds; None if there is none
    W_V: Tensor  # (H, D, d)
    b_V: Tensor  # (H, d)
    W_O: Tensor  # (H, d, D)
    b_O: Tensor  # (D,)
    gamma: Tensor | None = None  # (D,) LayerNorm after the residual (post-LN); None under pre-LN
    beta: Tensor | None = None  # (D,)
    eps: float | None = None
    inner_gamma: Tensor | None = None  # (D,) RMSNorm before the residual (Gemma 2 and 3)
    inner_eps: float | None = None

    @classmethod
    def of(cls, block, dtype: torch.dtype = torch.float64) -> "Parts":
        """The same of a run's block, its tensors in this dtype."""
        values = {field.name: getattr(block, field.name) for field in fields(cls)}
        return cls(**{k: v.to(dtype) if isinstance(v, Tensor) else v for k, v in values.items()})


# --- K20: vectors and norms ------------------------------------------------------------------


def transformed_vectors(parts: Parts) -> Tensor:
    """(H, S, D): f^h(x_j) = (x_j W_V^h + b_V^h) W_O^h (K20 sec. 2.2)."""
    values = torch.einsum("sD,hDd->hsd", parts.x, parts.W_V) + parts.b_V[:, None, :]
    return torch.einsum("hsd,hdD->hsD", values, parts.W_O)


def transformed_norms(parts: Parts) -> Tensor:
    """(H, S): ‖f^h(x_j)‖ (K20 sec. 3)."""
    return transformed_vectors(parts).norm(dim=-1)


def weighted_vectors(parts: Parts) -> Tensor:
    """(H, T, S, D): α^h_ij f^h(x_j) (K20 sec. 2.2)."""
    return torch.einsum("hts,hsD->htsD", parts.attention, transformed_vectors(parts))


def weighted_norms(parts: Parts) -> Tensor:
    """(H, T, S): ‖α^h_ij f^h(x_j)‖, taken from the vectors themselves (K20 sec. 3)."""
    return weighted_vectors(parts).norm(dim=-1)


def summed_vectors(parts: Parts) -> Tensor:
    """(T, S, D): Σ_h α^h_ij f^h(x_j) (K20 sec. 3)."""
    return torch.einsum("htsD->tsD", weighted_vectors(parts))


# --- K21: the whole attention block ----------------------------------------------------------


def before_norm(parts: Parts, F: Tensor) -> Tensor:
    """(T, D): y_i = Σ_j Σ_h α^h_ij f^h(x_j) + b_O + x_i from F = Σ_h α f (T, S, D) (K21)."""
    y = added(parts, F, torch.einsum("tsD->tD", F) + parts.b_O)
    return y if parts.residual is None else y + parts.residual


def added(parts: Parts, F: Tensor, v: Tensor) -> Tensor:
    """(T, ..., D): what the residual connection adds of v, a part of the attention output.

    RMSNorm of the whole output Σ_j F + b_O, split as LayerNorm is, where one comes before it.
    """
    if parts.inner_gamma is None:
        return v
    whole = torch.einsum("tsD->tD", F) + parts.b_O
    s = ((whole**2).mean(dim=-1) + parts.inner_eps).sqrt()
    return v / s.reshape(-1, *[1] * (v.ndim - 1)) * parts.inner_gamma


def scale(y: Tensor, eps: float) -> Tensor:
    """(T,): s(y_i) = sqrt(var(y_i) + eps), population variance (K21, LayerNorm)."""
    centred = y - y.mean(dim=-1, keepdim=True)
    return ((centred**2).mean(dim=-1) + eps).sqrt()


def g(v: Tensor, s: Tensor, gamma: Tensor) -> Tensor:
    """(T, ..., D): g_y(v) = (v - m(v)) / s(y) · γ, with s (T,) from the whole y (K21)."""
    s = s.reshape(-1, *[1] * (v.ndim - 1))
    return (v - v.mean(dim=-1, keepdim=True)) / s * gamma


def block_output(parts: Parts) -> Tensor:
    """(T, D): Σ_j g(Σ_h α f(x_j)) + g(x_i) + g(b_O) + β, part by part; no g, no β if no LN."""
    F = summed_vectors(parts)
    terms = list(F.unbind(dim=1))  # S terms (T, D)
    terms.append(parts.b_O.expand_as(terms[0]))
    terms = [added(parts, F, term) for term in terms]
    if parts.residual is not None:
        terms.append(parts.residual)
    if parts.gamma is not None:
        s = scale(before_norm(parts, F), parts.eps)
        terms = [g(term, s, parts.gamma) for term in terms]
    if parts.beta is not None:
        terms.append(parts.beta.expand_as(terms[0]))
    total = torch.zeros_like(terms[0])
    for term in terms:
        total = total + term
    return total


def part_vectors(parts: Parts, stage: str) -> Tensor:
    """(T, S, D): F_i(x_j) of a norm stage; its residual part sits on the diagonal (K21)."""
    if stage not in ("Attn-N", "AttnRes-N", "AttnResLn-N"):
        raise ValueError(f"no vectors at stage {stage!r}")
    F = summed_vectors(parts)
    if stage == "Attn-N":
        return F
    if parts.residual is None:
        raise ValueError(f"{stage} needs a residual connection")
    with_x = added(parts, F, F) + torch.einsum("ts,tD->tsD", identity(F), parts.residual)
    if stage == "AttnRes-N":
        return with_x
    if parts.gamma is None:
        raise ValueError(f"{stage} needs a LayerNorm after the residual")
    return g(with_x, scale(before_norm(parts, F), parts.eps), parts.gamma)


def stage_map(parts: Parts, stage: str) -> Tensor:
    """(T, S): Attn-W mean_h α; AttnRes-W 0.5 A + 0.5 I; norm stages ‖F_i(x_j)‖ (K20, K21)."""
    A = parts.attention.mean(dim=0)
    if stage == "Attn-W":
        return A
    if stage == "AttnRes-W":
        return 0.5 * A + 0.5 * identity(A)
    return part_vectors(parts, stage).norm(dim=-1)


def mixing_ratio(parts: Parts, stage: str) -> Tensor:
    """(T,): r_i = ‖Σ_{j≠i} F_i(x_j)‖ / (‖Σ_{j≠i} F_i(x_j)‖ + ‖F_i(x_i)‖), 0/0 = 0 (K21)."""
    if stage in ("Attn-W", "AttnRes-W"):
        A = parts.attention.mean(dim=0)
        identity(A)  # checks that T = S
        r = 1 - A.diagonal()
        return r if stage == "Attn-W" else r / 2
    F = part_vectors(parts, stage)
    own = identity(F)
    mix = torch.einsum("ts,tsD->tD", 1 - own, F).norm(dim=-1)
    keep = torch.einsum("ts,tsD->tD", own, F).norm(dim=-1)
    both = mix + keep
    return torch.where(both > 0, mix / both, torch.zeros_like(both))


def whole_layer_vectors(parts: Parts, y2: Tensor, gamma2: Tensor, eps2: float) -> Tensor:
    """(T, S, D): the parts of AttnResLn-N split again by the layer's second LayerNorm (G22).

    y2 (T, D) is what that LayerNorm reads: feed-forward output plus its residual.
    """
    return g(part_vectors(parts, "AttnResLn-N"), scale(y2, eps2), gamma2)


def expansion_rate(W_V: Tensor, W_O: Tensor, b_V: Tensor, b_O: Tensor) -> float:
    """Number: Frobenius norm of [[W_V W_O, 0], [b_V W_O + b_O, 1]] / sqrt(D + 1) (K21)."""
    D = b_O.shape[0]
    M = b_O.new_zeros(D + 1, D + 1)
    M[:D, :D] = torch.einsum("hDd,hdE->DE", W_V, W_O)
    M[D, :D] = torch.einsum("hd,hdD->D", b_V, W_O) + b_O
    M[D, D] = 1
    return (M.norm() / (D + 1) ** 0.5).item()


def identity(like: Tensor) -> Tensor:
    """(T, T): [i = j], for a tensor whose first two sizes are T and S; T must equal S."""
    T, S = like.shape[:2]
    if T != S:
        raise ValueError(f"token i must be its own key: T = {T}, S = {S}")
    return torch.eye(T, dtype=like.dtype, device=like.device)


# --- AZ20: rollout and flow ------------------------------------------------------------------


def with_residual(maps: Tensor, residual: float | Tensor = 0.5) -> Tensor:
    """(L, T, T): Â_l, rows normalised, then mixed with the identity (AZ20; K21 for 1 - r_i).

    A number c gives Â = (1 - c) A + c I. A tensor (L, T) holds 1 - r_i and gives
    Â_ii = 1 - r_i, Â_ij = r_i a_ij / (1 - a_ii); if a_ii = 1 the row is the identity row.
    """
    L, T, _ = maps.shape
    mixed = torch.zeros_like(maps)
    for n in range(L):
        for i in range(T):
            total = maps[n, i].sum()
            if not total > 0:
                raise ValueError(f"row {i} of map {n} has no positive sum")
            a = maps[n, i] / total
            others = sum(a[j] for j in range(T) if j != i)  # 1 - a_ii
            for j in range(T):
                own = 1.0 if i == j else 0.0
                if not isinstance(residual, Tensor):
                    mixed[n, i, j] = (1 - residual) * a[j] + residual * own
                elif others == 0:
                    mixed[n, i, j] = own
                elif i == j:
                    mixed[n, i, j] = residual[n, i]
                else:
                    mixed[n, i, j] = (1 - residual[n, i]) * a[j] / others
    return mixed


def rollout(maps: Tensor, residual: float | Tensor = 0.5) -> Tensor:
    """(L, T, T): R_1 = Â_1, R_l = Â_l R_{l-1}, from maps (L, T, T) (AZ20, rollout)."""
    A = with_residual(maps, residual)
    L, T, _ = A.shape
    R = torch.zeros_like(A)
    R[0] = A[0]
    for n in range(1, L):
        for i in range(T):
            for k in range(T):
                R[n, i] += A[n, i, k] * R[n - 1, k]
    return R


def max_flow(
    maps: Tensor, layer: int, query: int, key: int, residual: float | Tensor = 0.5
) -> float:
    """Number: maximum flow from node (layer, query) to (0, key), layer in 1..L (AZ20, flow).

    Edge (l, i) -> (l - 1, j) has capacity Â_l[i, j]. Not divided by the row sum.
    """
    L, T, _ = maps.shape
    if not 1 <= layer <= L:
        raise ValueError(f"layer must be in 1..{L}, got {layer}")
    A = with_residual(maps[:layer], residual).tolist()
    graph = nx.DiGraph()
    for n in range(1, layer + 1):
        for i in range(T):
            for j in range(T):
                graph.add_edge((n, i), (n - 1, j), capacity=A[n - 1][i][j])
    edmonds_karp = nx.algorithms.flow.edmonds_karp
    value = nx.maximum_flow_value(graph, (layer, query), (0, key), flow_func=edmonds_karp)
    return float(value)
