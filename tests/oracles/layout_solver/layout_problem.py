"""The choice of layouts as a problem of least cost, for a solver.

The rule's layouts are among the candidates, so that no best choice costs more than the rule's. What
tensor cores take and give stays as the rule has it. Loads and elementwise values are free; what is
reduced or accumulated follows from its operand.

The model sums over pairs of values: a value that two readers want in the same other layout is
brought there once, and counted twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oracles.layout_solver.choice_problem import FORBIDDEN, ChoiceProblem, Pair
from oracles.layout_solver.layout_costs import (
    WAVEFRONT,
    arrange_cost,
    conversion_cost,
    device_cost,
    exchange_cost,
    reduction_cost,
)

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.blocked import blocked
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.layout.layout_modes import after, deciding_operand, is_free
from mirage_py.codegen.cuda.layout.staging import vector_run
from mirage_py.codegen.cuda.schedule.operand_layouts import operand_layout
from mirage_py.codegen.cuda.text.layout import Layout, bits_of, covers
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.operators import ELEMENTWISE, REDUCE, operator

# Candidates of one value; those of the rule and of the tensors come first.
_MOST_CANDIDATES = 12


@dataclass(frozen=True, slots=True)
class LayoutProblem:
    """``values`` are the nodes of the problem's values, ``candidates`` their layouts."""

    problem: ChoiceProblem
    values: tuple[int, ...]
    candidates: tuple[tuple[Layout, ...], ...]

    def chosen(self, choice: Sequence[int]) -> dict[int, Layout]:
        """The layout of each node by a choice."""
        chosen = zip(self.values, self.candidates, choice, strict=True)
        return {value: layouts[number] for value, layouts, number in chosen}

    def choice_of(self, own: Mapping[int, Layout]) -> list[int]:
        """The choice that has these layouts."""
        pairs = zip(self.values, self.candidates, strict=True)
        return [layouts.index(own[value]) for value, layouts in pairs]


def layout_problem(
    facts: BlockAnalysis, options: LaunchConfig, ruled: Layouts, staged: Mapping[int, object]
) -> LayoutProblem:
    """The problem of a block graph; ``ruled`` is the rule's choice, ``staged`` the loads that go
    through shared memory.
    """
    return _Builder(facts, options, ruled, staged).run()


