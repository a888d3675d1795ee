"""The TMA pipeline of a persistent kernel: one thread runs ahead from work tile to work tile, with
the tiles of loops and those of the straight-line code before them.

Stages and the parities of their barriers continue from the previous work tile. Tiles of straight-
line code have one buffer each and share a pair of barriers. They are released after the last loop
that reads them, so that those of the next work tile arrive while this one's results are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mirage_py.codegen.cuda.pipeline.persistent_kernel import WorkTiles
from mirage_py.codegen.cuda.pipeline.tma_pipeline import TmaPipeline
from mirage_py.codegen.cuda.plan.pipeline_plan import INPUTS
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.cuda.writer.grid_positions import unsplit_positions


class PersistentPipeline(TmaPipeline):
    """Tiles by TMA, from one work tile to the next."""

    def __init__(self, emission: Emission, copies: Copies) -> None:
        super().__init__(emission, copies)
        self.work_tiles = WorkTiles(emission)
        # Tiles of straight-line code that TMA loads: their buffers, and the last section that
        # reads one of them.
        self._inputs = dict.fromkeys(self.plan.pipeline.inputs, "")
        self._last_reader = max(map(self._last_section, self._inputs), default=-1)
        self._is_awaited = False

    def _last_section(self, load: int) -> int:
        facts = self.out.facts
        nodes = range(len(facts.block.nodes))
        return max(facts.section(n) for n in nodes if load in map(facts.root, facts.operands(n)))

    # -- the kernel's head -----------------------------------------------------------------------

    def begin_kernel(self) -> None:
        """Make the barriers; then all that the producer warps do."""
        out, roles = self.out, self.roles
        self.work_tiles.begin()
        self._make_mbarriers()
        for load in self._inputs:
            self._inputs[load] = self._buffer(self.staged[load], 1)
        with out.indented(f"if ({roles.is_issuer})"):
            self._initialise([[one] for one in self.plan.mbarriers])
        out.line("__syncthreads();  // the barriers are made")
        out.memory.phase += 1
        with self._in_producer(), out.indented(f"if ({roles.is_issuer})"):
            self._fetch_all()
        self._turns = {n: self._begin("stage", "parity") for n in self.loops}

    def _fetch_all(self) -> None:
        """What all work tiles read. A barrier's phase before its first has parity 1, and has ended:
        stages are free to begin with.
        """
        turns = {n: self._begin("next_stage", "next_parity", 1) for n in self.loops}
        with self.work_tiles.each():
            if self._inputs:
                self._fetch_inputs()
            for section, turn in turns.items():
                self._prepare(section)
                self._fetch_rest(section, 0, turn)

    def _fetch_inputs(self) -> None:
        out = self.out
        for number in {out.facts.section(n): None for n in self._inputs}:
            unsplit_positions(out, number)
        out.line(f"mbarrier_wait({self._empty[INPUTS]}, {self.work_tiles.round} & 1 ^ 1);")
        total = sum(self.staged[n].tile.size_bytes for n in self._inputs)
        out.line(f"mbarrier_expect({self._full[INPUTS]}, {total});")
        for load, buffer in self._inputs.items():
            self.tma.fetch(self.staged[load], buffer, self._full[INPUTS])

    # -- work tiles -----------------------------------------------------------------------------

    @contextmanager
    def each_work_tile(self) -> Iterator[None]:
        """What is written inside is what the consumer warps do at each work tile."""
        out = self.out
        with self.work_tiles.each():
            self._is_awaited = False
            yield
            if self._inputs and self._last_reader not in self.loops:
                self._give_inputs_back()
            known = {*self._all_rings.values(), *self._inputs.values()}
            known |= {*self._full.values(), *self._empty.values()}
            if any(name not in known for name in out.memory.names):
                out.barrier("what threads have written to shared memory is read")

    def _give_inputs_back(self) -> None:
        self.out.line("__syncwarp();")
        self.out.line(f"if (lane == 0) mbarrier_arrive({self._empty[INPUTS]});")

    # -- straight code ---------------------------------------------------------------------------

    def issue_straight_line(self, loads: Sequence[int]) -> None:
        """Start the copies that the engine has not started."""
        for load in loads:
            if load in self._inputs:
                self._buffers[load] = self._inputs[load]
        super().issue_straight_line([n for n in loads if n not in self._inputs])

    def wait_for(self, loads: Sequence[int]) -> bool:
        """Wait for tiles of straight code; whether the caller has to write a barrier."""
        if not self._is_awaited and any(n in self._inputs for n in loads):
            self.out.line(f"mbarrier_wait({self._full[INPUTS]}, {self.work_tiles.round} & 1);")
            self._is_awaited = True
        return super().wait_for(loads)

    # -- loops -----------------------------------------------------------------------------------

    def give_rest_back(self, count: int, condition: str = "") -> None:
        """Stages of the last iterations are filled again for the next work tile."""
        self.give_back(count, condition)

    def end_loop(self, section: int) -> None:
        """After the last iteration of a loop, whose early matmuls are done."""
        if self._inputs and section == self._last_reader and section in self.loops:
            self._give_inputs_back()
