"""Quantised weights, activations and caches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_LINEAR = {"N": (4, 16), "D": (16, 4096), "F": (8, 4096)}


@wild("x[N,D] w[F,D]:i8 s[F]:positive", **_LINEAR)
def int8_weights(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype)) * (s * 0.01)


@wild("x[N,D] w[F,D]:i8 s[F,G]:positive", **_LINEAR, G=(4, 32))
def grouped_int8_weights(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    full = w.view(*s.shape, -1).to(x.dtype) * s[..., None] * 0.01
    return x @ full.flatten(1).t()


@wild("x[N,D] w[F,H]:u8 s[F,1]:positive", **_LINEAR, H=(8, 2048))
def packed_int4_weights(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    low, high = (w & 0xF).to(torch.int8) - 8, (w >> 4).to(torch.int8) - 8
    full = torch.stack((low, high), dim=-1).flatten(-2).to(x.dtype)
    return F.linear(x, full * s * 0.1)


@wild("x[N,D] codes[F,D]:int<16> table[16] s[F,1]:positive", **_LINEAR)
def table_weights(x: Tensor, codes: Tensor, table: Tensor, s: Tensor) -> Tensor:
    return F.linear(x, table[codes] * s * 0.1)


@wild("x[N,D]", N=(4, 2048), D=(16, 4096))
def int8_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


@wild("x[N,D]", N=(4, 2048), D=(16, 4096))
def fake_quantised(x: Tensor) -> Tensor:
    scale = 127.0 / x.abs().max(dim=-1, keepdim=True).values.clamp_(min=1e-5)
    return (x * scale).round().clamp_(-128, 127) / scale


@wild("x[N,D] w[F,D]", **_LINEAR)
def ternary_linear(x: Tensor, w: Tensor) -> Tensor:
    scale = 1.0 / w.abs().mean().clamp(min=1e-5)
    return F.linear(x, (w * scale).round().clamp(-1, 1) / scale)


@wild("x[N,D]", N=(4, 2048), D=(16, 4096))
def fp8_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-4) / 448.0
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


@wild("x[N,D] w[F,D] s[P,Q]:positive", N=(4, 16), D=(16, 4096), F=(8, 4096), P=(2, 32), Q=(4, 32))
def block_scaled_weights(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    rows, columns = s.shape
    parts = w.view(rows, w.shape[0] // rows, columns, -1)
    return F.linear(x, (parts * s[:, None, :, None]).view_as(w))


@wild("x[N,D] w[F,D]:i8 xs[N,1]:positive ws[F]:positive", **_LINEAR)
def int8_product(x: Tensor, w: Tensor, xs: Tensor, ws: Tensor) -> Tensor:
    q = (x / xs * 10).round().clamp(-127, 127).to(torch.int8)
    total = q.to(torch.int32) @ w.to(torch.int32).t()
    return total.to(x.dtype) * xs * ws * 0.001


@wild("x[N,D] s[D]:positive w[F,D]", N=(4, 2048), D=(16, 4096), F=(8, 4096))
def smoothed_linear(x: Tensor, s: Tensor, w: Tensor) -> Tensor:
    smooth = s.clamp(min=1e-5).sqrt()
    return F.linear(x / smooth, w * smooth)


@wild("x[N,K] q[K,M]:i32 shifts[E]:int<29> scale[G,L]:unit",
      N=(2, 16), K=(16, 4096), M=(2, 512), E=(8, 8), G=(2, 32), L=(16, 4096))  # fmt: skip
def interleaved_int4_weights(x: Tensor, q: Tensor, shifts: Tensor, scale: Tensor) -> Tensor:
    w = torch.bitwise_right_shift(q[:, :, None], shifts).to(torch.int8).flatten(1)
    order = torch.arange(w.shape[1], device=x.device).view(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]]
    w = torch.bitwise_and(w[:, order.reshape(-1)], 15) - 8
    return x @ (w * scale.repeat_interleave(x.shape[1] // scale.shape[0], dim=0)).to(x.dtype)