class _Builder:
    def __init__(
        self,
        facts: BlockAnalysis,
        options: LaunchConfig,
        ruled: Layouts,
        staged: Mapping[int, object],
    ) -> None:
        self.facts = facts
        self.ruled = ruled
        self.staged = staged
        self.warp_bits = (options.num_warps - 1).bit_length()
        self.values = tuple(n for n in facts.emitted if n in ruled.own and self._is_held(n))
        self.pool = self._pool()
        self.layouts: dict[int, tuple[Layout, ...]] = {}

    def run(self) -> LayoutProblem:
        for n in self.values:
            self.layouts[n] = self._candidates(n)
        place = {n: number for number, n in enumerate(self.values)}
        unary = tuple(tuple(self._alone(n, c) for c in self.layouts[n]) for n in self.values)
        pairs = [
            Pair(place[a], place[n], self._table(a, n))
            for n in self.values
            for a in dict.fromkeys(self.facts.inputs(n))
            if a in place
        ]
        names = tuple(f"%{n} {self.facts.block.nodes[n].op}" for n in self.values)
        problem = ChoiceProblem(names, unary, tuple(pairs))
        return LayoutProblem(problem, self.values, tuple(self.layouts[n] for n in self.values))

    def _is_held(self, number: int) -> bool:
        """Not a tile that products read from shared memory and nothing else reads."""
        is_load = self.facts.block.nodes[number].op == "load"
        return not is_load or self.facts.reads_in_registers(number)

    # -- candidates ------------------------------------------------------------------------------

    def _pool(self) -> tuple[Layout, ...]:
        """Layouts that suit some value: restricted to their dimensions they suit others."""
        facts, ruled = self.facts, self.ruled
        found = [ruled.loops.get(n, ruled.own[n]) for n in self.values]
        for plan in ruled.mmas.values():
            found += [plan.fragments.left, plan.fragments.right]
        stores = [n for n, _ in facts.block.stores()]
        for access in [*(n for n in self.values if facts.block.nodes[n].op == "load"), *stores]:
            dims, extents = facts.live(access), facts.extents(access)
            for first in dims:
                bits = bits_of((*(d for d in dims if d != first), first), extents)
                widest = vector_run(facts, access, first, extents[first])
                share = max(1, (1 << len(bits)) // (32 << self.warp_bits))
                vectors = dict.fromkeys((min(widest, share), widest, 1))
                found += [blocked(bits, v, self.warp_bits) for v in vectors]
        return tuple(dict.fromkeys(found))

    def _candidates(self, number: int) -> tuple[Layout, ...]:
        facts = self.facts
        own = self.ruled.own[number]
        if is_free(facts, number):
            dims, extents = facts.live(number), facts.extents(number)
            fitting = (c.of_dims(dims) for c in self.pool)
            known = dict.fromkeys([own, *(c for c in fitting if covers(c, dims, extents))])
            return tuple(known)[:_MOST_CANDIDATES]
        source = deciding_operand(facts, number)
        if source is None or source not in self.layouts:
            return (own,)
        return tuple(dict.fromkeys([own, *(after(facts, number, c) for c in self.layouts[source])]))

    # -- costs of a value ------------------------------------------------------------------------

    def _times(self, number: int) -> int:
        """How often the section of a node runs."""
        facts = self.facts
        section = facts.section(number)
        loop = facts.block.sections[section].loop
        if loop is None:
            return 1
        return -(-facts.program.sizes[loop] // facts.tiling.padded(loop, section))

    def _alone(self, number: int, layout: Layout) -> int:
        """What a value costs in a layout, whoever reads it, its stores included."""
        facts = self.facts
        node = facts.block.nodes[number]
        cost = 0
        if node.op == "load":
            cost = self._loaded(number, layout)
        elif operator(node.op).kind == ELEMENTWISE:
            cost = layout.register_count * max(1, round(operator(node.op).flops))
        stores = (s for s, n in facts.block.stores() if number in map(facts.root, n.args))
        return cost * self._times(number) + sum(self._stored(s, layout) for s in stores)

    def _loaded(self, load: int, layout: Layout) -> int:
        if load in self.staged:
            return WAVEFRONT * layout.register_count // self._vector(load, layout)
        return self._device(load, layout)

    def _stored(self, store: int, layout: Layout) -> int:
        """Stored as it is, or turned before."""
        facts = self.facts
        dims, extents = facts.live(store), facts.extents(store)
        if not covers(layout, dims, extents):
            return 0  # repeated along dimensions that the value lacks: the same for each layout
        others = (c for c in self.pool if covers(c, dims, extents))
        turned = (self._device(store, c) + conversion_cost(layout, c) for c in others)
        return min([self._device(store, layout), *turned]) * self._times(store)

    def _device(self, access: int, layout: Layout) -> int:
        facts = self.facts
        index = facts.block.nodes[access].access.index
        tensor = facts.tensors[facts.block.nodes[access].access.tensor]
        zeros = dict.fromkeys(facts.program.dim_names, 0)

        def offset(at: Mapping[str, int]) -> int:
            env = {**zeros, **at}
            terms = zip(index, tensor.element_strides, strict=True)
            return sum(int(e.evaluate(env)) * stride for e, stride in terms)

        return device_cost(layout, self._vector(access, layout), tensor.dtype.bytes, offset)

    def _vector(self, access: int, layout: Layout) -> int:
        if not layout.registers:
            return 1
        dim = layout.registers[0][0]
        if dim not in self.facts.block.nodes[access].dims:
            return 1
        return vector_run(self.facts, access, dim, layout.register_run(dim))

    # -- costs of pairs --------------------------------------------------------------------------

    def _table(self, argument: int, number: int) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(self._met(argument, a, number, c) for c in self.layouts[number])
            for a in self.layouts[argument]
        )

    def _met(self, argument: int, given: Layout, number: int, layout: Layout) -> int:
        """What it costs that a node with this layout reads an argument with that one."""
        facts = self.facts
        if argument == deciding_operand(facts, number):
            if after(facts, number, given) != layout:
                return FORBIDDEN
            return self._reduced(number, given)
        want = operand_layout(facts, self.ruled, self.staged, number, argument)
        if is_free(facts, number):
            want = layout.of_dims(facts.live(argument))
        if want is None or given.has_same_threads(want):
            return 0 if want is None else arrange_cost(given, want)
        # What a loop reads of earlier sections is brought into its layout in front of it.
        times = self._times(number) if facts.section(argument) == facts.section(number) else 1
        if facts.block.nodes[argument].op == "load":
            return self._loaded(argument, want) * times
        return conversion_cost(given, want) * times

    def _reduced(self, number: int, given: Layout) -> int:
        facts = self.facts
        node = facts.block.nodes[number]
        if number in facts.deferred_by:
            dims = facts.block.nodes[facts.deferred_by[number]].reduced
            return given.register_count * self._times(number) + exchange_cost(given, dims)
        if operator(node.op).kind == REDUCE:
            return reduction_cost(given, node.reduced) * self._times(number)
        return 0
