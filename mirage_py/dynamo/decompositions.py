"""Which operators AOTAutograd takes apart before anything else sees them.

What the front end has a handler for stays whole: silu, softmax, the norms, attention. What it
lacks, but can say with others (gradients of activations and norms, ``addcmul`` ...), is taken apart
by torch's own rules. Everything else stays whole too: whoever runs the rest knows best what to do
with an embedding or a convolution, and Inductor takes its graphs apart by its own table anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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
    # gradients of normalisations
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_layer_norm_backward",
    "native_group_norm_backward",
    "_fused_rms_norm_backward",
    # norms whose results are several: the mean and the deviation are wanted by the backward graph
    "native_layer_norm",
    "_fused_rms_norm",
    "var_mean",
    # arithmetic in one call
    "addcmul",
    "addcdiv",
    "lerp",
    "softplus",
    "mse_loss",
    "mse_loss_backward",
    "huber_loss",
    "smooth_l1_loss",
    "hardswish",
    "hardsigmoid",
    "mish",
    "frobenius_norm",
    "norm",
    "glu",
    "glu_backward",
)


@functools.cache
def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """The table for AOTAutograd: operator -> rule."""
    from torch._decomp import get_decompositions

    from mirage_py.frontend.torch.handlers import HANDLERS

    packets = [getattr(torch.ops.aten, n) for n in _TAKEN_APART if hasattr(torch.ops.aten, n)]
    rules = get_decompositions(packets)
    return {op: rule for op, rule in rules.items() if str(op) not in HANDLERS}
