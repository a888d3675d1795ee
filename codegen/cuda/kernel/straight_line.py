"""Sections without a loop: all their loads are issued before the first wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirage_py.codegen.cuda.analysis.warp_roles import WarpRoles
from mirage_py.codegen.cuda.kernel.cluster_exchange import ClusterExchange
from mirage_py.codegen.cuda.kernel.emitters import Emitters
from mirage_py.codegen.cuda.kernel.phase_emitter import PhaseEmitter
from mirage_py.codegen.cuda.writer.grid_positions import unsplit_positions

# Registers of a thread that may hold what is needed after the first wait only.
_WORDS_AHEAD = 64

# Tiles that wait in shared memory until loops have ended.
_BYTES_FOR_LATER = 8 << 10


class StraightLineEmitter:
    """Writes sections without a loop, cluster barriers among them."""

    def __init__(self, emitters: Emitters, text: PhaseEmitter) -> None:
        self.emitters = emitters
        self.facts = emitters.facts
        self.block = emitters.facts.block
        self.out = emitters.out
        self.text = text

    def emit(self, section: int) -> None:
        """The text of a section."""
        phases = self.emitters.plan.phases[section]
        order = [n for p in phases for n in p]
        self._issue(order)
        self._load_ahead(order)
        self.text.emit(phases)

    def _issue(self, nodes: Sequence[int]) -> None:
        """Start the copies of straight code that are not under way yet."""
        emitters = self.emitters
        loads = self._order_of_use(nodes)
        emitters.pipeline.issue_straight_line(
            [n for n in loads if not emitters.pipeline.is_in_flight(n)]
        )

    def _load_ahead(self, nodes: Sequence[int]) -> None:
        """Loads to registers come while tiles are on their way, as far as they are few."""
        emitters = self.emitters
        if not any(emitters.pipeline.is_in_flight(n) for n in nodes):
            return
        for n in self._few_to_registers(nodes):
            self.text.single(n)

    def _few_to_registers(self, nodes: Sequence[int]) -> Iterator[int]:
        """Loads to registers that are not there yet, as far as they are few."""
        words = 0
        for n in nodes:
            is_due = self.block.nodes[n].op == "load" and n not in self.emitters.plan.staged
            if is_due and not self.out.held(n) and self.facts.reads_in_registers(n):
                words += self.out.layouts.own[n].register_count
                if words <= _WORDS_AHEAD:
                    yield n

    def issue_early(self) -> None:
        """Tiles of the first section that need not wait for the kernel in front."""
        (first, *_), pipeline = self.block.sections, self.emitters.pipeline
        loads = [n for n in self._order_of_use(first.nodes) if pipeline.comes_early(n)]
        if first.loop is None and self.facts.cut is None and loads:
            unsplit_positions(self.out, 0)
            pipeline.issue_straight_line(loads)

    def issue_for_later(self, loop: int) -> None:
        """Small tiles that sections after a loop read come while it works; large ones would take
        the memory of its stages.
        """
        out, cut = self.out, self.facts.cut
        sections = list(enumerate(self.block.sections))[loop + 1 :]
        straight = [
            s for number, s in sections
            if s.loop is None and (cut is None or number not in cut.exchanges)
        ]  # fmt: skip
        loads = self._order_of_use([n for s in straight for n in s.nodes])
        size_bytes = sum(self.emitters.plan.staged[n].tile.size_bytes for n in loads)
        if not loads or size_bytes > _BYTES_FOR_LATER:
            return
        before = dict(out.starts)
        out.starts |= {d: "0" for d in self.facts.program.dim_names if d not in out.block_names}
        self._issue(loads)
        out.starts.clear()
        out.starts |= before

    def issue_first(self, roles: WarpRoles) -> None:
        """What the code before the first loop reads is asked for before TMA is
        asked for all stages of that loop, after which it would wait: by the clock of an H200
        queries came 1 us after the first keys.
        """
        (first, *_), out = self.block.sections, self.out
        if first.loop is not None or self.facts.cut is not None:
            return
        unsplit_positions(out, 0)
        loads = self._order_of_use(first.nodes)
        only = f"warp < {roles.num_warps}" if roles.has_producer else ""
        for n in self._few_to_registers(first.nodes):
            out.hold(n, self.emitters.copies.loaded(n, out.layouts.own[n], only))
        if loads:
            with out.only(only):
                self._issue(loads)

    def issue_ahead(self, cluster: ClusterExchange) -> None:
        """Tiles that the code after a cluster barrier reads come while blocks work for it."""
        with cluster.positions():
            for number in cluster.cut.exchanges:
                self._issue(self.block.sections[number].nodes)

    def meet(self, cluster: ClusterExchange, number: int) -> None:
        """A cluster barrier; what it loads to registers comes while they wait."""
        nodes = self.block.sections[number].nodes
        with cluster.positions():
            for n in nodes if cluster.all_have_slices else ():
                if self.block.nodes[n].op == "load":
                    self.text.single(n)
        with cluster.synchronized(number):
            self.emit(number)

    def _order_of_use(self, nodes: Sequence[int]) -> list[int]:
        """Staged loads among nodes, those that are needed first in front; those that only later
        sections read at the end.
        """
        plan = self.emitters.plan
        loads: dict[int, None] = {}
        for number in nodes:
            used = self.facts.inputs(number) if self.block.nodes[number].op != "load" else ()
            loads.update((n, None) for n in used if n in plan.staged and n in nodes)
        loads.update((n, None) for n in nodes if n in plan.staged)
        return [n for n in loads if n not in plan.received]
