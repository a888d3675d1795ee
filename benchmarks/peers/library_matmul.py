"""The vendor's matmul with compiled functions around it, as an engineer would put it by hand.

Weights that multiply the same rows are concatenated ahead of time, biases and residuals go into the
matmul, and what is left between matmuls is compiled. Each program has one function, which makes its
calls from ``product``: ``product(x, w1, w2, add=c)`` is ``x @ [w1 | w2] + c``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.peers.compiled import compiled
from benchmarks.peers.prepared import Prepared

Call = Callable[..., Any]
Product = Callable[..., Tensor]

_EPS = 1e-6


def matmul_peers(program_name: str) -> dict[str, Call]:
    """Both layouts of the weights: rows as given, and as ``torch.nn.Linear`` holds them."""
    if program_name in _ONE_WEIGHT:
        build, given = _ONE_WEIGHT[program_name], "cublas"
    elif program_name in _SEVERAL_WEIGHTS:
        build, given = _SEVERAL_WEIGHTS[program_name], "cublas_concat"
    else:
        return {}
    prepared = Prepared()
    return {
        given: build(_product(prepared, given, _concatenated)),
        "cublas_linear": build(_product(prepared, "cublas_linear", _as_linear)),
    }


def _product(prepared: Prepared, name: str, layout: Callable[..., Tensor]) -> Product:
    def product(x: Tensor, *weights: Tensor, add: Tensor | None = None) -> Tensor:
        weight = prepared(name, layout, *weights)
        return x @ weight if add is None else torch.addmm(add, x, weight)

    return product


def _concatenated(*weights: Tensor) -> Tensor:
    return torch.cat(weights, dim=1) if len(weights) > 1 else weights[0]


def _as_linear(*weights: Tensor) -> Tensor:
    """Columns of the weights are contiguous."""
    return torch.cat(weights, dim=1).t().contiguous().t()


def _split(joint: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The columns that belong to each weight."""
    return torch.split(joint, [w.shape[1] for w in weights], dim=1)


# -- what is compiled ------------------------------------------------------------------------------


def _norm(x: Tensor, g: Tensor) -> Tensor:
    return F.rms_norm(x, g.shape, g, _EPS)


def _gemma_norm(x: Tensor, g: Tensor) -> Tensor:
    return F.rms_norm(x, g.shape, 1 + g, _EPS)


def _add_norm(x: Tensor, r: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    residual = x + r
    return residual, F.rms_norm(residual, g.shape, g, _EPS)


def _gemma_norm_add(o: Tensor, g: Tensor, r: Tensor) -> Tensor:
    return r + F.rms_norm(o, g.shape, 1 + g, _EPS)


def _layer_norm(x: Tensor, g: Tensor, z: Tensor) -> Tensor:
    return F.layer_norm(x, g.shape, g, z, 1e-5)


def _silu_gate(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, dim=-1)
    return F.silu(gate) * up


def _gelu_gate(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


def _silu_times(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


# -- the programs ----------------------------------------------------------------------------------


def _norm_matmul(product: Product) -> Call:
    norm = compiled(_norm)
    return lambda x, g, w: product(norm(x, g), w)


def _gemma_norm_qkv(product: Product) -> Call:
    norm = compiled(_gemma_norm)
    return lambda x, g, w: product(norm(x, g), w)


def _norm_q_k_v(product: Product) -> Call:
    norm = compiled(_norm)

    def call(x: Tensor, g: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        joint = product(norm(x, g), *weights)
        return _split(joint, weights)

    return call


def _gated_mlp(product: Product) -> Call:
    gate = compiled(_silu_gate)
    return lambda x, w1, w2: gate(product(x, w1, w2))


def _norm_gated_mlp(product: Product) -> Call:
    norm, gate = compiled(_norm), compiled(_silu_gate)
    return lambda x, g, w1, w2: gate(product(norm(x, g), w1, w2))


def _gemma_norm_gated_mlp(product: Product) -> Call:
    norm, gate = compiled(_gemma_norm), compiled(_gelu_gate)
    return lambda x, g, w1, w2: gate(product(norm(x, g), w1, w2))


def _residual_norm_mlp(product: Product) -> Call:
    norm, gate = compiled(_add_norm), compiled(_silu_gate)

    def call(x: Tensor, r: Tensor, g: Tensor, w1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor]:
        residual, h = norm(x, r, g)
        return residual, gate(product(h, w1, w2))

    return call


def _residual_norm_mlp_down(product: Product) -> Call:
    up = _residual_norm_mlp(product)

    def call(x: Tensor, r: Tensor, g: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        residual, y = up(x, r, g, w1, w2)
        return product(y, w3, add=residual)

    return call


def _projection_residual(product: Product) -> Call:
    return lambda x, w, r: product(x, w, add=r)


def _gemma_projection_norm_residual(product: Product) -> Call:
    norm_add = compiled(_gemma_norm_add)
    return lambda x, w, g, r: norm_add(product(x, w), g, r)


def _layernorm_linear(product: Product) -> Call:
    norm = compiled(_layer_norm)
    return lambda x, g, z, w, c: product(norm(x, g, z), w, add=c)


def _layernorm_linear_gelu(product: Product) -> Call:
    linear, gelu = _layernorm_linear(product), compiled(_gelu)
    return lambda x, g, z, w, c: gelu(linear(x, g, z, w, c))


def _lora(product: Product) -> Call:
    def call(x: Tensor, w: Tensor, a: Tensor, c: Tensor) -> Tensor:
        wide, narrow = _split(product(x, w, a), (w, a))
        return torch.addmm(wide, narrow, c)

    return call


def _lora_gated_mlp(product: Product) -> Call:
    times = compiled(_silu_times)

    def call(
        x: Tensor, w1: Tensor, a1: Tensor, c1: Tensor, w2: Tensor, a2: Tensor, c2: Tensor
    ) -> Tensor:
        weights = (w1, w2, a1, a2)
        gate, up, low1, low2 = _split(product(x, *weights), weights)
        found: Tensor = times(torch.addmm(gate, low1, c1), torch.addmm(up, low2, c2))
        return found

    return call


_ONE_WEIGHT: Mapping[str, Callable[[Product], Call]] = {
    "rmsnorm_matmul": _norm_matmul,
    "norm_qkv": _norm_matmul,
    "gemma_norm_qkv": _gemma_norm_qkv,
    "projection_residual": _projection_residual,
    "gemma_projection_norm_residual": _gemma_projection_norm_residual,
    "layernorm_linear": _layernorm_linear,
    "layernorm_linear_gelu": _layernorm_linear_gelu,
}
_SEVERAL_WEIGHTS: Mapping[str, Callable[[Product], Call]] = {
    "gated_mlp": _gated_mlp,
    "norm_gated_mlp": _norm_gated_mlp,
    "gemma_norm_gated_mlp": _gemma_norm_gated_mlp,
    "residual_norm_mlp": _residual_norm_mlp,
    "residual_norm_mlp_down": _residual_norm_mlp_down,
    "norm_q_k_v": _norm_q_k_v,
    "lora": _lora,
    "lora_gated_mlp": _lora_gated_mlp,
}
