"""Block barriers: one for everything that a phase waits for.

Cross-warp reductions and layout conversions of a phase are written, synchronised and read together;
the tile that is needed first arrives at the same barrier. With the launch option ``schedule off``
each gets a barrier of its own as soon as it is available, for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirage_py.codegen.cuda.exchange.exchange import Exchange
from mirage_py.codegen.cuda.exchange.partial_results import Parts
from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.schedule.operand_layouts import operand_layout
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission

# A node, and a layout in which it is wanted.
OperandLayout = tuple[int, Layout]


class Barriers:
    """Collects what waits for a barrier while the text of a phase is written."""

    def __init__(self, emission: Emission, exchange: Exchange, pipeline: Pipeline) -> None:
        self.out = emission
        self.facts = emission.facts
        self.exchange = exchange
        self.pipeline = pipeline
        self.staged = emission.plan.staged
        self.is_off = not emission.options.barrier_schedule
        self._waiting: list[tuple[int, Parts]] = []

    def finish(self, sums: Sequence[tuple[int, Parts]]) -> None:
        """Nodes whose values are in parts: what lanes have is added up now, what warps have at the
        next cluster barrier.
        """
        for number, parts in sums:
            shuffled = self.exchange.partial.over_lanes(parts)
            if self.exchange.partial.crosses_warps(shuffled):
                self._waiting.append((number, shuffled))
            else:
                self.out.hold(number, shuffled.value)
        if self.is_off:
            self.synchronize(())

    def waits(self, number: int) -> bool:
        """Whether a node's value is still in parts."""
        return any(n == number for n, _ in self._waiting)

    def synchronize(self, phase: Sequence[int]) -> None:
        """Everything that the nodes of a phase wait for."""
        operand_layouts = []
        for n in phase:
            if n not in self.out.layouts.own or self.facts.block.nodes[n].op == "load":
                continue
            for a in dict.fromkeys(self.facts.inputs(n)):
                layout = operand_layout(self.facts, self.out.layouts, self.staged, n, a)
                operand_layouts += [] if layout is None else [(a, layout)]
        first = next((n for n in phase if self.facts.block.nodes[n].op != "load"), None)
        inputs = () if first is None else self.facts.inputs(first)
        self._exchange(operand_layouts, [a for a in inputs if a in self.staged])

    def arrive(self, nodes: Sequence[int]) -> None:
        """One barrier for all tiles of straight code that nodes read."""
        if self.is_off:
            return
        inputs = (a for n in nodes for a in self.facts.inputs(n))
        tiles = [a for a in dict.fromkeys(inputs) if a in self.staged]
        if self.pipeline.wait_for(tiles):
            names = ", ".join(str(self.facts.block.nodes[t].access) for t in tiles)
            self.out.barrier(f"{names}: arrived")

    def convert(self, operand_layouts: Sequence[OperandLayout]) -> None:
        """Values of earlier sections into the layouts in which they are wanted."""
        if not self.is_off:
            self._exchange(operand_layouts, [n for n, _ in operand_layouts if n in self.staged])

    def _exchange(self, operand_layouts: Sequence[OperandLayout], tiles: Sequence[int]) -> None:
        conversions: list[tuple[int, Value, Layout]] = []
        if self.is_off:
            operand_layouts, tiles = (), ()
        for number, layout in operand_layouts:
            held = self.out.held(number)
            is_known = any(v.layout.has_same_threads(layout) for v in held) or any(
                n == number and layout.has_same_threads(layout) for n, _, layout in conversions
            )
            if held and not is_known and self.facts.block.nodes[number].op != "load":
                conversions.append((number, held[0], layout))
        sums = [(n, replace(p, also=_also(n, p, operand_layouts))) for n, p in self._waiting]
        self._waiting = []
        if sums or conversions:
            copied = self.pipeline.wait_for(tiles)
            pairs = [(value, layout) for _, value, layout in conversions]
            # What others have copied is there only after the block's barrier.
            wholes, converted = self.exchange.exchanged(
                [p for _, p in sums], pairs, needs_block_barrier=copied
            )
            for (number, _), values in zip(sums, wholes, strict=True):
                for value in values:
                    self.out.hold(number, value)
            for (number, _, _), value in zip(conversions, converted, strict=True):
                self.out.hold(number, value)


def _also(
    number: int, parts: Parts, operand_layouts: Sequence[OperandLayout]
) -> tuple[Layout, ...]:
    """Layouts besides its own in which a sum is wanted: it is read again, and not converted."""
    found: list[Layout] = []
    for n, layout in operand_layouts:
        if n == number and not any(f.has_same_threads(layout) for f in (parts.whole, *found)):
            found.append(layout)
    return tuple(found)
