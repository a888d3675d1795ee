"""Activations, gated and plain, between the products of an MLP."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_MLP = {"B": (2, 1), "T": (8, 1024), "D": (16, 4096), "F": (32, 11008)}
_WIDE = {"B": (2, 4), "T": (8, 2048), "F": (16, 8192)}


@wild("x[B,T,D] w1[D,F] w2[D,F] w3[F,D]", **_MLP)
def swiglu(x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
    return (F.silu(x @ w1) * (x @ w2)) @ w3


@wild("x[B,T,D] w[D,F] b[F]", **_MLP)
def geglu_packed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    gate, up = (x @ w + b).chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


@wild("x[B,T,F]", **_WIDE)
def clamped_swiglu(x: Tensor) -> Tensor:
    gate, up = x[..., ::2], x[..., 1::2]
    gate = gate.clamp(min=None, max=7.0)
    up = up.clamp(min=-7.0, max=7.0)
    return (up + 1) * gate * torch.sigmoid(gate * 1.702)


@wild("x[B,T,D] w1[D,F] w2[F,D]", **_MLP)
def squared_relu(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    return torch.square(F.relu(x @ w1)) @ w2


@wild("x[B,T,D] w1[D,F] b1[F] w2[F,D] b2[D]", **_MLP)
def gelu_mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    hidden = F.gelu(torch.addmm(b1, x.view(-1, x.shape[-1]), w1))
    return torch.addmm(b2, hidden, w2).view(x.shape)


@wild("x[B,T,F]", **_WIDE)
def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


@wild("x[B,T,F]", **_WIDE)
def gelu_by_hand(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


@wild("x[B,T,F] y[B,T,F]", **_WIDE)
def hard_gate(x: Tensor, y: Tensor) -> Tensor:
    return F.hardswish(x) * F.hardsigmoid(y) + F.relu6(x + y)


@wild("x[B,T,F] y[B,T,F]", **_WIDE)
def mish_gate(x: Tensor, y: Tensor) -> Tensor:
    return F.mish(x) * torch.tanh(F.softplus(y))


@wild("x[B,T,F]", **_WIDE)
def selu_celu(x: Tensor) -> Tensor:
    return F.selu(x) + F.celu(x, 0.5) + F.elu(x, 1.5)


@wild("x[B,T,F] a[F]", **_WIDE)
def snake(x: Tensor, a: Tensor) -> Tensor:
    return x + torch.sin(a * x).pow(2) / (a + 1e-9)


@wild("x[B,T,F] a[F]", **_WIDE)
def prelu_gate(x: Tensor, a: Tensor) -> Tensor:
    return torch.where(x > 0, x, a * x) * F.logsigmoid(x)


@wild("x[B,T,F]", **_WIDE)
def laplace(x: Tensor) -> Tensor:
    return 0.5 * (1.0 + torch.erf((x - 0.707107) / (0.282095 * 2**0.5)))


@wild("x[B,T,D] w1[D,F] w2[D,F]", **_MLP)
def sparse_relu_gate(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    gate = x @ w1
    cutoff = gate.mean(-1, keepdim=True) + gate.std(-1, keepdim=True) * 1.6449
    return F.relu(gate - cutoff) * (x @ w2)
