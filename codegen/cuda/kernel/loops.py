"""Sections with a loop: what is hoisted before it, its peeled and unmasked parts, and its
iterations.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.cuda.kernel.emitters import Emitters
from mirage_py.codegen.cuda.kernel.phase_emitter import PhaseEmitter
from mirage_py.codegen.cuda.text.c_text import added
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.cuda.writer.grid_positions import unsplit_positions
from mirage_py.codegen.cuda.writer.loop_text import loop_bounds, unmasked_stop
from mirage_py.codegen.text.operator_text import atom
from mirage_py.codegen.tiling.unmasked_tiles import always_iterates, loop_masks, unmasked_below


class LoopEmitter:
    """Writes sections with a loop."""

    def __init__(self, emitters: Emitters, text: PhaseEmitter) -> None:
        self.emitters = emitters
        self.facts = emitters.facts
        self.block = emitters.facts.block
        self.out = emitters.out
        self.tiling = emitters.facts.tiling
        self.text = text

    def emit(self, number: int, dim: str) -> None:
        """The text of section ``number``, which loops along ``dim``."""
        out, section, emitters = self.out, self.block.sections[number], self.emitters
        states = [n for n in section.nodes if self.block.nodes[n].op.startswith("accum")]
        for state in states:
            emitters.accumulators.initialise(state)
        tile = self.tiling.padded(dim, number)
        first, stop = loop_bounds(self.tiling, number, emitters.plan.live[number], out.starts)
        variable = out.fresh(f"{dim}_start")
        with out.memory.loop(may_be_empty=not always_iterates(self.tiling, number)):
            emitters.pipeline.begin_loop(number, dim, (first, stop, tile), section.nodes)
            self._hoist(section.nodes)
            if emitters.plan.live[number]:
                self._await_tiles(section.nodes)
            out.has_exchanged = False
            is_pipelined = emitters.mma_pipelining.begin(number)
            begin = first
            if is_pipelined:
                with out.indented(""):
                    out.line(f"[[maybe_unused]] const {out.index_type} {variable} = {first};")
                    self._iteration(number, dim, variable, (first, tile))
                emitters.mma_pipelining.after_first()
                begin = added(first, str(tile))
            whole = unmasked_below(self.tiling, number)
            if whole:
                out.line(f"{out.index_type} {variable} = {begin};")
                begin = ""
                out.comment("Tiles all over which the masks hold, then the others.")
                edge = unmasked_stop(self.tiling, whole, stop, out.starts)
                out.held_masks = loop_masks(self.block, number)
                head = f"for (; {variable} + {tile} <= {edge}; {variable} += {tile})"
                with out.indented(head):
                    self._iteration(number, dim, variable, (first, tile))
                out.held_masks = ()
            start = f"{out.index_type} {variable} = {begin}" if begin else ""
            with out.indented(f"for ({start}; {variable} < {stop}; {variable} += {tile})"):
                self._iteration(number, dim, variable, (first, tile))
            emitters.pipeline.end_loop(number)
            emitters.mma_pipelining.finish(f"{added(first, str(tile))} < {stop}")
        emitters.accumulators.finish(states)

    def issue_early(self) -> None:
        """The first tiles of the first loop that need not wait for the kernel in front."""
        out, sections = self.out, self.block.sections
        number = next((n for n, s in enumerate(sections) if self._has_early_tiles(n)), -1)
        dim = sections[number].loop
        if number < 0 or dim is None:
            return
        unsplit_positions(out, number)
        first, stop = loop_bounds(self.tiling, number, self.emitters.plan.live[number], out.starts)
        tile = self.tiling.padded(dim, number)
        self.emitters.pipeline.issue_early(number, dim, (first, stop, tile))
        out.starts.pop(dim, None)

    def _has_early_tiles(self, number: int) -> bool:
        section, pipeline = self.block.sections[number], self.emitters.pipeline
        return section.loop is not None and any(map(pipeline.comes_early, section.nodes))

    def _iteration(self, number: int, dim: str, variable: str, bounds: tuple[str, int]) -> None:
        out, emitters = self.out, self.emitters
        with out.scope():
            out.starts[dim] = variable
            emitters.mma_pipelining.begin_iteration(variable, bounds)
            emitters.pipeline.begin_iteration(number)
            self.text.emit(emitters.plan.phases[number])
            emitters.matmul.wgmma.settle()
            emitters.mma_pipelining.end_iteration(f"{variable} > {atom(bounds[0])}")
            emitters.pipeline.end_iteration(number, out.has_exchanged)

    def _hoist(self, nodes: Sequence[int]) -> None:
        """What a loop reads of earlier sections is brought into its layouts before it."""
        emitters = self.emitters
        made = set(nodes)
        wants: list[tuple[int, Layout]] = []
        for number in nodes:
            if number not in self.facts.emitted:
                continue
            product = self.facts.fused_by.get(number, number)
            if product in self.out.layouts.mmas:
                plan = self.out.layouts.mmas[product]
                wanted = [
                    (n, layout)
                    for n, layout in plan.sides(self.facts)
                    if not emitters.plan.operands.is_tile(product, n)
                ]
            else:
                layout = (
                    emitters.graphs.loop_layout(number) if number in self.out.layouts.own else None
                )
                if layout is None or self.block.nodes[number].op == "load":
                    continue
                wanted = [
                    (n, layout.of_dims(self.facts.live(n))) for n in self.facts.inputs(number)
                ]
            wants += [(operand, layout) for operand, layout in wanted if operand not in made]
        emitters.barriers.convert(wants)
        for operand, layout in wants:
            emitters.operands.need(operand, layout)

    def _await_tiles(self, nodes: Sequence[int]) -> None:
        """Tiles of earlier sections that a loop reads: where it has no iteration, nobody would wait
        for them in it.
        """
        emitters = self.emitters
        read = (a for n in nodes if self.block.nodes[n].op != "load" for a in self.facts.inputs(n))
        tiles = [a for a in dict.fromkeys(read) if emitters.pipeline.is_in_flight(a)]
        if emitters.pipeline.wait_for(tiles):
            self.out.barrier("tiles of a loop that may be empty have arrived")
