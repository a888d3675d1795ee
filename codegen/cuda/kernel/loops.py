"""Sections with a loop: what is brought in front of it, its parts, and its iterations."""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.cuda.kernel.emitters import Writers
from mirage_py.codegen.cuda.kernel.phase_emitter import PhaseText
from mirage_py.codegen.cuda.text.c_text import added
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.cuda.writer.loop_text import loop_bounds, whole_stop
from mirage_py.codegen.text.operator_text import atom
from mirage_py.codegen.tiling.unmasked_tiles import always_iterates, loop_masks, whole_below


class Loops:
    """Writes sections with a loop."""

    def __init__(self, writers: Writers, text: PhaseText) -> None:
        self.writers = writers
        self.facts = writers.facts
        self.block = writers.facts.block
        self.out = writers.out
        self.tiling = writers.facts.tiling
        self.text = text

    def write(self, number: int, dim: str) -> None:
        """The text of section ``number``, which loops along ``dim``."""
        out, section, writers = self.out, self.block.sections[number], self.writers
        states = [n for n in section.nodes if self.block.nodes[n].op.startswith("accum")]
        for state in states:
            writers.accumulators.initialise(state)
        tile = self.tiling.padded(dim, number)
        first, stop = loop_bounds(self.tiling, number, writers.live[number], out.starts)
        variable = out.fresh(f"{dim}_start")
        with out.memory.loop(may_be_empty=not always_iterates(self.tiling, number)):
            writers.pipeline.begin_loop(number, dim, (first, stop, tile), section.nodes)
            self._hoist(section.nodes)
            if writers.live[number]:
                self._await_tiles(section.nodes)
            out.has_exchanged = False
            is_overlapped = writers.overlap.begin(number)
            begin = first
            if is_overlapped:
                with out.indented(""):
                    out.line(f"[[maybe_unused]] const {out.index_type} {variable} = {first};")
                    self._iteration(number, dim, variable, (first, tile))
                writers.overlap.behind_first()
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
            writers.pipeline.end_loop(number)
            writers.overlap.finish(f"{added(first, str(tile))} < {stop}")
        writers.accumulators.finish(states)

    def _iteration(self, number: int, dim: str, variable: str, bounds: tuple[str, int]) -> None:
        out, writers = self.out, self.writers
        with out.scope():
            out.starts[dim] = variable
            writers.overlap.begin_iteration(variable, bounds)
            writers.pipeline.begin_iteration(number)
            self.text.write(writers.meetings.phases(self.block.sections[number].nodes))
            writers.products.groups.settle()
            writers.overlap.end_iteration(f"{variable} > {atom(bounds[0])}")
            writers.pipeline.end_iteration(number, out.has_exchanged)

    def _hoist(self, nodes: Sequence[int]) -> None:
        """What a loop reads of earlier sections is brought into its layouts in front of it."""
        writers = self.writers
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
                    if not writers.products.groups.reads_from_tile(product, n)
                ]
            else:
                layout = (
                    writers.graphs.loop_layout(number) if number in self.out.layouts.own else None
                )
                if layout is None or self.block.nodes[number].op == "load":
                    continue
                wanted = [
                    (n, layout.of_dims(self.facts.live(n))) for n in self.facts.inputs(number)
                ]
            wants += [(operand, layout) for operand, layout in wanted if operand not in made]
        writers.meetings.bring(wants)
        for operand, layout in wants:
            writers.operands.need(operand, layout)

    def _await_tiles(self, nodes: Sequence[int]) -> None:
        """Tiles of earlier sections that a loop reads: where it has no iteration, nobody would wait
        for them in it.
        """
        writers = self.writers
        read = (a for n in nodes if self.block.nodes[n].op != "load" for a in self.facts.inputs(n))
        tiles = [a for a in dict.fromkeys(read) if writers.pipeline.is_under_way(a)]
        if writers.pipeline.wait_for(tiles):
            self.out.barrier("tiles of a loop that may be empty have arrived")
