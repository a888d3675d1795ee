"""Tiles of fused convolutions for a target, those that the model says take the least time first."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product
from math import gcd, inf

from mirage_py.codegen.tiling.tiles import next_power_of_two
from mirage_py.search.networks.convolutions.window_tiles import is_over_windows, windows_us
from mirage_py.targets import Target
from mirage_py.ugraph.ir.convolution import ConvolutionTiles, FusedConvolution

_ROWS, _COLUMNS, _DEPTHS = (16, 32, 64, 128, 256), (16, 32, 64, 128, 256), (32, 64, 128)
_SPLITS = (1, 2, 3, 4, 6, 8)
# Channels of several groups as one product.
_NARROWEST, _WIDEST_PACK = 16, 128
# Bytes and products of a block in a nanosecond, and what a step waits for at least: of the L2, with
# its loads in flight. By hand for Hopper; what is timed decides.
_BYTES_NS, _FLOPS_NS, _LATENCY_NS = 60.0, 3500.0, 400.0
_BLOCK_NS, _MEETING_NS = 900.0, 1300.0
# What aligned bytes that lie together take to move, of 16: pieces are no larger. On an H200
# convolutions of 44 channels (8 bytes) took 1.3 to 1.9 times as long as others, of 3 1.2 to 2.2.
_PIECE_BYTES, _PIECES = 16, {16: 1.0, 8: 2.2, 4: 2.6, 2: 3.0}
_RESERVED_BYTES = 4096
_MAX_RESIDENT = 6
# Of an SM; of a thread, for its sum at most, and beside it.
_REGISTERS, _REGISTERS_OF_SUM, _REGISTERS_AROUND = 65536, 128, 64


def ranked_tiles(spec: FusedConvolution, target: Target, count: int) -> list[ConvolutionTiles]:
    """The best so many, of which not all differ in the depth of a step alone."""

    def order(tiles: ConvolutionTiles) -> tuple[int, int]:
        # Where tensor cores decide, what has most of its operands under way.
        return round(modelled_ns(spec, tiles, target)), (1 - tiles.stages) * tiles.depth

    ranked = sorted(_all(spec, target), key=order)
    found: list[ConvolutionTiles] = []
    shapes: dict[tuple[int, ...], int] = {}
    for tiles in ranked:
        shape = (tiles.rows, tiles.columns, tiles.pack)
        if shapes.get(shape, 0) < 2:
            shapes[shape] = shapes.get(shape, 0) + 1
            found.append(tiles)
        if len(found) == count:
            break
    return found


@functools.cache
def least_us(spec: FusedConvolution, target: Target) -> float:
    """The model's time of the best kernel of ours; infinite where there is none."""
    if is_over_windows(spec):
        return windows_us(spec, target)
    return min((modelled_ns(spec, t, target) for t in _all(spec, target)), default=inf) / 1e3


