"""The cp.async pipeline: when copies to shared memory are issued, and what waits for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.layout.shared_tile import PIECE_BYTES, TILE_ALIGNMENT_BYTES
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.text.c_text import added
from mirage_py.codegen.cuda.writer.copies import Copies
from mirage_py.codegen.cuda.writer.cuda_kernel import TensorMap
from mirage_py.codegen.cuda.writer.emission import Emission

# Bytes of a cp.async that does not go through the L1.
_PAST_L1 = 16


@dataclass(frozen=True, slots=True)
class _EarlyTiles:
    """The ``loads`` of a loop that ``copy`` has begun with, and the rings of all of its loads."""

    loads: tuple[int, ...]
    rings: dict[int, str]
    copy: str


class Pipeline:
    """Copies by cp.async: groups of straight code, rings of buffers of loops."""

    def __init__(self, emission: Emission, copies: Copies) -> None:
        self.out = emission
        self.plan = emission.plan
        self.copies = copies
        self.staged = emission.plan.staged
        self.private = emission.plan.private
        self.depths = emission.plan.depths
        # Tiles of straight code: the buffer of each, and how many groups had been committed then.
        self._buffers: dict[int, str] = {}
        self._group_of: dict[int, int] = {}
        self._committed = 0
        self._arrived = 0
        # Tiles of the loop that is being written: what points to them in this iteration.
        self._now: dict[int, str] = {}
        self._loop: tuple[str, str, str, int] = ("", "0", "0", 1)
        self._has_all = False
        self._rings: dict[int, str] = {}
        self.roles = emission.plan.pipeline.roles
        # Loops of which tiles are on their way before the kernel has waited.
        self._early_tiles: dict[int, _EarlyTiles] = {}

    def begin_kernel(self) -> None:
        """What comes first in the kernel."""

    def end_kernel(self) -> None:
        """What comes last in the kernel."""

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps among the kernel's parameters."""
        return ()

    # -- straight code ---------------------------------------------------------------------------

    def issue_straight_line(self, loads: Sequence[int]) -> None:
        """Start the copies of a section without a loop, a group for each tile."""
        for load in loads:
            staged = self.staged[load]
            buffer = self._buffer(staged, 1)
            self.copies.issue(staged, buffer)
            self.out.line("cp_async_commit();")
            self._committed += 1
            self._buffers[load], self._group_of[load] = buffer, self._committed

    def is_in_flight(self, load: int) -> bool:
        """Whether the copy of a tile of straight code has been started."""
        return load in self._buffers

    def arrived(self, load: int, buffer: str) -> None:
        """A tile of straight code that is there."""
        self._buffers[load] = buffer

    def tile_at(self, load: int) -> str:
        """What points to a tile, after a wait for it where it may still be on its way."""
        if load in self._now:
            self.out.memory.use(self._rings[load])
            return self._now[load]
        if self.wait_for([load]):
            self.out.barrier(f"{self.out.facts.block.nodes[load].access} has arrived")
        self.out.memory.use(self._buffers[load])
        return self._buffers[load]

    def wait_for(self, loads: Sequence[int]) -> bool:
        """Wait for this thread's part of tiles of straight code; False if all have arrived. The
        caller writes the barrier.
        """
        groups = (self._group_of.get(n, 0) for n in loads if n not in self._now)
        group = max(groups, default=0)
        if group <= self._arrived:
            return False
        self.out.line(f"cp_async_wait<{self._committed - group}>();")
        self._publish([n for n, g in self._group_of.items() if self._arrived < g <= group])
        self._arrived = group
        return True

    def _publish(self, loads: Sequence[int]) -> None:
        """What this thread has copied comes before what tensor cores read by themselves."""
        if any(n in self.plan.operands.tiles for n in loads):
            self.out.line("fence_async_shared();")

    def _buffer(self, staged: Staged, count: int) -> str:
        """Shared memory for a tile, or for several one after the other."""
        out, tile = self.out, staged.tile
        access = out.facts.block.nodes[staged.load].access
        shape = f"{1 << len(tile.rows)} x {1 << len(tile.columns)}"
        form = f"swizzled by {tile.swizzle_bytes} bytes" if tile.swizzle_bytes else "row by row"
        times = f"{count} buffers, each " if count > 1 else ""
        out.comment(f"{access}: {times}{shape} of {tile.dim}, {form}")
        stem = f"{out.names[staged.load]}{'s' if count > 1 else '_shared'}"
        size = tile.size_bytes * count * self._copies_of(staged.load)
        return out.memory.new(out.fresh(stem), size, TILE_ALIGNMENT_BYTES, "unsigned char")

    @property
    def has_tiles(self) -> bool:
        """Whether the last loop has read tiles in shared memory."""
        return bool(self._rings)

    # -- loops -----------------------------------------------------------------------------------

    def release_stage(self) -> None:
        """In the last phase of an iteration: nothing reads its tiles any more."""

    def begin_loop(
        self, section: int, dim: str, bounds: tuple[str, str, int], nodes: Sequence[int]
    ) -> None:
        """Before a loop: rings of buffers, and the copies that run ahead."""
        out, depth = self.out, self.depths[section]
        first, stop, tile = bounds
        loads = self._copied(nodes)
        self._rings = {}
        self._now = {}
        self._loop = (first, stop, "", tile)
        if not loads:
            return
        early = self._early_tiles.get(section)
        self._rings = early.rings if early else self._made_rings(loads, depth)
        rest = [n for n in loads if early is None or n not in early.loads]
        copy = self._copy_function("copy_tiles" if early is None else "copy_rest", dim, rest)
        self._loop = (first, stop, copy, tile)
        if early is not None:
            self._loop = (first, stop, self._both(early.copy, copy), tile)
        if depth == 1:
            return
        self._has_all = self._fills_all(section)
        ahead = depth if self._has_all else depth - 1
        out.comment(
            f"{'All' if self._has_all else ahead} of them on their way in front of the loop"
        )
        self._fill(ahead, copy, commits=True)
        self._committed += ahead
        self._stage = out.fresh("stage")
        out.line(f"int {self._stage} = 0;")

    def issue_early(self, section: int, dim: str, bounds: tuple[str, str, int]) -> None:
        """The first tiles of a loop that the kernel in front does not write, before it is waited
        for.
        """
        facts, depth = self.out.facts, self.depths[section]
        loads = self._copied(facts.block.sections[section].nodes)
        early = [n for n in loads if self.comes_early(n)]
        if depth == 1 or not early:
            return
        rings = self._made_rings(loads, depth)
        copy = self._copy_function("copy_early", dim, early, rings)
        self._early_tiles[section] = _EarlyTiles(tuple(early), rings, copy)
        self._loop = (*bounds[:2], copy, bounds[2])
        self._fill(depth if self._fills_all(section) else depth - 1, copy, commits=False)

    def comes_early(self, load: int) -> bool:
        """Whether a load need not wait for the kernel in front: copies go past the L1, in which
        something older may be.
        """
        staged = self.staged.get(load)
        is_past = staged is not None and staged.copy_bytes == _PAST_L1
        if not is_past and load not in self.private:
            return False
        tensors = self.out.facts.block.nodes[load].access.tensors
        return all(t in self.out.options.constants for t in tensors)

    def _copied(self, nodes: Sequence[int]) -> list[int]:
        """The loads through shared memory; codes, which come from far and are many, first."""
        private = [n for n in nodes if n in self.private]
        return [*private, *(n for n in nodes if n in self.staged)]

    def _made_rings(self, loads: Sequence[int], depth: int) -> dict[int, str]:
        made = {}
        for load in loads:
            if load in self.private:
                made[load] = self._private_ring(load, depth)
            else:
                made[load] = self._buffer(self.staged[load], depth)
        return made

    def _private_ring(self, load: int, depth: int) -> str:
        out, size = self.out, self.private[load].size_bytes
        access = out.facts.block.nodes[load].access
        out.comment(f"{access}: {depth} buffers, each {size} bytes; a thread's own are read by it")
        name = out.fresh(f"{out.names[load]}s")
        return out.memory.new(name, size * depth, PIECE_BYTES, "unsigned char")

    def _ring_step(self, load: int) -> int:
        """Bytes from one stage of a ring to the next."""
        private = self.private.get(load)
        if private is not None:
            return private.size_bytes
        return self.staged[load].tile.size_bytes * self._copies_of(load)

    def _of_warp(self, load: int) -> str:
        """What is added to a stage where each warp has a copy."""
        size = self.staged[load].tile.size_bytes if self._copies_of(load) > 1 else 0
        return f" + warp * {size}" if size else ""

    def _copies_of(self, load: int) -> int:
        """Warps with a copy of a tile of their own."""
        return self.plan.options.num_warps if self.plan.warp_tiles.get(load) == () else 1

    def _copy_function(
        self, stem: str, dim: str, loads: Sequence[int], rings: Mapping[int, str] | None = None
    ) -> str:
        """A function that copies one iteration's tiles of these loads to a stage."""
        out = self.out
        rings = self._rings if rings is None else rings
        depth = self.depths[out.facts.section(loads[0])] if loads else 1
        copy, start = out.fresh(stem), f"{dim}_next"
        with out.indented(f"auto {copy} = [&]({out.index_type} {start}, int stage)", "};"):
            out.starts[dim] = start
            for load in loads:
                step = self._ring_step(load)
                place = rings[load] if depth == 1 else f"{rings[load]} + stage * {step}"
                place += self._of_warp(load)
                if load in self.private:
                    self.copies.issue_private(load, self.private[load], place)
                else:
                    self.copies.issue(self.staged[load], place)
        return copy

    def _both(self, first: str, second: str) -> str:
        copy = self.out.fresh("copy_tiles")
        kind = self.out.index_type
        with self.out.indented(f"auto {copy} = [&]({kind} next, int stage)", "};"):
            self.out.line(f"{first}(next, stage);")
            self.out.line(f"{second}(next, stage);")
        return copy

    def _fill(self, count: int, copy: str, *, commits: bool) -> None:
        """The copies of the first iterations."""
        out = self.out
        first, stop, _, tile = self._loop
        out.line("#pragma unroll")
        with out.indented(f"for (int ahead = 0; ahead < {count}; ++ahead)"):
            place = added(first, f"ahead * {tile}")
            has_all = (first, stop) == ("0", str(count * tile))
            guard = "" if self._has_all or has_all else f"if ({place} < {stop}) "
            out.line(f"{guard}{copy}({place}, ahead);")
            if commits:
                out.line("cp_async_commit();")

    def _fills_all(self, section: int) -> bool:
        """Whether a loop has a buffer for each of its tiles, and masks leave out none."""
        facts, dim = self.out.facts, self.out.facts.block.sections[section].loop
        assert dim is not None
        first, stop, _, tile = self._loop
        size = facts.program.sizes[dim]
        return (first, stop) == ("0", str(size)) and self.depths[section] * tile >= size

    def begin_iteration(self, section: int) -> None:
        """At the head of an iteration: its tiles have arrived, others are on their way."""
        out, depth = self.out, self.depths[section]
        _, stop, copy, tile = self._loop
        if not copy:
            return
        dim = out.facts.block.sections[section].loop
        assert dim is not None
        start = out.starts[dim]
        if depth == 1:
            out.barrier("the tiles before have been read")
            out.line(f"{copy}({start}, 0);")
            out.line("cp_async_commit();")
            out.line("cp_async_wait<0>();")
            self._publish(list(self._rings))
            out.barrier("the tiles have arrived")
        elif self._has_all:
            # A group without copies in each iteration: the one to wait for is as many back in all.
            out.line(f"cp_async_wait<{depth - 1}>();")
            self._publish(list(self._rings))
            self._meet("this stage's tiles have arrived")
            out.line("cp_async_commit();")
        else:
            out.line(f"cp_async_wait<{depth - 2}>();")
            self._publish(list(self._rings))
            self._meet("this stage's tiles have arrived, those of the stage before are read")
            ahead = f"{start} + {(depth - 1) * tile}"
            stage = f"{self._stage} == 0 ? {depth - 1} : {self._stage} - 1"
            out.line(f"if ({ahead} < {stop}) {copy}({ahead}, {stage});")
            out.line("cp_async_commit();")
        for load, ring in self._rings.items():
            step = self._ring_step(load)
            if depth == 1:
                self._now[load] = ring
                continue
            name = out.fresh(f"{out.names[load]}_now")
            place = f"{ring} + {self._stage} * {step}{self._of_warp(load)}"
            out.line(f"unsigned char* const {name} = {place};")
            self._now[load] = name
        for load in self._rings:
            if load in self.private:
                private = self.private[load]
                out.hold(load, self.copies.read_private(load, private, self.tile_at(load)))

    def _meet(self, reason: str) -> None:
        """All who copy tiles for one another; a warp at the least, whose lanes may have parted."""
        if all(n in self.private or n in self.plan.warp_tiles for n in self._rings):
            self.out.line(f"__syncwarp();  // {reason}")
        else:
            self.out.barrier(reason)

    def end_loop(self, section: int) -> None:
        """After the last iteration of a loop, whose early matmuls are done."""

    def end_iteration(self, section: int, has_exchanged: bool) -> None:
        """At the end of an iteration."""
        out, depth = self.out, self.depths[section]
        is_alone = all(n in self.private or n in self.plan.warp_tiles for n in self._rings)
        if has_exchanged and is_alone:
            out.barrier("what threads have exchanged is read")
        if self._rings and depth > 1:
            out.line(f"{self._stage} = {self._stage} == {depth - 1} ? 0 : {self._stage} + 1;")
        self._now = {}
