"""The emitter of row reductions (``row_reductions.py``): each producer thread reduces rows of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mirage_py.codegen.cuda.analysis.row_reductions import LITERALS, WARPS, RowReduction
from mirage_py.codegen.cuda.layout.shared_tile import PIECE_BYTES
from mirage_py.codegen.cuda.text.c_text import added, float_text
from mirage_py.codegen.cuda.text.expressions import elementwise
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.text.operator_text import atom

# Halves of 16 bytes.
_HALVES = 8


class RowReductionEmitter:
    """Writes what the consumer warps do with a tile."""

    def __init__(self, emission: Emission) -> None:
        self.out = emission
        self.staged = emission.plan.staged

    def write(self, row: RowReduction, source: str, made: str, thread: str, inside: str) -> None:
        """For all rows of the tile at ``source``: results to ``made``; zeros where not ``inside``
        (C condition of ``row``; empty: everywhere), as a load gives them.
        """
        out, tile = self.out, self.staged[row.source].tile
        count, pieces = 1 << len(tile.rows), tile.row_bytes // PIECE_BYTES
        panels = (tile.element_bytes << len(tile.columns)) // tile.row_bytes
        flips = [b for b in tile.rows if b in tile.swizzle_places()]
        low = tile.rows.index(flips[0]) if flips else 0
        swizzle = f"(row >> {low} & {(1 << len(flips)) - 1})" if low else f"(row & {pieces - 1})"
        half = row.dtype.name
        with out.indented(f"for (int row = {thread}; row < {count}; row += {32 * WARPS})"):
            out.line("float total[2] = {};")
            with out.unrolled("panel", panels) as panel, out.unrolled("piece", pieces) as piece:
                at = f"({piece} ^ {swizzle})" if flips else piece
                place = [source, f"row * {tile.row_bytes}", f"({at} << 4)"]
                if panel != "0":
                    place.append(f"panel * {tile.row_bytes * count}")
                out.line("alignas(16) unsigned words[4];")
                out.line(
                    "*reinterpret_cast<uint4*>(words) = "
                    f"*reinterpret_cast<const uint4*>({added(*place)});"
                )
                with out.unrolled("j", _HALVES) as j:
                    word = f"words[{j} >> 1]"
                    text = f"({j} & 1 ? high_{half}({word}) : low_{half}({word}))"
                    names = {row.element: "x"}
                    out.line(f"const float x = {text};")
                    self._lines(row, (n for n in row.nodes if n < row.total), names)
                    summed = names[row.nodes[row.total].args[0]]
                    out.line(f"total[{j} & 1] += {summed};")
            names = {row.total: "sum"}
            out.line("const float sum = total[0] + total[1];")
            self._lines(row, (n for n in row.nodes if n > row.total), names)
            result = names[row.result]
            result = f"{inside} ? {result} : 0.0f" if inside else result
            out.line(f"reinterpret_cast<float*>({made})[row] = {result};")

    def _lines(self, row: RowReduction, numbers: Iterable[int], names: dict[int, str]) -> None:
        for n in numbers:
            node = row.nodes[n]
            if n in names or node.op in LITERALS:
                continue
            texts = [self._operand(row, a, names) for a in node.args]
            if node.op == "cast":
                names[n] = texts[0]
                continue
            names[n] = f"{node.op}{n}"
            out_text = elementwise(node.op, [atom(t) for t in texts])
            self.out.line(f"const float {names[n]} = {out_text};")

    def _operand(self, row: RowReduction, number: int, names: Mapping[int, str]) -> str:
        node = row.nodes[number]
        if node.op == "const":
            assert isinstance(node.attr, float)
            return float_text(node.attr)
        if node.op == "size":
            return float_text(float(self.out.facts.program.sizes[str(node.attr)]))
        return names[number]