def modelled_ns(spec: FusedConvolution, tiles: ConvolutionTiles, target: Target) -> float:
    """The time of a launch by a coarse model: waves of blocks, and in each the steps of a block."""
    if spec.is_separable:
        return _separable_ns(spec, tiles, target)
    blocks = tiles.blocks(spec)
    steps = -(-tiles.steps(spec) // tiles.splits)
    inside, outside = tiles.channels(spec)
    smem = (tiles.rows + tiles.columns) * tiles.depth * 2 * (tiles.stages - 1) + _RESERVED_BYTES
    image_bytes = tiles.rows * tiles.depth * 2 * pieces(inside, spec.apart, spec.offset)
    step_bytes = image_bytes + tiles.columns * tiles.depth * 2 * pieces(outside)
    threads = 32 * tiles.num_warps
    registers = threads * _REGISTERS_AROUND + tiles.rows * tiles.columns
    room = (target.smem_per_block_bytes // smem, 2048 // threads, _REGISTERS // registers)
    resident = min(*room, _MAX_RESIDENT)
    on_each = -(-blocks // target.sms)
    at_once = max(1, min(resident, on_each))
    flops = 2.0 * tiles.rows * tiles.columns * tiles.depth
    step_ns = max(
        at_once * step_bytes / _BYTES_NS,
        at_once * flops / _FLOPS_NS,
        _LATENCY_NS / (tiles.stages - 1),
    )
    result_ns = at_once * tiles.rows * tiles.columns * 2 * (1 + spec.has_residual) / _BYTES_NS
    meeting = 0.0
    if tiles.splits > 1:
        summed = 4.0 * tiles.rows * tiles.columns * (tiles.splits + 1)
        meeting = _MEETING_NS + at_once * summed / _BYTES_NS
    return -(-on_each // at_once) * (steps * step_ns + _BLOCK_NS + result_ns + meeting)


def _separable_ns(spec: FusedConvolution, tiles: ConvolutionTiles, target: Target) -> float:
    """``modelled_ns`` where each position of a window is read from the L1: depthwise convolutions
    by such kernels of Triton, 5 by 5, took 0.9 of this.
    """
    on_each = -(-tiles.blocks(spec) // target.sms)
    threads = 32 * tiles.num_warps
    registers = threads * _REGISTERS_AROUND + tiles.rows * (2 * tiles.depth + tiles.columns)
    at_once = max(1, min(2048 // threads, _REGISTERS // registers, on_each))
    read = 2.0 * tiles.rows * tiles.depth * spec.taps
    written = 2.0 * tiles.rows * tiles.columns * (1 + spec.has_residual)
    block_ns = at_once * (read + written) / _BYTES_NS
    return -(-on_each // at_once) * (max(block_ns, _LATENCY_NS) + _BLOCK_NS)


def pieces(*counts: int) -> float:
    """What it takes to move halves of which so many lie together each, of aligned ones."""
    return _PIECES[min(_PIECE_BYTES, 2 * gcd(*counts, _PIECE_BYTES))]


def _all(spec: FusedConvolution, target: Target) -> Iterator[ConvolutionTiles]:
    if spec.pool or spec.is_planar:
        return
    if spec.is_separable:
        yield from _separable(spec)
        return
    for pack in _packs(spec):
        whole = ConvolutionTiles(16, 16, 32, pack)
        inside, outside = whole.channels(spec)
        # What takes place by place fetches nothing beyond a tap in a step.
        depths = [d for d in _DEPTHS if inside >= d and inside % d == 0] or [32, 64]
        for rows, columns, depth in product(_ROWS, _COLUMNS, depths):
            if columns > max(16, 2 * outside - 1) or rows > max(16, 2 * spec.places - 1):
                continue
            if rows * columns > _REGISTERS_OF_SUM * 256:
                continue
            warps = 8 if rows * columns >= 128 * 128 else 4
            steps = ConvolutionTiles(rows, columns, depth, pack).steps(spec)
            for splits in _SPLITS:
                if splits > 1 and steps < 4 * splits:
                    continue
                stages = max(2, min(5, -(-steps // splits) + 1))
                while stages > 2 and _smem(rows, columns, depth, stages) > _room(target):
                    stages -= 1
                if _smem(rows, columns, depth, stages) <= _room(target):
                    yield ConvolutionTiles(rows, columns, depth, pack, splits, warps, stages)


def _separable(spec: FusedConvolution) -> Iterator[ConvolutionTiles]:
    """All channels and all results of some places."""
    depth, columns = (max(16, next_power_of_two(n)) for n in (spec.inputs, spec.results))
    for rows, warps in product(_ROWS, (4, 8)):
        fits = rows <= max(16, 2 * spec.places - 1)
        if fits and 512 <= rows * depth <= 8192 and rows * columns <= _REGISTERS_OF_SUM * 256:
            yield ConvolutionTiles(rows, columns, depth, spec.groups, 1, warps, 2)


def _smem(rows: int, columns: int, depth: int, stages: int) -> int:
    return (rows + columns) * depth * 2 * stages


def _room(target: Target) -> int:
    return target.smem_per_block_bytes - _RESERVED_BYTES


def _packs(spec: FusedConvolution) -> Iterator[int]:
    """How many groups are one product."""
    for pack in range(1, spec.groups + 1):
        if spec.groups % pack:
            continue
        channels = (spec.inputs // spec.groups * pack, spec.results // spec.groups * pack)
        fills = min(channels) >= _NARROWEST or pack == spec.groups
        if pack == 1 or (fills and max(channels) <= _WIDEST_PACK):
            yield pack
