"""Partial results in lanes and warps: combined by shuffles, then through shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirage_py.codegen.cuda.text.c_text import added, weighted
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Bit, Layout
from mirage_py.codegen.cuda.text.linear_text import (
    Places,
    is_only_copy,
    linear_places,
    register_part,
    thread_part,
)
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.ugraph.ir.node import REDUCING

# Floats that are read from shared memory together.
_PARTS_AT_ONCE = 4
# Lanes share out so many results and more, of which warps have parts: each then has a few of them.
_SHARED_OUT = 8
# Reads of a thread that a barrier is worth.
_MANY_READS = 64


@dataclass(frozen=True, slots=True)
class Parts:
    """A value in parts, which ``op`` (sum, max or max_nan) combines, and the layout of the whole.
    ``dims`` are those of the whole, ``also`` other layouts in which it is wanted.
    """

    value: Value
    op: str
    dims: tuple[str, ...]
    whole: Layout
    also: tuple[Layout, ...] = ()


def combined(op: str, left: str, right: str) -> str:
    """The sum or the larger one of two parts."""
    if op == "sum":
        return f"{left} + {right}"
    return f"{'fmaxf' if op == 'max' else 'max_nan'}({left}, {right})"


class PartialResultEmitter:
    """Writes the sums of parts; the barrier between writing and reading is the caller's."""

    def __init__(self, emission: Emission) -> None:
        self.out = emission

    def crosses_warps(self, parts: Parts) -> bool:
        """Whether each warp has a part."""
        return bool(_parts_of_warps(parts.value.layout, parts))

    def over_lanes(self, parts: Parts) -> Parts:
        """What is left after lanes have combined their parts by shuffles."""
        if self.crosses_warps(parts):
            parts = self._shared_out(parts)
        value, layout = parts.value, parts.value.layout
        lanes = [n for n, b in enumerate(layout.lanes) if b is not None and b[0] not in parts.dims]
        kept = tuple(None if n in lanes else b for n, b in enumerate(layout.lanes))
        if lanes:
            with self.out.unrolled("r", value.words) as r:
                place = value.word(r)
                for n in reversed(lanes):
                    other = f"shuffle_xor({place}, {1 << n})"
                    if parts.op == "sum":
                        self.out.line(f"{place} += {other};")
                    else:
                        self.out.line(f"{place} = {combined(parts.op, place, other)};")
        return replace(parts, value=replace(value, layout=replace(layout, lanes=kept)))

    def _shared_out(self, parts: Parts) -> Parts:
        """Many results that go through shared memory anyway: a lane gives away its parts of half of
        them for another's parts of the other half, and so on. Of 64 results in 8 lanes that is 56
        shuffles in place of 192.
        """
        value, layout = parts.value, parts.value.layout
        for n in reversed(range(len(layout.lanes))):
            bit = layout.lanes[n]
            if bit is None or bit[0] in parts.dims or value.words < _SHARED_OUT:
                continue
            half = value.words // 2
            with self.out.unrolled("r", half) as r:
                low, high = value.word(r), value.word(f"{r} + {half}")
                is_high = f"lane & {1 << n}"
                other = f"shuffle_xor({is_high} ? {low} : {high}, {1 << n})"
                own = f"({is_high} ? {high} : {low})"
                self.out.line(f"{low} = {combined(parts.op, own, other)};")
            lanes = (*layout.lanes[:n], layout.registers[-1], *layout.lanes[n + 1 :])
            layout = Layout(layout.registers[:-1], lanes, layout.warps)
            value = replace(value, layout=layout)
        return replace(parts, value=value)

    def _places(self, parts: Parts) -> tuple[Places, int, list[int]]:
        """Where each element of a part lies, how many elements a part has, and which bits of the
        warp's number count parts.
        """
        layout = parts.value.layout
        warps = _parts_of_warps(layout, parts)
        kept = [b for n, b in enumerate(layout.warps) if n not in warps]
        read = [b for b in layout.registers if not self._is_padding(b)]
        bits = [b for b in (*layout.lanes, *read, *kept) if b is not None]
        return linear_places(tuple(bits)), 1 << len(bits), warps

    def _is_padding(self, bit: Bit) -> bool:
        """Whether a position with this bit is past the end of a dimension that nobody sums over:
        what a thread has there may be anything, as nobody stores it.
        """
        dim, power = bit
        facts = self.out.facts
        summed = any(dim in n.reduced for n in facts.block.nodes if n.op in REDUCING)
        return not summed and 1 << power >= facts.program.sizes[dim]

    def written(self, parts: Parts) -> str:
        """Write the part of each warp to a buffer, whose name is returned."""
        value, layout = parts.value, parts.value.layout
        places, elements, warps = self._places(parts)
        size = 4 * elements << len(warps)
        buffer = self.out.memory.new(f"{value.name}_parts", size, 16, "float")
        # Bits of the warp's number that count parts become the highest of the place.
        part_bits = {("part", n): elements.bit_length() - 1 + i for i, n in enumerate(warps)}
        marked = tuple(("part", n) if n in warps else b for n, b in enumerate(layout.warps))
        source = Layout(layout.registers, layout.lanes, marked)
        places = {**places, **part_bits}
        thread = self.out.interned("part_at", thread_part(source, places))
        self.out.comment(f"Each warp has a part of {value.name}.")
        padding = sum(1 << n for n, b in enumerate(layout.registers) if b not in places)
        with self.out.only(is_only_copy(source)), self.out.unrolled("r", value.words) as r:
            place = added(thread, register_part(source, places, r))
            with self.out.only(f"({r} & {padding}) == 0" if padding else ""):
                self.out.line(f"{buffer}[{place}] = {value.word(r)};")
        return buffer

    def is_long(self, parts: Parts) -> bool:
        """Whether threads read so many parts of so many results that a barrier is worth less."""
        _, elements, warps = self._places(parts)
        layouts = (parts.whole, *parts.also)
        direct = sum(w.register_count for w in layouts) * ((1 << len(warps)) - 1)
        shared = -(-elements // self._threads) << len(warps)
        return direct - shared >= _MANY_READS

    @property
    def _threads(self) -> int:
        return 1 << LANE_BITS + self.out.warp_bits

    def add_up(self, parts: Parts, buffer: str) -> None:
        """Each thread adds up the parts of a few results in the buffer; between two barriers."""
        _, elements, warps = self._places(parts)
        self.out.memory.use(buffer)
        thread = self.out.interned("thread", added("lane", f"(warp << {LANE_BITS})"))
        idle = f"{thread} < {elements}" if elements < self._threads else ""
        with self.out.only(idle), self.out.unrolled("r", max(1, elements // self._threads)) as r:
            place = added(thread, weighted((r, self._threads)))
            word = f"{buffer}[{place}]"
            self._add_parts(word, buffer, place, elements, len(warps), parts.op)

    def read(self, parts: Parts, buffer: str, *, is_added_up: bool = False) -> Value:
        """The whole value in its layout, of the parts in a buffer; after a barrier."""
        places, elements, warps = self._places(parts)
        warps = [] if is_added_up else warps
        name = self.out.fresh(f"{parts.value.name}_whole")
        whole = Value(name, parts.whole, parts.value.dtype)
        self.out.memory.use(buffer)
        thread = self.out.interned("part_at", thread_part(parts.whole, places))
        self.out.line(whole.declaration())
        if elements == 1 and parts.op == "sum" and len(warps) >= _PARTS_AT_ONCE.bit_length() - 1:
            self._add_in_fours(whole.name, buffer, 1 << len(warps))
            return whole
        with self.out.unrolled("r", whole.words) as r:
            place = added(thread, register_part(parts.whole, places, r))
            self.out.line(f"{whole.word(r)} = {buffer}[{place}];")
            self._add_parts(whole.word(r), buffer, place, elements, len(warps), parts.op)
        return whole

    def _add_in_fours(self, word: str, buffer: str, count: int) -> None:
        """One number of each warp: four at a time, so that a chain of additions is a fourth as
        long. ptxas then also keeps loads before it together (6 to 12 % of two norms).
        """
        out = self.out
        fours = out.fresh("fours")
        out.line(f"float4 {fours} = *reinterpret_cast<const float4*>({buffer});")
        if count > _PARTS_AT_ONCE:
            with out.unrolled("w", count // _PARTS_AT_ONCE - 1) as w:
                first = added(buffer, weighted((w, _PARTS_AT_ONCE), ("1", _PARTS_AT_ONCE)))
                more = out.fresh("more")
                out.line(f"const float4 {more} = *reinterpret_cast<const float4*>({first});")
                for axis in "xyzw":
                    out.line(f"{fours}.{axis} += {more}.{axis};")
        out.line(f"{word} = ({fours}.x + {fours}.y) + ({fours}.z + {fours}.w);")

    def _add_parts(
        self, word: str, buffer: str, place: str, elements: int, bits: int, op: str
    ) -> None:
        for part in range(1, 1 << bits):
            other = f"{buffer}[{added(place, str(part * elements))}]"
            if op == "sum":
                self.out.line(f"{word} += {other};")
            else:
                self.out.line(f"{word} = {combined(op, word, other)};")


def _parts_of_warps(layout: Layout, parts: Parts) -> list[int]:
    return [n for n, b in enumerate(layout.warps) if b is not None and b[0] not in parts.dims]
