"""Staging: which loads go through shared memory, and in what form.

Tiles that a matmul reads, and all that a loop of several stages reads, so that copies run ahead of
the arithmetic. Everything else is loaded straight into registers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.shared_tile import SharedTile
from mirage_py.codegen.cuda.text.layout import Bit, Layout, bits_of
from mirage_py.codegen.tiling.contiguity import ALIGNMENT_BYTES, run_length, steps_along
from mirage_py.ugraph.ir.dtypes import I8, U8
from mirage_py.ugraph.ir.index import const

# Bytes of the narrowest asynchronous copy.
_LEAST_COPY_BYTES = 4
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Staged:
    """A load through shared memory: ``vector`` elements are copied at once, by one thread each for
    itself; asynchronously where that many are 4 bytes or more.
    """

    load: int
    tile: SharedTile
    vector: int

    @property
    def copy_bytes(self) -> int:
        """Bytes of one copy."""
        return self.vector * self.tile.element_bytes

    @property
    def is_asynchronous(self) -> bool:
        """Whether the hardware copies by itself."""
        return self.copy_bytes >= _LEAST_COPY_BYTES


def staged_loads(facts: BlockAnalysis, depths: dict[int, int]) -> dict[int, Staged]:
    """The loads that go through shared memory; ``depths`` are the stages of sections with loops."""
    found = {}
    for number, node in enumerate(facts.block.nodes):
        if node.op != "load" or not facts.live(number) or not facts.dtypes[number].is_float:
            continue
        multiplied = any(number in map(facts.root, facts.block.nodes[d].args) for d in facts.dots)
        staged = _staged(facts, number)
        pipelined = depths.get(facts.section(number), 1) > 1 and staged.is_asynchronous
        if multiplied or pipelined:
            found[number] = staged
    return found


def staged_bytes(
    facts: BlockAnalysis, depths: Mapping[int, int], codes: Collection[int]
) -> dict[int, Staged]:
    """The integers of a byte that loops with ``codes`` read beside them: exponents of scales."""
    found = {}
    for number, node in enumerate(facts.block.nodes):
        section = facts.section(number)
        if node.op != "load" or number in codes or facts.dtypes[number] not in (I8, U8):
            continue
        if facts.live(number) and depths.get(section, 1) > 1:
            staged = _staged(facts, number)
            if staged.is_asynchronous and any(facts.section(n) == section for n in codes):
                found[number] = staged
    return found


def received_loads(facts: BlockAnalysis) -> dict[int, Staged]:
    """What other blocks of the cluster send, as tiles in shared memory: along the dimension of the
    stores, or along the last one, with what comes from one block all together.
    """
    found: dict[int, Staged] = {}
    if (cut := facts.cut) is None:
        return found
    for load in cut.sources:
        extents = facts.extents(load)
        parts = [d for d in extents if d in facts.block.cluster_dims]
        others = [d for d in extents if d not in parts]
        inner = cut.inner(parts, others)
        rows = (*parts, *others)
        rest = bits_of(tuple(d for d in rows if d != inner), extents)
        found[load] = Staged(load, SharedTile(bits_of((inner,), extents), rest, 4), 1)
    return found


def _staged(facts: BlockAnalysis, load: int) -> Staged:
    node = facts.block.nodes[load]
    tensor = facts.tensors[node.access.tensor]
    dims, extents = facts.live(load), facts.extents(load)
    runs = {d: vector_run(facts, load, d, extents[d]) for d in dims}
    first = max(dims, key=lambda d: (runs[d], dims.index(d)))
    along, vector = _side_by_side(facts, load, first, runs[first])
    rows = bits_of(tuple(d for d in dims if d not in along), extents)
    tile = SharedTile(bits_of(along, extents), rows, tensor.dtype.bytes)
    return Staged(load, tile, vector)


def _side_by_side(
    facts: BlockAnalysis, load: int, first: str, run: int
) -> tuple[tuple[str, ...], int]:
    """The dimensions along a tile's rows, the contiguous one last, and the elements of an access:
    where an index is like 2 j + c, all of c and j are neighbours.
    """
    access = facts.block.nodes[load].access
    tensor, extents = facts.tensors[access.tensor], facts.extents(load)
    along, count = (first,), extents[first]
    limit = ALIGNMENT_BYTES // tensor.dtype.bytes
    at = next((n for n, e in enumerate(access.index) if first in e.dims()), None)
    if at is None or count != facts.program.sizes[first] or count > limit:
        return along, run
    zero = access.index[at].substitute({first: const(0)})
    index = (*access.index[:at], zero, *access.index[at + 1 :])
    for dim in facts.live(load):
        if (
            dim == first
            or dim not in zero.dims()
            or facts.tiling.has_tail(dim, facts.section(load))
        ):
            continue
        most = min(limit // count, extents[dim])
        step, multiple = steps_along(zero, dim, most)
        others = (e for n, e in enumerate(index) if n != at)
        strides = [s for n, s in enumerate(tensor.element_strides) if n != at]
        rows = all(s % limit == 0 or not e.dims() for e, s in zip(others, strides, strict=True))
        if step == count and multiple % (count * most) == 0 and rows and run == count:
            return (dim, first), count * most
    return along, run


def staged_tile(facts: BlockAnalysis, load: int) -> SharedTile:
    """The form of a load's tile if it goes through shared memory."""
    return _staged(facts, load).tile


def vector_run(facts: BlockAnalysis, access: int, dim: str, limit: int) -> int:
    """Elements along a dimension that one access of a load or store can take: side by side,
    aligned, and all of them in range or none. Of integers those of a byte are loaded so, whole
    words of them.
    """
    node = facts.block.nodes[access]
    tensor = facts.tensors[node.access.tensor]
    if not tensor.dtype.is_float and (node.op != "load" or tensor.dtype.name not in ("i8", "u8")):
        return 1
    run = run_length(node.access, tensor, dim, min(limit, ALIGNMENT_BYTES // tensor.dtype.bytes))
    if facts.tiling.has_tail(dim, facts.section(access)):
        while facts.program.sizes[dim] % run:
            run //= 2
    is_part_of_word = not tensor.dtype.is_float and run * tensor.dtype.bytes < _WORD_BYTES
    return 1 if is_part_of_word else run


def matrix_layout(tile: SharedTile, target: Layout) -> tuple[Layout, bool] | None:
    """How ``ldmatrix`` reads a tile of halves into a layout: the rows that lanes name, four
    matrices for each number of a register; and whether it transposes. None if it cannot.
    """
    if tile.element_bytes != 2 or len(target.registers) < 2 or len(tile.columns) < 3:
        return None
    low: tuple[Bit | None, ...] = (target.registers[0], target.lanes[0], target.lanes[1])
    high: tuple[Bit | None, ...] = target.lanes[2:]
    piece = tile.columns[:3]
    rows: tuple[Bit | None, ...]
    if low == piece:
        rows, transposes = high, False
    elif high == piece:
        rows, transposes = low, True
    else:
        return None
    if None in rows:
        return None
    matrices: list[Bit | None] = [*target.registers[1:3], None]
    return Layout(target.registers[3:], (*rows, *matrices[:2]), target.warps), transposes
