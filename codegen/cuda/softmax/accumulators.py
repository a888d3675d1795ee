"""Loop-carried state: sums, running maxima and sums rescaled by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirage_py.codegen.cuda.exchange.exchange import Exchange
from mirage_py.codegen.cuda.exchange.partial_results import Parts
from mirage_py.codegen.cuda.layout.mma_partitioning import MmaPartition
from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.schedule.concatenated_n import ConcatenatedMma, concatenated_sums
from mirage_py.codegen.cuda.schedule.operand_layouts import later_layouts
from mirage_py.codegen.cuda.softmax.excess import declare_excess, take_off_excess
from mirage_py.codegen.cuda.softmax.rescaling import Rescaling
from mirage_py.codegen.cuda.text.c_text import float_text
from mirage_py.codegen.cuda.text.layout import Layout
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.ugraph.ir.dtypes import F32


class Accumulators:
    """Writes the begin of accumulators, and the end: parts of sums are added up after the loop."""

    def __init__(
        self, emission: Emission, exchange: Exchange, pipeline: Pipeline, rescaling: Rescaling
    ) -> None:
        self.out = emission
        self.facts = emission.facts
        self.exchange = exchange
        self.pipeline = pipeline
        self.rescaling = rescaling

    def _state_layout(self, number: int) -> Layout:
        layouts = self.out.layouts
        return layouts.parts.get(number, layouts.own[number])

    def initialise(self, number: int) -> None:
        out, node = self.out, self.facts.block.nodes[number]
        start = "0.0f"
        if node.op == "accum_max":
            lowest = self.facts.shifts.start(number)
            start = float_text(lowest if node.attr == "shift" else float("-inf"))
        state = Value(out.names[number], self._state_layout(number), F32)
        concatenated = out.plan.pipeline.concatenated.get(self.facts.fused_by.get(number, -1))
        if concatenated is not None:
            self._declare_concatenated(state, number, concatenated)
        elif start == "0.0f" or state.words == 1:
            out.line(state.declaration(start))
        else:
            out.line(state.declaration())
            with out.unrolled("r", state.words) as r:
                out.line(f"{state.word(r)} = {start};")
        if plan := self._with_excess(number):
            declare_excess(out, state, plan)
        out.hold(number, state)

    def _with_excess(self, number: int) -> MmaPartition | None:
        """The matmul that is added to an accumulator, if the whole loop's excess is summed."""
        plan = self.out.layouts.mmas.get(self.facts.fused_by.get(number, -1))
        return plan if plan is not None and plan.excess and plan.factor < 0 else None

    def _declare_concatenated(self, state: Value, number: int, mma: ConcatenatedMma) -> None:
        """Sums that are a part of those of an instruction for several matmuls."""
        out = self.out
        states = [self.facts.fused[p] for p in mma.matmuls]
        name = concatenated_sums(out.names, mma)
        if not any(out.held(n) for n in states):
            total = sum(mma.columns) // 2
            out.line(f"alignas(16) float {name}[{total}] = {{}};")
        place = sum(mma.columns[: states.index(number)]) // 2
        kind = f"float (&{{}})[{state.words}]"
        part = f"reinterpret_cast<{kind.format('')}>({name}[{place}])"
        out.line(f"{kind.format(state.name)} = {part};")

    def finish(self, states: Sequence[int]) -> None:
        """Add up the parts of sums after their loop."""
        out = self.out
        for number in states:
            if plan := self._with_excess(number):
                take_off_excess(out, out.held(number)[0], plan)
        parts = []
        waiting = [n for n in states if n in out.layouts.parts]
        shared = self._share_shifts(states)
        for number in waiting:
            (value, *_) = out.held(number)
            whole = out.layouts.own[number]
            also = later_layouts(self.facts, out.layouts, self.pipeline.staged, number)
            parts.append(Parts(value, "sum", self.facts.live(number), whole, also))
        crossing = any(map(self.exchange.partial.crosses_warps, parts))
        if crossing and not shared and self.pipeline.has_tiles and out.memory.is_reused:
            out.barrier("the loop's tiles are read: their memory is free")
        for number, values in zip(waiting, self.exchange.finished_in_all(parts), strict=True):
            out.drop(number)
            for value in values:
                out.hold(number, value)

    def _share_shifts(self, states: Sequence[int]) -> bool:
        """The largest of the running maxima that warps have shifts all of their sums. Says whether
        there were any.
        """
        out, layouts = self.out, self.out.layouts
        peaks = [n for n in states if n in layouts.own_shifts]
        values = [out.held(n)[0] for n in peaks]
        parts = []
        for number, value in zip(peaks, values, strict=True):
            over = layouts.loops[layouts.own_shifts[number]]
            kept = self.facts.live(number)
            warps = tuple(
                b if b is not None and b[0] not in kept else own
                for b, own in zip(over.warps, value.layout.warps, strict=True)
            )
            spread = replace(value, layout=replace(value.layout, warps=warps))
            parts.append(Parts(spread, "max", kept, value.layout))
        wholes = self.exchange.finished(parts)
        for number, value, whole in zip(peaks, values, wholes, strict=True):
            self.rescaling.shift_again(number, value, whole)
        for number in states:
            if self.facts.block.nodes[number].op == "accum_rescaled":
                self.rescaling.rescale(number, only=peaks)
        for number, whole in zip(peaks, wholes, strict=True):
            out.drop(number)
            out.hold(number, whole)
        return bool(peaks)

    def declare_scales(self, number: int) -> None:
        """Registers for the factors that follow from a running maximum, unless there are some."""
        if self.facts.block.nodes[number].op != "accum_max":
            return
        out = self.out
        (peak, *_) = out.held(number)
        for degree in self.rescaling.degrees(number):
            if out.held(("scale", number, degree)):
                continue
            suffix = "" if degree == 1 else str(degree).replace("-", "m")
            name = out.fresh(f"{out.names[number]}_scale{suffix}")
            scale = Value(name, peak.layout, F32)
            out.line(scale.declaration())
            out.hold(("scale", number, degree), scale)
        if self.rescaling.is_lazy(number):
            self.rescaling.declare_rise(number)


def of_one_warp(value: Value, dims: Sequence[str]) -> Value:
    """A value in parts, of which each warp takes its own for the whole."""
    warps = tuple(b if b is not None and b[0] in dims else None for b in value.layout.warps)
    return replace(value, layout=replace(value.layout, warps=warps))
