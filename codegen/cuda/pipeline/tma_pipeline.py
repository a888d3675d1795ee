"""The TMA pipeline of a loop: an mbarrier for each stage, and the thread that issues the loads.

One thread issues the first tiles before anything else happens in the kernel; all threads wait for a
stage by its barrier's parity. Without a producer the block barrier at the head of an iteration
releases the previous stage. With ``producer warps`` a separate warp runs ahead of the consumers,
which release each stage by a second mbarrier and need no block barrier for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from mirage_py.codegen.cuda.pipeline.pipeline import Pipeline
from mirage_py.codegen.cuda.pipeline.row_reduction_emitter import RowReductionEmitter
from mirage_py.codegen.cuda.pipeline.tma import TmaLoads
from mirage_py.codegen.cuda.plan.pipeline_plan import Mbarrier, Signal
from mirage_py.codegen.cuda.text.c_text import added
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.cuda_kernel import TensorMap
from mirage_py.codegen.cuda.writer.emission import Emission
from mirage_py.codegen.cuda.writer.grid_positions import unsplit_positions
from mirage_py.codegen.cuda.writer.loop_text import advance_stage, loop_bounds, stage_ago
from mirage_py.codegen.text.operator_text import atom

_BARRIER_BYTES = 8


class TmaPipeline(Pipeline):
    """Tiles of loops by TMA, where it can load all of a loop's; the rest as before."""

    def __init__(self, emission: Emission, copies: Copies) -> None:
        super().__init__(emission, copies)
        self.tma = TmaLoads(emission)
        self.loops = emission.plan.pipeline.loops
        self._slots = emission.plan.pipeline.slots
        self._bounds: dict[int, tuple[str, str, int]] = {}
        self._all_rings: dict[int, str] = {}
        # Names of mbarriers, by section.
        self._mbarriers: dict[Signal, dict[int, str]] = {signal: {} for signal in Signal}
        self._full, self._empty, self._made = self._mbarriers.values()
        # Sums that the producer warps make, and that were waited for in this iteration.
        self._awaited: set[int] = set()
        self.row_text = RowReductionEmitter(emission)
        self._fetch: dict[int, str] = {}
        # The stage and parity of loops that go on where they were at the work tile before.
        self._turns: dict[int, tuple[str, str]] = {}
        self._parity = ""
        self._section = -1
        # Whether matmuls read a stage an iteration late.
        self.lags = False
        self._is_released = False

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Parameters of the kernel, after its pointers."""
        return tuple(self.tma.maps.values())

    def _fetched(self, loads: Sequence[int]) -> list[int]:
        """Those that come from memory."""
        return [n for n in loads if n not in self.plan.row_reductions]

    # -- the kernel's head -----------------------------------------------------------------------

    def begin_kernel(self) -> None:
        """Make the barriers, and fetch the first tiles of the first loop."""
        out, roles = self.out, self.roles
        self._make_mbarriers()
        first = next(iter(self.loops))
        for section in self.loops if roles.has_producer else (first,):
            self._prepare(section)
        with out.indented(f"if ({roles.is_issuer})"):
            mbarriers = self.plan.mbarriers
            self._initialise([[m for m in mbarriers if m.section == n] for n in self.loops])
            self._fetch_first(first)
        out.line("__syncthreads();  // the barriers are made")
        out.memory.phase += 1
        if roles.has_producer:
            self._produce(first)

    def end_kernel(self) -> None:
        """The barriers are in use until here."""
        for name in (*self._full.values(), *self._empty.values(), *self._made.values()):
            self.out.memory.use(name)

    def _make_mbarriers(self) -> None:
        for one in self.plan.mbarriers:
            name, size = self.out.fresh(one.stem), _BARRIER_BYTES * one.stages
            made = self.out.memory.new(name, size, _BARRIER_BYTES, "unsigned long long")
            self._mbarriers[one.signal][one.section] = made

    def _initialise(self, groups: Iterable[Sequence[Mbarrier]]) -> None:
        """Tensor maps and mbarriers, those of a group in one loop over their stages."""
        out = self.out
        for tensor_map in self.maps:
            out.line(f"tma_prefetch(&{tensor_map.name});")
        for group in groups:
            with out.unrolled("i", group[0].stages) as i:
                for one in group:
                    name = self._mbarriers[one.signal][one.section]
                    out.line(f"mbarrier_init({added(name, i)}, {one.arrivals});")
        out.line("mbarrier_fence_init();")

    def _prepare(self, section: int) -> None:
        """The rings of a loop, and a function that fetches the tiles of one iteration."""
        out, depth = self.out, self.depths[section]
        facts = out.facts
        dim = facts.block.sections[section].loop
        assert dim is not None
        unsplit_positions(out, section)
        first, stop = loop_bounds(facts.tiling, section, self.plan.live[section], out.starts)
        self._bounds[section] = (first, stop, facts.tiling.padded(dim, section))
        loads = self.loops[section]
        self._make_rings(loads, depth)
        name = self._fetch[section] = out.fresh("fetch_tiles")
        start = f"{dim}_next"
        fetched = self._fetched(loads)
        total = sum(self.staged[n].tile.size_bytes for n in fetched)
        full = f"{self._full[section]} + stage"
        with out.indented(f"auto {name} = [&]({out.index_type} {start}, int stage)", "};"):
            out.starts[dim] = start
            out.line(f"mbarrier_expect({full}, {total});")
            for load in fetched:
                self.tma.fetch(self.staged[load], self._place(load, "stage"), full)
        del out.starts[dim]

    def _make_rings(self, loads: Sequence[int], depth: int) -> None:
        """Shared memory for all stages of each load; the first of those side by side has it all."""
        sharing = [j.loads for j in dict.fromkeys(self.plan.pipeline.concatenated.values())]
        for load in loads:
            group = next((g for g in sharing if load in g), (load,))
            if load not in self._all_rings:
                ring = self._buffer(self.staged[load], depth * len(group))
                self._all_rings.update(dict.fromkeys(group, ring))

    def _place(self, load: int, stage: str) -> str:
        """Where a load's tile of a stage begins."""
        step, offset = self._slots[load]
        return added(f"{self._all_rings[load]} + {stage} * {step}", str(offset))

    def _fetch_first(self, section: int) -> None:
        out, depth = self.out, self.depths[section]
        first, stop, tile = self._bounds[section]
        with out.unrolled("ahead", depth) as ahead:
            place = added(first, "0" if ahead == "0" else f"{ahead} * {tile}")
            out.line(f"if ({place} < {stop}) {self._fetch[section]}({place}, {ahead});")

    @contextmanager
    def _in_producer(self) -> Iterator[None]:
        """What is written inside is all that producer warps do; the others go on after it."""
        out, registers = self.out, self.roles.registers
        with out.indented(f"if (warp >= {out.options.num_warps})"):
            if registers is not None:
                out.line(f"registers_decrease<{registers[0]}>();")
            yield
            out.line("return;")
        if registers is not None:
            out.line(f"registers_increase<{registers[1]}>();")

    def _produce(self, first_loop: int) -> None:
        out = self.out
        with self._in_producer():
            with out.indented(f"if ({self.roles.is_issuer})"):
                for section in self.loops:
                    if section != first_loop:
                        self._fetch_first(section)
                    skipped = self.depths[section] * self._bounds[section][2]
                    self._fetch_rest(section, skipped, self._begin("next_stage", "next_parity"))
            if self._made:
                with out.indented(f"if (warp > {out.options.num_warps})"):
                    for section in self._made:
                        self._reduce_rows(section)
            if out.facts.block.cluster_dims:
                # There is one cluster barrier, after the loops, and it waits for all threads.
                out.line("__syncwarp();")
                out.line("cluster_wait();")
                out.line("cluster_arrive();")
                out.line("cluster_wait();")

    def _begin(self, stage: str, parity: str, first: int = 0) -> tuple[str, str]:
        """Variables for a stage and its barriers' parity."""
        out = self.out
        stage, parity = out.fresh(stage), out.fresh(parity)
        out.line(f"int {stage} = 0;")
        out.line(f"unsigned {parity} = {first};")
        return stage, parity

    @contextmanager
    def _tiles_of(self, section: int, stem: str, skipped: int = 0) -> Iterator[str]:
        """A loop of producer warps over all positions of a section's but those that are skipped."""
        first, stop, tile = self._bounds[section]
        start = self.out.fresh(stem)
        self.out.line("#pragma unroll 1")
        begin = f"{self.out.index_type} {start} = {added(first, str(skipped))}"
        with self.out.indented(f"for ({begin}; {start} < {stop}; {start} += {tile})"):
            yield start

    def _reduce_rows(self, section: int) -> None:
        """What the consumer warps make of each tile of a loop."""
        out, facts = self.out, self.out.facts
        dim = facts.block.sections[section].loop
        assert dim is not None
        stage, parity = self._begin("sums_stage", "sums_parity")
        with self._tiles_of(section, "sums_start") as start:
            out.line(f"mbarrier_wait({self._full[section]} + {stage}, {parity});")
            for load, row in self.plan.row_reductions.items():
                if load in self.loops[section]:
                    thread = f"(int)threadIdx.x - {32 * (out.options.num_warps + 1)}"
                    has_tail = facts.tiling.has_tail(dim, section)
                    inside = f"{start} + row < {facts.program.sizes[dim]}" if has_tail else ""
                    source, made = self._place(row.source, stage), self._place(load, stage)
                    self.row_text.write(row, source, made, thread, inside)
            out.line("__syncwarp();")
            out.line(f"if (lane == 0) mbarrier_arrive({self._made[section]} + {stage});")
            advance_stage(out, stage, parity, self.depths[section])

    def tile_at(self, load: int) -> str:
        """What points to a tile; where the producer warps make it, after a wait for them."""
        if load in self.plan.row_reductions and load not in self._awaited:
            self._awaited.add(load)
            made = self._made[self._section]
            self.out.line(f"mbarrier_wait({made} + {self._stage}, {self._parity});")
        return super().tile_at(load)

    def _fetch_rest(self, section: int, skipped: int, turn: tuple[str, str]) -> None:
        """Tiles from a position on, each as soon as its stage is free."""
        out, (stage, parity) = self.out, turn
        with self._tiles_of(section, "next_start", skipped) as start:
            out.line(f"mbarrier_wait({self._empty[section]} + {stage}, {parity});")
            out.line(f"{self._fetch[section]}({start}, {stage});")
            advance_stage(out, stage, parity, self.depths[section])

    def give_rest_back(self, count: int, condition: str = "") -> None:
        """After a loop: the stage of so many iterations ago, which is not filled again where the
        block ends with the kernel.
        """

    # -- loops -----------------------------------------------------------------------------------

    def begin_loop(
        self, section: int, dim: str, bounds: tuple[str, str, int], nodes: Sequence[int]
    ) -> None:
        """Before a loop: its first tiles are on their way."""
        if section not in self.loops:
            super().begin_loop(section, dim, bounds, nodes)
            return
        out = self.out
        self._section = section
        self.lags = False
        if section not in self._bounds:
            self._prepare(section)
            out.line("fence_async_shared();")
            out.barrier("the memory that the copy engine writes is free")
            with out.indented(f"if ({self.roles.is_issuer})"):
                self._fetch_first(section)
        self._now = {}
        self._rings = {n: self._all_rings[n] for n in self.loops[section]}
        for ring in self._rings.values():
            out.memory.use(ring)
        turn = self._turns.get(section)
        self._stage, self._parity = turn or self._begin("stage", "parity")

    def issue_early(self, section: int, dim: str, bounds: tuple[str, str, int]) -> None:
        if section not in self.loops:
            super().issue_early(section, dim, bounds)

    def begin_iteration(self, section: int) -> None:
        """At the head of an iteration: its tiles have arrived, others are on their way."""
        if section not in self.loops:
            super().begin_iteration(section)
            return
        out, depth = self.out, self.depths[section]
        first, stop, tile = self._bounds[section]
        self._awaited = set()
        self._is_released = False
        dim = out.facts.block.sections[section].loop
        assert dim is not None
        start = out.starts[dim]
        if not self.roles.has_producer:
            out.barrier("the stage before is read")
            # The stage that is free now, and the first iteration that finds one.
            back = 2 if self.lags else 1
            ahead = added(start, str((depth - back) * tile))
            stage = self._back(back)
            used = atom(first) if back == 1 else added(first, str(tile))
            condition = f"{self.roles.is_issuer} && {start} > {used} && {ahead} < {stop}"
            out.line(f"if ({condition}) {self._fetch[section]}({ahead}, {stage});")
        for load in self._rings:
            name = out.fresh(f"{out.names[load]}_now")
            is_later = self._slots[load][1] > 0
            unused = "[[maybe_unused]] " if self.lags or is_later else ""
            place = self._place(load, self._stage)
            out.line(f"{unused}unsigned char* const {name} = {place};")
            self._now[load] = name
        out.line(f"mbarrier_wait({self._full[section]} + {self._stage}, {self._parity});")

    def _back(self, count: int) -> str:
        """The number of the stage of so many iterations ago."""
        return stage_ago(self._stage, count, self.depths[self._section])

    @contextmanager
    def stage_before(self) -> Iterator[None]:
        """Inside, tiles are those of the iteration before."""
        now = self._now
        self._now = {}
        for load in self._rings:
            self._now[load] = self._place(load, f"({self._back(1)})")
        yield
        self._now = now

    @property
    def is_inside(self) -> bool:
        """Whether an iteration is being written."""
        return bool(self._now)

    def give_back(self, count: int, condition: str) -> None:
        """The stage of so many iterations ago may be filled again, where there was one; without a
        ``condition`` there was.
        """
        if self.roles.has_producer:
            self.out.line("__syncwarp();")
            empty = self._empty[self._section]
            back = self._back(count)
            place = f"{empty} + {back if back.isidentifier() else f'({back})'}"
            who = f"lane == 0 && {condition}" if condition else "lane == 0"
            self.out.line(f"if ({who}) mbarrier_arrive({place});")

    def release_stage(self) -> None:
        """Give the stage back before the iteration ends."""
        if self.roles.has_producer and not self.lags and not self._is_released:
            self._is_released = True
            self.out.line("__syncwarp();")
            empty = self._empty[self._section]
            self.out.line(f"if (lane == 0) mbarrier_arrive({empty} + {self._stage});")

    def end_loop(self, section: int) -> None:
        super().end_loop(section)
        if section in self.loops:
            self.out.memory.last_read = self.out.memory.phase

    def end_iteration(self, section: int, has_exchanged: bool) -> None:
        """At the end of an iteration: its stage is given back."""
        if section not in self.loops:
            super().end_iteration(section, has_exchanged)
            return
        out = self.out
        if self.roles.has_producer:
            self.release_stage()
            if has_exchanged:
                out.barrier("what threads have exchanged is read")
        advance_stage(out, self._stage, self._parity, self.depths[section])
        self._now = {}
