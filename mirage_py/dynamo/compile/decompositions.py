"""The decompositions that AOTAutograd applies before any other pass.

What the front end has a handler for stays whole: silu, softmax, the norms, attention. What it
lacks, but can say with others (gradients of activations and norms, ``addcmul``, shuffles of pixels
...), is decomposed by torch's own rules. Everything else stays whole too: the Inductor fallback
knows best what to do with an embedding or a convolution, and Inductor decomposes its graphs by its
own table anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

# By name, all overloads that torch has a rule for.
_TAKEN_APART = (
    # gradients of activations
    "silu_backward",
    "gelu_backward",
    "sigmoid_backward",
    "tanh_backward",
    "threshold_backward",
    "elu_backward",
    "leaky_relu_backward",
    "hardtanh_backward",
    "softplus_backward",
    "log_sigmoid_backward",
    "mish_backward",
    "hardswish_backward",
    "hardsigmoid_backward",
    "hardshrink_backward",
    "softshrink_backward",
    "_prelu_kernel_backward",
    "logit_backward",
    # gradients of normalisations
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_layer_norm_backward",
    "native_group_norm_backward",
    "_fused_rms_norm_backward",
    # a norm with two results: the backward graph wants the deviation
    "_fused_rms_norm",
    # arithmetic in one call
    "addcmul",
    "addcdiv",
    "lerp",
    "mse_loss",
    "mse_loss_backward",
    "huber_loss",
    "smooth_l1_loss",
    "hardsigmoid",
    "frobenius_norm",
    "norm",
    "glu",
    "glu_backward",
    "_prelu_kernel",
    "celu",
    "hardshrink",
    "softshrink",
    "threshold",
    "log_sigmoid_forward",
    "logit",
    "xlogy",
    "logaddexp",
    "logaddexp2",
    "heaviside",
    "linalg_cross",
    "count_nonzero",
    "isin",
    "sinc",
    "special_entr",
    "special_xlog1py",
    "special_ndtr",
    "deg2rad",
    "rad2deg",
    "isposinf",
    "isneginf",
    "nansum",
    "aminmax",
    "dist",
    "renorm",
    "mv",
    "dot",
    "_weight_norm_interface",
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "binary_cross_entropy_with_logits",
    "soft_margin_loss",
    "soft_margin_loss_backward",
    "smooth_l1_loss_backward",
    "huber_loss_backward",
    # other places for the same elements
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "rot90",
    "diag_embed",
    "block_diag",
    "unsafe_split",
    "unsafe_split_with_sizes",
    # positions and what is made of them
    "linspace",
    "eye",
)


@functools.cache
def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """The table for AOTAutograd: operator -> rule."""
    from torch._decomp import get_decompositions

    from mirage_py.frontend.torch.handlers import HANDLERS

    packets = [getattr(torch.ops.aten, n) for n in _TAKEN_APART if hasattr(torch.ops.aten, n)]
    rules = get_decompositions(packets)
    rules |= _OWN_RULES
    return {op: rule for op, rule in rules.items() if str(op) not in HANDLERS}


# torch's rules for these end in primitives of its own.


def _native_layer_norm(
    x: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The norm, and the mean and the inverse deviation that the backward graph wants. The operator
    writes rows in their order, however ``x`` lies: somebody may have taken a view of its result.
    """
    axes = list(range(-len(shape), 0))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = wide.mean(axes, keepdim=True)
    centred = wide - mean
    inverse = torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)
    result = centred * inverse
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return result.to(x.dtype).contiguous(), mean, inverse


def _native_group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    samples: int,
    channels: int,
    extent: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The norm, and the mean and the inverse deviation that the backward graph wants. On the CPU
    the operator keeps channels last, elsewhere it does not.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    # Of no sample, -1 would say nothing.
    wide = wide.reshape(samples, groups, channels // groups * extent)
    mean = wide.mean(-1, keepdim=True)
    inverse = torch.rsqrt(wide.var(-1, correction=0, keepdim=True) + eps)
    result = ((wide - mean) * inverse).reshape(samples, channels, *x.shape[2:])
    ones = (1,) * (x.dim() - 2)
    if weight is not None:
        result = result * weight.reshape(channels, *ones)
    if bias is not None:
        result = result + bias.reshape(channels, *ones)
    layout = torch.contiguous_format
    if x.device.type == "cpu":
        layout = torch._prims_common.suggest_memory_format(x)  # noqa: SLF001
    parts = (samples, groups)
    return (
        result.to(x.dtype).contiguous(memory_format=layout),
        mean.reshape(parts),
        inverse.reshape(parts),
    )


def _var_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    axes = list(range(x.dim())) if dim is None else list(dim)
    step = 1 if correction is None else correction
    return torch.var(x, axes, correction=step, keepdim=keepdim), x.mean(axes, keepdim=keepdim)


_OWN_RULES: dict[torch._ops.OperatorBase, Callable[..., Any]] = {
    torch.ops.aten.native_layer_norm.default: _native_layer_norm,
    torch.ops.aten.native_group_norm.default: _native_group_norm,
    torch.ops.aten.var_mean.correction: _var_mean,
}
