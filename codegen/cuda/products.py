"""Products on tensor cores: mma.sync over fragments in registers or from shared memory."""

from __future__ import annotations

from collections.abc import Callable

from mirage_py.codegen.cuda.copies import Copies
from mirage_py.codegen.cuda.emission import Emission, Key
from mirage_py.codegen.cuda.exchange import Exchange
from mirage_py.codegen.cuda.layout import Layout
from mirage_py.codegen.cuda.product_plan import ProductPlan
from mirage_py.codegen.cuda.staging import Staged
from mirage_py.codegen.cuda.value import Value

# Gives the address of a staged tile that has arrived.
TileAt = Callable[[int], str]


class Products:
    """Writes the multiplication of two operands into registers of the result."""

    def __init__(
        self,
        emission: Emission,
        copies: Copies,
        exchange: Exchange,
        staged: dict[int, Staged],
        tile_at: TileAt,
        need: Callable[[Key, Layout], Value],
    ) -> None:
        self.out = emission
        self.copies = copies
        self.exchange = exchange
        self.staged = staged
        self.tile_at = tile_at
        self.need = need

    def prepare(self, number: int) -> None:
        """Bring operands that are not multiplied from shared memory into registers."""
        plan = self.out.layouts.products[number]
        for operand, layout in self._sides(plan):
            if not self._from_tile(operand, layout):
                self.need(operand, layout)

    def _sides(self, plan: ProductPlan) -> tuple[tuple[int, Layout], tuple[int, Layout]]:
        root = self.out.facts.root
        fragments = plan.fragments
        return (root(plan.left), fragments.left), (root(plan.right), fragments.right)

    def _from_tile(self, operand: int, layout: Layout) -> bool:
        held = any(v.layout == layout for v in self.out.held(operand))
        return operand in self.staged and not held

    def multiply(self, number: int, result: Value) -> None:
        """Add the product to ``result``, which has its layout in parts."""
        out = self.out
        plan = out.layouts.products[number]
        fragments = plan.fragments
        tiles: dict[int, str] = {}
        values: dict[int, Value] = {}
        for operand, layout in self._sides(plan):
            if self._from_tile(operand, layout):
                tiles[operand] = self.tile_at(operand)
            else:
                values[operand] = self._in_order(self.need(operand, layout), layout)
        for operand in tiles:
            # Waiting for the second one may have begun another phase.
            self.tile_at(operand)
        steps = Layout(fragments.steps, (None,) * 5, fragments.left.warps)
        with out.unrolled("k", 1 << len(fragments.steps)) as k:
            words = []
            for operand, layout in self._sides(plan):
                if operand in values:
                    words.append((values[operand], "whole"))
                    continue
                step = Layout(
                    tuple(b for b in layout.registers if b not in fragments.steps),
                    layout.lanes,
                    layout.warps,
                )
                name = out.value_name(operand)
                more = {k: steps} if k != "0" else {}
                value = self.copies.read(self.staged[operand], tiles[operand], step, name, more)
                words.append((value, "step"))
            self._tiles(plan, words, k, result)

    def _in_order(self, value: Value, layout: Layout) -> Value:
        """The operand as pairs in the order of the fragment."""
        if value.layout.registers == layout.registers and value.is_packed:
            return value
        if value.is_packed and value.layout.registers[0] == layout.registers[0]:
            return self.exchange.arranged(value, layout)
        out, half = self.out, value.dtype.name
        found = Value(out.fresh(value.name), layout, value.dtype, is_packed=True)
        out.line(found.declaration())
        with out.unrolled("r", found.words) as r:
            low, high = (value.read_by(layout, f"(2 * {r} + {n})") for n in (0, 1))
            out.line(f"{found.word(r)} = pack_{half}({low}, {high});")
        return found

    def _tiles(
        self, plan: ProductPlan, words: list[tuple[Value, str]], k: str, result: Value
    ) -> None:
        """One step along K: every tile of rows with every tile of columns."""
        out, fragments = self.out, plan.fragments
        rows, columns = fragments.row_tiles, fragments.column_tiles
        steps = 1 << len(fragments.steps)
        with out.unrolled("m", rows) as m, out.unrolled("n", columns) as n:
            tile = _sum((m, columns), (n, 1))
            c = [result.word(_sum((tile, 4), (str(i), 1))) for i in range(4)]
            (left, of_left), (right, of_right) = words
            a_tile = _sum((m, steps), (k, 1)) if of_left == "whole" else m
            b_tile = _sum((n, steps), (k, 1)) if of_right == "whole" else n
            a = [left.word(_sum((a_tile, 4), (str(i), 1))) for i in range(4)]
            b = [right.word(_sum((b_tile, 2), (str(i), 1))) for i in range(2)]
            out.line(f"mma_{plan.dtype}({', '.join([*c, *a, *b])});")


def _sum(*terms: tuple[str, int]) -> str:
    """The text of a sum of products with constants."""
    constant = sum(int(t) * f for t, f in terms if t.isdigit())
    parts = []
    for text, factor in terms:
        if not text.isdigit():
            grouped = f"({text})" if " + " in text and factor != 1 else text
            parts.append(grouped if factor == 1 else f"{factor} * {grouped}")
    if constant or not parts:
        parts.append(str(constant))
    return " + ".join(parts)
