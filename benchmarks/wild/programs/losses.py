"""Losses and log-probabilities of training and alignment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_LOGITS = {"N": (12, 4096), "V": (40, 32000)}
_RL = {"B": (4, 64), "T": (12, 1024)}
_PAIRS = {"N": (8, 1024), "D": (16, 768)}


@wild("logits[N,V] labels[N]:int<V>", **_LOGITS)
def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels)


@wild("logits[B,T,V] labels[B,T]:int<V> keep[B,T]:bool", B=(2, 2), T=(8, 1024), V=(40, 32000))
def shifted_cross_entropy(logits: Tensor, labels: Tensor, keep: Tensor) -> Tensor:
    labels = labels.masked_fill(~keep, -100)
    flat = logits[:, :-1].reshape(-1, logits.shape[-1]).float()
    return F.cross_entropy(flat, labels[:, 1:].reshape(-1), ignore_index=-100)


@wild("logits[N,V] labels[N]:int<V>", **_LOGITS)
def smoothed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    logs = F.log_softmax(logits, dim=-1)
    picked = -logs.gather(-1, labels.unsqueeze(1)).squeeze(1)
    return (0.9 * picked - 0.1 * logs.mean(-1)).mean()


@wild("x[N,D] w[V,D] labels[N]:int<V>", N=(12, 2048), D=(16, 2048), V=(40, 32000))
def head_log_probs(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    logits = F.linear(x, w).float()
    return logits.gather(1, labels[:, None]).squeeze(1) - torch.logsumexp(logits, -1)


@wild("x[N,D] w[V,D]", N=(12, 512), D=(16, 4096), V=(40, 32000))
def head_log_sum_exp(x: Tensor, w: Tensor) -> Tensor:
    return torch.logsumexp(F.linear(x, w).float(), -1)


@wild("student[N,V] teacher[N,V]", **_LOGITS)
def distillation(student: Tensor, teacher: Tensor) -> Tensor:
    goal = F.softmax(teacher / 2.0, dim=-1)
    return F.kl_div(F.log_softmax(student / 2.0, dim=-1), goal, reduction="batchmean") * 4.0


@wild("student[N,V] teacher[N,V]", **_LOGITS)
def jensen_shannon(student: Tensor, teacher: Tensor) -> Tensor:
    p, q = student.softmax(-1), teacher.softmax(-1)
    middle = (0.5 * (p + q)).clamp_min(1e-8).log()
    left = (p * (p.clamp_min(1e-8).log() - middle)).sum(-1)
    right = (q * (q.clamp_min(1e-8).log() - middle)).sum(-1)
    return 0.5 * (left + right)


@wild("logits[N,V]", **_LOGITS)
def token_entropy(logits: Tensor) -> Tensor:
    p = F.softmax(logits, dim=-1)
    return torch.logsumexp(logits, dim=-1) - (p * logits).sum(-1)


@wild("pc[N] pr[N] rc[N] rr[N]", N=(8, 64))
def preference_loss(pc: Tensor, pr: Tensor, rc: Tensor, rr: Tensor) -> Tensor:
    margin = (pc - rc) - (pr - rr)
    return -F.logsigmoid(0.1 * margin).mean()


@wild("new[B,T] old[B,T] adv[B,T] mask[B,T]:bool", **_RL)
def clipped_policy_loss(new: Tensor, old: Tensor, adv: Tensor, mask: Tensor) -> Tensor:
    ratio = torch.exp(new - old)
    loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2))
    return (loss * mask).sum() / mask.sum()


@wild("new[B,T] ref[B,T] reward[B] mask[B,T]:unit", **_RL)
def group_relative_loss(new: Tensor, ref: Tensor, reward: Tensor, mask: Tensor) -> Tensor:
    advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
    kl = torch.exp(ref - new) - (ref - new) - 1
    loss = -(torch.exp(new - new.detach()) * advantage[:, None] - 0.04 * kl)
    return ((loss * mask).sum(1) / mask.sum(1)).mean()


@wild("reward[B,T] value[B,T]", B=(4, 64), T=(12, 64))
def advantages(reward: Tensor, value: Tensor) -> Tensor:
    following = torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1)
    delta = reward + 0.99 * following - value
    last = torch.zeros_like(delta[:, 0])
    found = []
    for t in range(delta.shape[1] - 1, -1, -1):
        last = delta[:, t] + 0.99 * 0.95 * last
        found.append(last)
    return torch.stack(found[::-1], dim=1)


@wild("a[N,D] b[N,D] scale[]", **_PAIRS)
def clip_loss(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    logits = scale.exp() * a @ b.t()
    goal = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(logits, goal) + F.cross_entropy(logits.t(), goal)) / 2


@wild("a[N,D] b[N,D] t[] bias[]", **_PAIRS)
def siglip_loss(a: Tensor, b: Tensor, t: Tensor, bias: Tensor) -> Tensor:
    logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() * t.exp() + bias
    sign = 2 * torch.eye(len(a), device=a.device, dtype=a.dtype) - 1
    return -F.logsigmoid(sign * logits).sum() / len(a)


@wild("x[N,V] y[N,V]:unit", N=(8, 512), V=(20, 1000))
def focal_loss(x: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    pt = p * y + (1 - p) * (1 - y)
    return ((0.25 * y + 0.75 * (1 - y)) * ce * (1 - pt) ** 2).mean()


@wild("x[B,C,S,S] y[B,C,S,S]:unit", B=(2, 16), C=(3, 8), S=(8, 256))
def dice_loss(x: Tensor, y: Tensor) -> Tensor:
    p = x.sigmoid().flatten(1)
    y = y.flatten(1)
    return (1 - (2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)).mean()


@wild("a[N,D] p[N,D] n[N,D]", **_PAIRS)
def triplet_loss(a: Tensor, p: Tensor, n: Tensor) -> Tensor:
    return F.relu((a - p).norm(dim=1) - (a - n).norm(dim=1) + 1.0).mean()


@wild("x[N,D] y[N,D] w[N]", **_PAIRS)
def huber_and_mse(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    huber = F.smooth_l1_loss(x, y, reduction="none").mean(-1)
    return (w.abs() * huber).mean() + F.mse_loss(x, y) + F.l1_loss(x, y)


@wild("x[B,C,S,S] y[B,C,S,S] w[K,K]:unit", B=(2, 4), C=(3, 3), S=(14, 256), K=(11, 11))
def structural_similarity(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    w = (w / w.sum()).expand(x.shape[1], 1, -1, -1)

    def mean(t: Tensor) -> Tensor:
        return F.conv2d(t, w, padding=w.shape[-1] // 2, groups=x.shape[1])

    mx, my = mean(x), mean(y)
    sx, sy, both = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    score = (2 * mx * my + 1e-4) * (2 * both + 9e-4)
    return (score / ((mx**2 + my**2 + 1e-4) * (sx + sy + 9e-4))).mean()
