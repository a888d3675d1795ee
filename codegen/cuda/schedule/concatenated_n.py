"""MMA with concatenated N: one wgmma for several matmuls of one left operand with narrow right
ones.

An instruction reads its left operand from shared memory whatever its N. Below 64 columns that takes
longer than the multiplication. So narrow tiles of right operands lie side by side in a stage, like
panels of one tile, and one instruction multiplies by all of them; its sums are those of the
matmuls, one after the other. Launch option ``joins off``: one instruction for each matmul, for
comparison.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.layout.mma_partitioning import MmaPartition
from mirage_py.codegen.cuda.layout.shared_tile import (
    PANEL_BYTES,
    TILE_ALIGNMENT_BYTES,
    SharedTile,
)
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.layout.wgmma_partitioning import ROW_BITS, matrix_of

# Columns of one instruction.
_MOST_COLUMNS = 256


@dataclass(frozen=True, slots=True)
class ConcatenatedMma:
    """``matmuls``, the ``loads`` of their right operands, and the columns of each, in the order in
    which they lie in shared memory.
    """

    matmuls: tuple[int, ...]
    loads: tuple[int, ...]
    columns: tuple[int, ...]


def concatenated_mmas(
    facts: BlockAnalysis, layouts: Layouts, staged: Mapping[int, Staged], section: int
) -> list[ConcatenatedMma]:
    """Those of a section with a loop that can be one instruction."""
    alike: dict[Hashable, list[tuple[int, int, int]]] = {}
    for product, plan in layouts.mmas.items():
        if facts.section(product) != section or not _adds_tiles(facts, product, plan, section):
            continue
        load = facts.root(plan.right)
        tile = staged[load].tile
        left = facts.root(plan.left), plan.fragments.left
        form = tile.row_bytes, len(tile.rows), tuple(b[0] for b in tile.rows)
        alike.setdefault((left, form), []).append((1 << len(tile.columns), product, load))
    found = []
    for members in alike.values():
        group: list[tuple[int, int, int]] = []
        for one in sorted(members):
            if group and sum(m[0] for m in group) + one[0] > _MOST_COLUMNS:
                found.append(group)
                group = []
            group.append(one)
        found.append(group)
    return [_concatenated(group) for group in found if len(group) > 1]


def _concatenated(group: Sequence[tuple[int, int, int]]) -> ConcatenatedMma:
    columns, products, loads = zip(*group, strict=True)
    return ConcatenatedMma(products, loads, columns)


def _adds_tiles(facts: BlockAnalysis, product: int, plan: MmaPartition, section: int) -> bool:
    """Whether all that a matmul does is to add to an accumulator, 64 rows of a tile for each warp
    group, with all columns of another tile that it alone reads.
    """
    state, shape = facts.fused.get(product), plan.fragments.shape
    left, right = facts.root(plan.left), facts.root(plan.right)
    if state is None or facts.block.nodes[state].op != "accum_sum" or not plan.uses_wgmma:
        return False
    if facts.section(left) != section or facts.section(right) != section:
        return False
    if matrix_of(facts, left, shape.rows, shape.inner) is None:
        return False
    matrix = matrix_of(facts, right, shape.columns, shape.inner)
    if matrix is None or not matrix.is_transposed or not _is_narrow_panel(matrix.tile):
        return False
    stores = (n for n, _ in facts.block.stores())
    readers = [n for n in (*facts.emitted, *stores) if right in facts.inputs(n)]
    warps = plan.fragments.result.warps
    has_rows = all(b in shape.rows for b in warps if b is not None)
    groups = sum(b in shape.rows[ROW_BITS:] for b in warps)
    return has_rows and len(shape.rows) == ROW_BITS + groups and readers == [state]


def _is_narrow_panel(tile: SharedTile) -> bool:
    """Whether a tile has few columns, and another such panel may follow."""
    is_narrow = tile.row_bytes == tile.swizzle_bytes < PANEL_BYTES
    return is_narrow and tile.size_bytes % TILE_ALIGNMENT_BYTES == 0


def concatenated_sums(names: Sequence[str], concatenated: ConcatenatedMma) -> str:
    """What the sums of all matmuls are called; ``names`` are those of the nodes."""
    return f"{names[concatenated.matmuls[0]]}_sums"
