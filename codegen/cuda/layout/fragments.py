"""MMA fragments: the register layouts of operands and result (PTX, m16n8k16 and m16n8k8)."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.cuda.text.layout import Bit, Layout

Bits = tuple[Bit, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Bits of a matmul's rows (M), columns (N) and inner positions (K), the lowest first."""

    rows: Bits
    columns: Bits
    inner: Bits


@dataclass(frozen=True, slots=True)
class Fragments:
    """The layouts of a matmul's operands and result. ``warps`` names the bit of a position that
    each bit of the warp's number stands for; where that is an inner one, the result is in parts.

    Registers of ``left`` for halves are K 0 (the packed pair), M 3, K 3, then further steps of K,
    then further tiles of M; of ``right`` K 0, K 3, further steps of K, further tiles of N; of
    ``result`` N 0, M 3, further tiles of N, further tiles of M.
    """

    shape: Shape
    kind: Kind
    left: Layout
    right: Layout
    result: Layout

    @property
    def row_tiles(self) -> int:
        """Tiles of rows that a warp has."""
        return 1 << sum(1 for b in self.left.registers if b in self.shape.rows[self.kind.rows :])

    @property
    def column_tiles(self) -> int:
        """Tiles of columns that a warp has."""
        above = self.shape.columns[self.kind.columns :]
        return 1 << sum(1 for b in self.right.registers if b in above)

    @property
    def steps(self) -> Bits:
        """The bits of the number of a step along K."""
        return tuple(b for b in self.left.registers if b in self.shape.inner[self.kind.inner :])


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to multiply: by tensor cores on halves, float8 or tf32, or by fused multiply-adds.

    ``rows``, ``columns`` and ``inner`` are the bits of a position that one instruction of a warp
    takes along each side.
    """

    name: str
    rows: int
    columns: int
    inner: int


HALF = Kind("half", 4, 3, 4)
# Float8: 32 inner positions in the bytes of 16 halves.
BYTE = Kind("byte", 4, 3, 5)
TF32 = Kind("tf32", 4, 3, 3)
FMA = Kind("fma", 2, 3, 2)


def fragments(kind: Kind, shape: Shape, warps: tuple[Bit | None, ...]) -> Fragments:
    """The layouts of a matmul; for the kinds on tensor cores those of the PTX manual.

    Without tensor cores 8 lanes lie along the columns and 4 along the rows, and a thread takes four
    inner positions at once.
    """
    m, n, k = shape.rows, shape.columns, shape.inner
    rows = tuple(b for b in m[kind.rows :] if b not in warps)
    columns = tuple(b for b in n[kind.columns :] if b not in warps)
    steps = tuple(b for b in k[kind.inner :] if b not in warps)

    def of(*sides: Bits) -> tuple[Bit | None, ...]:
        return tuple(b if any(b in side for side in sides) else None for b in warps)

    result = Layout((n[0], m[3], *columns, *rows), (n[1], n[2], *m[:3]), of(m, n, k))
    left: Bits
    right: Bits
    left_lanes: tuple[Bit | None, ...]
    right_lanes: tuple[Bit | None, ...]
    if kind == HALF:
        left, right = (k[0], m[3], k[3]), (k[0], k[3])
        left_lanes, right_lanes = (k[1], k[2], *m[:3]), (k[1], k[2], *n[:3])
    elif kind == BYTE:
        left, right = (k[0], k[1], m[3], k[4]), (k[0], k[1], k[4])
        left_lanes, right_lanes = (k[2], k[3], *m[:3]), (k[2], k[3], *n[:3])
    elif kind == TF32:
        left, right = (m[3], k[2]), (k[2],)
        left_lanes, right_lanes = (k[0], k[1], *m[:3]), (k[0], k[1], *n[:3])
    else:
        left = right = (k[0], k[1])
        left_lanes, right_lanes = (None, None, None, *m[:2]), (*n[:3], None, None)
        result = Layout((*columns, *rows), (*n[:3], *m[:2]), of(m, n, k))
    return Fragments(
        shape,
        kind,
        Layout((*left, *steps, *rows), left_lanes, of(m, k)),
        Layout((*right, *steps, *columns), right_lanes, of(n, k)),
        result,
    )


def spread_sums(parts: Layout, kept: tuple[str, ...]) -> Layout:
    """What threads hold after parts of sums have been added up: where the parts were in several
    warps, each of these keeps a share of the registers.

    ``kept`` are the dimensions of the result.
    """
    lanes = tuple(b if b is not None and b[0] in kept else None for b in parts.lanes)
    registers = list(parts.registers)
    warps: list[Bit | None] = []
    for bit in parts.warps:
        if bit is None or bit[0] in kept:
            warps.append(bit)
        else:
            # Two registers at least stay together: a pair of halves.
            warps.append(registers.pop() if len(registers) > 1 else None)
    return Layout(tuple(registers), lanes, tuple(warps))
