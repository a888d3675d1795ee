"""Diffusion models: embeddings of time, blocks, samplers' steps, losses."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_LATENT = {"B": (2, 8), "C": (4, 16), "S": (8, 128)}
_BLOCK = {"B": (2, 2), "T": (8, 4096), "D": (16, 1536)}


@wild("t[B]:positive D", B=(2, 64), D=(16, 256))
def timestep_embedding(t: Tensor, width: int) -> Tensor:
    half = width // 2
    freq = torch.exp(-math.log(10000) * torch.arange(half, device=t.device).float() / half)
    angles = t[:, None].float() * freq[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


@wild("x[B,T,D] y[B,T,D] c[B,D] w[D,E] b[E]", **_BLOCK, E=(48, 4608))
def zero_modulation(x: Tensor, y: Tensor, c: Tensor, w: Tensor, b: Tensor) -> Tensor:
    shift, scale, gate = (F.silu(c) @ w + b).chunk(3, dim=1)
    x = x + gate.unsqueeze(1) * y
    normed = F.layer_norm(x, (x.shape[-1],), None, None, 1e-6)
    return normed * (1 + scale[:, None]) + shift[:, None]


@wild("both[B,C,S,S] scale[]", **_LATENT)
def classifier_free_guidance(both: Tensor, scale: Tensor) -> Tensor:
    free, cond = both.chunk(2)
    return free + scale * (cond - free)


@wild("cond[B,C,S,S] free[B,C,S,S]", **_LATENT)
def rescaled_guidance(cond: Tensor, free: Tensor) -> Tensor:
    mixed = free + 7.5 * (cond - free)
    axes = (1, 2, 3)
    ratio = cond.std(dim=axes, keepdim=True) / mixed.std(dim=axes, keepdim=True)
    return 0.7 * mixed * ratio + 0.3 * mixed


@wild("x[B,C,S,S] eps[B,C,S,S] a[T]:positive step[B]:int<T>", **_LATENT, T=(10, 1000))
def ddim_step(x: Tensor, eps: Tensor, a: Tensor, step: Tensor) -> Tensor:
    now = (a[step] * 0.5).view(-1, 1, 1, 1)
    before = (a[(step - 1).clamp(min=0)] * 0.5).view(-1, 1, 1, 1)
    clean = (x - (1 - now).sqrt() * eps) / now.sqrt()
    return before.sqrt() * clean.clamp(-1, 1) + (1 - before).sqrt() * eps


@wild("x[B,C,S,S] v[B,C,S,S] s[] n[]", **_LATENT)
def euler_step(x: Tensor, v: Tensor, s: Tensor, n: Tensor) -> Tensor:
    return (x.float() + (n - s) * v.float()).to(x.dtype)


@wild("x[B,C,S,S] noise[B,C,S,S] v[B,C,S,S] t[B]:unit", **_LATENT)
def flow_matching_loss(x: Tensor, noise: Tensor, v: Tensor, t: Tensor) -> Tensor:
    t = t.view(-1, 1, 1, 1)
    noisy = (1 - t) * x + t * noise
    return F.mse_loss(v + 0 * noisy, noise - x, reduction="none").mean(dim=(1, 2, 3)).mean()


@wild("e[B,C,S,S] noise[B,C,S,S] a[B]:positive", **_LATENT)
def min_snr_loss(e: Tensor, noise: Tensor, a: Tensor) -> Tensor:
    snr = a / (2.0 - a)
    weight = torch.stack([snr, 5 * torch.ones_like(snr)], dim=1).min(dim=1)[0] / snr
    return (weight * (e - noise).square().mean(dim=[1, 2, 3])).mean()


@wild("moments[B,C,S,S] noise[B,H,S,S]", **_LATENT, H=(2, 8))
def latent_sample(moments: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    mean, logvar = torch.chunk(moments, 2, dim=1)
    logvar = torch.clamp(logvar, -30.0, 20.0)
    kl = 0.5 * torch.sum(mean.pow(2) + logvar.exp() - 1.0 - logvar, dim=[1, 2, 3])
    return (mean + torch.exp(0.5 * logvar) * noise) * 0.18215, kl


@wild("x[B,C,S,S] t[B,D] w[C,C,3,3] wt[D,C]", B=(2, 4), C=(8, 320), S=(4, 64), D=(8, 1280))
def time_residual_block(x: Tensor, t: Tensor, w: Tensor, wt: Tensor) -> Tensor:
    y = F.conv2d(F.silu(F.group_norm(x, 4)), w * 0.05, padding=1)
    y = y + (F.silu(t) @ wt)[:, :, None, None]
    return x + F.silu(F.group_norm(y, 4))


@wild("x[B,T,D] c[B,S,D] w[D,E] u[D,E] H", **_BLOCK, S=(4, 154), E=(48, 4608), H=(2, 24))
def joint_attention(x: Tensor, c: Tensor, w: Tensor, u: Tensor, heads: int) -> Tensor:
    both = torch.cat([c @ u, x @ w], dim=1)
    split = both.view(*both.shape[:2], 3, heads, -1)
    q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
    out = F.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).flatten(2)[:, c.shape[1] :]


@wild("x[B,T,D] w[D,E] v[F,D]", **_BLOCK, E=(64, 12288), F=(32, 6144))
def gated_feed_forward(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    hidden, gate = (x @ w).chunk(2, dim=-1)
    return (hidden * F.gelu(gate)) @ v
