"""Launch options to try for a tiled kernel: warps, pipeline depths, axis order, cache hints."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Literal

from mirage_py.codegen.tiling.block_order import can_group
from mirage_py.codegen.tiling.dependent_launch import DEPENDENT_LAUNCH, can_use_pdl
from mirage_py.codegen.tiling.descriptors import COPY_ENGINE
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.search.model.footprint import MMA_ROWS, WARP_GROUP_ROWS, is_warp_group_dot
from mirage_py.search.tilings.hopper_paths import TWO_GROUPS, all_ahead, pipelined
from mirage_py.search.tilings.residency import tensors_of
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.search.tilings.tilings import has_matmul
from mirage_py.targets import Target
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.launch_choices import (
    BlockOrder,
    MatmulInstruction,
    Precision,
    StoreMode,
)
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph

BackEnd = Literal["triton", "cuda"]
# The CUDA back end lays tiles out over warp groups.
WARPS: Mapping[str, Sequence[int]] = {"triton": (1, 2, 4, 8), "cuda": (4, 8)}
# Warps that multiply codes share out K in pieces of 64, and short iterations take two of them: 16
# rows of int4 13.5 us on an H200, with four warps 14.0.
_CODE_WARPS = (4, 2)
# More of them keep a block from its first iteration: 0.7 us there.
_CODE_STAGES = (3, 4, 2)
# Straight-line code without matmuls needs no warp groups, and a single warp needs no barriers.
_STRAIGHT_WARPS = (4, 8, 2, 1)
# The most elements of a tile per thread, with few warps; the least with many.
_MOST_NUMBERS, _LEAST_NUMBERS = 32, 8
_MANY_WARPS = 16
# In the order of preference where the model sees no difference. A wgmma frees its buffers one
# iteration late: with 2 stages no copy is in flight while it runs (split attention on an H200: 47
# us with 2, 31 with 3).
STAGES = (3, 4, 2, 6)
_MAX_LIGHT_STAGES = 3
_USUAL = ((4, 3), (8, 2))
_DEEPER = 2
_FOUR_GROUPS = 16
_STREAMED_BYTES = 2 << 20
# Results count from this share of what is read on.
_MUCH_WRITTEN = 0.25
# Registers of a thread for sums, beside which late matmuls have room.
_MOST_SUMS = 96
# As many leave no room for a second block.
_LARGE_SUMS = 128
# From so many on a persistent kernel is worth a try.
_TILE_SUMS = 64


def launch_options(
    kernel: TiledKernel, backend: BackEnd = "triton", target: Target | None = None
) -> Iterator[LaunchConfig]:
    """The options worth a prediction for one tiling, on a target where it is known."""
    block = kernel.block
    hints = _cache_hints(kernel)
    loops = [s for s in block.sections if s.loop is not None]
    heavy = [has_matmul(block, s) for s in loops]
    depths = _CODE_STAGES if backend == "cuda" and kernel.codes else STAGES
    for precision, is_reversed in product(kernel.precisions, _axis_orders(kernel)):
        counts = _warps(kernel, backend, is_reversed)
        forms = kernel.code_forms
        for warps, stages, has_excess in product(counts, depths if loops else (1,), forms):
            # A loop without matmuls needs few stages; more would only take shared memory.
            depth = tuple(
                stages if h or not any(heavy) else min(stages, _MAX_LIGHT_STAGES) for h in heavy
            )
            options = _options(warps, depth, is_reversed, hints, precision, backend)
            options = _with(options, "excess_codes", True) if has_excess else options
            if backend == "cuda" and loops and target is not None:
                yield from _in_tf32(kernel, options, target)
                yield from _summing(kernel, options, target)
                yield from _paths(kernel, options, target)
            elif backend == "cuda" and kernel.dots and not is_reversed:
                # On an H200 the same plans took a fifth less time than with direct stores.
                yield _with(options, "stores", StoreMode.ROWS)
            else:
                yield options
                if backend == "triton" and loops and target is not None:
                    yield from _by_tma(kernel, options, target)


# Options are large values, and the tilings of a kernel have most of theirs in common.
@lru_cache(maxsize=4096)
def _options(
    warps: int,
    depth: tuple[int, ...],
    is_reversed: bool,
    hints: tuple[str, ...],
    precision: Precision | None,
    backend: BackEnd,
) -> LaunchConfig:
    options = LaunchConfig(warps, depth, reversed_axes=is_reversed, evict_first=hints)
    return with_precision(options, precision, backend)


@lru_cache(maxsize=4096)
def _with(options: LaunchConfig, name: str, value: object = True) -> LaunchConfig:
    return replace(options, **{name: value})  # type: ignore[arg-type]


def with_precision(
    options: LaunchConfig, precision: Precision | None, backend: BackEnd
) -> LaunchConfig:
    """The options with matmuls of float32 computed so; in CUDA by single warps, if not asked for
    otherwise.
    """
    if backend == "cuda" and precision is not None:
        return replace(options, precision=precision, matmul=MatmulInstruction.MMA)
    return replace(options, precision=precision) if precision or options.precision else options


def warp_counts(block: BlockGraph, tiling: Tiling, backend: BackEnd) -> Sequence[int]:
    """Numbers of warps that a kernel may have."""
    usual = WARPS[backend]
    if backend == "cuda" and _is_tall_attention(block, tiling):
        return (_FOUR_GROUPS,)
    if not block.is_straight_line:
        return usual
    widest = max(tiling.elements(n.dims, 0) for n in block.nodes)
    if backend == "triton":
        # Two rows of a norm in 16 warps were the fastest in Inductor's kernels on an H200.
        return (*usual, _MANY_WARPS) if widest >= 32 * _MANY_WARPS * _LEAST_NUMBERS else usual
    return [w for w in _STRAIGHT_WARPS if w in usual or widest <= 32 * w * _MOST_NUMBERS]


def _is_tall_attention(block: BlockGraph, tiling: Tiling) -> bool:
    """Whether an online softmax has rows for four warp groups: with 64 columns and keys they were
    up to 7 % faster on an H200 than two, which have no registers for twice the rows.
    """
    rescaled = (n for n in block.nodes if n.op == "accum_rescaled")
    return any(
        tiling.elements(n.dims, 0) >= _FOUR_GROUPS * MMA_ROWS
        and any(block.nodes[a].op == "accum_max" for a in n.args)
        and block.nodes[n.args[0]].op == "sum"
        for n in rescaled
    )


def _warps(kernel: TiledKernel, backend: BackEnd, is_reversed: bool) -> Sequence[int]:
    """Numbers of warps. In CUDA, first as many warp groups as the rows of matmuls have room for:
    all winners with 128 rows had two on an H200, where the model sees no difference.
    """
    if backend == "cuda" and kernel.codes:
        return _CODE_WARPS
    rows = [dot.rows(is_reversed) for dot in kernel.dots.values()]
    has_two = bool(rows) and min(rows) >= 2 * WARP_GROUP_ROWS
    # Short loops overlap with another block's stores: 556 us with one group, 622 with two.
    has_two &= not kernel.reads_windows
    return warp_counts(kernel.block, kernel.tiling, backend)[
        :: -1 if backend == "cuda" and has_two else 1
    ]


def _paths(kernel: TiledKernel, options: LaunchConfig, target: Target) -> Iterator[LaunchConfig]:
    """The options with producer warps and overlap. The model sees no difference; on an H200
    attention was fastest in this order more often than not, and narrow matmuls without these. Where
    masks leave blocks uneven work, hand-written kernels took a fifth less time with everything than
    with MMA/softmax overlap alone.
    """
    if not any(is_warp_group_dot(dot, options, target) for dot in kernel.dots.values()):
        yield options
    elif options.reversed_axes:
        yield options
        yield pipelined(options)
    elif kernel.is_uneven:
        blocks = kernel.tiling.grid_blocks
        ahead = all_ahead(kernel.block, options, target, blocks, is_uneven=True)
        at_once = replace(ahead, overlap=None, ping_pong=False)
        yield from (ahead, at_once) if _has_room_for_late(kernel, options) else (at_once, ahead)
        yield pipelined(options)
        yield _with(options, "producer_warps")
    else:
        if kernel.body.promoted:
            # Producer warps leave the registers that sums of two levels need. On an H200 float8
            # with scales of blocks took 4 % less time so than in a block for each tile, and 3 %
            # less than in the usual order.
            blocks = kernel.tiling.grid_blocks
            ahead = all_ahead(kernel.block, options, target, blocks, is_uneven=False)
            yield replace(ahead, overlap=None, block_order=BlockOrder.GROUPED)
        options = options if kernel.reads_windows else _with(options, "stores", StoreMode.LANES)
        yield from _fed(kernel, options, target)
        yield options


def _fed(kernel: TiledKernel, options: LaunchConfig, target: Target) -> Iterator[LaunchConfig]:
    """The options with producer warps. One warp group over windows was faster with matmuls under
    way from iteration to iteration, by 1 % on an H200.
    """
    yield from _staying(kernel, options, target)
    ways = (fed(options), pipelined(options))
    is_late = kernel.reads_windows and options.num_warps < TWO_GROUPS
    yield from ways[::-1] if is_late else ways


def _staying(kernel: TiledKernel, options: LaunchConfig, target: Target) -> Iterator[LaunchConfig]:
    """The options of a persistent kernel, where tiles are large: those of the next block come while
    results are stored.

    On an H200 matmuls of 2,048 to 16,384 rows took 2 to 6 % less time so, with 128 x 256 results in
    two warp groups as well as with 128 x 128, in groups of blocks. Matmuls that read windows took 4
    to 7 % less, and smaller tiles were slower there.
    """
    sums = max(sum(kernel.elements[a] for a in w.accumulators) for w in kernel.work(options))
    least = _LARGE_SUMS if kernel.reads_windows else _TILE_SUMS
    if sums < least * 32 * options.num_warps or not kernel.has_even_tiles:
        return
    tiling = kernel.tiling
    ahead = all_ahead(kernel.block, options, target, tiling.grid_blocks, is_uneven=False)
    if not ahead.persistent_blocks:
        return
    if kernel.reads_windows:
        yield replace(ahead, stores=options.stores)
    else:
        order = BlockOrder.GROUPED if can_group(tiling.axes) else None
        yield replace(ahead, overlap=None, ping_pong=False, block_order=order)


def _in_tf32(kernel: TiledKernel, options: LaunchConfig, target: Target) -> Iterator[LaunchConfig]:
    """The options with float32 multiplied in TF32 by wgmma, which needs TMA to round it."""
    if options.precision is not Precision.TF32 or target.capability != COPY_ENGINE:
        return
    asked = fed(_with(options, "matmul", MatmulInstruction.WGMMA))
    if not kernel.takes_rounded_tiles:
        return
    if all(is_warp_group_dot(dot, asked, target) for dot in kernel.dots.values()):
        yield from _fed(kernel, asked, target)


def _has_room_for_late(kernel: TiledKernel, options: LaunchConfig) -> bool:
    """Whether matmuls that run an iteration late are likely to pay: they hold an operand and a
    stage for longer. On an H200 causal attention took 12 % less time with them at 128 columns in
    two warp groups, and 40 % more at 256 columns; a single group leaves room for a second block,
    which overlaps as well.
    """
    sums = max(sum(kernel.elements[a] for a in w.accumulators) for w in kernel.work(options))
    is_narrow = sums <= _MOST_SUMS * 32 * options.num_warps
    return is_narrow and options.num_warps >= TWO_GROUPS


def _summing(kernel: TiledKernel, options: LaunchConfig, target: Target) -> Iterator[LaunchConfig]:
    """The options with row reductions of a tile (norms of keys) in the producer warps: hand-written
    attention took a fifth less time so on an H200 than with precomputed norms.
    """
    dots = kernel.dots.values()
    if options.reversed_axes or not kernel.body.aside:
        return
    if any(is_warp_group_dot(dot, options, target) for dot in dots):
        summing = _with(options, "producer_sums")
        yield _with(summing, "producer_warps")
        yield pipelined(summing)


def _by_tma(kernel: TiledKernel, options: LaunchConfig, target: Target) -> Iterator[LaunchConfig]:
    """In Triton the options with TMA descriptors, where one tile is an operand of several matmuls:
    gated MLPs and queries, keys and values of long prompts were fastest so on an H200, and single
    matmuls without.
    """
    groups = [d for d in kernel.dots.values() if is_warp_group_dot(d, options, target)]
    operands = [a for dot in groups for a in dot.operands]
    if target.capability < COPY_ENGINE or len({*operands}) == len(operands):
        return
    if kernel.has_tma_tiles:
        yield _with(options, "descriptors")


def starting_early(
    ugraph: UGraph,
    options: tuple[LaunchConfig, ...],
    target: Target,
    backend: BackEnd = "triton",
) -> tuple[LaunchConfig, ...]:
    """The options of all kernels, with no gap between two block graphs where the target can do
    without: the second one is placed on the GPU while the first one runs, and waits there. In CUDA
    the first one does so after what runs before the plan.
    """
    if target.capability < DEPENDENT_LAUNCH:
        return options
    may = can_use_pdl(ugraph, waits_first=backend == "cuda")
    return tuple(
        _with(o, "early_start") if early else o for o, early in zip(options, may, strict=True)
    )


def keeping_for_later(
    ugraph: UGraph, options: tuple[LaunchConfig, ...]
) -> tuple[LaunchConfig, ...]:
    """The options of all kernels, where none has the L2 give up what a later one reads again."""
    found = []
    for number, chosen in enumerate(options):
        later = dict.fromkeys(t for k in ugraph.kernels[number + 1 :] for t in tensors_of(k))
        hints = tuple(t for t in chosen.evict_first if t not in later)
        kept = hints == chosen.evict_first
        found.append(chosen if kept else replace(chosen, evict_first=hints))
    return tuple(found)


def without_idle_hints(
    ugraph: UGraph, options: tuple[LaunchConfig, ...], target: Target
) -> tuple[LaunchConfig, ...]:
    """The options of all kernels, without hints in straight-line code whose results do not fit the
    L2 and are read by no later kernel.

    Such loads make room for nothing, and with hints for them alone the L2 fills up with results to
    be written: on an H200 they cost kernels by hand 2.5 to 6 % (ReLU of 3.2 GB), and nothing where
    stores had hints too.
    """
    found = []
    for number, (kernel, chosen) in enumerate(zip(ugraph.kernels, options, strict=True)):
        later = {t for k in ugraph.kernels[number + 1 :] for t in tensors_of(k)}
        is_idle = chosen.evict_first and _fills_the_cache(ugraph, kernel, later, target)
        found.append(replace(chosen, evict_first=()) if is_idle else chosen)
    return tuple(found)


def _fills_the_cache(
    ugraph: UGraph, kernel: Kernel, later: Collection[str], target: Target
) -> bool:
    """Whether a kernel reads once and writes much, which the L2 does not hold and
    nobody reads ``later``.
    """
    if not isinstance(kernel, BlockGraph) or not kernel.is_straight_line:
        return False
    results = kernel.written_tensors
    written = sum(ugraph.tensors[t].bytes for t in results)
    read = sum(ugraph.tensors[t].bytes for t in tensors_of(kernel)) - written
    is_much = written > target.l2_bytes and written >= _MUCH_WRITTEN * read
    return is_much and not any(t in later for t in results)


@lru_cache(maxsize=64)
def fed(options: LaunchConfig) -> LaunchConfig:
    """The options with producer warps."""
    return _with(options, "producer_warps")


def usual_options(kernel: TiledKernel) -> Iterator[LaunchConfig]:
    """A few options by which tilings are compared: one near the best for many kernels, one with the
    fewest registers per thread and buffers, and both with deeper pipelines, which small tiles need.
    """
    loops = sum(s.loop is not None for s in kernel.block.sections)
    for precision, is_reversed in product(kernel.precisions, _axis_orders(kernel)):
        yield from _usual(loops, is_reversed, precision)


@lru_cache
def _usual(loops: int, is_reversed: bool, precision: Precision | None) -> tuple[LaunchConfig, ...]:
    return tuple(
        LaunchConfig(
            warps, (stages + deeper,) * loops, reversed_axes=is_reversed, precision=precision
        )
        for warps, stages in (_USUAL if loops else _USUAL[:1])
        for deeper in ((0, _DEEPER) if loops else (0,))
    )


def _axis_orders(kernel: TiledKernel) -> tuple[bool, ...]:
    """Whether tile axes are reversed: no, and also yes where that helps a matmul.

    wgmma needs 64 rows; where a matmul is narrow, swapping its operands makes its wide side the
    rows. Of float32 it takes columns along the inner positions alone: where only the rows lie so in
    memory, they become the columns.
    """
    if kernel.codes:
        # A tensor core takes 16 rows, which many outputs fill, and 8 columns.
        return True, False
    for number, dot in kernel.dots.items():
        roles = kernel.tiling.roles(number)
        rows, columns = dot.sides
        is_turned = dot.dtype == F32 and dot.across == (False, True)
        is_better = is_turned or rows < WARP_GROUP_ROWS <= columns
        if len(roles.left) == len(roles.right) == 1 and is_better:
            return False, True
    return (False,)


def _cache_hints(kernel: TiledKernel) -> tuple[str, ...]:
    """Large tensors of which each block reads a different part, which need not stay in the L2."""
    block, scope = kernel.block, kernel.scope
    gridded = [a.dim for a in block.grid if (a.tile or 1) < scope.sizes[a.dim]]
    hints: dict[str, None] = {}
    for _, node in block.loads():
        tensor = scope.tensors[node.access.tensor]
        if tensor.bytes < _STREAMED_BYTES:
            continue
        once = all(d in node.access.dims() for d in gridded)
        # Neighbouring windows share elements, in other blocks too.
        once &= prod(scope.sizes[d] for d in node.access.dims()) <= tensor.elements
        reads = sum(n.access.tensor == tensor.name for _, n in block.loads())
        if once and reads == 1:
            hints[tensor.name] = None
    return tuple(sorted(hints))
