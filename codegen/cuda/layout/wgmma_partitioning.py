"""wgmma partitioning (sm_90a): which matmuls use it, and the shared-memory layout of their
operands.

A warp group is four warps. Each takes 16 of 64 rows, so its part of the result lies in the same
registers as with ``mma.sync``, and everything after a matmul is the same for both. The right
operand is read from shared memory by a descriptor, the left one from there or from registers.
Descriptors: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.fragments import BYTE, HALF, TF32, Bits, Kind, Shape
from mirage_py.codegen.cuda.layout.shared_tile import PANEL_BYTES, PIECE_BYTES, SharedTile
from mirage_py.codegen.cuda.layout.staging import staged_tile
from mirage_py.codegen.cuda.text.layout import Bit
from mirage_py.ugraph.ir.launch_choices import Arch, MatmulInstruction, Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig

# Bits of a side that one instruction takes: 64 rows; 8 to 256 columns.
ROW_BITS = 6
_COLUMN_BITS = range(3, 9)
_GROUP_BITS = 2


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand in shared memory as a descriptor says it: the two steps and the swizzle, in
    bytes; ``is_transposed`` where its contiguous axis is not K.
    """

    tile: SharedTile
    is_transposed: bool
    leading_bytes: int
    stride_bytes: int


def matrix(tile: SharedTile, side: Bits, inner: Bits) -> Matrix | None:
    """A tile as an operand with rows ``side`` (along M or N); None where wgmma cannot read it: of
    float8 and TF32 it reads operands whose contiguous axis is K.
    """
    swizzle = tile.swizzle_bytes
    if tile.columns == inner and tile.rows == side and swizzle:
        return Matrix(tile, False, PIECE_BYTES, 8 * swizzle)
    if tile.columns != side or tile.rows != inner or tile.element_bytes != 2:
        return None
    panel = tile.row_bytes << len(tile.rows)
    if swizzle:
        return Matrix(tile, True, panel, 8 * swizzle)
    return Matrix(tile, True, 8 * PIECE_BYTES, panel) if tile.row_bytes == PIECE_BYTES else None


def group_warps(
    facts: BlockAnalysis,
    operands: tuple[int, int],
    shape: Shape,
    kind: Kind,
    options: LaunchConfig,
    given: Sequence[Bit | None] | None,
    may_be_in_parts: bool,
) -> tuple[Bit | None, ...] | None:
    """What each bit of the warp's number stands for if the matmul goes by warp groups; None if it
    does not: the option ``products`` or the architecture is against it, it has fewer than 64 rows,
    or its right operand is not in shared memory as wgmma reads it. In TF32 it does where asked to.

    ``operands`` are the left and the right one, ``given`` the warps of the one that another matmul
    made.
    """
    count = (options.num_warps - 1).bit_length()
    is_asked = options.matmul is not MatmulInstruction.MMA and options.arch is Arch.SM_90A
    if kind == TF32 and not _is_rounded_by_tma(facts, operands, shape, options):
        return None
    if not is_asked or kind not in (HALF, BYTE, TF32) or count < _GROUP_BITS:
        return None
    rows, columns, inner = shape.rows, shape.columns, shape.inner
    if len(rows) < ROW_BITS or len(columns) < _COLUMN_BITS[0] or len(inner) < kind.inner:
        return None
    right = facts.root(operands[1])
    if facts.block.nodes[right].op != "load" or matrix_of(facts, right, columns, inner) is None:
        return None
    group = rows[4:ROW_BITS]
    # A warp group takes whole panels, or all columns.
    narrow = max(_COLUMN_BITS[0], (PANEL_BYTES // 2).bit_length() - 1)
    sides = (rows[ROW_BITS:], columns[narrow:], inner[kind.inner :])
    warps: tuple[Bit | None, ...]
    if given is not None:
        free = [b for side in sides for b in side]
        warps = tuple(b if b in free or b in group else None for b in given)
        if warps[:_GROUP_BITS] != group:
            return None
    else:
        warps = (*group, *_others(sides, count - _GROUP_BITS, may_be_in_parts))
    own_columns = len(columns) - sum(1 for b in warps if b in columns)
    return warps if own_columns in _COLUMN_BITS else None


def _is_rounded_by_tma(
    facts: BlockAnalysis, operands: Sequence[int], shape: Shape, options: LaunchConfig
) -> bool:
    """Whether a matmul of float32 is asked to go by wgmma in TF32, and matmuls alone read both of
    its operands, from shared memory: tensor cores leave out what TF32 has no bits for, and such
    errors add up, so TMA rounds on the way there.
    """
    if options.matmul is not MatmulInstruction.WGMMA or options.precision is not Precision.TF32:
        return False
    loads = [facts.root(a) for a in operands]
    sides = zip(loads, (shape.rows, shape.columns), strict=True)
    return (
        options.uses_tma
        and not any(facts.block.nodes[n].op != "load" or facts.reads_in_registers(n) for n in loads)
        and all(matrix_of(facts, n, side, shape.inner) is not None for n, side in sides)
    )


def matrix_of(facts: BlockAnalysis, load: int, side: Bits, inner: Bits) -> Matrix | None:
    """A load's tile as an operand."""
    if facts.block.nodes[load].op != "load" or not facts.live(load):
        return None
    return matrix(staged_tile(facts, load), side, inner)


def _others(sides: tuple[Bits, Bits, Bits], count: int, in_parts: bool) -> tuple[Bit | None, ...]:
    """Warp groups along the rows, then the columns, then inner positions."""
    rows, columns, inner = sides
    bits: list[Bit | None] = []
    for side in (rows, columns, inner if in_parts else ()):
        wanted = min(count - len(bits), len(side))
        bits += side[len(side) - wanted :]
    return tuple(bits + [None] * (count - len(bits)))
