"""Sections without a loop: all that they read of memory is on its way before one waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirage_py.codegen.cuda.analysis.warp_roles import Roles
from mirage_py.codegen.cuda.kernel.cluster_exchange import Clusters
from mirage_py.codegen.cuda.kernel.emitters import Writers
from mirage_py.codegen.cuda.kernel.phase_emitter import PhaseText
from mirage_py.codegen.cuda.writer.grid_positions import whole_positions

# Registers of a thread that may hold what is needed behind the first wait only.
_WORDS_AHEAD = 64

# Tiles that wait in shared memory until loops have ended.
_BYTES_FOR_LATER = 8 << 10


class StraightCode:
    """Writes sections without a loop, meetings of a cluster's blocks among them."""

    def __init__(self, writers: Writers, text: PhaseText) -> None:
        self.writers = writers
        self.facts = writers.facts
        self.block = writers.facts.block
        self.out = writers.out
        self.text = text

    def write(self, nodes: Sequence[int]) -> None:
        """The text of a section's nodes."""
        phases = self.writers.meetings.phases(nodes)
        order = [n for p in phases for n in p]
        self._issue(order)
        self._load_ahead(order)
        self.text.write(phases)

    def _issue(self, nodes: Sequence[int]) -> None:
        """Start the copies of straight code that are not under way yet."""
        writers = self.writers
        loads = self._order_of_use(nodes)
        writers.pipeline.issue_straight([n for n in loads if not writers.pipeline.is_under_way(n)])

    def _load_ahead(self, nodes: Sequence[int]) -> None:
        """Loads to registers come while tiles are on their way, as far as they are few."""
        writers = self.writers
        if not any(writers.pipeline.is_under_way(n) for n in nodes):
            return
        for n in self._few_to_registers(nodes):
            self.text.single(n)

    def _few_to_registers(self, nodes: Sequence[int]) -> Iterator[int]:
        """Loads to registers that are not there yet, as far as they are few."""
        words = 0
        for n in nodes:
            is_due = self.block.nodes[n].op == "load" and n not in self.writers.staged
            if is_due and not self.out.held(n) and self.facts.reads_in_registers(n):
                words += self.out.layouts.own[n].register_count
                if words <= _WORDS_AHEAD:
                    yield n

    def issue_for_later(self, loop: int) -> None:
        """Small tiles that sections behind a loop read come while it works; large ones would take
        the memory of its stages.
        """
        out, cut = self.out, self.facts.cut
        sections = list(enumerate(self.block.sections))[loop + 1 :]
        straight = [
            s for number, s in sections
            if s.loop is None and (cut is None or number not in cut.meetings)
        ]  # fmt: skip
        loads = self._order_of_use([n for s in straight for n in s.nodes])
        size_bytes = sum(self.writers.staged[n].tile.size_bytes for n in loads)
        if not loads or size_bytes > _BYTES_FOR_LATER:
            return
        before = dict(out.starts)
        out.starts |= {d: "0" for d in self.facts.program.dim_names if d not in out.block_names}
        self._issue(loads)
        out.starts.clear()
        out.starts |= before

    def issue_first(self, roles: Roles) -> None:
        """What the code in front of the first loop reads is asked for before the copy engine is
        asked for all stages of that loop, behind which it would wait: by the clock of an H200
        queries came 1 us after the first keys.
        """
        (first, *_), out = self.block.sections, self.out
        if first.loop is not None or self.facts.cut is not None:
            return
        whole_positions(out, 0)
        loads = self._order_of_use(first.nodes)
        only = f"warp < {roles.num_warps}" if roles.has_producer else ""
        for n in self._few_to_registers(first.nodes):
            out.hold(n, self.writers.copies.loaded(n, out.layouts.own[n], only))
        if loads:
            with out.only(only):
                self._issue(loads)

    def issue_ahead(self, cluster: Clusters) -> None:
        """Tiles that a meeting reads come while blocks work for it."""
        with cluster.positions():
            for number in cluster.cut.meetings:
                self._issue(self.block.sections[number].nodes)

    def meet(self, cluster: Clusters, number: int) -> None:
        """A meeting of a cluster's blocks; what it loads to registers comes while they wait."""
        nodes = self.block.sections[number].nodes
        with cluster.positions():
            for n in nodes if cluster.all_have_slices else ():
                if self.block.nodes[n].op == "load":
                    self.text.single(n)
        with cluster.meeting(number):
            self.write(nodes)

    def _order_of_use(self, nodes: Sequence[int]) -> list[int]:
        """Staged loads among nodes, those that are needed first in front; those that only later
        sections read at the end.
        """
        writers = self.writers
        loads: dict[int, None] = {}
        for number in nodes:
            used = self.facts.inputs(number) if self.block.nodes[number].op != "load" else ()
            loads.update((n, None) for n in used if n in writers.staged and n in nodes)
        loads.update((n, None) for n in nodes if n in writers.staged)
        return [n for n in loads if n not in writers.received]
