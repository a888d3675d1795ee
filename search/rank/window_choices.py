"""The tilings of a kernel over windows, and what the model says of them.

Its tiles are shared out among threads in one way (``codegen/cuda/windows/shares.py``), so few are
worth a look: results side by side that are stored at once, rows whose windows overlap, and threads
along what is fastest in memory first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from mirage_py.codegen.cuda.windows.shares import (
    Shares,
    fastest_first,
    vector_width,
    window_dims,
    window_shares,
)
from mirage_py.codegen.cuda.windows.unrolled import masks_of_loads, plain_index, share_counts
from mirage_py.codegen.cuda.windows.window_kernel import thread_steps
from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.codegen.tiling.tiles import next_power_of_two
from mirage_py.search.model.cost_model import Estimate
from mirage_py.search.model.window_model import ThreadWork, thread_work, window_estimate
from mirage_py.search.tilings.residency import accesses_of, touched_bytes
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, UGraph

# Warps of a block; fewer where the tensor is that small.
_WARPS, _FEW_WARPS = (4, 8), (1, 2)
_MOST_REGISTERS = (1, 2, 4, 8, 16)
# Threads along a dimension beyond the fastest.
_MOST_ROWS = 32
# Steps of the sharings that are unrolled and counted, and tilings that are returned.
_COUNTED, _MOST = 4000, 24

Choice = tuple[BlockGraph, LaunchConfig, Estimate]


def window_choices(
    ugraph: UGraph, block: BlockGraph, cached: Collection[str], target: Target
) -> list[Choice]:
    """The choices for a kernel over windows, best first; none for any other kernel."""
    sizes, tensors = ugraph.program.sizes, ugraph.tensors
    window = window_dims(block, sizes, tensors)
    if not window:
        return []
    touched = touched_bytes(ugraph.scope, accesses_of(block))
    moved = sum(size for name, size in touched.items() if name not in cached)
    known: dict[object, ThreadWork] = {}
    positions, counted = prod(sizes[d] for d in window), 0
    found: list[Choice] = []
    tilings = [*_tiled(block, ugraph, _WARPS)] or [*_tiled(block, ugraph, _FEW_WARPS)]
    for tiled, shares, warps in tilings:
        key = tuple(shares.registers.items())
        if key not in known:
            counted += prod(shares.registers.values()) * positions
            if known and counted > _COUNTED:
                continue
            (typed,) = lowered(replace(ugraph, kernels=(tiled,)), [tiled]).blocks
            steps = thread_steps(typed.block, typed.dtypes, sizes, tensors, shares)
            known[key] = thread_work(steps, tensors)
        estimate = window_estimate(
            known[key], shares, sizes, tensors, moved, warps, target,
            reached=_reached_bytes(tiled, ugraph),
        )  # fmt: skip
        if estimate.blocks_per_sm:
            found.append((tiled, LaunchConfig(num_warps=warps), estimate))
    found.sort(key=lambda choice: choice[2].time_us)
    return found[:_MOST]


def _tiled(
    block: BlockGraph, ugraph: UGraph, most_warps: Sequence[int]
) -> Iterator[tuple[BlockGraph, Shares, int]]:
    """Tilings that fall into equal shares, those of more results for each thread last."""
    sizes, tensors = ugraph.program.sizes, ugraph.tensors
    order = fastest_first(block, sizes, tensors)
    width = vector_width(block, sizes, tensors, order[0])
    seen: dict[object, None] = {}
    for rows, warps in product(_MOST_REGISTERS, most_warps):
        for tiles in _tiles(order, sizes, width, rows, 32 * warps):
            grid = tuple(replace(a, tile=tiles[a.dim]) for a in _fast_grid(block, order))
            tiled = replace(block, grid=grid)
            shares = window_shares(tiled, sizes, tensors, warps)
            key = grid, warps
            if shares is None or key in seen:
                continue
            seen[key] = None
            counts = share_counts(sizes, shares)
            lanes = prod(shares.threads.values())
            # Threads that have nothing to do.
            if lanes <= 2 * prod(min(counts[d], n) for d, n in shares.threads.items()):
                yield tiled, shares, warps


def _fast_grid(block: BlockGraph, order: tuple[str, ...]) -> tuple[GridAxis, ...]:
    """Blocks that are neighbours in memory run at the same time."""
    axes = {a.dim: a for a in block.grid}
    return tuple(axes[d] for d in order)


def _tiles(
    order: tuple[str, ...], sizes: Mapping[str, int], width: int, rows: int, threads: int
) -> Iterator[dict[str, int]]:
    """Tiles of so many results for each thread: the fastest dimension as far as it goes, or a warp
    of it; then one of the next, and the rest along those behind.
    """
    whole = {d: next_power_of_two(sizes[d]) for d in order}
    first = order[0]
    along = [min(whole[first], width * n) for n in (threads, 128, 64, 32, 16)]
    for tile in dict.fromkeys(along):
        left = width * rows * threads // min(tile, width * threads)
        for dim in order[1:3]:
            for most in (rows, 2 * rows, 4 * rows, 8 * rows, _MOST_ROWS):
                tiles = dict.fromkeys(order, 1) | {first: tile}
                rest = left
                for d in (dim, *(o for o in order[1:] if o != dim)):
                    taken = min(rest, whole[d], most if d == dim else rest)
                    tiles[d], rest = taken, rest // taken
                if rest == 1:
                    yield tiles


def _reached_bytes(block: BlockGraph, ugraph: UGraph) -> int:
    """Bytes that blocks read and write, each element once in a block."""
    sizes, tensors = ugraph.program.sizes, ugraph.tensors
    tiles = {a.dim: min(a.tile or 1, sizes[a.dim]) for a in block.grid}
    own = {**sizes, **tiles}
    blocks = prod(-(-sizes[d] // t) for d, t in tiles.items())
    needed = masks_of_loads(block)
    total = 0
    for number, node in enumerate(block.nodes):
        if node.op not in ("load", "store"):
            continue
        count = 1
        for expr in node.access.index:
            plain = plain_index(expr, needed.get(number, ()), sizes)
            low, high = plain.bounds(own)
            count *= high - low + 1
        total += count * tensors[node.access.tensor].dtype.bytes
    return total * blocks
