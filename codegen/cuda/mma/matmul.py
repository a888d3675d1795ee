"""Matmuls on tensor cores: mma.sync over fragments in registers or from shared memory."""

from __future__ import annotations

from collections.abc import Callable

from mirage_py.codegen.cuda.exchange.exchange import Exchange
from mirage_py.codegen.cuda.layout.code_operands import as_read
from mirage_py.codegen.cuda.layout.fragments import FMA, TF32, Bits
from mirage_py.codegen.cuda.layout.mma_partitioning import MmaPartition
from mirage_py.codegen.cuda.mma.fma_matmul import FmaMatmul, TileAt
from mirage_py.codegen.cuda.mma.wgmma import WgmmaEmitter
from mirage_py.codegen.cuda.softmax.excess import declare_excess, excess_sums, take_off_excess
from mirage_py.codegen.cuda.text.c_text import weighted
from mirage_py.codegen.cuda.text.layout import Bit, Layout
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.emission import Emission, Key
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.launch_choices import Precision

# Elements of an operand of several matmuls that a thread keeps for all of them.
_MOST_SHARED = 64


class MatmulEmitter:
    """Writes the multiplication of two operands into registers of the result."""

    def __init__(
        self,
        emission: Emission,
        copies: Copies,
        exchange: Exchange,
        wgmma: WgmmaEmitter,
        tile_at: TileAt,
        need: Callable[[Key, Layout], Value],
    ) -> None:
        self.out = emission
        self.plan = emission.plan
        self.copies = copies
        self.exchange = exchange
        self.staged = emission.plan.staged
        self.tile_at = tile_at
        self.need = need
        self.fma = FmaMatmul(emission, copies, tile_at)
        self.wgmma = wgmma

    def prepare(self, number: int) -> None:
        """Bring operands that are not multiplied from shared memory into registers."""
        plan = self.out.layouts.mmas[number]
        if plan.fragments.kind == FMA:
            return
        for operand, layout in plan.sides(self.out.facts):
            if not self._from_tile(number, operand, layout):
                self.need(operand, layout)

    def _from_tile(self, product: int, operand: int, layout: Layout) -> bool:
        if self.out.layouts.mmas[product].uses_wgmma:
            return self.plan.operands.is_tile(product, operand)
        held = any(v.layout == layout for v in self.out.held(operand))
        return operand in self.staged and not held and not self._is_shared(operand, layout)

    def _is_shared(self, operand: int, layout: Layout) -> bool:
        """Whether others read an operand in the same layout: it is brought to registers once."""
        layouts, facts = self.out.layouts, self.out.facts
        if layouts.own.get(operand) == layout:
            return True
        takers = [p for p in layouts.mmas.values() if (operand, layout) in p.sides(facts)]
        return len(takers) > 1 and layout.register_count <= _MOST_SHARED

    def begin(
        self,
        number: int,
        key: int,
        result: Value,
        adds: bool,
        part: tuple[str, tuple[Bit, ...]] = ("0", ()),
    ) -> bool:
        """Begin a warpgroup matmul or a ``part`` of it, which adds to ``result`` or sets it, and
        whose sums the node ``key`` holds; False where the matmul goes otherwise.
        """
        plan = self.out.layouts.mmas[number]
        if not plan.uses_wgmma:
            return False
        (operand, _), _ = plan.sides(self.out.facts)
        left = None
        if not self.plan.operands.is_tile(number, operand):
            left = self.left_value(number)
            if number in self.plan.overwritten:
                left = self._copied(left)
        self.wgmma.multiply(number, key, left, result, adds, part)
        return True

    def _copied(self, left: Value) -> Value:
        """A left operand in registers that an iteration has for itself."""
        value = Value(self.out.fresh(f"{left.name}_now"), left.layout, left.dtype, is_packed=True)
        self.out.line(value.declaration())
        self.out.line(f"hand_over({value.name}, {left.name});")
        return value

    def left_value(self, number: int) -> Value:
        """The left operand in registers, as a warpgroup matmul takes it."""
        plan = self.out.layouts.mmas[number]
        (operand, layout), _ = plan.sides(self.out.facts)
        return self._in_order(plan, self.need(operand, layout), layout)

    def multiply(self, number: int, result: Value) -> None:
        """Add the matmul to ``result``, which has its layout in parts."""
        out = self.out
        plan = out.layouts.mmas[number]
        fragments = plan.fragments
        if fragments.kind == FMA:
            self.fma.multiply(plan, self.need, result)
            return
        tiles: dict[int, str] = {}
        values: dict[int, Value] = {}
        for operand, layout in plan.sides(out.facts):
            if self._from_tile(number, operand, layout):
                tiles[operand] = self.tile_at(operand)
            else:
                values[operand] = self._in_order(plan, self.need(operand, layout), layout)
        for operand in tiles:
            # Waiting for the second one may have begun another phase.
            self.tile_at(operand)
        high = self._groups(plan)
        low = tuple(b for b in fragments.steps if b not in high)
        each = {"g": high, "k": low}
        with out.unrolled("g", 1 << len(high)) as g:
            sums = result if plan.factor < 0 else self._sums_of_group(plan, result)
            with out.unrolled("k", 1 << len(low)) as k:
                lanes, warps = (None,) * 5, fragments.left.warps
                more = {v: Layout(each[v], lanes, warps) for v in (g, k) if v != "0"}
                words = self._words(plan, (tiles, values), more)
                self._tiles(plan, words, weighted((g, 1 << len(low)), (k, 1)), sums)
            if plan.factor >= 0:
                self._add_group(plan, g, (sums, result))

    def _groups(self, plan: MmaPartition) -> Bits:
        """The bits of the number of a step that tell groups apart, whose sums have a factor."""
        live = self.out.facts.live(plan.factor) if plan.factor >= 0 else ()
        return tuple(b for b in plan.fragments.steps if b[0] in live)

    def _sums_of_group(self, plan: MmaPartition, result: Value) -> Value:
        """Registers for the sums of a group, and for what is taken off them."""
        out = self.out
        sums = Value(out.fresh(f"{result.name}_group"), result.layout, F32)
        out.line(sums.declaration("0.0f"))
        if plan.excess:
            declare_excess(out, sums, plan)
        return sums

    def _add_group(self, plan: MmaPartition, group: str, sums: tuple[Value, Value]) -> None:
        """Add the sums of a group, times its factor, to those of all."""
        out, (own, total) = self.out, sums
        if plan.excess:
            take_off_excess(out, own, plan)
        facts, layout = out.facts, total.layout
        (_, left), _ = plan.sides(facts)
        factor = self.need(plan.factor, left.of_dims(facts.live(plan.factor)))
        reader = Layout((*layout.registers, *self._groups(plan)), layout.lanes, layout.warps)
        with out.unrolled("r", own.words) as r:
            by = factor.read_by(reader, weighted((group, own.words), (r, 1)))
            out.line(f"{total.word(r)} += {by} * {own.word(r)};")

    def _words(
        self,
        plan: MmaPartition,
        sources: tuple[dict[int, str], dict[int, Value]],
        more: dict[str, Layout],
    ) -> list[tuple[Value, str]]:
        """The operands of a step: all steps of what is in registers, or this one's part of a tile
        in shared memory.
        """
        out, fragments = self.out, plan.fragments
        tiles, values = sources
        words = []
        for operand, layout in plan.sides(out.facts):
            if operand in values:
                words.append((values[operand], "whole"))
                continue
            step = Layout(
                tuple(b for b in layout.registers if b not in fragments.steps),
                layout.lanes,
                layout.warps,
            )
            name = out.value_name(operand)
            staged = self.staged[operand]
            read = as_read(step, staged.tile.columns) if plan.has_codes else step
            value = self.copies.read(staged, tiles[operand], read, name, more)
            words.append((self._in_order(plan, value, step), "step"))
        return words

    def _in_order(self, plan: MmaPartition, value: Value, layout: Layout) -> Value:
        """The operand in the order of the fragment; halves as pairs."""
        is_tf32 = plan.fragments.kind == TF32
        if value.layout.registers == layout.registers and (value.is_packed or is_tf32):
            return value
        if is_tf32:
            return self.exchange.arranged(value, layout)
        if value.is_packed and value.layout.registers[0] == layout.registers[0]:
            return self.exchange.arranged(value, layout)
        out, half = self.out, value.dtype.name
        found = Value(out.fresh(value.name), layout, value.dtype, is_packed=True)
        out.line(found.declaration())
        with out.unrolled("r", found.words) as r:
            if value.is_packed:
                places = [value.place_for(layout, f"(2 * {r} + {n})") for n in (0, 1)]
                words = ", ".join(value.word(f"({place}) >> 1") for place in places)
                which = ", ".join(f"({place}) & 1" for place in places)
                out.line(f"{found.word(r)} = join_halves({words}, {which});")
                return found
            low, high = (value.read_by(layout, f"(2 * {r} + {n})") for n in (0, 1))
            out.line(f"{found.word(r)} = pack_{half}({low}, {high});")
        return found

    def _tiles(
        self, plan: MmaPartition, operands: list[tuple[Value, str]], k: str, result: Value
    ) -> None:
        """One step along K: every tile of rows with every tile of columns."""
        out, fragments = self.out, plan.fragments
        rows, columns = fragments.row_tiles, fragments.column_tiles
        steps = 1 << len(fragments.steps)
        within = self._columns_within(plan)
        if plan.excess:
            self._excess(plan, operands, k, result)
        with out.unrolled("m", rows) as m, out.unrolled("n", within) as n:
            tile = weighted((m, columns), (n, 1))
            c = [result.word(weighted((tile, 4), (str(i), 1))) for i in range(4)]
            (left, of_left), (right, of_right) = operands
            a_tile = weighted((m, steps), (k, 1)) if of_left == "whole" else m
            b_tile = weighted((n, steps), (k, 1)) if of_right == "whole" else n
            a = [left.word(weighted((a_tile, 4), (str(i), 1))) for i in range(4)]
            b = [right.word(weighted((b_tile, 2), (str(i), 1))) for i in range(2)]
            name = plan.dtype.name
            if fragments.kind == TF32:
                name = str(out.plan.options.precision)
            if name == Precision.TF32:
                a, b = ([f"to_tf32({word})" for word in words] for words in (a, b))
            out.line(f"mma_{name}({', '.join([*c, *a, *b])});")

    def _excess(
        self, plan: MmaPartition, operands: list[tuple[Value, str]], k: str, result: Value
    ) -> None:
        """One step along K of the sums that are too much: those of a row or column tile that is
        minus the excess, with each tile of the other operand.
        """
        out, steps = self.out, 1 << len(plan.fragments.steps)
        (value, of_value) = operands[1 if plan.codes_left else 0]
        count = self._columns_within(plan) if plan.codes_left else plan.fragments.row_tiles
        minus = f"pack_{plan.dtype.name}({-plan.excess}f, {-plan.excess}f)"
        with out.unrolled("n", count) as n:
            c = [f"{excess_sums(result)}[{weighted((n, 4), (str(i), 1))}]" for i in range(4)]
            tile = weighted((n, steps), (k, 1)) if of_value == "whole" else n
            if plan.codes_left:
                b = [value.word(weighted((tile, 2), (str(i), 1))) for i in range(2)]
                words = [*[minus] * 4, *b]
            else:
                a = [value.word(weighted((tile, 4), (str(i), 1))) for i in range(4)]
                words = [*a, minus, minus]
            out.line(f"mma_{plan.dtype.name}({', '.join([*c, *words])});")

    def _columns_within(self, plan: MmaPartition) -> int:
        """Tiles of columns that a warp has, without those that are padding in every block."""
        fragments, tiling = plan.fragments, self.out.facts.tiling
        columns, kind = fragments.shape.columns, fragments.kind
        dim = columns[-1][0]
        size = self.out.facts.program.sizes[dim]
        is_whole = len(columns) - kind.columns == (fragments.column_tiles - 1).bit_length()
        if {b[0] for b in columns} != {dim} or not is_whole or dim in tiling.run_time:
            return fragments.column_tiles
        return min(fragments.column_tiles, -(-size // (1 << kind.columns)))
