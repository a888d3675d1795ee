"""Tiles of kernels over windows in networks, best first by the model, and a price without tiles."""

from __future__ import annotations

import functools
from dataclasses import replace
from math import prod

from mirage_py.codegen.cuda.windows.shares import MOST_POSITIONS
from mirage_py.search.model.baseline_model import fused_us
from mirage_py.search.rank.window_choices import window_choices
from mirage_py.targets import Target
from mirage_py.ugraph.building.window_convolutions import window_block, window_program
from mirage_py.ugraph.ir.convolution import FusedConvolution, WindowTiles
from mirage_py.ugraph.ir.ugraph import UGraph

# Of the rate of CUDA cores, what the sums of windows reach with channels last, beside the memory:
# depthwise 3 by 3 and 7 by 7, with and without steps, on an H200.
_SHARE = 0.68


def is_over_windows(spec: FusedConvolution) -> bool:
    """Whether a kernel over windows can compute it."""
    return spec.is_depthwise and not spec.gelu_after and 1 < spec.taps <= MOST_POSITIONS


def window_tiles(spec: FusedConvolution, target: Target, count: int) -> tuple[WindowTiles, ...]:
    """The best so many; none where it is no kernel over windows."""
    if not is_over_windows(spec):
        return ()
    # Neither the epilogue nor where a slice lies decides which tiles fit, and ranking takes a
    # second.
    bare = replace(
        spec, pitch=0, offset=0, has_bias=False, has_residual=False, residual_pitch=0,
        residual_offset=0, relu_before=False, relu_after=False,
    )  # fmt: skip
    return _ranked(bare, target)[:count]


@functools.cache
def _ranked(spec: FusedConvolution, target: Target) -> tuple[WindowTiles, ...]:
    program = window_program(spec)
    block = window_block(program)
    found = window_choices(UGraph(program, (block,)), block, (), target)
    return tuple(
        WindowTiles(tuple((a.dim, a.tile or 1) for a in tiled.grid), options.num_warps)
        for tiled, options, _ in found
    )


def windows_us(spec: FusedConvolution, target: Target) -> float:
    """The time of a kernel over windows."""
    image = spec.batch * prod(spec.space) * spec.inputs
    result = spec.places * spec.results
    moved_bytes = 2.0 * (image + result * (1 + spec.has_residual))
    return sums_over_windows_us(moved_bytes, result * spec.taps, target)


def sums_over_windows_us(moved_bytes: float, terms: float, target: Target) -> float:
    """The time of so many terms of sums on CUDA cores, and of the bytes that are moved beside."""
    sums_us = 2.0 * terms / (_SHARE * target.vector_flops_per_us)
    return fused_us(moved_bytes, 0.0, target) + sums_us
