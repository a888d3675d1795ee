"""Code paths of a CUDA kernel that the model cannot tell apart, so that they are measured.

They are: sums rescaled at once, lazily, or only where needed; on sm_90 mma.sync or wgmma,
asynchronous copies or TMA, producer warps, row reduction in the producer warps, MMA/softmax
overlap, ping-pong scheduling, persistent kernels, and coalesced stores through shared memory.

Some gain little alone but more together (causal attention on an H200: ping-pong scheduling nothing
by itself, 2 % with lazy rescaling), and a tuner takes only a few steps of hill climbing. So one
step turns all of them on at once, and others lead back from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

from mirage_py.codegen.cuda.analysis.row_reductions import has_row_reductions
from mirage_py.codegen.tiling.descriptors import COPY_ENGINE
from mirage_py.targets import Target
from mirage_py.ugraph.ir.launch_choices import (
    BlockOrder,
    MatmulInstruction,
    OverlapMode,
    Precision,
    RescalingMode,
    StoreMode,
)
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.ugraph import BlockGraph

M = TypeVar("M", bound=StrEnum)
# Warps of two warp groups.
TWO_GROUPS = 8


@lru_cache(maxsize=4096)
def pipelined(options: LaunchConfig) -> LaunchConfig:
    """With producer warps and MMA/softmax overlap."""
    return replace(options, producer_warps=True, overlap=OverlapMode.ON)


def other_paths(
    block: BlockGraph,
    options: LaunchConfig,
    target: Target,
    *,
    blocks: int = 0,
    is_uneven: bool = False,
) -> Iterator[LaunchConfig]:
    """The options with one choice made otherwise, where the target and the kernel leave one; and
    with all of them made for what runs ahead. The kernel has so many ``blocks``, to which masks
    leave unequal work if it ``is_uneven``.
    """
    multiplies = any(n.op == "matmul" for n in block.nodes)
    if _rescales(block):
        ways = _others(RescalingMode, options.rescaling)
        yield from (replace(options, rescaling=way) for way in ways)
    if multiplies:
        yield from (replace(options, stores=s) for s in _others(StoreMode, options.stores))
    if target.capability != COPY_ENGINE:
        return
    if multiplies:
        yield from _by_other_instructions(block, options)
    if not block.has_loops:
        return
    if not options.producer_warps:
        yield replace(options, descriptors=not options.descriptors)
    yield replace(options, producer_warps=not options.producer_warps)
    if multiplies and options.uses_tma:
        modes = [None, *OverlapMode] if _rescales(block) else [None, OverlapMode.ON]
        yield from (replace(options, overlap=m) for m in modes if m is not options.overlap)
    if multiplies and options.overlap and options.num_warps >= TWO_GROUPS:
        yield replace(options, ping_pong=not options.ping_pong)
    if options.producer_warps:
        if has_row_reductions(block):
            yield replace(options, producer_sums=not options.producer_sums)
        yield from _ahead(block, options, target, blocks, is_uneven=is_uneven)


def _by_other_instructions(block: BlockGraph, options: LaunchConfig) -> Iterator[LaunchConfig]:
    """mma.sync in place of wgmma, and the other way round. Float32 goes by wgmma in TF32 alone, and
    with TMA.
    """
    if options.precision is None:
        yield replace(options, matmul=None if options.matmul else MatmulInstruction.MMA)
    elif options.matmul is MatmulInstruction.WGMMA:
        yield replace(options, matmul=MatmulInstruction.MMA)
    elif options.precision is Precision.TF32 and block.has_loops:
        yield replace(options, matmul=MatmulInstruction.WGMMA, producer_warps=True)


def _ahead(
    block: BlockGraph, options: LaunchConfig, target: Target, blocks: int, *, is_uneven: bool
) -> Iterator[LaunchConfig]:
    """Persistent kernels, and everything at once."""
    staying = _staying(block, options, target, blocks)
    if staying:
        asked = 0 if options.persistent_blocks else staying
        yield replace(options, persistent_blocks=asked)
    everything = all_ahead(block, options, target, blocks, is_uneven=is_uneven)
    if any(n.op == "matmul" for n in block.nodes) and everything != options:
        yield everything


def _staying(block: BlockGraph, options: LaunchConfig, target: Target, blocks: int) -> int:
    """The number of blocks of a persistent kernel; 0 if it would not be one. With two or more
    consumer warp groups a block has an SM for itself.
    """
    is_alone = options.num_warps >= TWO_GROUPS and not block.cluster_dims
    return target.sms if is_alone and blocks > target.sms else 0


def all_ahead(
    block: BlockGraph, options: LaunchConfig, target: Target, blocks: int, *, is_uneven: bool
) -> LaunchConfig:
    """With everything that overlaps work, and coalesced stores."""
    found = replace(pipelined(options), stores=StoreMode.LANES)
    if _rescales(block):
        found = replace(
            found,
            overlap=OverlapMode.ACROSS,
            rescaling=RescalingMode.LAZY,
            ping_pong=options.num_warps >= TWO_GROUPS,
        )
    if is_uneven:
        found = replace(found, block_order=BlockOrder.LONGEST)
    return replace(found, persistent_blocks=_staying(block, options, target, blocks))


def _rescales(block: BlockGraph) -> bool:
    return any(n.op == "accum_rescaled" for n in block.nodes)


def _others(kind: type[M], chosen: M | None) -> Iterator[M | None]:
    """The default and the members of an enum, without the one that is chosen."""
    return (value for value in (None, *kind) if value is not chosen)
