"""From logits to tokens; helpers of speculative decoding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_LOGITS = {"B": (3, 64), "V": (40, 128256)}


@wild("logits[B,V]", **_LOGITS)
def greedy(logits: Tensor) -> Tensor:
    return logits.argmax(dim=-1, keepdim=True)


@wild("logits[B,V]", **_LOGITS)
def top_k_filter(logits: Tensor) -> Tensor:
    logits = logits / 0.7
    last = torch.topk(logits, 10)[0][..., -1, None]
    return F.softmax(logits.masked_fill(logits < last, -float("inf")), dim=-1)


@wild("logits[B,V]", **_LOGITS)
def top_p_filter(logits: Tensor) -> Tensor:
    ordered, index = torch.sort(logits, descending=False)
    total = ordered.softmax(dim=-1).cumsum(dim=-1)
    drop = total <= 0.1
    drop[..., -1:] = False
    return logits.masked_fill(drop.scatter(1, index, drop), -float("inf"))


@wild("logits[B,V]", **_LOGITS)
def min_p_filter(logits: Tensor) -> Tensor:
    p = torch.softmax(logits, dim=-1)
    top = p.amax(dim=-1, keepdim=True)
    return logits.masked_fill(p < 0.05 * top, -float("inf"))


@wild("logits[B,V] ids[B,T]:int<V>", **_LOGITS, T=(6, 512))
def repetition_penalty(logits: Tensor, ids: Tensor) -> Tensor:
    score = torch.gather(logits, 1, ids)
    score = torch.where(score < 0, score * 1.2, score / 1.2)
    return logits.scatter(1, ids, score)


@wild("logits[B,V] counts[B,V]", **_LOGITS)
def frequency_penalty(logits: Tensor, counts: Tensor) -> Tensor:
    logits = logits.float()
    logits -= 0.5 * counts
    logits -= 0.3 * (counts > 0)
    return logits.div_(0.8).softmax(-1)


@wild("logits[B,V] noise[B,V]:positive", **_LOGITS)
def exponential_race(logits: Tensor, noise: Tensor) -> Tensor:
    return torch.argmax(torch.softmax(logits.float(), -1) / noise, dim=-1)


@wild("logits[B,V] u[B,V]:positive", **_LOGITS)
def gumbel_scores(logits: Tensor, u: Tensor) -> Tensor:
    return logits - torch.log(-torch.log(u * 0.5 + 1e-4) + 1e-9)


@wild("logits[B,V]", **_LOGITS)
def typical_shift(logits: Tensor) -> Tensor:
    logs = torch.nn.functional.log_softmax(logits, dim=-1)
    p = torch.exp(logs)
    entropy = -(logs * p).nansum(-1, keepdim=True)
    return torch.abs(-logs - entropy)


@wild("scores[B,K] logits[B,K,V]", B=(2, 8), K=(3, 4), V=(40, 32000))
def beam_step(scores: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    total = scores[..., None] + logits.log_softmax(-1)
    best, index = total.flatten(1).topk(2 * scores.shape[1])
    return best, index // logits.shape[-1], index % logits.shape[-1]


@wild("logits[B,V] ids[B]:int<V>", **_LOGITS)
def chosen_log_prob(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    logs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    picked = logs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return picked, (logs > picked.unsqueeze(-1)).sum(-1)


@wild("draft[B,K,V] target[B,K,V] ids[B,K]:int<V> u[B,K]:unit",
      B=(2, 16), K=(3, 5), V=(40, 32000))  # fmt: skip
def draft_acceptance(draft: Tensor, target: Tensor, ids: Tensor, u: Tensor) -> Tensor:
    p = draft.softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    q = target.softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    accepted = u < (q / p).clamp(max=1.0)
    return accepted.long().cumprod(dim=1).sum(1)


@wild("draft[B,V] target[B,V]", **_LOGITS)
def residual_distribution(draft: Tensor, target: Tensor) -> Tensor:
    rest = torch.clamp(target.softmax(-1) - draft.softmax(-1), min=0)
    return rest / rest.sum(-1, keepdim=True)


@wild("parent[N]:int<N> N", N=(8, 64))
def tree_mask(parent: Tensor, count: int) -> Tensor:
    seen = torch.eye(count, dtype=torch.bool, device=parent.device)
    for n in range(1, min(count, 8)):
        seen[n] |= seen.index_select(0, parent[n : n + 1] % n)[0]
    return seen


@wild("cond[B,V] free[B,V] allowed[V]:bool", **_LOGITS)
def guided_logits(cond: Tensor, free: Tensor, allowed: Tensor) -> Tensor:
    cond, free = cond.log_softmax(-1), free.log_softmax(-1)
    mixed = 1.5 * (cond - free) + free
    return torch.where(allowed, mixed, float("-inf"))
