"""Sections with a loop: what is brought in front of it, its parts, and its iterations."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.cuda.c_text import added, atom, identifier
from mirage_py.codegen.cuda.layout import Layout
from mirage_py.codegen.cuda.loop_text import loop_bounds, whole_stop
from mirage_py.codegen.cuda.phase_text import PhaseText
from mirage_py.codegen.cuda.writers import Writers
from mirage_py.codegen.live_tiles import always_iterates, loop_masks, whole_below


class Loops:
    """Writes sections with a loop."""

    def __init__(self, writers: Writers, text: PhaseText) -> None:
        self.facts = writers.facts
        self.block = writers.facts.block
        self.out = writers.out
        self.tiling = writers.facts.tiling
        self.live = writers.live
        self.pipeline = writers.pipeline
        self.meetings = writers.meetings
        self.operands = writers.operands
        self.graphs = writers.graphs
        self.accumulators = writers.accumulators
        self.products = writers.products
        self.overlap = writers.overlap
        self.text = text

    def write(self, number: int, dim: str) -> None:
        """The text of section ``number``, which loops along ``dim``."""
        out, section = self.out, self.block.sections[number]
        states = [n for n in section.nodes if self.block.nodes[n].op.startswith("accum")]
        for state in states:
            self.accumulators.initialise(state)
        tile = self.tiling.padded(dim, number)
        first, stop = loop_bounds(self.tiling, number, self.live[number], out.starts)
        variable = out.fresh(f"{identifier(dim)}_start")
        with out.memory.loop(may_be_empty=not always_iterates(self.tiling, number)):
            self.pipeline.begin_loop(number, dim, (first, stop, tile), section.nodes)
            self._hoist(section.nodes)
            if self.live[number]:
                self._await_tiles(section.nodes)
            out.has_exchanged = False
            is_overlapped = self.overlap.begin(number)
            begin = first
            if is_overlapped:
                with out.indented(""):
                    out.line(f"[[maybe_unused]] const {out.index_type} {variable} = {first};")
                    self._iteration(number, dim, variable, (first, tile))
                self.overlap.behind_first()
                begin = added(first, str(tile))
            whole = whole_below(self.tiling, number)
            if whole:
                out.line(f"{out.index_type} {variable} = {begin};")
                begin = ""
                out.comment("Tiles all over which the masks hold, then the others.")
                edge = whole_stop(self.tiling, whole, stop, out.starts)
                out.held_masks = loop_masks(self.block, number)
                head = f"for (; {variable} + {tile} <= {edge}; {variable} += {tile})"
                with out.indented(head):
                    self._iteration(number, dim, variable, (first, tile))
                out.held_masks = ()
            start = f"{out.index_type} {variable} = {begin}" if begin else ""
            with out.indented(f"for ({start}; {variable} < {stop}; {variable} += {tile})"):
                self._iteration(number, dim, variable, (first, tile))
            self.overlap.finish()
        self.accumulators.finish(states)

    def _iteration(self, number: int, dim: str, variable: str, bounds: tuple[str, int]) -> None:
        out = self.out
        with out.scope():
            out.starts[dim] = variable
            self.overlap.begin_iteration(variable, bounds)
            self.pipeline.begin_iteration(number)
            self.text.write(self.meetings.phases(self.block.sections[number].nodes))
            self.products.groups.settle()
            self.overlap.end_iteration(f"{variable} > {atom(bounds[0])}")
            self.pipeline.end_iteration(number, out.has_exchanged)

    def _hoist(self, nodes: Sequence[int]) -> None:
        """What a loop reads of earlier sections is brought into its layouts in front of it."""
        made = set(nodes)
        wants: list[tuple[int, Layout]] = []
        for number in nodes:
            if number not in self.facts.emitted:
                continue
            product = self.facts.fused_by.get(number, number)
            if product in self.out.layouts.products:
                plan = self.out.layouts.products[product]
                wanted = [
                    (n, layout)
                    for n, layout in plan.sides(self.facts)
                    if not self.products.groups.reads_from_tile(product, n)
                ]
            else:
                layout = self.graphs.loop_layout(number) if number in self.out.layouts.own else None
                if layout is None or self.block.nodes[number].op == "load":
                    continue
                wanted = [
                    (n, layout.of_dims(self.facts.live(n))) for n in self.facts.inputs(number)
                ]
            wants += [(operand, layout) for operand, layout in wanted if operand not in made]
        self.meetings.bring(wants)
        for operand, layout in wants:
            self.operands.need(operand, layout)

    def _await_tiles(self, nodes: Sequence[int]) -> None:
        """Tiles of earlier sections that a loop reads: where it has no iteration, nobody would wait
        for them in it.
        """
        read = (a for n in nodes if self.block.nodes[n].op != "load" for a in self.facts.inputs(n))
        tiles = [a for a in dict.fromkeys(read) if self.pipeline.is_under_way(a)]
        if self.pipeline.wait_for(tiles):
            self.out.barrier("tiles of a loop that may be empty have arrived")
