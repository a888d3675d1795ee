"""Positional encodings and biases."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_HEADS = {"B": (2, 1), "H": (4, 32), "T": (16, 4096), "E": (8, 128)}


def _turned(x: Tensor) -> Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


@wild("q[B,H,T,E] k[B,H,T,E] cos[B,T,E] sin[B,T,E]", **_HEADS)
def rotary_halves(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _turned(q) * sin, k * cos + _turned(k) * sin


@wild("x[B,T,H,E] table[T,F,2]:f32", **_HEADS, F=(4, 64))
def rotary_complex(x: Tensor, table: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.view_as_complex(table)[None, :, None]
    return torch.view_as_real(turned).flatten(3).type_as(x)


@wild("x[B,H,T,E] cos[T,F] sin[T,F]", **_HEADS, F=(4, 64))
def rotary_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


@wild("place[B,T]:int<T> freq[F]:f32", B=(2, 1), T=(16, 4096), F=(4, 64))
def rotary_table(place: Tensor, freq: Tensor) -> tuple[Tensor, Tensor]:
    angles = (freq[None, :, None].expand(place.shape[0], -1, 1) @ place[:, None].float()).mT
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


@wild("x[B,H,T,E] cos[B,T,R] sin[B,T,R]", **_HEADS, R=(4, 32))
def rotary_partial(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = cos.shape[-1]
    turned, kept = x[..., :width], x[..., width:]
    turned = turned * cos[:, None] + _turned(turned) * sin[:, None]
    return torch.cat((turned, kept), dim=-1)


@wild("q[B,H,T,E] cos[3,B,T,E] sin[3,B,T,E]", **_HEADS)
def rotary_sections(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = q.shape[-1]
    parts = [width // 4, width // 4, width // 2]

    def chosen(t: Tensor) -> Tensor:
        split = torch.split(t, parts, dim=-1)
        return torch.cat([part[n % 3] for n, part in enumerate(split)], dim=-1).unsqueeze(1)

    return q * chosen(cos) + _turned(q) * chosen(sin)


@wild("freq[F]:f32", F=(8, 64))
def scaled_frequencies(freq: Tensor) -> Tensor:
    wave = 2 * math.pi / freq.abs().clamp(min=1e-3)
    smooth = (8192 / wave - 1.0) / (4.0 - 1.0)
    mixed = (1 - smooth) * freq / 8 + smooth * freq
    found = torch.where(wave > 8192, freq / 8, freq)
    middle = ~(wave < 2048) * ~(wave > 8192)
    return torch.where(middle, mixed, found)


@wild("x[B,T,D]", B=(2, 1), T=(16, 4096), D=(8, 1024))
def sinusoidal(x: Tensor) -> Tensor:
    _, length, width = x.shape
    place = torch.arange(length, device=x.device, dtype=torch.float32)[:, None]
    step = torch.arange(0, width, 2, device=x.device, dtype=torch.float32)
    angles = place * torch.exp(step * (-math.log(10000.0) / width))
    table = torch.zeros(length, width, device=x.device)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles)
    return x + table.to(x.dtype)


@wild("ids[B,T]:int<V> words[V,D] places[T,D]",
      B=(2, 8), T=(16, 1024), V=(50, 50257), D=(8, 1600))  # fmt: skip
def learned_positions(ids: Tensor, words: Tensor, places: Tensor) -> Tensor:
    index = torch.arange(ids.shape[1], device=ids.device)
    return F.embedding(ids, words) + F.embedding(index, places)


@wild("table[N,H] T", N=(32, 32), H=(4, 16), T=(16, 512))
def t5_buckets(table: Tensor, length: int) -> Tensor:
    place = torch.arange(length, device=table.device)
    distance = (place[:, None] - place[None, :]).clamp(min=0)
    far = 16 + (torch.log(distance.float().clamp(min=1) / 16) / math.log(8) * 16).long()
    bucket = torch.where(distance < 16, distance, far.clamp(max=31))
    return table[bucket].permute(2, 0, 1).unsqueeze(0)


@wild("x[B,T,2] w[2,F]", B=(2, 8), T=(16, 4096), F=(8, 128))
def fourier_features(x: Tensor, w: Tensor) -> Tensor:
    angles = 2 * math.pi * x @ w
    return torch.cat([angles.sin(), angles.cos()], -1)


@wild("x[B,T,D] S", B=(2, 32), T=(16, 1024), D=(8, 1024), S=(4, 32))
def grid_positions(x: Tensor, side: int) -> Tensor:
    rows, columns = torch.meshgrid(
        torch.arange(side, device=x.device), torch.arange(side, device=x.device), indexing="ij"
    )
    quarter = x.shape[-1] // 4
    omega = 1.0 / 10000 ** (torch.arange(quarter, device=x.device) / quarter)
    y, z = (t.flatten()[:, None] * omega[None] for t in (rows, columns))
    return x + torch.cat((z.sin(), z.cos(), y.sin(), y.cos()), dim=1).to(x.dtype)


@wild("scores[B,H,T,T] bias[H,N]", B=(2, 2), H=(4, 16), T=(8, 512), N=(15, 1023))
def relative_bias(scores: Tensor, bias: Tensor) -> Tensor:
    length = scores.shape[-1]
    place = torch.arange(length, device=scores.device)
    index = place[:, None] - place[None, :] + length - 1
    return torch.softmax(scores + bias[:, index], dim=-1)


@wild("scores[B,H,T,T] table[N,H]", B=(2, 8), H=(2, 12), T=(20, 512), N=(32, 32))
def encoder_buckets(scores: Tensor, table: Tensor) -> Tensor:
    place = torch.arange(scores.shape[-1], device=scores.device)
    distance = place[None, :] - place[:, None]
    found = (distance > 0).to(torch.long) * 16
    distance = torch.abs(distance)
    far = 8 + (torch.log(distance.float() / 8) / math.log(16) * 8).to(torch.long)
    far = torch.min(far, torch.full_like(far, 15))
    bucket = found + torch.where(distance < 8, distance, far)
    return torch.softmax(scores + F.embedding(bucket, table).permute(2, 0, 1), dim=-1)
