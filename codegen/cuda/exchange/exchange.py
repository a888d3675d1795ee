"""Exchanges of values between threads: layout conversions and cross-warp reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirage_py.codegen.cuda.exchange.partial_results import PartialResultEmitter, Parts
from mirage_py.codegen.cuda.layout.layout_conversion import (
    layout_conversion,
    read_vector,
    stmatrix_store,
    written_vector,
)
from mirage_py.codegen.cuda.layout.shared_tile import TILE_ALIGNMENT_BYTES, SharedTile
from mirage_py.codegen.cuda.layout.stmatrix import StMatrix
from mirage_py.codegen.cuda.text.c_text import added, weighted
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.cuda.text.linear_text import (
    Places,
    is_only_copy,
    linear_places,
    register_part,
    thread_part,
)
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.copies import VECTORS
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.ugraph.checks.kept_integers import WIDE
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.launch_choices import Arch

# What is worth a barrier so that it lies where the stages of a loop were.
_LARGE_BYTES = 16384


@dataclass(frozen=True, slots=True)
class LayoutConversion:
    """A value on its way to another layout: ``places`` in a buffer, of pairs of halves or not; or
    as a ``tile``.
    """

    value: Value
    target: Layout
    buffer: str
    places: Places
    in_pairs: bool
    tile: SharedTile | None = None


class Exchange:
    """Writes the ways through shared memory: sums and layout conversions after one barrier."""

    def __init__(self, emission: Emission) -> None:
        self.out = emission
        self.partial = PartialResultEmitter(emission)
        # Whether there is an instruction for it.
        self.has_stmatrix = emission.options.arch is Arch.SM_90A

    # -- parts -----------------------------------------------------------------------------------

    def finished(self, parts: Sequence[Parts]) -> list[Value]:
        """The whole values: over lanes by shuffles, over warps through shared memory, all of them
        after one barrier.
        """
        return [values[0] for values in self.finished_in_all(parts)]

    def finished_in_all(self, parts: Sequence[Parts]) -> list[list[Value]]:
        """The same; of what warps have parts of, also in the other layouts that are wanted."""
        shuffled = [self.partial.over_lanes(p) for p in parts]
        wholes, _ = self.exchanged([p for p in shuffled if self.partial.crosses_warps(p)], ())
        rest = iter(wholes)
        return [next(rest) if self.partial.crosses_warps(p) else [p.value] for p in shuffled]

    def exchanged(
        self,
        sums: Sequence[Parts],
        conversions: Sequence[tuple[Value, Layout]],
        *,
        needs_block_barrier: bool = False,
    ) -> tuple[list[list[Value]], list[Value]]:
        """Sums over warps, each in its own layout and in the others that are read, and converted
        values. All share one barrier; it is the block's if ``needs_block_barrier``, which other
        reasons may demand.
        """
        if not sums and not conversions:
            return [], []
        buffers = [self.partial.written(p) for p in sums]
        begun = [self._begin_conversion(value, target) for value, target in conversions]
        if (
            not sums
            and not needs_block_barrier
            and all(_stays_in_warp(value, target) for value, target in conversions)
        ):
            self.out.line("__syncwarp();")
        else:
            self.out.barrier()
        self.out.has_exchanged = True
        long = [b for p, b in zip(sums, buffers, strict=True) if self.partial.is_long(p)]
        for p, buffer in zip(sums, buffers, strict=True):
            if buffer in long:
                self.partial.add_up(p, buffer)
        if long:
            self.out.barrier("parts are added up")
        wholes = [
            [
                self.partial.read(replace(p, whole=layout), buffer, is_added_up=buffer in long)
                for layout in (p.whole, *p.also)
            ]
            for p, buffer in zip(sums, buffers, strict=True)
        ]
        return wholes, [self._read_conversion(conversion) for conversion in begun]

    # -- layouts ---------------------------------------------------------------------------------

    def arranged(self, value: Value, target: Layout) -> Value:
        """The same elements in the order of registers that is wanted."""
        found = Value(self.out.fresh(value.name), target, value.dtype, value.is_packed)
        self.out.line(found.declaration())
        with self.out.unrolled("r", found.words) as r:
            if value.is_packed:
                register = "0" if r == "0" else f"({r} << 1)"
                place = value.place_for(target, register)
                if not place.isdigit():
                    place = f"({place}) >> 1"
                self.out.line(f"{found.word(r)} = {value.word(place)};")
            else:
                self.out.line(f"{found.word(r)} = {value.read_by(target, r)};")
        return found

    def converted(self, value: Value, target: Layout) -> Value:
        """A value in another layout, through shared memory."""
        _, (found,) = self.exchanged((), [(value, target)])
        return found

    def _begin_conversion(self, value: Value, target: Layout) -> LayoutConversion:
        halves = value.dtype.is_half
        self.out.comment(f"{value.name} changes hands: other threads need it.")
        tile = None
        if value.dtype != BOOL and value.dtype not in WIDE:
            width = 2 if halves else 4
            tile, _ = layout_conversion(
                value.layout, target, width, value.is_packed, self.has_stmatrix
            )
        if tile is not None:
            size, align = tile.size_bytes, TILE_ALIGNMENT_BYTES
            if size >= _LARGE_BYTES and self.out.memory.has_idle_stages:
                # So there is room for another stage, or another block.
                self.out.barrier("the loop's tiles are read: their memory is free")
            name = self.out.memory.new(f"{value.name}_turned", size, align, "unsigned char")
            conversion = LayoutConversion(value, target, name, {}, in_pairs=False, tile=tile)
            self._write_tile(conversion, tile)
            return conversion
        first = value.layout.registers[:1]
        in_pairs = value.is_packed and target.registers[:1] == first
        bits = [b for b in (*value.layout.lanes, *value.layout.registers, *value.layout.warps) if b]
        if in_pairs:
            bits.remove(first[0])
        places = linear_places(tuple(bits))
        kind, width = ("unsigned", 4) if in_pairs else ("float", 4)
        if halves and not in_pairs:
            kind, width = "unsigned short", 2
        if value.dtype == BOOL or value.dtype in WIDE:
            kind, width = value.c_type, value.dtype.bytes
        buffer = self.out.memory.new(f"{value.name}_turned", width << len(bits), 16, kind)
        conversion = LayoutConversion(value, target, buffer, places, in_pairs)
        self._write_linear(conversion)
        return conversion

    def _write_linear(self, conversion: LayoutConversion) -> None:
        value, buffer, places, in_pairs = (
            conversion.value,
            conversion.buffer,
            conversion.places,
            conversion.in_pairs,
        )
        layout = value.layout
        half = value.dtype.name
        with self.out.only(is_only_copy(layout)):
            count = value.words if in_pairs else layout.register_count
            with self.out.unrolled("r", count) as r:
                register = f"({r} << 1)" if in_pairs and r != "0" else r
                thread = self.out.interned("turn_at", thread_part(layout, places))
                place = added(thread, register_part(layout, places, register))
                text = value.word(r) if in_pairs else value.at(r)
                if value.dtype.is_half and not in_pairs:
                    text = f"(unsigned short)pack_{half}({text}, 0.0f)"
                self.out.line(f"{buffer}[{place}] = {text};")

    def _read_conversion(self, conversion: LayoutConversion) -> Value:
        value, target, buffer = conversion.value, conversion.target, conversion.buffer
        places, in_pairs = conversion.places, conversion.in_pairs
        self.out.memory.use(buffer)
        if conversion.tile is not None:
            return self._read_tile(conversion, conversion.tile)
        halves = value.dtype.is_half
        packed = halves and bool(target.registers)
        found = Value(self.out.fresh(value.name), target, value.dtype, packed)
        thread = self.out.interned("turn_at", thread_part(target, places))
        self.out.line(found.declaration())
        with self.out.unrolled("r", found.words) as r:
            register = f"({r} << 1)" if packed and r != "0" else r
            place = added(thread, register_part(target, places, register))
            text = f"{buffer}[{place}]"
            if packed and not in_pairs:
                step = places[target.registers[0]]
                text = f"{text} | (unsigned){buffer}[{added(place, str(1 << step))}] << 16"
            elif halves and not in_pairs:
                text = f"low_{value.dtype.name}({text})"
            self.out.line(f"{found.word(r)} = {text};")
        return found

    def _write_tile(self, conversion: LayoutConversion, tile: SharedTile) -> None:
        value, layout = conversion.value, conversion.value.layout
        store = stmatrix_store(tile, layout, value.is_packed) if self.has_stmatrix else None
        if store is not None:
            self._write_stmatrix(conversion, tile, store)
            return
        vector = written_vector(tile, layout, value.is_packed)
        over = Layout(layout.registers[vector.bit_length() - 1 :], layout.lanes, layout.warps)
        with self.out.only(is_only_copy(layout)), self.out.unrolled("r", over.register_count) as r:
            place = added(conversion.buffer, *tile.offset({r: over}, self.out.interned))
            kind, text = "float", value.at(r)
            if vector == 2:
                kind, text = "unsigned", value.word(r)
            elif value.dtype.is_half:
                kind = "unsigned short"
                text = f"(unsigned short)pack_{value.dtype.name}({text}, 0.0f)"
            self.out.line(f"*reinterpret_cast<{kind}*>({place}) = {text};")

    def _write_stmatrix(
        self, conversion: LayoutConversion, tile: SharedTile, store: StMatrix
    ) -> None:
        value = conversion.value
        name = "stmatrix_x4_trans" if store.is_transposed else "stmatrix_x4"
        count = store.rows.register_count
        with self.out.only(is_only_copy(value.layout)), self.out.unrolled("r", count) as r:
            place = added(conversion.buffer, *tile.offset({r: store.rows}, self.out.interned))
            words = (value.word(weighted((r, 4), (str(i), 1))) for i in range(4))
            self.out.line(f"{name}({place}, {', '.join(words)});")

    def _read_tile(self, conversion: LayoutConversion, tile: SharedTile) -> Value:
        target, halves = conversion.target, conversion.value.dtype.is_half
        vector = read_vector(tile, target)
        found = Value(self.out.fresh(conversion.value.name), target, conversion.value.dtype, halves)
        self.out.line(found.declaration())
        over = Layout(target.registers[vector.bit_length() - 1 :], target.lanes, target.warps)
        words = vector // 2 if halves else vector
        kind = VECTORS[4 * words]
        with self.out.unrolled("r", over.register_count) as r:
            place = added(conversion.buffer, *tile.offset({r: over}, self.out.interned))
            first = found.word(r if words == 1 else "0" if r == "0" else f"{words} * {r}")
            place_text = f"*reinterpret_cast<{kind}*>(&{first})"
            self.out.line(f"{place_text} = *reinterpret_cast<const {kind}*>({place});")
        return found


def _stays_in_warp(value: Value, target: Layout) -> bool:
    """Whether lanes exchange a value with lanes of their own warp alone."""
    warps = value.layout.warps
    return warps == target.warps and None not in warps
