"""Norms with the operators around them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_ROWS = {"B": (2, 4), "T": (8, 2048), "D": (16, 4096)}


@wild("x[B,T,D] g[D]", **_ROWS)
def rms_norm_upcast(x: Tensor, g: Tensor) -> Tensor:
    kind = x.dtype
    x = x.to(torch.float32)
    variance = x.pow(2).mean(-1, keepdim=True)
    return g * (x * torch.rsqrt(variance + 1e-6)).to(kind)


@wild("x[B,T,D] r[B,T,D] g[D]", **_ROWS)
def add_rms_norm(x: Tensor, r: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    total = x + r
    scale = torch.rsqrt(total.float().square().mean(dim=-1, keepdim=True) + 1e-5)
    return (total.float() * scale).to(x.dtype) * (1.0 + g), total


@wild("x[B,T,D] r[B,T,D] g[D] b[D]", **_ROWS)
def post_layer_norm(x: Tensor, r: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(r * 0.81 + x, (x.shape[-1],), g, b, 1e-12)


@wild("x[B,T,D] g[D] b[D]", **_ROWS)
def layer_norm_by_hand(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    std = x.std(-1, keepdim=True, unbiased=False)
    return g * (x - mean) / (std + 1e-6) + b


@wild("x[B,T,D] shift[B,D] scale[B,D]", **_ROWS)
def modulated_norm(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    normed = F.layer_norm(x, (x.shape[-1],), eps=1e-6)
    return normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


@wild("x[B,C,S,S] g[C] b[C]", B=(2, 8), C=(8, 320), S=(4, 64))
def group_norm_silu(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, 4, g, b, 1e-5))


@wild("x[B,C,S,S] g[C] b[C]", B=(2, 16), C=(8, 192), S=(4, 56))
def channel_norm(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    mean = x.mean(1, keepdim=True)
    variance = (x - mean).pow(2).mean(1, keepdim=True)
    return g[:, None, None] * ((x - mean) / torch.sqrt(variance + 1e-6)) + b[:, None, None]


@wild("x[B,C,S,S] g[C] b[C]", B=(2, 8), C=(8, 128), S=(4, 128))
def instance_norm(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return F.leaky_relu(F.instance_norm(x, weight=g, bias=b), 0.2)


@wild("x[B,C,S,S] mean[C] var[C]:positive g[C] b[C]", B=(2, 32), C=(8, 256), S=(4, 28))
def batch_norm_relu(x: Tensor, mean: Tensor, var: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var, g, b, training=False))


@wild("x[B,C,S,S] mean[C] var[C]:positive g[C] b[C]", B=(4, 32), C=(8, 256), S=(4, 28))
def batch_norm_training(x: Tensor, mean: Tensor, var: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return F.batch_norm(x, mean, var, g, b, training=True, momentum=0.1)


@wild("x[B,T,D] a[] g[D] b[D]", **_ROWS)
def dynamic_tanh(x: Tensor, a: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(a * x) * g + b


@wild("x[B,T,D] g[]", **_ROWS)
def scale_norm(x: Tensor, g: Tensor) -> Tensor:
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return g * x / length.clamp(min=1e-5)


@wild("x[B,T,D]", **_ROWS)
def unit_vectors(x: Tensor) -> Tensor:
    return F.normalize(x, p=2.0, dim=-1)


@wild("x[B,T,D] v[F,D] g[F]", **_ROWS, F=(8, 1024))
def weight_norm_linear(x: Tensor, v: Tensor, g: Tensor) -> Tensor:
    w = v * (g / torch.linalg.vector_norm(v, dim=1)).unsqueeze(1)
    return F.linear(x, w)


@wild("x[B,T,D] z[B,T,D] g[D]", **_ROWS)
def gated_rms_norm(x: Tensor, z: Tensor, g: Tensor) -> Tensor:
    y = x.float() * F.silu(z.float())
    return (g * y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


@wild("x[B,C,S,S] g[C] b[C]", B=(2, 16), C=(8, 192), S=(4, 56))
def response_norm(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    energy: Tensor = torch.norm(x, p=2, dim=(2, 3), keepdim=True)
    share = energy / (energy.mean(dim=1, keepdim=True) + 1e-6)
    return g.view(1, -1, 1, 1) * (x * share) + b.view(1, -1, 1, 1) + x
