"""The layers of this folder as torch functions; parameters are the inputs of the specs, in order.

Eager PyTorch as people write it, with the library's own norms and attention.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

EPS = 1e-6


def norm_qkv(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, g.shape, g, EPS) @ w


def norm_q_k_v(
    x: Tensor, g: Tensor, wq: Tensor, wk: Tensor, wv: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    h = F.rms_norm(x, g.shape, g, EPS)
    return h @ wq, h @ wk, h @ wv


def norm_gated_mlp(x: Tensor, g: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    h = F.rms_norm(x, g.shape, g, EPS)
    return F.silu(h @ w1) * (h @ w2)


def projection_residual(x: Tensor, w: Tensor, r: Tensor) -> Tensor:
    return r + x @ w


def gemma_norm_qkv(x: Tensor, g: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, g.shape, 1 + g, EPS) @ w


def gemma_norm_gated_mlp(x: Tensor, g: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    h = F.rms_norm(x, g.shape, 1 + g, EPS)
    return F.gelu(h @ w1, approximate="tanh") * (h @ w2)


def gemma_projection_norm_residual(x: Tensor, w: Tensor, g: Tensor, r: Tensor) -> Tensor:
    return r + F.rms_norm(x @ w, g.shape, 1 + g, EPS)


def token_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads = q.flatten(1, 2).unsqueeze(2)
    return F.scaled_dot_product_attention(heads, k, v, enable_gqa=True).view_as(q)


def qknorm_token_attention(q: Tensor, n: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return token_attention(F.rms_norm(q, n.shape, n, EPS), k, v)


def prompt_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
