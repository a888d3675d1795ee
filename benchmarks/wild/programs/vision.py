"""Vision models: patches, windows, tokens, boxes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_TOKENS = {"B": (2, 32), "T": (16, 256), "D": (8, 1024)}
_WINDOW = {"B": (2, 32), "S": (8, 56), "C": (8, 96), "W": (4, 7)}


@wild("x[B,3,S,S] w[K,D] P", B=(2, 32), S=(8, 224), P=(4, 16), K=(48, 768), D=(8, 1024))
def patchify(x: Tensor, w: Tensor, patch: int) -> Tensor:
    batch, channels, side, _ = x.shape
    count = side // patch
    y = x.reshape(batch, channels, count, patch, count, patch)
    return torch.einsum("bchpwq->bhwpqc", y).reshape(batch, count**2, -1) @ w


@wild("x[B,T,D] cls[1,1,D] place[1,N,D]", **_TOKENS, N=(17, 257))
def class_token(x: Tensor, cls: Tensor, place: Tensor) -> Tensor:
    return torch.cat((cls.expand(len(x), -1, -1), x), dim=1) + place


@wild("x[B,S,S,C] W", **_WINDOW)
def shifted_windows(x: Tensor, window: int) -> Tensor:
    batch, side, _, width = x.shape
    x = torch.roll(x, shifts=(-(window // 2), -(window // 2)), dims=(1, 2))
    x = x.view(batch, side // window, window, side // window, window, width)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, width)


@wild("q[N,H,W,E] k[N,H,W,E] v[N,H,W,E] table[K,H] index[W,W]:int<K>",
      N=(4, 2048), H=(2, 3), W=(16, 49), E=(4, 32), K=(49, 169))  # fmt: skip
def window_bias_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor, index: Tensor) -> Tensor:
    bias = table[index.view(-1)].view(*index.shape, -1).permute(2, 0, 1).contiguous()
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1) + bias.unsqueeze(0)
    return (F.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)


@wild("x[B,S,S,C] g[D4] b[D4] w[D4,D2]", **_WINDOW, D4=(32, 384), D2=(16, 192))
def patch_merging(x: Tensor, g: Tensor, b: Tensor, w: Tensor) -> Tensor:
    parts = [x[:, i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
    return F.layer_norm(torch.cat(parts, -1), g.shape, g, b) @ w


@wild("x[B,T,D] y[B,T,D] s[D] keep[B,1,1]:positive", **_TOKENS)
def layer_scale_drop_path(x: Tensor, y: Tensor, s: Tensor, keep: Tensor) -> Tensor:
    return x + (y * s) * torch.floor(keep).div(0.9)


@wild("x[B,T,D] q[1,H,1,E] wk[D,D] wv[D,D]", **_TOKENS, H=(2, 16), E=(4, 64))
def attention_pooling(x: Tensor, q: Tensor, wk: Tensor, wv: Tensor) -> Tensor:
    batch, length, width = x.shape
    heads = q.shape[1]
    k, v = ((x @ w).view(batch, length, heads, -1).transpose(1, 2) for w in (wk, wv))
    q = q.expand(batch, -1, -1, -1)
    return F.scaled_dot_product_attention(q, k, v).reshape(batch, width)


@wild("x[B,T,D]", **_TOKENS)
def token_similarity(x: Tensor) -> tuple[Tensor, Tensor]:
    metric = x / x.norm(dim=-1, keepdim=True)
    a, b = metric[..., ::2, :], metric[..., 1::2, :]
    best, index = (a @ b.transpose(-1, -2)).max(dim=-1)
    return best, index


@wild("x[B,T,D] S", **_TOKENS, S=(4, 16))
def pixel_shuffle_tokens(x: Tensor, side: int) -> Tensor:
    batch, _, width = x.shape
    x = x.view(batch, side, side // 2, width * 2).permute(0, 2, 1, 3).contiguous()
    return x.view(batch, side // 2, side // 2, width * 4).permute(0, 2, 1, 3).flatten(1, 2)


@wild("a[N,4]:positive b[M,4]:positive", N=(6, 1024), M=(5, 1024))
def box_overlap(a: Tensor, b: Tensor) -> Tensor:
    a, b = (torch.cat([t[:, :2], t[:, :2] + t[:, 2:]], 1) for t in (a, b))
    area = [(t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1]) for t in (a, b)]
    low = torch.max(a[:, None, :2], b[:, :2])
    high = torch.min(a[:, None, 2:], b[:, 2:])
    size = (high - low).clamp(min=0)
    inter = size[..., 0] * size[..., 1]
    return inter / (area[0][:, None] + area[1] - inter)


@wild("x[B,C,S,S]", B=(2, 8), C=(4, 256), S=(4, 32))
def resized_features(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


@wild("x[B,3,S,S] mean[3] std[3]:positive", B=(2, 32), S=(8, 224))
def normalised_pixels(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    x = torch.flip(x, dims=[-1])
    return (x - mean[:, None, None]) / std[:, None, None]


@wild("x[B,T,D] keep[B,K]:int<T>", **_TOKENS, K=(4, 64))
def masked_patches(x: Tensor, keep: Tensor) -> Tensor:
    return torch.gather(x, 1, keep.unsqueeze(-1).repeat(1, 1, x.shape[-1]))


@wild("x[B,D,S,S] grid[B,S,S,2]:unit", B=(2, 8), D=(4, 64), S=(4, 64))
def sampled_features(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid * 2 - 1, align_corners=False)
