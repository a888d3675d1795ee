"""Softmax and the norms, by the expansions that all front ends share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mirage_py.frontend.torch.handlers.casts import cast
from mirage_py.frontend.torch.handlers.reductions import dims_of, logsumexp
from mirage_py.frontend.torch.handlers.registry import handles
from mirage_py.frontend.torch.lower.lowering import Lowering
from mirage_py.ugraph.building import composites, views
from mirage_py.ugraph.building.views import NamedArray


@handles("softmax.int", "_softmax.default")
def softmax(
    t: Lowering, x: NamedArray, dim: int, dtype: torch.dtype | bool | None = None
) -> NamedArray:
    """exp(x) / sum(exp(x)); the third argument of _softmax says half to float, which we are in."""
    x = cast(t, x, dtype) if isinstance(dtype, torch.dtype) else x
    return NamedArray(composites.softmax(t.builder, x.node, dims_of(x, dim)), x.axes)


@handles("_safe_softmax.default")
def safe_softmax(
    t: Lowering, x: NamedArray, dim: int, dtype: torch.dtype | None = None
) -> NamedArray:
    """softmax, and 0 where all of a row is minus infinity."""
    x = cast(t, x, dtype)
    return NamedArray(composites.safe_softmax(t.builder, x.node, dims_of(x, dim)), x.axes)


@handles("log_softmax.int", "_log_softmax.default")
def log_softmax(
    t: Lowering, x: NamedArray, dim: int, dtype: torch.dtype | bool | None = None
) -> NamedArray:
    """x - log(sum(exp(x)))."""
    x = cast(t, x, dtype) if isinstance(dtype, torch.dtype) else x
    return t.apply("sub", x, logsumexp(t, x, dim, keepdim=True))


@handles("rms_norm.default")
def rms_norm(
    t: Lowering,
    x: NamedArray,
    normalized_shape: Sequence[int],
    weight: NamedArray | None = None,
    eps: float | None = None,
) -> NamedArray:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes."""
    dims = dims_of(x, range(-len(normalized_shape), 0))
    # torch's default is the step of the type it computes in, which is float32 for half types.
    step = torch.finfo(torch.float32).eps if eps is None else eps
    result = NamedArray(composites.rms_norm(t.builder, x.node, dims, step), x.axes)
    return result if weight is None else t.apply("mul", result, weight)


@handles("layer_norm.default")
def layer_norm(
    t: Lowering,
    x: NamedArray,
    normalized_shape: Sequence[int],
    weight: NamedArray | None = None,
    bias: NamedArray | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = False,
) -> NamedArray:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes."""
    del cudnn_enable
    dims = dims_of(x, range(-len(normalized_shape), 0))
    result = NamedArray(composites.layer_norm(t.builder, x.node, dims, eps), x.axes)
    if weight is not None:
        result = t.apply("mul", result, weight)
    return result if bias is None else t.apply("add", result, bias)


@handles("batch_norm.default")
def batch_norm(
    t: Lowering,
    x: NamedArray,
    weight: NamedArray | None,
    bias: NamedArray | None,
    running_mean: NamedArray | None,
    running_var: NamedArray | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> NamedArray:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel (axis 1), with the
    statistics of the batch in training, else with the running ones.
    """
    del momentum, cudnn_enabled
    rank = len(x.axes)
    if training and running_mean is None:
        dims = dims_of(x, [n for n in range(rank) if n != 1])
        result = NamedArray(composites.layer_norm(t.builder, x.node, dims, eps), x.axes)
    elif training or running_mean is None or running_var is None:
        raise t.refuse(
            "statistics that a traced batch norm writes",
            why="they were not replaced by results while it was traced",
            repair="call torch.nn.functional.batch_norm, or the module",
        )
    else:
        centred = t.apply("sub", x, _by_channel(running_mean, rank))
        spread = t.apply("sqrt", t.apply("add", running_var, eps))
        result = t.apply("div", centred, _by_channel(spread, rank))
    return _scaled_channels(t, result, weight, bias)


@handles("_native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    t: Lowering,
    x: NamedArray,
    weight: NamedArray | None,
    bias: NamedArray | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[NamedArray, None, None]:
    """batch_norm as torch's decompositions leave it; the statistics are for a backward pass."""
    result = batch_norm(t, x, weight, bias, None, None, training, momentum, eps, False)
    return result, None, None


@handles("_native_batch_norm_legit_no_training.default")
def batch_norm_of_running(
    t: Lowering,
    x: NamedArray,
    weight: NamedArray | None,
    bias: NamedArray | None,
    running_mean: NamedArray,
    running_var: NamedArray,
    momentum: float,
    eps: float,
) -> tuple[NamedArray, None, None]:
    """batch_norm with running statistics, as torch's decompositions leave it."""
    result = batch_norm(t, x, weight, bias, running_mean, running_var, False, momentum, eps, False)
    return result, None, None


@handles("instance_norm.default")
def instance_norm(
    t: Lowering,
    x: NamedArray,
    weight: NamedArray | None,
    bias: NamedArray | None,
    running_mean: NamedArray | None,
    running_var: NamedArray | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> NamedArray:
    """batch_norm with statistics of each sample and channel."""
    if not use_input_stats:
        return batch_norm(
            t, x, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
        )
    if running_mean is not None:
        raise t.refuse(
            "an instance norm that writes running statistics",
            why="a program computes new tensors and changes none",
            repair="pass track_running_stats=False",
        )
    dims = dims_of(x, range(2, len(x.axes)))
    result = NamedArray(composites.layer_norm(t.builder, x.node, dims, eps), x.axes)
    return _scaled_channels(t, result, weight, bias)


@handles("group_norm.default")
def group_norm(
    t: Lowering,
    x: NamedArray,
    num_groups: int,
    weight: NamedArray | None = None,
    bias: NamedArray | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> NamedArray:
    """layer_norm over groups of channels (axis 1) and all axes after them."""
    del cudnn_enabled
    shape = t.shape(x)
    grouped = views.reshape(t.builder, x, (shape[0], num_groups, -1))
    if not t.builder.is_stored(x.node):
        # A residual is computed once: what else reads it finds the channels in groups, too.
        t.in_groups[x] = views.reshape(t.builder, grouped, shape)
    node = composites.layer_norm(t.builder, grouped.node, dims_of(grouped, -1), eps)
    result = views.reshape(t.builder, NamedArray(node, grouped.axes), shape)
    return _scaled_channels(t, result, weight, bias)


def _scaled_channels(
    t: Lowering, x: NamedArray, weight: NamedArray | None, bias: NamedArray | None
) -> NamedArray:
    """x * weight + bias, both one number for each channel."""
    for op, factor in (("mul", weight), ("add", bias)):
        if factor is not None:
            x = t.apply(op, x, _by_channel(factor, len(x.axes)))
    return x


def _by_channel(x: NamedArray, rank: int) -> NamedArray:
    """One number for each channel, beside arrays of the rank."""
    return NamedArray(x.node, (*x.axes, *((),) * (rank - 2)))
