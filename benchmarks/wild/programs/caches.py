"""Keys and values of earlier tokens: written in place, appended, looked up in pages, quantised."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_TOKEN = {"B": (2, 16), "H": (4, 32), "S": (16, 4096), "E": (8, 128)}
_CACHE = "keys[B,H,S,E] values[B,H,S,E]"
_NEW = "k[B,H,1,E] v[B,H,1,E]"


@wild(f"q[B,H,1,E] {_NEW} {_CACHE} place[1]:int<S>", **_TOKEN)
def static_cache(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, place: Tensor
) -> Tensor:
    keys.index_copy_(2, place, k)
    values.index_copy_(2, place, v)
    seen = torch.arange(keys.shape[2], device=q.device) <= place
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[None, None, None])


@wild(f"{_NEW} {_CACHE} T", **_TOKEN, T=(5, 1000))
def slice_cache(
    k: Tensor, v: Tensor, keys: Tensor, values: Tensor, place: int
) -> tuple[Tensor, Tensor]:
    keys[:, :, place : place + 1] = k
    values[:, :, place : place + 1] = v
    return keys[:, :, : place + 1], values[:, :, : place + 1]


@wild(f"q[B,H,1,E] {_NEW} {_CACHE}", **_TOKEN)
def grown_cache(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    keys = torch.cat((keys, k), dim=2)
    values = torch.cat((values, v), dim=2)
    return F.scaled_dot_product_attention(q, keys, values), keys, values


@wild(
    "q[B,H,E] pages[N,P,2,H,E] table[B,M]:int<N> length[B]:int<S>",
    B=(2, 16), H=(4, 32), E=(8, 128), N=(12, 1024), P=(4, 16), M=(4, 64), S=(16, 1024),
)  # fmt: skip
def paged_cache(q: Tensor, pages: Tensor, table: Tensor, length: Tensor) -> Tensor:
    found = pages[table].flatten(1, 2)
    keys, values = found.unbind(2)
    scores = torch.einsum("bhe,bshe->bhs", q, keys) * q.shape[-1] ** -0.5
    place = torch.arange(keys.shape[1], device=q.device)
    scores = scores.masked_fill(place > length[:, None, None], float("-inf"))
    return torch.einsum("bhs,bshe->bhe", scores.softmax(-1), values)


@wild(
    "q[B,H,1,E] keys[B,H,S,E]:i8 values[B,H,S,E]:i8 ks[B,H,S,1] vs[B,H,S,1]",
    **_TOKEN,
)
def int8_cache(q: Tensor, keys: Tensor, values: Tensor, ks: Tensor, vs: Tensor) -> Tensor:
    k = keys.to(q.dtype) * (ks.abs() / 127)
    v = values.to(q.dtype) * (vs.abs() / 127)
    return F.scaled_dot_product_attention(q, k, v)


@wild(f"{_NEW} {_CACHE}", **_TOKEN)
def rolling_cache(k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    keys = torch.roll(keys, -1, dims=2)
    values = torch.roll(values, -1, dims=2)
    keys[:, :, -1:] = k
    values[:, :, -1:] = v
    return keys, values


@wild(f"{_CACHE} keep[B,K]:int<S>", **_TOKEN, K=(6, 512))
def evicted_cache(keys: Tensor, values: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    index = keep[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3])
    return keys.gather(2, index), values.gather(2, index)


@wild(f"{_NEW} {_CACHE} slot[B]:int<S>", **_TOKEN)
def scattered_cache(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slot: Tensor) -> Tensor:
    rows = torch.arange(keys.shape[0], device=k.device)
    keys[rows, :, slot] = k[:, :, 0]
    values[rows, :, slot] = v[:, :, 0]
    return keys.sum(2) + values.sum(2)


@wild(f"q[B,H,1,E] {_CACHE} pk[1,H,P,E] pv[1,H,P,E]", **_TOKEN, P=(4, 64))
def prefix_cache(q: Tensor, keys: Tensor, values: Tensor, pk: Tensor, pv: Tensor) -> Tensor:
    batch = q.shape[0]
    keys = torch.cat([pk.expand(batch, -1, -1, -1), keys], 2)
    values = torch.cat([pv.expand(batch, -1, -1, -1), values], 2)
    return F.scaled_dot_product_attention(q, keys, values)


@wild("q[B,G,R,E] keys[B,G,S,E] values[B,G,S,E] length[B]:int<S>",
      B=(2, 16), G=(2, 8), R=(2, 4), S=(16, 4096), E=(8, 128))  # fmt: skip
def ragged_decode(q: Tensor, keys: Tensor, values: Tensor, length: Tensor) -> Tensor:
    place = torch.arange(keys.shape[2], device=q.device)
    seen = place[None] <= length[:, None]
    scores = (q @ keys.mT).float() * q.shape[-1] ** -0.5
    scores = torch.where(seen[:, None, None], scores, float("-inf"))
    return scores.softmax(-1).to(values.dtype) @ values


@wild("o1[B,H,E] l1[B,H]:f32 o2[B,H,E] l2[B,H]:f32", B=(2, 64), H=(4, 32), E=(8, 128))
def merged_attention(o1: Tensor, l1: Tensor, o2: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    top = torch.maximum(l1, l2)
    a, b = torch.exp(l1 - top), torch.exp(l2 - top)
    out = (o1 * a[..., None] + o2 * b[..., None]) / (a + b)[..., None]
    return out.to(o1.dtype), top + torch.log(a + b)
