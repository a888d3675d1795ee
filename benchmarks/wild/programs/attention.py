"""Attention as models spell it out, without a cache."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_SIZES = {"B": (2, 2), "H": (4, 32), "T": (16, 2048), "E": (8, 128)}
_QKV = "q[B,H,T,E] k[B,H,T,E] v[B,H,T,E]"


def _heads(x: Tensor, heads: int) -> Tensor:
    batch, length, _ = x.shape
    return x.view(batch, length, heads, -1).transpose(1, 2)


@wild(
    "x[B,T,D] wq[D,D] wk[D,D] wv[D,D] wo[D,D] H",
    B=(2, 1), T=(16, 2048), D=(32, 4096), H=(4, 32),
)  # fmt: skip
def self_attention(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, heads: int) -> Tensor:
    q, k, v = (_heads(F.linear(x, w), heads) for w in (wq, wk, wv))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(out.transpose(1, 2).reshape(x.shape), wo)


@wild(f"{_QKV} mask[B,1,T,T]", **_SIZES)
def eager_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    weights = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    weights = weights + mask[:, :, :, : k.shape[-2]]
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    weights = F.dropout(weights, p=0.0, training=False)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


@wild(
    "q[B,H,T,E] k[B,G,T,E] v[B,G,T,E]",
    B=(2, 1), H=(4, 32), G=(2, 8), T=(16, 2048), E=(8, 128),
)  # fmt: skip
def grouped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    batch, groups, length, width = k.shape
    times = q.shape[1] // groups
    k, v = (
        t[:, :, None].expand(batch, groups, times, length, width).reshape(q.shape) for t in (k, v)
    )
    scores = q @ k.mT / math.sqrt(width)
    hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


@wild(_QKV, **_SIZES)
def window_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    length = q.shape[2]
    rows = torch.arange(length, device=q.device)
    distance = rows[:, None] - rows[None, :]
    seen = (distance >= 0) & (distance < length // 4)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


@wild(f"{_QKV} slopes[H]:f32", **_SIZES)
def alibi_attention(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    place = torch.arange(q.shape[2], device=q.device)
    offset = (place[None, :] - place[:, None]).float()
    bias = slopes[:, None, None].abs() * offset
    scores = (q @ k.transpose(-1, -2)).float() / math.sqrt(q.shape[-1]) + bias
    scores = torch.where(offset <= 0, scores, torch.finfo(torch.float32).min)
    return torch.softmax(scores, -1).to(v.dtype) @ v


@wild(f"{_QKV} bias[1,H,T,T]", **_SIZES)
def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    # T5 has no scale.
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)


@wild(f"{_QKV} gq[E] gk[E]", **_SIZES)
def normed_attention(q: Tensor, k: Tensor, v: Tensor, gq: Tensor, gk: Tensor) -> Tensor:
    def norm(x: Tensor, g: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return y.to(x.dtype) * g

    return F.scaled_dot_product_attention(norm(q, gq), norm(k, gk), v, is_causal=True)


@wild(_QKV, **_SIZES)
def capped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * q.shape[-1] ** -0.5
    scores = torch.tanh(scores / 50.0) * 50.0
    causal = torch.tril(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device))
    scores = scores.masked_fill(~causal, torch.finfo(scores.dtype).min)
    return torch.einsum("bhts,bhsd->bhtd", scores.float().softmax(-1).type_as(v), v)


@wild(
    "q[B,H,T,E] k[B,H,S,E] v[B,H,S,E] keep[B,S]:bool",
    B=(2, 8), H=(4, 16), T=(12, 512), S=(16, 1500), E=(8, 64),
)  # fmt: skip
def cross_attention(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])


@wild(f"{_QKV} sinks[H]", **_SIZES)
def sink_attention(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    column = sinks.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], -1)
    both = torch.cat([scores, column], dim=-1)
    both = both - both.max(dim=-1, keepdim=True).values
    return F.softmax(both, dim=-1)[..., :-1] @ v


@wild(
    "q[B,H,T,E] k[B,H,T,E] v[B,H,T,E] wl[H,H] ww[H,H]",
    B=(2, 2), H=(4, 8), T=(16, 512), E=(8, 64),
)  # fmt: skip
def talking_heads(q: Tensor, k: Tensor, v: Tensor, wl: Tensor, ww: Tensor) -> Tensor:
    scores = torch.einsum("bhts,hg->bgts", q @ k.mT, wl)
    return torch.einsum("bhts,hg->bgts", scores.softmax(-1), ww) @ v


@wild(
    "q[B,2,H,T,E] k[B,2,H,T,E] v[B,H,T,E] mix[H] g[E]",
    B=(2, 1), H=(4, 16), T=(16, 2048), E=(8, 128),
)  # fmt: skip
def differential_attention(q: Tensor, k: Tensor, v: Tensor, mix: Tensor, g: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
    first, second = weights.unbind(1)
    out = (first - mix.view(1, -1, 1, 1) * second) @ v
    return F.rms_norm(out, (out.shape[-1],), g, 1e-5) * 0.2


@wild(_QKV, B=(2, 2), H=(4, 16), T=(16, 4096), E=(8, 64))
def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    state = torch.einsum("bhtd,bhte->bhde", k, v)
    scale = 1 / (torch.einsum("bhtd,bhd->bht", q, k.sum(2)) + 1e-6)
    return torch.einsum("bhtd,bhde,bht->bhte", q, state, scale)


@wild(
    "q[B,H,E] qr[B,H,R] c[B,S,L] kr[B,S,R] wk[H,E,L] wv[H,L,E]",
    B=(2, 16), H=(4, 128), E=(8, 128), R=(4, 64), S=(16, 4096), L=(16, 512),
)  # fmt: skip
def latent_attention(
    q: Tensor, qr: Tensor, c: Tensor, kr: Tensor, wk: Tensor, wv: Tensor
) -> Tensor:
    absorbed = torch.einsum("bhe,hel->bhl", q, wk * 0.1)
    scores = torch.einsum("bhl,bsl->bhs", absorbed, c) + torch.einsum("bhr,bsr->bhs", qr, kr)
    weights = (scores * (q.shape[-1] + qr.shape[-1]) ** -0.5).softmax(-1, dtype=torch.float32)
    latent = torch.einsum("bhs,bsl->bhl", weights.type_as(c), c)
    return torch.einsum("bhl,hle->bhe", latent, wv)
