"""Ways that a CUDA kernel may take: sums rescaled at once or lazily; on sm_90 products by warps or
by warp groups, tiles by asynchronous copies or by the copy engine, with or without a warp that
fetches for the others, products that overlap, and groups that take turns at them. The model sees
no difference between them; the clock does.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirage_py.codegen.cuda.overlap import ACROSS, ON, OVERLAP
from mirage_py.codegen.cuda.rescaling import LAZY, RESCALING
from mirage_py.codegen.cuda.roles import PRODUCER, PRODUCER_WARPS
from mirage_py.codegen.cuda.turns import TURNS
from mirage_py.codegen.cuda.warpgroup_plan import PRODUCTS, WARPS
from mirage_py.codegen.triton.descriptors import COPIES, COPY_ENGINE, DESCRIPTORS
from mirage_py.targets import Target
from mirage_py.ugraph.plan import LaunchOptions
from mirage_py.ugraph.ugraph import BlockGraph

# Warps of two warp groups.
_TWO_GROUPS = 8


def pipelined(options: LaunchOptions) -> LaunchOptions:
    """With everything that runs ahead: a warp that fetches, and products that overlap."""
    return options.with_flag(PRODUCER, PRODUCER_WARPS).with_flag(OVERLAP, ON)


def other_paths(
    block: BlockGraph, options: LaunchOptions, target: Target
) -> Iterator[LaunchOptions]:
    """The options with one choice made otherwise, where the target and the kernel leave one."""
    if _rescales(block):
        yield _turned(options, RESCALING, LAZY)
    if target.capability != COPY_ENGINE:
        return
    multiplies = any(n.op == "matmul" for n in block.nodes)
    if multiplies:
        yield _turned(options, PRODUCTS, WARPS)
    if not any(s.loop is not None for s in block.sections):
        return
    by_engine = options.flag(COPIES) == DESCRIPTORS or bool(options.flag(PRODUCER))
    if not options.flag(PRODUCER):
        yield _turned(options, COPIES, DESCRIPTORS)
    yield _turned(options, PRODUCER, PRODUCER_WARPS)
    if multiplies and by_engine:
        now = options.flag(OVERLAP)
        modes = ("", ON, ACROSS) if _rescales(block) else ("", ON)
        yield from (options.with_flag(OVERLAP, mode) for mode in modes if mode != now)
    if multiplies and options.flag(OVERLAP) and options.num_warps >= _TWO_GROUPS:
        yield _turned(options, TURNS, ON)


def _rescales(block: BlockGraph) -> bool:
    return any(n.op == "accum_rescaled" for n in block.nodes)


def _turned(options: LaunchOptions, flag: str, value: str) -> LaunchOptions:
    return options.with_flag(flag, "" if options.flag(flag) else value)
