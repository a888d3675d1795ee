"""The cluster exchange: what each block of a cluster sends to the others, and how they receive it.

Every block writes the elements of another block's slice directly to that block's shared memory, one
cluster barrier follows, and each block finishes its slice from its own memory. A block may write to
another one only after that one has started: all arrive at the cluster barrier first thing and wait
for it before they send, so that the loop hides the latency. Received data has its own memory for
the whole kernel, so no other barrier is needed, and none at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mirage_py.codegen.cuda.analysis.cluster_plan import ClusterPlan
from mirage_py.codegen.cuda.layout.shared_tile import PIECE_BYTES, TILE_ALIGNMENT_BYTES
from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.text.c_text import added
from mirage_py.codegen.cuda.text.layout import Bit, Layout
from mirage_py.codegen.cuda.text.linear_text import is_only_copy, register_part, thread_part
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.text.operator_text import atom
from mirage_py.ugraph.ir.node import REDUCING

# Elements of one store to another block's memory, at most: 16 bytes.
_MOST_FLOATS = 4
# The dimension of the number of the block that something is sent to.
_TO = "to"


class ClusterExchange:
    """Writes what a kernel has to do for its cluster."""

    def __init__(
        self,
        emission: Emission,
        copies: Copies,
        pipeline: Pipeline,
        value_of: Callable[[int], Value],
    ) -> None:
        self.out = emission
        self.facts = emission.facts
        self.copies = copies
        self.pipeline = pipeline
        assert self.facts.cut is not None
        self.cut: ClusterPlan = self.facts.cut
        self.received = emission.plan.received
        self.value_of = value_of
        self._buffers: dict[int, str] = {}
        self._rank = ""
        self._slices: dict[str, str] = {}
        self._all_have_begun = False

    def begin(self) -> None:
        """At the kernel's head."""
        out = self.out
        out.line("cluster_arrive();  // this block has begun: others may write to its memory")
        for load, staged in self.received.items():
            name = out.fresh(f"{out.names[self.cut.sources[load]]}_of_blocks")
            size = max(4, staged.tile.size_bytes)
            alignment = TILE_ALIGNMENT_BYTES if staged.tile.swizzle_bytes else PIECE_BYTES
            self._buffers[load] = out.memory.new(name, size, alignment, "unsigned char")
        steps = []
        step = 1
        for dim, count in self.facts.tiling.cluster_axes:
            block = out.block_names[dim]
            steps.append(block if step == 1 else f"{block} * {step}")
            step *= count
        if self.cut.slices is not None:
            self._rank = out.fresh("rank")
            out.line(f"const int {self._rank} = {added(*steps)};")
            self._name_slices(self.cut.slices)

    def _name_slices(self, slices: Sequence[tuple[str, int]]) -> None:
        """The first positions of the block's slice."""
        out = self.out
        step = 1
        for dim, count in slices:
            extent = self._extent(dim)
            number = self._rank if step == 1 else f"{self._rank} / {step}"
            if step * count < self.cut.blocks:
                number = f"{atom(number)} % {count}"
            name = out.fresh(f"{dim}_slice")
            scaled = number if extent == 1 else f"{atom(number)} * {extent}"
            start = added(out.starts.get(dim, "0"), scaled)
            out.line(f"const {out.index_type} {name} = {start};")
            self._slices[dim] = name
            step *= count

    @contextmanager
    def positions(self) -> Iterator[None]:
        """Inside positions are those after a barrier: of the block's slice, and of all blocks."""
        starts = self.out.starts
        before = dict(starts)
        starts |= self._slices
        starts |= {dim: "0" for dim, _ in self.facts.tiling.cluster_axes}
        yield
        starts.clear()
        starts |= before

    @contextmanager
    def synchronized(self, section: int) -> Iterator[None]:
        """Sends and waits; inside is what the blocks do that have a slice of what has arrived."""
        out, block = self.out, self.facts.block
        loads = [n for n in block.sections[section].nodes if n in self.received]
        values = {n: self.value_of(self.cut.sources[n]) for n in loads}
        if not self._all_have_begun:
            out.line("cluster_wait();  // all blocks of the cluster have begun")
            self._all_have_begun = True
        for load, value in values.items():
            self._send(load, value)
        out.line("cluster_arrive();")
        out.line("cluster_wait();  // what all have sent has arrived")
        out.memory.phase += 1
        for load in loads:
            self.pipeline.arrived(load, self._buffers[load])
        with self.positions(), out.only(" && ".join(self._has_slice())):
            yield

    @property
    def all_have_slices(self) -> bool:
        """Whether no block is idle after a cluster barrier."""
        return not self._has_slice()

    def _has_slice(self) -> list[str]:
        """Conditions on blocks that have something to do after the barrier."""
        cut = self.cut
        sizes = self.facts.program.sizes
        conditions = [f"{self._rank} < {cut.sharers}"] if cut.sharers < cut.blocks else []
        for dim, _ in cut.slices or ():
            # Nobody masks a dimension of which a tile has one position.
            if self._extent(dim) == 1 and self.facts.tiling.has_tail(dim, cut.exchanges[0]):
                conditions.append(f"{self._slices[dim]} < {sizes[dim]}")
        return conditions

    def _extent(self, dim: str) -> int:
        """Positions of a slice."""
        return self.facts.tiling.padded(dim, self.cut.exchanges[0])

    # -- sending ---------------------------------------------------------------------------------

    def _targets(self) -> dict[Bit, int]:
        """Which bits of a position name the block that it goes to, and which bit of its number."""
        if self.cut.slices is None:
            return {(_TO, n): n for n in range(self.cut.blocks.bit_length() - 1)}
        places: dict[Bit, int] = {}
        for dim, count in self.cut.slices:
            low = self._extent(dim).bit_length() - 1
            for n in range(count.bit_length() - 1):
                places[dim, low + n] = len(places)
        return places

    def _send(self, load: int, value: Value) -> None:
        """Every slice of a value to the block it belongs to."""
        out, facts = self.out, self.facts
        source = self.cut.sources[load]
        tile, buffer = self.received[load].tile, self._buffers[load]
        layout = value.layout
        vector = 1
        if layout.registers and layout.registers[0][0] == tile.dim:
            within = 1 << len(tile.columns)
            vector = min(layout.register_run(tile.dim), _MOST_FLOATS, within)
        places = self._targets()
        live = facts.live(source)
        missing = [n for bit, n in places.items() if bit[0] not in live]
        marked, rest = _with_targets(layout, vector, missing)
        places |= {(_TO, n): n for n in missing}
        out.comment(f"Each block gets its slice of {value.name}.")
        counter = Layout(tuple((_TO, n) for n in rest), (None,) * 5, ())
        with (
            out.only(is_only_copy(marked)),
            out.unrolled("to", 1 << len(rest)) as to,
            out.unrolled("i", layout.register_count // vector) as i,
        ):
            target = added(
                thread_part(marked, places),
                register_part(marked, places, i),
                register_part(counter, places, to),
            )
            steps = {
                out.block_names[d]: Layout(
                    tuple(b for b in tile.bits if b[0] == d), (None,) * 5, ()
                )
                for d, _ in facts.tiling.cluster_axes
            }
            offset = self.copies.tile_offset(tile, {i: marked, **steps})
            there = f"in_block({buffer}, {target}) + {offset}"
            inside = out.in_range(self._skipped(live), facts.section(source), {i: marked})
            words = [self._word(source, load, value, i, vector, n) for n in range(vector)]
            with out.only(inside):
                if vector == 1:
                    out.line(f"*reinterpret_cast<float*>({there}) = {words[0]};")
                else:
                    kind = f"float{vector}"
                    made = f"{kind}{{{', '.join(words)}}}"
                    out.line(f"*reinterpret_cast<{kind}*>({there}) = {made};")

    def _skipped(self, live: tuple[str, ...]) -> tuple[str, ...]:
        """Dimensions whose padding nobody reads: what is there is neither summed nor stored."""
        block = self.facts.block
        if self.cut.slices is None:
            return ()
        summed = {
            d
            for n in block.sections[self.cut.exchanges[0]].nodes
            if block.nodes[n].op in REDUCING
            for d in block.nodes[n].reduced
        }
        return tuple(d for d in live if d not in summed)

    def _word(self, source: int, load: int, value: Value, i: str, vector: int, n: int) -> str:
        register = str(n) if i == "0" else added(f"{vector} * {i}" if vector > 1 else i, str(n))
        text = value.at(register if register == i or register.isdigit() else f"({register})")
        tensor = self.facts.block.nodes[load].access.tensor
        if tensor in self.cut.in_base_two:
            return text
        return self.facts.shifts.natural(source, text)


def _with_targets(layout: Layout, vector: int, missing: list[int]) -> tuple[Layout, list[int]]:
    """A layout whose threads that hold the same each send it to other blocks; the bits of the
    block's number for which there are no such threads.
    """
    rest = list(missing)

    def marked(bit: Bit | None) -> Bit | None:
        return (_TO, rest.pop(0)) if bit is None and rest else bit

    lanes = tuple(marked(b) for b in layout.lanes)
    warps = tuple(marked(b) for b in layout.warps)
    return Layout(layout.registers[vector.bit_length() - 1 :], lanes, warps), rest
