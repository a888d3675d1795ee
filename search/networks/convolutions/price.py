"""The cost of a convolution on a target, fitted to measurements on an H200.

Products of aligned channels are priced by rates and steps, products of others by the pieces in
which they move, grouped ones by the bytes that reach memory, and those of single channels as
kernels over windows. How far that is from what was measured: docs/explanation/networks.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirage_py.networks.operators.tensor_type import TensorType
from mirage_py.search.model.baseline_model import matmul_us
from mirage_py.search.model.matmul_rates import library_rate
from mirage_py.search.model.model_constants import constants_of
from mirage_py.search.networks.convolutions.tiles import least_us
from mirage_py.search.networks.convolutions.window_tiles import sums_over_windows_us
from mirage_py.targets import Target
from mirage_py.ugraph.ir.convolution import FusedConvolution
from mirage_py.ugraph.ir.dtypes import F32

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
# Channels of a group that tensor cores multiply at once; groups of fewer waste the others.
_GROUP = 16
# Of the bandwidth and of the rate, what the library's convolutions of groups reach: 1.0 to 1.5 TB/s
# for groups of 8 to 32 channels; 191 and 213 TFLOP/s for groups of 8, zeros up to 16 counted.
_GROUPED_MEMORY, _GROUPED_TENSOR = 0.41, 0.30
# Tiles of the result that one block of a library's product makes.
_TILE = 128
_MAX_SPLIT = 8


def convolution_us(
    groups: int,
    operands: Sequence[TensorType],
    result: TensorType,
    spec: FusedConvolution | None,
    target: Target,
) -> float:
    """Microseconds of a convolution alone; ``spec`` is None where it is no kernel of ours."""
    image, weight = operands[:2]
    moved = float(sum(t.elements * t.dtype.bytes for t in (*operands, result)))
    terms = weight.shape[1] * prod(weight.shape[2:])
    if groups == image.shape[1] == weight.shape[0] > 1:
        return sums_over_windows_us(moved, result.elements * terms, target)
    rate, flops = tensor_rate(image, target), 2.0 * result.elements * terms
    if groups > 1:
        flops *= _filled(weight.shape[1]) * _filled(weight.shape[0] // groups)
        least = matmul_us(moved / _GROUPED_MEMORY, flops / rate / _GROUPED_TENSOR, target)
    else:
        least = matmul_us(moved, flops / rate / used_share(result, target), target)
    # Rates say nothing of few places and long sums, which wait for each step, nor of channels that
    # move in small pieces.
    return least if spec is None else max(least, least_us(spec, target))


def tensor_rate(operand: TensorType, target: Target) -> float:
    """Flops in a microsecond of a library's product."""
    kind = operand.dtype if operand.dtype.is_half else F32
    return library_rate(target, kind, constants_of(target), rounds=True)


def used_share(result: TensorType, target: Target) -> float:
    """The share of SMs that have a tile, or a part of one."""
    channels = result.shape[1] if result.rank > 3 else result.shape[-1]
    tiles = -(-result.elements // channels // _TILE) * -(-channels // _TILE)
    return min(1.0, _MAX_SPLIT * tiles / target.sms)


def _filled(channels: int) -> float:
    """Channels that tensor cores multiply for each of a group."""
    return -(-channels // _GROUP) * _GROUP / channels
