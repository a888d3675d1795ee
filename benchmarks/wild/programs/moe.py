"""Mixtures of experts: routing, dispatch, experts, the losses of a router."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_ROUTER = {"N": (12, 4096), "D": (16, 2048), "X": (8, 64)}


@wild("x[N,D] w[D,X]", **_ROUTER)
def softmax_router(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    weights = F.softmax(x @ w, dim=1, dtype=torch.float)
    weights, chosen = torch.topk(weights, 2, dim=-1)
    weights /= weights.sum(dim=-1, keepdim=True)
    return weights.to(x.dtype), chosen


@wild("x[N,D] w[D,X] bias[X]:f32", **_ROUTER)
def sigmoid_router(x: Tensor, w: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    scores = (x.float() @ w.float()).sigmoid()
    by_group = (scores + bias).view(len(x), 4, -1)
    groups = by_group.topk(2, dim=-1)[0].sum(-1).topk(2, dim=-1)[1]
    mask = torch.zeros(len(x), 4, device=x.device).scatter_(1, groups, 1.0)
    open_ = by_group.masked_fill(mask.unsqueeze(-1) == 0, 0.0).flatten(1)
    chosen = open_.topk(2, dim=-1)[1]
    weights = scores.gather(1, chosen)
    return weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5, chosen


@wild("x[N,D] w[D,X]", **_ROUTER)
def topk_then_softmax(x: Tensor, w: Tensor) -> Tensor:
    values, chosen = (x @ w).topk(4, dim=-1, sorted=True)
    return torch.zeros(len(x), w.shape[1], dtype=x.dtype, device=x.device).scatter(
        1, chosen, values.softmax(-1)
    )


@wild("x[N,D] w[D,X]", **_ROUTER)
def switch_router(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    weights = (x @ w).softmax(-1)
    gate, chosen = weights.max(dim=-1)
    return gate.unsqueeze(-1), F.one_hot(chosen, w.shape[1])


@wild("x[N,D] w1[X,D,F] w2[X,F,D] gate[N,X]", N=(12, 256), D=(16, 2048), F=(8, 1024), X=(4, 16))
def dense_experts(x: Tensor, w1: Tensor, w2: Tensor, gate: Tensor) -> Tensor:
    hidden = torch.einsum("nd,xdf->nxf", x, w1 * 0.02)
    out = torch.einsum("nxf,xfd->nxd", F.silu(hidden), w2 * 0.02)
    return torch.einsum("nxd,nx->nd", out, gate.softmax(-1))


@wild(
    "x[N,D] w1[X,F,D] w2[X,D,F] chosen[N,K]:int<X> gate[N,K]",
    N=(4, 4), D=(16, 2048), F=(8, 1024), X=(4, 64), K=(2, 8),
)  # fmt: skip
def gathered_experts(x: Tensor, w1: Tensor, w2: Tensor, chosen: Tensor, gate: Tensor) -> Tensor:
    hidden = F.silu(torch.einsum("nd,nkfd->nkf", x, w1[chosen]))
    return torch.einsum("nkf,nkdf,nk->nd", hidden, w2[chosen], gate)


@wild("x[X,N,D] w[X,D,F] b[X,F]", X=(4, 32), N=(6, 128), D=(16, 2880), F=(8, 2880))
def batched_experts(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    both = torch.bmm(x, w * 0.02) + b[..., None, :]
    gate, up = both[..., ::2], both[..., 1::2]
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


@wild("logits[N,X]", N=(12, 4096), X=(8, 64))
def balance_loss(logits: Tensor) -> Tensor:
    weights = logits.softmax(-1)
    _, chosen = torch.topk(weights, 2, dim=-1)
    mask = F.one_hot(chosen, logits.shape[1]).float()
    return (mask.mean(0) * weights.mean(0).unsqueeze(0)).sum() * logits.shape[1]


@wild("logits[N,X]", N=(12, 4096), X=(8, 64))
def router_z_loss(logits: Tensor) -> Tensor:
    return torch.logsumexp(logits.float(), dim=-1).square().mean()


@wild("x[N,D] w1[D,F] w2[D,F] w3[F,D] ws[D,1] routed[N,D]",
      N=(12, 1024), D=(16, 2048), F=(32, 5632))  # fmt: skip
def shared_expert(
    x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, ws: Tensor, routed: Tensor
) -> Tensor:
    shared = (F.silu(x @ w1) * (x @ w2)) @ w3
    return routed + torch.sigmoid(x @ ws) * shared


@wild("chosen[N,K]:int<X> X", N=(12, 1024), K=(2, 2), X=(4, 64))
def capacity_places(chosen: Tensor, experts: int) -> Tensor:
    mask = F.one_hot(chosen.flatten(), experts)
    place = (mask.cumsum(0) - 1) * mask
    return place.sum(-1).view(chosen.shape)


@wild("y[M,D] token[M]:int<N> gate[M] N", M=(24, 8192), D=(16, 2048), N=(12, 4096))
def combined_experts(y: Tensor, token: Tensor, gate: Tensor, count: int) -> Tensor:
    out = torch.zeros(count, y.shape[1], dtype=y.dtype, device=y.device)
    out.index_add_(0, token, y * gate[:, None])
    return out


@wild("x[N,D] w[D,X]", **_ROUTER)
def expert_choice(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    scores = (x @ w).softmax(-1)
    gate, rows = scores.t().topk(4, dim=-1)
    return gate.unsqueeze(-1) * x[rows], rows
