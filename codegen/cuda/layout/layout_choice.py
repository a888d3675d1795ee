"""The choice of a layout for every value of a block graph, by rule.

Matmuls come first: their results have the MMA layout. What is elementwise in a result takes its
layout, what is computed for a matmul that of the operand. The rest starts from its widest load, in
vectors of neighbours. A value that is read in another layout is converted through shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.analysis.chained_sums import chain_start
from mirage_py.codegen.cuda.analysis.cluster_plan import ClusterPlan
from mirage_py.codegen.cuda.layout.blocked import blocked
from mirage_py.codegen.cuda.layout.code_operands import as_read, as_stored, code_load
from mirage_py.codegen.cuda.layout.fragments import FMA, spread_sums
from mirage_py.codegen.cuda.layout.mma_partitioning import MmaPartition, partition_mma
from mirage_py.codegen.cuda.text.layout import Bit, Layout, bits_of, covers
from mirage_py.codegen.tiling.contiguity import mean_step, run_length
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.operators import ELEMENTWISE, operator

# Neighbours of what arrives from other blocks that a thread reads at once: 16 bytes.
_MOST_TOGETHER = 4

# Elements of an operand that a thread keeps for a matmul and for others.
_MOST_SHARED = 128


@dataclass(frozen=True, slots=True)
class Layouts:
    """``own``: the layout of every value; ``parts``: that of accumulators in their loop, and of
    matmuls before their parts are added up; ``loops``: over what a reduction goes. ``own_shifts``:
    the running maxima of which each warp has its own, and the maximum that each takes.
    """

    mmas: dict[int, MmaPartition] = field(default_factory=dict)
    own: dict[int, Layout] = field(default_factory=dict)
    parts: dict[int, Layout] = field(default_factory=dict)
    loops: dict[int, Layout] = field(default_factory=dict)
    own_shifts: dict[int, int] = field(default_factory=dict)


def choose_layouts(facts: BlockAnalysis, options: LaunchConfig) -> Layouts:
    """A layout for every value that has registers."""
    return _Choice(facts, options).run()


class _Choice:
    def __init__(self, facts: BlockAnalysis, options: LaunchConfig) -> None:
        self.facts = facts
        self.options = options
        self.warp_bits = (options.num_warps - 1).bit_length()
        self.found = Layouts()

    def run(self) -> Layouts:
        facts = self.facts
        for number in facts.dots:
            self._product(number)
            self._close()
        for load in self._widest_loads():
            if load not in self.found.own:
                self.found.own[load] = self._multiplied(load) or self._blocked(load)
                self._close()
        for number in facts.emitted:
            if number not in self.found.own:
                self._by_default(number)
                self._close()
        for plan in self.found.mmas.values():
            self._codes_as_stored(plan)
        return self.found

    # -- matmuls ---------------------------------------------------------------------------------

    def _product(self, number: int) -> None:
        found, facts = self.found, self.facts
        plan = partition_mma(
            facts, number, self.options, self._operand_warps(number), self._first_sums(number)
        )
        found.mmas[number] = plan
        result = plan.fragments.result
        final = spread_sums(result, facts.live(number))
        state = facts.fused.get(number)
        for n in (number, *([] if state is None else [state])):
            found.own[n], found.parts[n] = final, result
        if plan.fragments.kind == FMA:
            return  # which reads its operands from shared memory
        for operand, layout in plan.sides(facts):
            if operand not in found.own and facts.block.nodes[operand].op != "load":
                inner = plan.fragments.shape.inner
                found.own[operand] = as_read(layout, inner) if plan.has_codes else layout

    def _codes_as_stored(self, plan: MmaPartition) -> None:
        """A thread holds codes as they lie in memory; what is made of them changes places."""
        own = self.found.own
        for operand, _ in plan.sides(self.facts) if plan.has_codes else ():
            load = code_load(self.facts, operand)
            if load is not None and load in own:
                own[load] = as_stored(self.facts, load, own[load])

    def _operand_warps(self, number: int) -> tuple[Bit | None, ...] | None:
        """The warps of an operand that comes from another matmul: the result of a chain."""
        for argument in self.facts.block.nodes[number].args:
            layout = self.found.own.get(self.facts.root(argument))
            if layout is not None and self.facts.comes_from_dot(argument):
                return layout.warps
        return None

    def _first_sums(self, number: int) -> MmaPartition | None:
        """The plan of the matmul to whose sums this one is added, where it is less work to turn
        the operand that a third matmul made than to turn sums.
        """
        facts, found = self.facts, self.found
        begun = chain_start(facts, number)
        first = found.mmas.get(facts.fused_by.get(begun, begun)) if begun is not None else None
        if begun is None or first is None or found.own[begun] != found.parts[begun]:
            return None
        made = [a for a in facts.block.nodes[number].args if facts.comes_from_dot(a)]
        is_less = all(facts.elements(a) < facts.elements(number) for a in made)
        return first if is_less else None

    # -- from value to value ---------------------------------------------------------------------

    def _close(self) -> None:
        before = -1
        while before != len(self.found.own):
            before = len(self.found.own)
            for number in self.facts.emitted:
                if number not in self.found.own:
                    self._forward(number)
            for number in reversed(self.facts.emitted):
                self._backward(number)

    def _forward(self, number: int) -> None:
        facts, found = self.facts, self.found
        node = facts.block.nodes[number]
        if number in facts.deferred_by:
            self._reduced(number, facts.deferred_by[number], found.own)
        elif node.op in ("sum", "max"):
            self._reduced(number, number, found.own)
        elif node.op == "matmul":
            whole = [a for a in facts.inputs(number) if self._is_union(number, a)]
            if whole and whole[0] in found.own:
                self._contracted(number, found.own[whole[0]])
        elif node.op != "load":
            for argument in facts.inputs(number)[: 1 if node.op.startswith("accum") else None]:
                if argument in found.own and facts.live(argument) == facts.live(number):
                    found.own[number] = found.own[argument]
                    return

    def _is_union(self, product: int, operand: int) -> bool:
        union = {d for a in self.facts.inputs(product) for d in self.facts.live(a)}
        return union == set(self.facts.live(operand))

    def _reduced(self, number: int, total: int, own: Mapping[int, Layout]) -> None:
        """A sum or maximum; or an accumulator of sums that are finished after its loop."""
        (argument,) = self.facts.inputs(total)
        if argument not in own:
            return
        reduced = self.facts.block.nodes[total].reduced
        self.found.loops[number] = own[argument]
        if number == total:
            self.found.own[number] = own[argument].without(reduced)
        else:
            self._in_parts(number, own[argument].summed_in_threads(reduced))

    def _contracted(self, number: int, over: Layout) -> None:
        self.found.loops[number] = over
        self.found.own[number] = over.without(self.facts.block.nodes[number].reduced)

    def _in_parts(self, number: int, parts: Layout) -> None:
        self.found.parts[number] = parts
        self.found.own[number] = spread_sums(parts, self.facts.live(number))

    def _backward(self, number: int) -> None:
        facts, found = self.facts, self.found
        layout = found.loops.get(number, found.own.get(number))
        if layout is None or number in found.mmas or number in facts.fused_by:
            return
        for argument in facts.inputs(number):
            op = facts.block.nodes[argument].op
            follows = op == "load" or operator(op).kind == ELEMENTWISE
            inside = set(facts.live(argument)) <= {b[0] for b in layout.bits()}
            if argument not in found.own and follows and inside:
                found.own[argument] = layout.of_dims(facts.live(argument))

    # -- where nothing is known ------------------------------------------------------------------

    def _widest_loads(self) -> Iterable[int]:
        facts = self.facts
        loads = [n for n in facts.emitted if facts.block.nodes[n].op == "load"]
        read = [n for n in loads if facts.reads_in_registers(n)]
        return sorted(read, key=lambda n: (-facts.elements(n), n))

    def _multiplied(self, load: int) -> Layout | None:
        """The layout in which a matmul takes a load, if it may serve other readers too: each warp
        has its own share, and all of it fits in a thread's registers.
        """
        for plan in self.found.mmas.values():
            if plan.fragments.kind == FMA or plan.uses_wgmma:
                continue
            for operand, layout in plan.sides(self.facts):
                fits = layout.register_count <= _MOST_SHARED and None not in layout.warps
                if operand == load and fits:
                    return layout
        return None

    def _blocked(self, load: int) -> Layout:
        facts = self.facts
        if facts.cut is not None and load in facts.cut.sources:
            return self._received(load, facts.cut)
        node = facts.block.nodes[load]
        tensor = facts.tensors[node.access.tensor]
        dims = facts.live(load)
        runs = {d: run_length(node.access, tensor, d, facts.extent(load, d)) for d in dims}
        first = max(dims, key=lambda d: (runs[d], dims.index(d)), default=None)
        if first is None:
            return blocked((), 1, self.warp_bits)
        # Lanes that the first leaves are neighbours along what has the shortest steps.
        sizes = facts.tiling.program.sizes
        steps = {d: mean_step(node.access, tensor, d, sizes[d]) for d in dims if d != first}
        others = sorted(steps, key=lambda d: -steps[d])
        bits = bits_of((*others, first), facts.extents(load))
        share = max(1, (1 << len(bits)) // (32 << self.warp_bits))
        return blocked(bits, min(runs[first], share), self.warp_bits)

    def _received(self, load: int, cut: ClusterPlan) -> Layout:
        """What arrives from the blocks of a cluster: one thread has the parts of all, so that it
        combines them by itself, where its readers want the whole.
        """
        facts, own = self.facts, self.found.own
        extents = facts.extents(load)
        parts = [d for d in extents if d in facts.block.cluster_dims]
        kept = tuple(d for d in extents if d not in parts)
        users = facts.users[load]
        readers = [*users, *(u for n in users for u in facts.users[n])]
        known = [own[n] for n in (*readers, *cut.sources) if n in own]
        fitting = (layout for layout in known if covers(layout.of_dims(kept), kept, extents))
        found = next(fitting, None)
        if found is None:
            order = (*(d for d in kept if d != cut.first), *(d for d in kept if d == cut.first))
            bits = bits_of(order, extents)
            share = max(1, (1 << len(bits)) // (32 << self.warp_bits))
            found = blocked(bits, min(share, _MOST_TOGETHER), self.warp_bits)
        mine = found.of_dims(kept)
        both = (mine.registers, bits_of(tuple(parts), extents))
        if cut.inner(parts, kept) in parts:
            both = (both[1], both[0])
        return replace(mine, registers=(*both[0], *both[1]))

    def _by_default(self, number: int) -> None:
        facts = self.facts
        node = facts.block.nodes[number]
        if node.op == "matmul":
            dims = [d for a in node.args for d in facts.live(a)]
            union = facts.tiles_order(dims)
            extents = {d: facts.tiling.padded(d, facts.section(number)) for d in union}
            inner = [d for d in union if d in node.reduced]
            outer = [d for d in union if d not in node.reduced]
            bits = bits_of((*inner, *outer), extents)
            self._contracted(number, blocked(bits, 1, self.warp_bits))
        else:
            bits = bits_of(facts.live(number), facts.extents(number))
            self.found.own[number] = blocked(bits, 1, self.warp_bits)
