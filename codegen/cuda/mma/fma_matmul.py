"""Float32 matmuls without tensor cores: fused multiply-adds over tiles in shared memory."""

from __future__ import annotations

from collections.abc import Callable

from mirage_py.codegen.cuda.layout.mma_partitioning import MmaPartition
from mirage_py.codegen.cuda.layout.shared_tile import TILE_ALIGNMENT_BYTES, SharedTile
from mirage_py.codegen.cuda.text.c_text import weighted
from mirage_py.codegen.cuda.text.layout import Layout, bits_of
from mirage_py.codegen.cuda.text.linear_text import is_only_copy
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.emission import Emission, Key
from mirage_py.ugraph.ir.dtypes import F32, DType

# Gives the address of a staged tile that has arrived.
TileAt = Callable[[int], str]

# Steps along the inner dimension that are written out.
_UNROLLED = 4


class FmaMatmul:
    """Writes matmuls of which each thread has a few rows and columns of the result."""

    def __init__(self, emission: Emission, copies: Copies, tile_at: TileAt) -> None:
        self.out = emission
        self.copies = copies
        self.staged = emission.plan.staged
        self.tile_at = tile_at

    def multiply(
        self, plan: MmaPartition, need: Callable[[Key, Layout], Value], result: Value
    ) -> None:
        """Add the matmul to ``result``."""
        out, fragments = self.out, plan.fragments
        tiles: list[tuple[SharedTile, DType, str]] = []
        for operand, _ in plan.sides(out.facts):
            if operand in self.staged:
                dtype = out.facts.dtypes[operand]
                tiles.append((self.staged[operand].tile, dtype, self.tile_at(operand)))
            else:
                own = need(operand, out.layouts.own[operand])
                tile = self._tile(plan, operand)
                tiles.append((tile, F32, self._put(own, tile)))
        if any(operand not in self.staged for operand, _ in plan.sides(out.facts)):
            out.barrier("operands are in shared memory")
            out.has_exchanged = True
        for (operand, _), (_, _, buffer) in zip(plan.sides(out.facts), tiles, strict=True):
            if operand in self.staged:
                self.tile_at(operand)
            else:
                out.memory.use(buffer)
        # In one chain over all iterations roundings would grow with the root of their number.
        part = Value(out.fresh(f"{result.name}_part"), result.layout, F32)
        out.line(part.declaration("0.0f"))
        steps = Layout(fragments.steps, (None,) * 5, fragments.left.warps)
        with out.unrolled("k", 1 << len(fragments.steps), _UNROLLED) as k:
            values = []
            for (operand, layout), (tile, dtype, buffer) in zip(
                plan.sides(out.facts), tiles, strict=True
            ):
                registers = tuple(b for b in layout.registers if b not in fragments.steps)
                step = Layout(registers, layout.lanes, layout.warps)
                more = {k: steps} if k != "0" else {}
                name = out.value_name(operand)
                values.append(self.copies.read_tile(tile, dtype, buffer, step, name, more))
            self._lines(plan, values[0], values[1], part)
        with out.unrolled("r", result.layout.register_count) as r:
            out.line(f"{result.word(r)} += {part.word(r)};")

    def _tile(self, plan: MmaPartition, operand: int) -> SharedTile:
        """The form of an operand that is computed: rows along the inner dimension."""
        facts, shape = self.out.facts, plan.fragments.shape
        inner = shape.inner[0][0]
        extents = facts.extents(operand)
        rows = bits_of(tuple(d for d in facts.live(operand) if d != inner), extents)
        return SharedTile(bits_of((inner,), extents), rows, F32.bytes)

    def _put(self, value: Value, tile: SharedTile) -> str:
        """Write a value to shared memory; the name of the buffer."""
        out = self.out
        name = out.fresh(f"{value.name}_shared")
        buffer = out.memory.new(name, tile.size_bytes, TILE_ALIGNMENT_BYTES, "unsigned char")
        with (
            out.only(is_only_copy(value.layout)),
            out.unrolled("r", value.layout.register_count) as r,
        ):
            place = self.copies.tile_offset(tile, {r: value.layout})
            out.line(f"*reinterpret_cast<float*>({buffer} + {place}) = {value.at(r)};")
        return buffer

    def _lines(self, plan: MmaPartition, left: Value, right: Value, result: Value) -> None:
        out, fragments = self.out, plan.fragments
        rows, columns = fragments.row_tiles, fragments.column_tiles
        with out.unrolled("m", rows) as m, out.unrolled("n", columns) as n:
            word = result.word(weighted((m, columns), (n, 1)))
            for j in range(4):
                a = left.at(weighted((m, 4), (str(j), 1)))
                b = right.at(weighted((n, 4), (str(j), 1)))
                out.line(f"{word} += {a} * {b};")
