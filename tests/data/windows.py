"""Convolutions, pooling and norms as torch functions, each with shapes of its arguments: odd sizes,
strides, paddings, groups.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

_TRANSPOSED = (
    (1, 0, 0, 1, 1),
    (2, 1, 1, 1, 1),
    (3, 1, 0, 2, 1),
    (2, 0, 1, 1, 2),
    (1, 2, 0, 1, 1),
    (2, 3, 1, 2, 2),
)


def _transposed(rank, stride, padding, output_padding, dilation, groups):
    function = (F.conv_transpose1d, F.conv_transpose2d)[rank - 1]
    options = (stride, padding, output_padding, groups, dilation)
    return lambda x, w: function(x, w, None, *options)


# name -> function, shapes. Each of these is one convolution and nothing else.
CONVOLUTIONS = {
    "strided": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), (2, 3, 7, 9), (4, 3, 3, 3)),
    "same": (lambda x, w: F.conv2d(x, w, padding="same", dilation=2), (2, 3, 7, 9), (4, 3, 3, 2)),
    "groups": (
        lambda x, w: F.conv2d(x, w, groups=2, padding=(0, 1), stride=(1, 3)),
        (2, 4, 7, 9),
        (6, 2, 3, 2),
    ),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=4, padding=1), (2, 4, 7, 9), (4, 1, 3, 3)),
    "multiplied": (lambda x, w: F.conv2d(x, w, groups=4, padding=1), (2, 4, 7, 9), (8, 1, 3, 3)),
    "dilated": (lambda x, w: F.conv1d(x, w, padding=2, dilation=2), (2, 3, 11), (4, 3, 3)),
    "one_sample": (lambda x, w: F.conv1d(x, w, padding=2), (3, 11), (4, 3, 3)),
    "three_axes": (
        lambda x, w: F.conv3d(x, w, padding=1, stride=2),
        (1, 2, 5, 4, 6),
        (3, 2, 3, 3, 3),
    ),
    "transposed3": (
        lambda x, w: F.conv_transpose3d(x, w, stride=2, padding=1, output_padding=1),
        (1, 2, 3, 4, 3),
        (2, 3, 3, 3, 3),
    ),
    **{
        f"transposed2_{n}": (_transposed(2, *options), (2, 4, 5, 6), (4, 3, 3, 3))
        for n, options in enumerate(_TRANSPOSED)
    },
    **{
        f"transposed1_{n}": (_transposed(1, *options), (2, 4, 9), (4, 3, 3))
        for n, options in enumerate(_TRANSPOSED)
    },
}

# Those around convolutions, and without any.
OTHERS = {
    "bias": (F.conv2d, (2, 3, 5, 6), (4, 3, 3, 3), (4,)),
    "pointwise": (F.conv2d, (2, 4, 7, 9), (5, 4, 1, 1)),
    "pointwise_strided": (lambda x, w: F.conv2d(x, w, stride=2), (2, 4, 7, 9), (5, 4, 1, 1)),
    "patches": (lambda x, w: F.conv2d(x, w, stride=2), (2, 4, 8, 10), (5, 4, 2, 2)),
    "max": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 7, 9)),
    "max_valid": (lambda x: F.max_pool2d(x, 2), (2, 3, 7, 9)),
    "max_ceil": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), (2, 3, 8, 10)),
    "max_dilated": (lambda x: F.max_pool1d(x, 3, 1, 1, 2), (2, 3, 9)),
    "max_three": (lambda x: F.max_pool3d(x, 2, 2), (2, 3, 4, 5, 6)),
    "max_of_relu": (lambda x: F.max_pool2d(x.relu(), 3, 2, 1), (2, 3, 7, 9)),
    "mean": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 7, 9)),
    "mean_inside": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        (2, 3, 7, 9),
    ),
    "mean_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 3, 8, 10)),
    "mean_ceil_inside": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (2, 3, 8, 10),
    ),
    "mean_one": (lambda x: F.avg_pool1d(x, 4, 2), (2, 3, 9)),
    "mean_divided": (lambda x: F.avg_pool3d(x, 2, 2, divisor_override=3), (2, 3, 4, 5, 6)),
    "global": (lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 7, 9)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (2, 3, 8, 9)),
    "adaptive_max": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (2, 3, 8, 9)),
    "upsampled": (lambda x: F.interpolate(x, scale_factor=2), (2, 3, 4, 5)),
    "upsampled_first": (
        lambda x, w: F.conv2d(F.interpolate(x, scale_factor=2), w, padding=1),
        (2, 3, 4, 5),
        (4, 3, 3, 3),
    ),
    "two": (
        lambda x, w, v: F.conv2d(F.relu(F.conv2d(x, w, padding=1)), v, padding=1),
        (2, 3, 5, 6),
        (4, 3, 3, 3),
        (2, 4, 3, 3),
    ),
    "classifier": (
        lambda x, w, v: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).flatten(1) @ v,
        (2, 3, 4, 6),
        (4, 3, 3, 3),
        (24, 5),
    ),
    "packed": (lambda x, w: torch.mul(*(x @ w).chunk(2, -1)), (5, 6), (6, 8)),
    "padded": (lambda x, w: F.conv2d(F.pad(x, (1, 0, 2, 1)), w), (2, 3, 5, 6), (4, 3, 3, 3)),
    "residual": (lambda x, w: F.conv2d(x.relu(), w, padding=1) + x, (2, 3, 5, 6), (3, 3, 3, 3)),
    "branches": (
        lambda x, w, v: torch.cat(
            [F.conv2d(x, w, padding=1), F.conv2d(x, v, padding=1), F.max_pool2d(x, 3, 1, 1)], 1
        ).relu(),
        (2, 3, 5, 6),
        (4, 3, 3, 3),
        (4, 3, 3, 3),
    ),
    "normalised": (
        lambda x, g, b: F.instance_norm(x, weight=g, bias=b),
        (2, 3, 5, 6),
        (3,),
        (3,),
    ),
    "group_norm": (
        lambda x, g, w: F.conv2d(F.silu(F.group_norm(x, 3, g)), w, padding=1),
        (2, 6, 5, 4),
        (6,),
        (4, 6, 3, 3),
    ),
    "batch": (
        lambda x, m, v, g, b: F.batch_norm(x, m, v.abs(), g, b),
        (2, 3, 5, 6),
        (3,),
        (3,),
        (3,),
        (3,),
    ),
    "batch_statistics": (
        lambda x, g: F.batch_norm(x, None, None, g, None, training=True),
        (4, 3, 5),
        (3,),
    ),
}
