"""Runs: contiguous elements of a block's tile, and the cost of short ones.

A tile of a tensor that is read or written across its axes, as where a kernel transposes, is many
short runs. The memory moves whole sectors, and is fast with whole lines. The costs are read off
transposing kernels on an H200 with tiles of 32 to 128 channels and 32 to 256 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from mirage_py.search.tilings.residency import SECTOR_BYTES, survives_bytes
from mirage_py.search.tilings.tiled_kernel import TiledKernel
from mirage_py.targets import Target
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import STORES

# What a run costs, as bytes that are moved in vain, and from how many on runs are as good as longer
# ones: where all rows begin with a sector; where they do not, and are read; where they are written,
# in sectors of which the memory first reads the rest.
_ALIGNED, _READ, _WRITTEN = (40, 256), (60, 512), (160, 2048)
# Runs of less than a sector find the rest of it in a cache.
_MOST = 4.0


def run_bytes(kernel: TiledKernel, access: int) -> int:
    """Bytes that lie side by side in the tile of a load or store."""
    node, tiling = kernel.block.nodes[access], kernel.tiling
    sizes, section = kernel.scope.sizes, kernel.block.section_of[access]
    tiles = {d: min(sizes[d], tiling.padded(d, section)) for d in node.dims}
    run = 1
    for expr, stride in kernel.body.moving[access]:
        dims = expr.dims()
        if stride != run or not dims or expr.tensors():
            break
        # Of a split dimension the outer part takes long steps, and windows overlap.
        for step, dim in sorted((_step(expr, d, sizes[d]) * stride, d) for d in dims):
            if step > run:
                break
            run += step * (tiles.get(dim, 1) - 1)
            if tiles.get(dim) != sizes[dim]:
                break
        if any(tiles.get(d) != sizes[d] for d in dims):
            break
    return run * kernel.body.element_bytes[access]


def _step(expr: IndexExpr, dim: str, extent: int) -> int:
    """How far the index goes, forwards or backwards, from one position along a dimension to the
    next: in its middle, as it may wrap at the ends.
    """
    middle = {**dict.fromkeys(expr.dims(), 0), dim: extent // 2}
    return abs(int(expr.evaluate({**middle, dim: extent // 2 + 1}) - expr.evaluate(middle)))


def with_waste(kernel: TiledKernel, target: Target) -> Mapping[str, int]:
    """The bytes of each tensor that the kernel reads or writes; of one that does not stay in the L2
    with what short runs add.
    """
    small, shares = survives_bytes(target), _wasted_shares(kernel)
    touched = kernel.body.touched
    return {t: n if n <= small else int(n * (1 + shares.get(t, 0.0))) for t, n in touched.items()}


def _wasted_shares(kernel: TiledKernel) -> Mapping[str, float]:
    """For each tensor that is moved in short runs what that adds, in shares of its bytes. Tiles of
    matmuls are another matter: they are read again, from the L2.
    """
    found: dict[str, float] = {}
    if any(n.op == "matmul" for n in kernel.block.nodes):
        return found
    for number, node in enumerate(kernel.block.nodes):
        if node.op != "load" and node.op not in STORES:
            continue
        name, run = node.access.tensor, run_bytes(kernel, number)
        each, most = _READ if node.op == "load" else _WRITTEN
        if _is_aligned(kernel, number):
            each, most = _ALIGNED
        if run < min(most, kernel.scope.tensors[name].bytes):
            share = each * (1 / run - 1 / most)
            found[name] = min(_MOST, max(found.get(name, 0.0), share))
    return found


def _is_aligned(kernel: TiledKernel, access: int) -> bool:
    """Whether all rows of the tensor begin with a sector."""
    tensor = kernel.scope.tensors[kernel.block.nodes[access].access.tensor]
    strides = zip(tensor.element_strides, tensor.shape, strict=True)
    step = gcd(*(s for s, extent in strides if s != 1 and extent > 1))
    return step * tensor.dtype.bytes % SECTOR_BYTES == 0
