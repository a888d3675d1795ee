"""The programs of this folder as torch functions; parameters are the inputs of the specs, in order.

Eager PyTorch as people write it, with the library's own attention, norms and losses.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-6


def residual_norm_mlp(
    x: Tensor, r: Tensor, g: Tensor, w1: Tensor, w2: Tensor
) -> tuple[Tensor, Tensor]:
    residual = x + r
    h = F.rms_norm(residual, g.shape, g, EPS)
    return residual, F.silu(h @ w1) * (h @ w2)


def residual_norm_mlp_down(
    x: Tensor, r: Tensor, g: Tensor, w1: Tensor, w2: Tensor, w3: Tensor
) -> Tensor:
    residual, y = residual_norm_mlp(x, r, g, w1, w2)
    return residual + y @ w3


def qknorm_attention_out(
    q: Tensor, k: Tensor, v: Tensor, gq: Tensor, gk: Tensor, w: Tensor
) -> Tensor:
    q, k = F.rms_norm(q, gq.shape, gq, EPS), F.rms_norm(k, gk.shape, gk, EPS)
    heads = F.scaled_dot_product_attention(q, k, v)
    return heads.transpose(1, 2).flatten(2) @ w.flatten(0, 1)


def layernorm_linear_gelu(x: Tensor, g: Tensor, z: Tensor, w: Tensor, c: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, g.shape, g, z, 1e-5) @ w + c)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def decode_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def sliding_window_attention(q: Tensor, k: Tensor, v: Tensor, window: int = 1024) -> Tensor:
    t = torch.arange(q.shape[2], device=q.device)
    distance = t[:, None] - t[None, :]
    seen = (distance >= 0) & (distance < window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def softcap_attention(q: Tensor, k: Tensor, v: Tensor, cap: float = 50.0) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    capped = cap * torch.tanh(scores / cap)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return torch.softmax(capped.masked_fill(~seen, float("-inf")), dim=-1) @ v


def cross_entropy(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy((x @ w).float(), labels.long(), reduction="none")


def cross_entropy_shifted(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    logits = (x @ w).float()
    shift = logits.amax(-1, keepdim=True)
    lse = (logits - shift).exp().sum(-1).log() + shift.squeeze(-1)
    return lse - logits.gather(-1, labels.long()[:, None]).squeeze(-1)


def lora_gated_mlp(
    x: Tensor, w1: Tensor, a1: Tensor, c1: Tensor, w2: Tensor, a2: Tensor, c2: Tensor
) -> Tensor:
    return F.silu(x @ w1 + (x @ a1) @ c1) * (x @ w2 + (x @ a2) @ c2)


def transformer_block(
    x: Tensor,
    r: Tensor,
    g: Tensor,
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wo: Tensor,
    n: Tensor,
    w1: Tensor,
    w2: Tensor,
    w3: Tensor,
) -> Tensor:
    residual = x + r
    h = F.rms_norm(residual, g.shape, g, EPS)
    q, k, v = (torch.einsum("td,dhe->hte", h, w) for w in (wq, wk, wv))
    heads = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    y = residual + torch.einsum("hte,hem->tm", heads, wo)
    z = F.rms_norm(y, n.shape, n, EPS)
    return y + (F.silu(z @ w1) * (z @ w2)) @ w3
