"""Stores: the layout in which a tile goes to global memory, and the accesses that write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirage_py.codegen.cuda.epilogue.coalesced_stores import coalesced_layout, is_scattered
from mirage_py.codegen.cuda.epilogue.quad_shuffles import (
    emit_shuffles,
    quad_shuffles,
)
from mirage_py.codegen.cuda.exchange.exchange import Exchange
from mirage_py.codegen.cuda.exchange.partial_results import Parts
from mirage_py.codegen.cuda.layout.blocked import blocked
from mirage_py.codegen.cuda.layout.staging import vector_run
from mirage_py.codegen.cuda.softmax.elementwise import ThreadGraphs
from mirage_py.codegen.cuda.softmax.rescaling import Need
from mirage_py.codegen.cuda.text.c_text import C_TYPES, added
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Layout, bits_of
from mirage_py.codegen.cuda.text.linear_text import is_only_copy
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.copies import VECTORS, Copies, vector_of
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.ugraph.ir.dtypes import BOOL, F32, DType
from mirage_py.ugraph.ir.launch_choices import StoreMode

NEXT_MAY_START = "next_kernel_may_start();"


class Stores:
    """Writes stores, and additions to memory."""

    def __init__(
        self,
        emission: Emission,
        copies: Copies,
        exchange: Exchange,
        graphs: ThreadGraphs,
        need: Need,
    ) -> None:
        self.out = emission
        self.facts = emission.facts
        self.copies = copies
        self.exchange = exchange
        self.graphs = graphs
        self.need = need
        # Whether the next store comes behind a line that lets the next kernel start.
        self.lets_next_start = False

    def store(self, number: int) -> None:
        facts, out = self.facts, self.out
        node = self.facts.block.nodes[number]
        source = facts.root(node.args[0])
        firsts = [
            f"{self.out.block_names[d]} == 0"
            for d in self.facts.block.predicated_axes(node)
            if self.facts.tiling.blocks(d) > 1
        ]
        if self.facts.cut is None or self.facts.section(number) not in self.facts.cut.exchanges:
            # Otherwise all blocks of a cluster store the same.
            axes = (d for d, _ in self.facts.tiling.cluster_axes if d not in node.dims)
            firsts += [f"{self.out.block_names[d]} == 0" for d in axes]
        condition = " && ".join(firsts)
        text = self.graphs.text.constant(source)
        if text is not None:
            self.stored(number, text, self.store_layout(number, None), condition)
            return
        summed = tuple(d for d in facts.live(source) if d in self.facts.block.summed_axes(node))
        if summed:
            value = self._summed(source, summed)
            layout = self.store_layout(number, value.layout)
        else:
            own = out.layouts.own[source]
            dims = facts.live(number)
            same = set(dims) == set(facts.live(source))
            layout = self.store_layout(number, own if same else None)
            value = self.need(source, layout.of_dims(facts.live(source)))
        if value.layout.registers != layout.registers and value.layout.has_same_threads(layout):
            layout = value.layout
        wide = self._widened(number, value) if value.layout == layout else None
        if wide is not None:
            value, layout = wide, wide.layout
        self.stored(number, value, layout, condition)

    def _widened(self, store: int, value: Value) -> Value | None:
        """What lanes make of a value by swaps where that is asked for and each stores more at once
        then.
        """
        if self.out.options.stores is not StoreMode.LANES or not value.is_packed:
            return None
        dim = value.layout.registers[0][0]
        run = vector_run(self.facts, store, dim, self.facts.extents(store).get(dim, 1))
        row = tuple((dim, power) for power in range(run.bit_length() - 1))
        shuffles = quad_shuffles(value.layout, row)
        if not shuffles:
            return None
        found = emit_shuffles(self.out, value, shuffles)
        rest = (bit for bit in found.layout.registers if bit not in row)
        return self.exchange.arranged(found, replace(found.layout, registers=(*row, *rest)))

    def _summed(self, source: int, summed: Sequence[str]) -> Value:
        """What the block adds: its tile summed over grid axes."""
        out = self.out
        value = self.need(source, out.layouts.own[source])
        total = Value(out.fresh(f"{value.name}_sum"), value.layout.summed_in_threads(summed), F32)
        out.line(total.declaration("0.0f"))
        section = self.facts.section(source)
        with out.unrolled("r", value.layout.register_count) as r:
            inside = out.in_range(tuple(summed), section, {r: value.layout})
            text = value.at(r)
            text = f"{inside} ? {text} : 0.0f" if inside else text
            out.line(f"{total.word(total.place_for(value.layout, r))} += {text};")
        dims = tuple(d for d in self.facts.live(source) if d not in summed)
        whole = total.layout.of_dims(dims)
        (found,) = self.exchange.finished([Parts(total, "sum", dims, whole)])
        return found

    def store_layout(self, store: int, own: Layout | None) -> Layout:
        """The layout in which a tile is stored: the one it has, unless it would go in crumbs."""
        facts = self.facts
        dims = facts.live(store)
        runs = {d: vector_run(facts, store, d, facts.extent(store, d)) for d in dims}
        first = max(dims, key=lambda d: (runs[d], dims.index(d)), default=None)
        if first is None:
            return blocked((), 1, self.out.warp_bits)
        bits = bits_of((*(d for d in dims if d != first), first), facts.extents(store))
        threads = LANE_BITS + self.out.warp_bits
        vector = max(1, min(runs[first], (1 << len(bits)) >> threads))
        if own is not None and sorted(own.bits()) == sorted(bits):
            have = vector_of(facts, store, own)
            size = self.facts.tensors[facts.block.nodes[store].access.tensor].dtype.bytes
            if have >= vector:
                return own
            if have * size >= 4:
                is_coalesced = self.out.options.stores is StoreMode.ROWS
                rows = coalesced_layout(own, bits, (have, vector), size) if is_coalesced else None
                if rows is not None or not is_scattered(own, bits, have * size):
                    return rows or own
        return blocked(bits, vector, self.out.warp_bits)

    def stored(self, store: int, value: Value | str, layout: Layout, condition: str) -> None:
        """Store a value, which is in this layout or a literal."""
        out, facts = self.out, self.facts
        if self.lets_next_start:
            out.line(NEXT_MAY_START)
            self.lets_next_start = False
        node = facts.block.nodes[store]
        tensor = facts.tensors[node.access.tensor]
        vector = vector_of(facts, store, layout)
        conditions = [c for c in (is_only_copy(layout), condition) if c]
        layout_i = Layout(layout.registers[vector.bit_length() - 1 :], layout.lanes, layout.warps)
        only = " && ".join(conditions)
        with out.only(only), out.unrolled("i", layout.register_count // vector) as i:
            inside = out.in_range(facts.live(store), facts.section(store), {i: layout_i})
            place = f"{tensor.name} + {self.copies.offset(node, {i: layout_i})}"
            with out.only(inside):
                words = self._words(value, layout, i, vector, tensor.dtype)
                self._store_line(place, words, vector, tensor.dtype, node.op == "store_add")

    def _words(
        self, value: Value | str, layout: Layout, i: str, vector: int, dtype: DType
    ) -> list[str]:
        def element(n: int) -> str:
            if isinstance(value, str):
                return value
            register = str(n) if i == "0" else added(f"{vector} * {i}" if vector > 1 else i, str(n))
            if register == i or register.isdigit():
                return value.read_by(layout, register)
            return value.read_by(layout, f"({register})")

        if not dtype.is_half:
            return [element(n) for n in range(vector)]
        is_whole = isinstance(value, Value) and value.is_packed and value.layout == layout
        if isinstance(value, Value) and is_whole and vector > 1:
            half = vector // 2
            at = "" if i == "0" else (f"{half} * {i} + " if half > 1 else f"{i} + ")
            return [value.word(f"{at}{n}".removesuffix(" + 0")) for n in range(half)]
        if vector == 1:
            return [f"pack_{dtype.name}({element(0)}, 0.0f)"]
        pairs = range(0, vector, 2)
        return [f"pack_{dtype.name}({element(n)}, {element(n + 1)})" for n in pairs]

    def _store_line(
        self, place: str, words: list[str], vector: int, dtype: DType, adds: bool
    ) -> None:
        out = self.out
        width = vector * dtype.bytes
        if adds:
            self._add_lines(place, words, vector, dtype)
        elif width == 2 and dtype.is_half:
            out.line(f"*reinterpret_cast<unsigned short*>({place}) = (unsigned short){words[0]};")
        elif not dtype.is_half:
            if vector == 1:
                made = (
                    words[0]
                    if dtype.is_float or dtype == BOOL
                    else f"({C_TYPES[dtype.name]}){words[0]}"
                )
                out.line(f"*({place}) = {made};")
            else:
                kind = f"float{vector}"
                out.line(f"*reinterpret_cast<{kind}*>({place}) = {kind}{{{', '.join(words)}}};")
        elif len(words) == 1:
            out.line(f"*reinterpret_cast<unsigned*>({place}) = {words[0]};")
        else:
            kind = VECTORS[width]
            out.line(f"*reinterpret_cast<{kind}*>({place}) = {kind}{{{', '.join(words)}}};")

    def _add_lines(self, place: str, words: list[str], vector: int, dtype: DType) -> None:
        for n in range(vector):
            to = added(place, str(n))
            if not dtype.is_half:
                self.out.line(f"atomicAdd({to}, {words[n]});")
                continue
            which = "low" if n % 2 == 0 else "high"
            text = f"{which}_{dtype.name}({words[n // 2]})"
            make = "__float2half" if dtype.name == "f16" else "__float2bfloat16"
            self.out.line(f"atomicAdd({to}, {make}({text}));")
