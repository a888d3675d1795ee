"""Code paths of a CUDA kernel that the model cannot tell apart, so that they are measured.

They are: sums rescaled at once, lazily, or only where needed; on sm_90 mma.sync or wgmma,
asynchronous copies or TMA, producer warps, row reduction in the producer warps, MMA/softmax
overlap, ping-pong scheduling, persistent kernels, and coalesced stores through shared memory.

Some gain little alone but more together (causal attention on an H200: ping-pong scheduling nothing
by itself, 2 % with lazy rescaling), and a tuner takes only a few steps of hill climbing. So one
step turns all of them on at once, and others lead back from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirage_py.codegen.cuda.analysis.row_reductions import BY_PRODUCER, SUMS, has_row_reductions
from mirage_py.codegen.cuda.analysis.warp_roles import PRODUCER, PRODUCER_WARPS
from mirage_py.codegen.cuda.epilogue.coalesced_stores import IN_ROWS
from mirage_py.codegen.cuda.epilogue.quad_shuffles import BY_LANES, STORES
from mirage_py.codegen.cuda.layout.wgmma_partitioning import PRODUCTS, WARPS
from mirage_py.codegen.cuda.mma.mma_pipelining import ACROSS, ON, OVERLAP
from mirage_py.codegen.cuda.mma.ping_pong import TURNS
from mirage_py.codegen.cuda.pipeline.persistent_kernel import BLOCKS
from mirage_py.codegen.cuda.softmax.rescaling import LAZY, OPTIMISTIC, RESCALING
from mirage_py.codegen.tiling.block_order import LONGEST, ORDER
from mirage_py.codegen.tiling.descriptors import COPIES, COPY_ENGINE, DESCRIPTORS
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import LaunchOptions
from mirage_py.ugraph.ir.ugraph import BlockGraph

# Warps of two warp groups.
_TWO_GROUPS = 8


def pipelined(options: LaunchOptions) -> LaunchOptions:
    """With producer warps and MMA/softmax overlap."""
    return options.with_flag(PRODUCER, PRODUCER_WARPS).with_flag(OVERLAP, ON)


def other_paths(
    block: BlockGraph,
    options: LaunchOptions,
    target: Target,
    *,
    blocks: int = 0,
    is_uneven: bool = False,
) -> Iterator[LaunchOptions]:
    """The options with one choice made otherwise, where the target and the kernel leave one; and
    with all of them made for what runs ahead. The kernel has so many ``blocks``, to which masks
    leave unequal work if it ``is_uneven``.
    """
    multiplies = any(n.op == "matmul" for n in block.nodes)
    if _rescales(block):
        yield from _others(options, RESCALING, ("", LAZY, OPTIMISTIC))
    if multiplies:
        yield from _others(options, STORES, ("", BY_LANES, IN_ROWS))
    if target.capability != COPY_ENGINE:
        return
    if multiplies:
        yield _turned(options, PRODUCTS, WARPS)
    if not block.has_loops:
        return
    by_tma = options.flag(COPIES) == DESCRIPTORS or bool(options.flag(PRODUCER))
    if not options.flag(PRODUCER):
        yield _turned(options, COPIES, DESCRIPTORS)
    yield _turned(options, PRODUCER, PRODUCER_WARPS)
    if multiplies and by_tma:
        modes = ("", ON, ACROSS) if _rescales(block) else ("", ON)
        yield from _others(options, OVERLAP, modes)
    if multiplies and options.flag(OVERLAP) and options.num_warps >= _TWO_GROUPS:
        yield _turned(options, TURNS, ON)
    if options.flag(PRODUCER):
        if has_row_reductions(block):
            yield _turned(options, SUMS, BY_PRODUCER)
        yield from _ahead(block, options, target, blocks, is_uneven=is_uneven)


def _ahead(
    block: BlockGraph, options: LaunchOptions, target: Target, blocks: int, *, is_uneven: bool
) -> Iterator[LaunchOptions]:
    """Persistent kernels, and everything at once."""
    staying = _staying(block, options, target, blocks)
    if staying:
        yield _turned(options, BLOCKS, staying)
    everything = all_ahead(block, options, target, blocks, is_uneven=is_uneven)
    if any(n.op == "matmul" for n in block.nodes) and everything != options:
        yield everything


def _staying(block: BlockGraph, options: LaunchOptions, target: Target, blocks: int) -> str:
    """The number of blocks of a persistent kernel; empty if it would not be one. With two or more
    consumer warp groups a block has an SM for itself.
    """
    is_alone = options.num_warps >= _TWO_GROUPS and not block.cluster_dims
    return str(target.sms) if is_alone and blocks > target.sms else ""


def all_ahead(
    block: BlockGraph, options: LaunchOptions, target: Target, blocks: int, *, is_uneven: bool
) -> LaunchOptions:
    """With everything that overlaps work, and coalesced stores."""
    found = pipelined(options).with_flag(STORES, BY_LANES)
    if _rescales(block):
        found = found.with_flag(OVERLAP, ACROSS).with_flag(RESCALING, LAZY)
        found = found.with_flag(TURNS, ON if options.num_warps >= _TWO_GROUPS else "")
    if is_uneven:
        found = found.with_flag(ORDER, LONGEST)
    return found.with_flag(BLOCKS, _staying(block, options, target, blocks))


def _rescales(block: BlockGraph) -> bool:
    return any(n.op == "accum_rescaled" for n in block.nodes)


def _others(options: LaunchOptions, flag: str, values: Sequence[str]) -> Iterator[LaunchOptions]:
    """The options with every other value of a flag."""
    return (options.with_flag(flag, v) for v in values if v != options.flag(flag))


def _turned(options: LaunchOptions, flag: str, value: str) -> LaunchOptions:
    return options.with_flag(flag, "" if options.flag(flag) else value)
