"""Loads through tensor descriptors: TMA in Triton kernels (sm_90 and later).

TMA fetches a whole tile for one instruction of one thread, where cp.async takes an address and an
instruction for every 16 bytes of every thread. The launch option ``copies descriptors`` of a kernel
uses it for the matmul operands of its loops, where the layout allows. Before sm_90 the compiler
turns it into plain loads.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import ACCESSES, Node
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph

# The first compute capability that has it.
COPY_ENGINE = 90
# Of TMA: axes of a tensor, points of a tile along each, and bytes that rows and the
# steps between them are multiples of.
_MOST_AXES = 5
_MOST_POINTS = 256
GRANULE_BYTES = 16


def described_tiles(
    block: BlockGraph, tiling: Tiling, tensors: Mapping[str, Tensor], options: LaunchConfig
) -> dict[str, tuple[int, ...]]:
    """The tensors that this kernel reads through descriptors, each with the tile it fetches."""
    if not options.descriptors:
        return {}
    tiles: dict[str, set[tuple[int, ...]]] = {}
    for number, node in enumerate(block.nodes):
        if node.op in ACCESSES:
            found = _tile(block, tiling, tensors[node.access.tensor], number)
            tiles.setdefault(node.access.tensor, set()).add(found)
    return {t: next(iter(s)) for t, s in tiles.items() if len(s) == 1 and () not in s}


def live_axes(node: Node, tiling: Tiling, section: int) -> dict[int, str]:
    """The axes of the tensor along which a tile has several points, and their dimensions."""
    return {
        axis: dim
        for axis, expr in enumerate(node.access.index)
        for dim in tiling.live(expr.dims(), section)
    }


def _tile(block: BlockGraph, tiling: Tiling, tensor: Tensor, number: int) -> tuple[int, ...]:
    """The tile of one access as TMA could load it; empty if it cannot."""
    node, section = block.nodes[number], block.section_of[number]
    users = [i for i, n in enumerate(block.nodes) if number in n.args]
    feeds = any(block.nodes[u].op == "matmul" and tiling.is_dot(u) for u in users)
    if node.op != "load" or block.sections[section].loop is None or not feeds:
        return ()
    if node.access.is_look_up:
        return ()
    index, strides = node.access.index, tensor.element_strides
    live = live_axes(node, tiling, section)
    dims = [d for e in index for d in tiling.live(e.dims(), section)]
    plain = all(is_step(index[axis], dim) for axis, dim in live.items())
    if sorted(dims) != sorted(live.values()) or len(live) != 2 or not plain:
        return ()
    if any(dim in tiling.run_time for e in index for dim in e.dims()):
        # Rows that are known and a multiple of the granule make every step over them one.
        row = index[-1].dims()
        is_known = tensor.strides is None and not any(dim in tiling.run_time for dim in row)
        if not is_known or tensor.shape[-1] * tensor.dtype.bytes % GRANULE_BYTES:
            return ()
    tails = {axis for axis, dim in live.items() if tiling.has_tail(dim, section)}
    # Past the end of the tensor the engine gives zeros, as a masked load does.
    inside = all(index[a].is_dim and _size(tiling, index[a]) == tensor.shape[a] for a in tails)
    bytes_per_step = (s * tensor.dtype.bytes for s in strides[:-1])
    aligned = all(s > 0 and s % GRANULE_BYTES == 0 for s in bytes_per_step)
    if not inside or not aligned or strides[-1] != 1 or len(index) > _MOST_AXES:
        return ()
    tile = [tiling.padded(live[a], section) if a in live else 1 for a in range(len(index))]
    row_bytes = tile[-1] * tensor.dtype.bytes
    if max(tile) > _MOST_POINTS or row_bytes % GRANULE_BYTES:
        return ()
    return tuple(tile)


def is_step(expr: IndexExpr, dim: str) -> bool:
    """Whether the dimension, plus what else there is, is the position."""
    if expr.op == "add":
        return any(
            is_step(one, dim) and dim not in other.dims()
            for one, other in (expr.args, expr.args[::-1])
        )
    return expr.is_dim and expr.name == dim


def _size(tiling: Tiling, expr: IndexExpr) -> int:
    return tiling.program.sizes[expr.name]
