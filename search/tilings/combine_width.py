"""Vector width of a combine kernel: how many values each of its threads should have.

A kernel that combines the partial results of a split reads little, and waits: for the kernel before
it, for memory once, for its own warps. With few values per thread there are more blocks than the
GPU starts at once; with many, a thread does in sequence what others could do in parallel. The model
sees next to no difference. Measured on an H200 (attention of one token over 8192 keys, and of 256
rows over 4096; 128 to 1024 blocks, 32 to 256 threads): 8 values were best by 0.1 to 1 us; among
shapes of one size four short rows by 0.3 us, then one long row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, prod

from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.ugraph.ir.launch_config import LaunchConfig

_WARP = 32
_BEST_VALUES = 8
# For each factor of two away from the best: blocks that wait cost more than threads that work.
_FEWER_US = 0.3
_MORE_US = 0.12
_BEST_ROWS = 4
# Only decides where nothing else does.
_SHAPE_US = 0.005


def sharing_us(kernel: TiledKernel, options: LaunchConfig, splits: Sequence[str]) -> float:
    """Time that the model leaves out, for a kernel that sums over ``splits`` without a matmul; 0
    for any other.
    """
    nodes = kernel.block.nodes
    if any(n.op == "matmul" for n in nodes) or any(a.dim in splits for a in kernel.block.grid):
        return 0.0
    reads = [n for n, _ in kernel.block.loads() if any(d in splits for d in nodes[n].dims)]
    if not reads:
        return 0.0
    widest = max(reads, key=kernel.elements.__getitem__)
    away = log2(kernel.elements[widest] / (_WARP * options.num_warps * _BEST_VALUES))
    rows = _rows(kernel, widest)
    shape_us = 0.0 if rows >= _BEST_ROWS else _SHAPE_US * rows
    return shape_us + (away * _MORE_US if away > 0 else -away * _FEWER_US)


def _rows(kernel: TiledKernel, load: int) -> int:
    """Rows of a block's tile of each split: positions that are not adjacent in memory."""
    node = kernel.block.nodes[load]
    strides = kernel.scope.tensors[node.access.tensor].element_strides
    pairs = zip(node.access.index, strides, strict=True)
    contiguous = {d for expr, stride in pairs if stride == 1 for d in expr.dims()}
    tiles = {a.dim: a.tile or 1 for a in kernel.block.grid}
    return prod(tiles.get(d, 1) for d in node.dims if d not in contiguous)
