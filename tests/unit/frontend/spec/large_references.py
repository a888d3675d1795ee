"""The programs of examples/large in plain NumPy, written without the project."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Outputs = dict[str, Array]


def _norm(x: Array, gain: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _attend(scores: Array, v: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def _scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])


def _distance(t: int) -> NDArray[np.int64]:
    """How far before each query each key is."""
    return np.arange(t)[:, None] - np.arange(t)[None, :]


def residual_norm_mlp(X: Array, R: Array, G: Array, W1: Array, W2: Array) -> Outputs:
    h = _norm(X + R, G)
    return {"H": X + R, "Y": _silu(h @ W1) * (h @ W2)}


def residual_norm_mlp_down(
    X: Array, R: Array, G: Array, W1: Array, W2: Array, W3: Array
) -> Outputs:
    h = _norm(X + R, G)
    return {"Z": X + R + (_silu(h @ W1) * (h @ W2)) @ W3}


def qknorm_attention_out(Q: Array, K: Array, V: Array, GQ: Array, GK: Array, W: Array) -> Outputs:
    attended = _attend(_scores(_norm(Q, GQ), _norm(K, GK)), V)
    return {"O": np.tensordot(attended, W, axes=([1, 3], [0, 1]))}


def layernorm_linear_gelu(X: Array, G: Array, Z: Array, W: Array, C: Array) -> Outputs:
    deviation = np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    h = (X - X.mean(-1, keepdims=True)) / deviation * G + Z
    y = h @ W + C
    return {"Y": y * (1 + np.vectorize(math.erf)(y / math.sqrt(2))) / 2}


def causal_attention(Q: Array, K: Array, V: Array) -> Outputs:
    seen = _distance(Q.shape[2]) >= 0
    return {"O": _attend(np.where(seen, _scores(Q, K), -np.inf), V)}


def decode_attention(Q: Array, K: Array, V: Array) -> Outputs:
    return {"O": _attend(_scores(Q, K), V)}


def sliding_window_attention(Q: Array, K: Array, V: Array, window: int = 4) -> Outputs:
    distance = _distance(Q.shape[2])
    seen = (distance >= 0) & (distance < window)
    return {"O": _attend(np.where(seen, _scores(Q, K), -np.inf), V)}


def softcap_attention(Q: Array, K: Array, V: Array, cap: float = 5) -> Outputs:
    seen = _distance(Q.shape[2]) >= 0
    capped = cap * np.tanh(_scores(Q, K) / cap)
    return {"O": _attend(np.where(seen, capped, -np.inf), V)}


def cross_entropy(X: Array, W: Array, L: Array) -> Outputs:
    logits = X @ W
    label = logits[np.arange(len(L)), L.astype(int)]
    return {"Y": np.log(np.exp(logits).sum(-1)) - label}


def lora_gated_mlp(
    X: Array, W1: Array, A1: Array, C1: Array, W2: Array, A2: Array, C2: Array
) -> Outputs:
    return {"Y": _silu(X @ (W1 + A1 @ C1)) * (X @ (W2 + A2 @ C2))}


def transformer_block(
    X: Array,
    R: Array,
    G: Array,
    WQ: Array,
    WK: Array,
    WV: Array,
    WO: Array,
    N: Array,
    W1: Array,
    W2: Array,
    W3: Array,
) -> Outputs:
    x = X + R
    q, k, v = (np.tensordot(_norm(x, G), w, axes=1).swapaxes(0, 1) for w in (WQ, WK, WV))
    attended = _attend(np.where(_distance(len(x)) >= 0, _scores(q, k), -np.inf), v)
    y = x + np.tensordot(attended, WO, axes=([0, 2], [0, 1]))
    h = _norm(y, N)
    return {"Z": y + (_silu(h @ W1) * (h @ W2)) @ W3}


REFERENCES: dict[str, Callable[..., Outputs]] = {
    "causal_attention": causal_attention,
    "cross_entropy": cross_entropy,
    "cross_entropy_shifted": cross_entropy,
    "decode_attention": decode_attention,
    "layernorm_linear_gelu": layernorm_linear_gelu,
    "lora_gated_mlp": lora_gated_mlp,
    "qknorm_attention_out": qknorm_attention_out,
    "residual_norm_mlp": residual_norm_mlp,
    "residual_norm_mlp_down": residual_norm_mlp_down,
    "sliding_window_attention": sliding_window_attention,
    "softcap_attention": softcap_attention,
}

# Too large to be searched whole.
PARTITIONED: dict[str, Callable[..., Outputs]] = {"transformer_block": transformer_block}
