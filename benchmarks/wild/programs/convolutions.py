"""Convolutions and pooling with the operators around them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.wild.program import wild

_IMAGE = {"B": (2, 16), "C": (4, 128), "S": (8, 56)}


@wild("x[B,3,S,S] w[D,3,P,P] b[D]", B=(2, 32), S=(16, 224), D=(8, 1024), P=(4, 16))
def patch_embedding(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.conv2d(x, w, b, stride=w.shape[-1]).flatten(2).transpose(1, 2)


@wild("x[B,C,S,S] w1[C,C,3,3] w2[C,C,3,3] m[C] v[C]:positive", **_IMAGE)
def residual_block(x: Tensor, w1: Tensor, w2: Tensor, m: Tensor, v: Tensor) -> Tensor:
    y = F.relu(F.batch_norm(F.conv2d(x, w1, padding=1), m, v), inplace=True)
    return F.relu(F.batch_norm(F.conv2d(y, w2, padding=1), m, v) + x)


@wild("x[B,C,S,S] w[C,1,7,7] b[C] g[C] w1[C,F] w2[F,C] s[C]", **_IMAGE, F=(16, 512))
def convnext_block(
    x: Tensor, w: Tensor, b: Tensor, g: Tensor, w1: Tensor, w2: Tensor, s: Tensor
) -> Tensor:
    y = F.conv2d(x, w, b, padding=3, groups=x.shape[1]).permute(0, 2, 3, 1)
    y = F.gelu(F.layer_norm(y, (x.shape[1],), g, None, 1e-6) @ w1) @ w2
    return x + (s * y).permute(0, 3, 1, 2)


@wild("x[B,C,S,S] w1[R,C] w2[C,R]", **_IMAGE, R=(2, 32))
def squeeze_excite(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    pooled = F.adaptive_avg_pool2d(x, 1).flatten(1)
    gate = torch.sigmoid(F.linear(F.relu(F.linear(pooled, w1)), w2))
    return x * gate[:, :, None, None]


@wild("x[B,C,S,S] w[C,C,3,3]", **_IMAGE)
def upsample_convolution(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(F.interpolate(x, scale_factor=2.0, mode="nearest"), w, padding=1)


@wild("x[B,C,S,S] w[D,C,3,3] b[D]", **_IMAGE, D=(6, 256))
def convolution_stem(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.max_pool2d(F.silu(F.conv2d(x, w, b, stride=2, padding=1)), 3, 2, 1)


@wild("x[B,C,S,S] w[C,D,2,2] b[D]", **_IMAGE, D=(2, 64))
def transposed_convolution(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.conv_transpose2d(x, w, b, stride=2))


@wild("x[B,C,S,S] wd[C,1,3,3] wp[D,C,1,1]", **_IMAGE, D=(6, 256))
def separable_convolution(x: Tensor, wd: Tensor, wp: Tensor) -> Tensor:
    return F.relu6(F.conv2d(F.conv2d(x, wd, padding=1, groups=x.shape[1]), wp))


@wild("x[B,C,T] w[D,C,3] b[D]", B=(2, 8), C=(4, 128), T=(16, 3000), D=(8, 1024))
def speech_stem(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.conv1d(x, w, b, stride=2, padding=1)).permute(0, 2, 1)


@wild("x[B,T,D] w1[E,D] wd[D,1,K] w2[D,D] g[D]",
      B=(2, 8), T=(12, 750), D=(8, 512), E=(16, 1024), K=(3, 31))  # fmt: skip
def conformer_convolution(x: Tensor, w1: Tensor, wd: Tensor, w2: Tensor, g: Tensor) -> Tensor:
    y = F.glu(F.linear(x, w1), dim=-1).transpose(1, 2)
    y = F.conv1d(y, wd, padding=wd.shape[-1] // 2, groups=wd.shape[0]).transpose(1, 2)
    return x + F.linear(F.silu(F.layer_norm(y, (x.shape[-1],), g)), w2)


@wild("x[B,C,S,S]", **_IMAGE)
def pooled_pyramid(x: Tensor) -> Tensor:
    first = F.max_pool2d(x, 5, 1, 2)
    second = F.max_pool2d(first, 5, 1, 2)
    return torch.cat((x, first, second, F.avg_pool2d(x, 3, 1, 1)), 1)


@wild("x[B,C,T,S,S] w[D,C,3,3,3]", B=(1, 1), C=(2, 16), T=(4, 16), S=(4, 64), D=(2, 32))
def causal_convolution_3d(x: Tensor, w: Tensor) -> Tensor:
    return F.silu(F.conv3d(F.pad(x, (1, 1, 1, 1, 2, 0)), w))
