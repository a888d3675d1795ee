"""Layouts of what a warp's tensor-core instruction takes and gives (PTX, m16n8k16 and m16n8k8)."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.cuda.layout import Bit, Layout

Bits = tuple[Bit, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Bits of a product's rows (M), columns (N) and inner positions (K), the lowest first."""

    rows: Bits
    columns: Bits
    inner: Bits


@dataclass(frozen=True, slots=True)
class Fragments:
    """The layouts of a product's operands and result. ``warps`` names the bit of a position that
    each bit of the warp's number stands for; where that is an inner one, the result is in parts.

    Registers of ``left`` are K 0 (the packed pair), M 3, K 3, then further steps of K, then further
    tiles of M; of ``right`` K 0, K 3, further steps of K, further tiles of N; of ``result`` N 0,
    M 3, further tiles of N, further tiles of M.
    """

    shape: Shape
    left: Layout
    right: Layout
    result: Layout

    @property
    def row_tiles(self) -> int:
        """Tiles of 16 rows that a warp has."""
        return 1 << sum(1 for b in self.left.registers if b in self.shape.rows[4:])

    @property
    def column_tiles(self) -> int:
        """Tiles of 8 columns that a warp has."""
        return 1 << sum(1 for b in self.right.registers if b in self.shape.columns[3:])

    @property
    def steps(self) -> Bits:
        """The bits of the number of a step along K."""
        return tuple(b for b in self.left.registers if b in self.shape.inner[4:])


def half_fragments(shape: Shape, warps: tuple[Bit | None, ...]) -> Fragments:
    """Fragments of m16n8k16 with operands of two bytes."""
    m, n, k = shape.rows, shape.columns, shape.inner
    rows = tuple(b for b in m[4:] if b not in warps)
    columns = tuple(b for b in n[3:] if b not in warps)
    steps = tuple(b for b in k[4:] if b not in warps)

    def of(*sides: Bits) -> tuple[Bit | None, ...]:
        return tuple(b if any(b in side for side in sides) else None for b in warps)

    return Fragments(
        shape,
        Layout((k[0], m[3], k[3], *steps, *rows), (k[1], k[2], m[0], m[1], m[2]), of(m, k)),
        Layout((k[0], k[3], *steps, *columns), (k[1], k[2], n[0], n[1], n[2]), of(n, k)),
        Layout((n[0], m[3], *columns, *rows), (n[1], n[2], m[0], m[1], m[2]), of(m, n, k)),
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


def fma_fragments(shape: Shape, warps: tuple[Bit | None, ...]) -> Fragments:
    """Layouts for products without tensor cores: 4 by 8 lanes; a thread keeps all inner
    positions.
    """
    m, n, k = shape.rows, shape.columns, shape.inner
    rows = tuple(b for b in m[2:] if b not in warps)
    columns = tuple(b for b in n[3:] if b not in warps)

    def of(*sides: Bits) -> tuple[Bit | None, ...]:
        return tuple(b if any(b in side for side in sides) else None for b in warps)

    lanes_m: tuple[Bit | None, ...] = (None, None, None, m[0], m[1])
    lanes_n: tuple[Bit | None, ...] = (n[0], n[1], n[2], None, None)
    return Fragments(
        shape,
        Layout((*k, *rows), lanes_m, of(m)),
        Layout((*k, *columns), lanes_n, of(n)),
        Layout((*columns, *rows), (n[0], n[1], n[2], m[0], m[1]), of(m, n)),
    )
