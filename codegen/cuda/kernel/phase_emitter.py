"""The emitter of a phase: fused thread graphs of elementwise nodes, the rest node by node."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mirage_py.codegen.cuda.exchange.partial_results import Parts
from mirage_py.codegen.cuda.kernel.emitters import Emitters
from mirage_py.codegen.cuda.plan.promotion import Promotion
from mirage_py.codegen.cuda.softmax.accumulators import of_one_warp
from mirage_py.codegen.cuda.softmax.optimistic import Guess
from mirage_py.codegen.cuda.text.value import Value
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import REDUCING, STORES


class PhaseEmitter:
    """Writes nodes. Without thread graphs every elementwise result goes through shared memory, for
    comparison.
    """

    def __init__(self, emitters: Emitters) -> None:
        self.emitters = emitters
        self.facts = emitters.facts
        self.block = emitters.facts.block
        self.out = emitters.out
        self.has_threads = emitters.out.options.thread_graphs
        self.chains = emitters.plan.chains

    def emit(self, phases: Sequence[Sequence[int]]) -> None:
        """The text of a section's nodes, phase by phase."""
        emitters = self.emitters
        for phase in phases:
            emitters.matmul.wgmma.settle()
            emitters.barriers.synchronize(phase)
            self._phase(phase)
        emitters.matmul.wgmma.settle()
        emitters.barriers.synchronize(())

    def _phase(self, nodes: Sequence[int]) -> None:
        """The text of a phase, with its matmul in slices where that is planned."""
        promotion = self.emitters.plan.promotions.get(nodes[0]) if nodes else None
        if promotion is None:
            self._nodes(nodes)
        else:
            self._promote(promotion, nodes)

    def _promote(self, promotion: Promotion, nodes: Sequence[int]) -> None:
        """A matmul in slices, each added to accumulators as soon as it is there. What its readers
        need besides is computed while the first one is under way.
        """
        out, emitters, matmul = self.out, self.emitters, promotion.matmul
        rest = [n for n in nodes if n != matmul and n not in promotion.group]
        loads = [n for n in rest if self.block.nodes[n].op == "load"]
        self._nodes(loads)
        count = 1 << len(promotion.slices)
        value = Value(out.names[matmul], promotion.layout, F32)
        out.line(value.declaration())
        emitters.matmul.prepare(matmul)
        for number in range(count):
            part = str(number), promotion.slices
            emitters.matmul.begin(matmul, matmul, value, adds=False, part=part)
            if number == 0:
                self._nodes([n for n in rest if n not in loads])
                emitters.graphs.begin(promotion.group, {matmul: value})
            emitters.matmul.wgmma.wait_for([matmul])
            if number == count - 1:
                emitters.pipeline.release_stage()
            emitters.graphs.write_slice(promotion, number)

    def _nodes(self, nodes: Sequence[int]) -> None:
        """The text of nodes: groups of what is elementwise, everything else one by one."""
        emitters = self.emitters
        pending = list(nodes)
        waiting = set(pending)
        while pending:
            group = self._group(pending, waiting) or [pending[0]]
            guess = self._guess(group, pending)
            if guess is not None:
                group = [*guess.chain, *guess.readers]
            emitters.matmul.wgmma.wait_for([a for n in group for a in self.facts.inputs(n)])
            emitters.barriers.arrive([n for n in group if self.block.nodes[n].op != "load"])
            if guess is not None:
                self._write_guess(guess)
            elif self._joins(group[0]):
                self._write_group(group)
            else:
                self.single(group[0])
            waiting.difference_update(group)
            pending = [n for n in pending if n not in group]

    def _guess(self, group: Sequence[int], pending: Sequence[int]) -> Guess | None:
        """The maximum of the first group, if exponentials may be taken before it is known."""
        optimistic = self.emitters.optimistic
        chain = optimistic.chain(group, pending) if self.has_threads else ()
        if not chain:
            return None
        # What the maximum is of is computed with the exponentials.
        before = [n for n in group if n not in chain]
        rest = [n for n in pending if n not in chain]
        first = [n for n in rest if chain[-1] in self.facts.inputs(n)][:1]
        waiting = [n for n in rest if n not in before]
        if not first or any(a in waiting for a in self.facts.inputs(first[0])):
            return None
        order = dict.fromkeys([*before, *first, *rest])
        readers = self._group(list(order), set(rest))
        if any(n not in readers for n in (*before, *first)):
            return None
        return optimistic.guess(chain, before, readers)

    def _write_guess(self, guess: Guess) -> None:
        """Exponentials, and where they are too large the maximum, and exponentials again."""
        emitters, out = self.emitters, self.out
        optimistic, graphs, readers = emitters.optimistic, emitters.graphs, guess.readers
        graphs.rescaling.guessed.add(guess.peak)
        if emitters.mma_pipelining.is_first:  # nothing is known yet
            self._write_group([*guess.before, guess.chain[0]])
            for number in guess.chain[1:]:
                self._write_group([number])
            self._write_group([n for n in readers if n not in guess.before])
            return
        emitters.accumulators.declare_scales(guess.peak)
        kept = self._kept(readers, guess.chain)
        made = graphs.declared(readers, kept)
        sums = optimistic.declare_sums(guess)
        with out.scope():
            graphs.write(readers, kept, made, sums)
        with out.indented(f"if ({optimistic.vote(guess, sums)})"), out.scope():
            self._write_group([*guess.before, guess.chain[0]], readers)
            for number in guess.chain[1:]:
                self._write_group([number])
            for number in sums:
                graphs.rescaling.rescale(number, only=[guess.peak])
            optimistic.start_again(sums.values())
            graphs.write(readers, kept, made, sums)
        optimistic.add(sums)
        for number, value in made.items():
            out.hold(number, value)

    def _joins(self, number: int) -> bool:
        node = self.block.nodes[number]
        if number in self.out.layouts.mmas or number in self.facts.fused_by:
            return False
        if number in self.chains.by_addition:
            return False
        return node.op != "load" and node.op not in STORES

    def _group(self, pending: Sequence[int], waiting: Collection[int]) -> list[int]:
        """The first node, if it is elementwise or a reduction, with all that can join it."""
        emitters = self.emitters
        first = pending[0]
        if not self._joins(first):
            return []
        if not self.has_threads:
            return [first]
        layout = emitters.graphs.loop_layout(first)
        group = [first]
        for number in pending[1:]:
            ready = all(
                a not in waiting or (a in group and not self._ends_group(a))
                for a in self.facts.inputs(number)
            )
            if ready and self._joins(number) and emitters.graphs.loop_layout(number) == layout:
                group.append(number)
        return group

    def _ends_group(self, number: int) -> bool:
        op = self.block.nodes[number].op
        return op in REDUCING or op.startswith("accum")

    def _write_group(self, group: Sequence[int], others: Sequence[int] = ()) -> None:
        """The text of a group; ``others`` compute again what they want of it."""
        facts, out, emitters = self.facts, self.out, self.emitters
        for number in group:
            emitters.accumulators.declare_scales(number)
        made = emitters.graphs.write(group, self._kept(group, others))
        sums = []
        for number, value in made.items():
            if self._ends_group(number):
                if number in out.layouts.own_shifts.values():
                    value = of_one_warp(value, facts.live(number))
                whole = value.layout.of_dims(facts.live(number))
                op = emitters.graphs.reduction(number)
                sums.append((number, Parts(value, op, facts.live(number), whole)))
            elif self.has_threads:
                out.hold(number, value)
            else:
                out.hold(number, emitters.exchange.converted(value, value.layout))
        emitters.barriers.finish(sums)

    def _kept(self, group: Sequence[int], others: Sequence[int]) -> list[int]:
        """What all but ``others`` read of a group."""
        inner = {*group, *others}
        return [
            n for n in group if any(u not in inner for u in self._users(n)) or self._ends_group(n)
        ]

    def _users(self, number: int) -> list[int]:
        """Who reads a node's registers."""
        nodes = range(len(self.block.nodes))
        sent = [load for load, n in self.facts.sources.items() if self.facts.root(n) == number]
        return sent + [
            n for n in nodes
            if (n in self.facts.emitted or self.block.nodes[n].op in STORES)
            and number in self.facts.inputs(n)
        ]  # fmt: skip

    def single(self, number: int) -> None:
        """The text of one node; nothing where others write it or it is there."""
        node, out, emitters = self.block.nodes[number], self.out, self.emitters
        if node.op in STORES:
            emitters.stores.store(number)
        elif number in self.chains.by_addition:
            out.hold(number, out.held(self.chains.by_addition[number])[0])
        elif number in self.facts.fused_by:
            self._fused(number, self.facts.fused_by[number])
        elif node.op == "load":
            is_due = number not in emitters.plan.staged and not out.held(number)
            if is_due and self.facts.reads_in_registers(number):
                out.hold(number, emitters.copies.loaded(number, out.layouts.own[number]))
        else:
            self._product(number)

    def _product(self, number: int) -> None:
        out, facts, emitters = self.out, self.facts, self.emitters
        emitters.matmul.prepare(number)
        by_groups = out.layouts.mmas[number].uses_wgmma
        first = self.chains.first.get(number)
        if first is None:
            value = Value(out.names[number], out.layouts.parts[number], F32)
            out.line(value.declaration("" if by_groups else "0.0f"))
        else:
            if not by_groups:
                emitters.matmul.wgmma.wait_for([first])
            value = out.held(first)[0]
        whole = out.layouts.own[number]
        emitters.mma_pipelining.before_early(number)
        if emitters.matmul.begin(number, number, value, adds=first is not None):
            emitters.mma_pipelining.after_early(number)
            if whole != value.layout:
                emitters.matmul.wgmma.wait_for([number])
        else:
            emitters.matmul.multiply(number, value)
        emitters.barriers.finish([(number, Parts(value, "sum", facts.live(number), whole))])

    def _fused(self, number: int, product: int) -> None:
        """A matmul that is added to its accumulator, which may be rescaled first."""
        emitters = self.emitters
        if emitters.mma_pipelining.is_late(number):
            emitters.mma_pipelining.late(number)
            return
        emitters.matmul.prepare(product)
        (state, *_) = self.out.held(number)
        if self.block.nodes[number].op == "accum_rescaled":
            emitters.graphs.rescaling.rescale(number)
        if not emitters.matmul.begin(product, number, state, adds=True):
            emitters.matmul.multiply(product, state)
