"""The order of what the threads of one cluster do: vector clocks over the events of its warps.

One run is followed, as long as it can go on. Conflicting accesses must be ordered by program order
of one thread, barriers or phases of mbarriers; what TMA or tensor cores touch also by a
proxy fence. The checks of ``barriers.py`` make this one run stand for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mirage_py.runtime.code_check import events as kinds
from mirage_py.runtime.code_check.barriers import Barrier, MBarrier
from mirage_py.runtime.code_check.events import Event, Fault, Launch
from mirage_py.runtime.code_check.execute import RANK_SHIFT
from mirage_py.runtime.code_check.shadow import UNDER_WAY, Shadow

_OFFSET = (1 << RANK_SHIFT) - 1
_MOST_FAULTS = 12
_BITS = 1 << np.arange(32, dtype=np.uint32)


class BlockedError(Exception):
    """The warp cannot go on yet."""


class Order:
    """The threads of ``blocks``, the blocks of one cluster."""

    def __init__(
        self,
        traces: Sequence[Sequence[Event]],
        blocks: Sequence[int],
        shared_bytes: int,
        launch: Launch,
        stored: Mapping[int, int] | None = None,
    ) -> None:
        """``stored`` has for lines which bits of a thread's number decide what they store."""
        self.blocks = blocks
        self.stored = stored or {}
        self.by_triton = launch.by_triton
        self.pads = launch.pads
        threads = launch.threads
        self.warps = threads // 32
        self.threads = threads
        total = threads * len(blocks)
        self.traces = [trace for _ in blocks for trace in traces]
        self.total = total
        self.components = total
        names = self._barriers(traces)
        size = total + names
        self.clock = np.zeros((total, size), np.int32)
        self.fenced = np.zeros((total, size), np.int32)
        self.tick = [1] * (self.warps * len(blocks))
        self.clock[np.arange(total), np.arange(total)] = 1
        small = any(e.size == 1 for t in traces for e in t if e.kind in ("load", "store"))
        self.grain = 1 if small else 2
        self.stride = -(-shared_bytes // 16) * 16
        self.shadow = Shadow(self.stride * len(blocks) // self.grain, len(self.tick))
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.mbarriers: dict[int, MBarrier] = {}
        self.copies: list[list[list[tuple[Any, Any]]]] = [[[]] for _ in self.tick]
        self.products: list[list[list[Any]]] = [[[]] for _ in self.tick]
        self.waiting_since: dict[int, int] = {}
        self.cluster_phase = [0] * total
        self.gone = np.zeros(total, bool)
        self.remote: dict[int, Any] = {}
        self.last: dict[int, Any] = {}
        self.faults: list[Fault] = []
        self.seen: Counter[tuple[str, int]] = Counter()
        self.done = 0
        self.areas: dict[Any, Any] = {}
        # How often each warp has stored in each line, and stores with their numbers.
        self.times: Counter[tuple[int, int]] = Counter()
        self.stores: dict[tuple[int, int, int], int] = {}

    def _barriers(self, traces: Sequence[Sequence[Event]]) -> int:
        """How many components barriers need."""
        named, phased = set[int](), set[int]()
        for trace in traces:
            for e in trace:
                if e.kind == "bar":
                    named |= {int(x) for x in np.unique(np.asarray(e.data[1]))}
                elif e.kind == "init":
                    phased |= {int(x) for x in np.unique(np.asarray(e.address))}
        return (len(named) + len(phased)) * len(self.blocks) + 2

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> list[Fault]:
        """Faults, the first of each line. Raises UnsupportedError."""
        places = [0] * len(self.traces)
        left = len(self.traces)
        moved = True
        stuck: dict[int, str] = {}
        while left and moved:
            moved = False
            for warp, trace in enumerate(self.traces):
                while places[warp] < len(trace):
                    event = trace[places[warp]]
                    try:
                        self._do(warp, event)
                    except BlockedError as blocked:
                        stuck[warp] = str(blocked)
                        break
                    places[warp] += 1
                    moved = True
                    self.done += 1
                    if len(self.faults) >= _MOST_FAULTS:
                        return self.faults
                    if places[warp] == len(trace):
                        left -= 1
        if left:
            for warp, trace in enumerate(self.traces):
                if places[warp] < len(trace):
                    event = trace[places[warp]]
                    self.say(kinds.DEADLOCK, event.line, f"waits for ever: {stuck[warp]}", warp)
        else:
            self._at_the_end()
        return self.faults

    def _do(self, warp: int, event: Event) -> None:
        block = self.blocks[warp // self.warps]
        lanes = event.lanes_of(block)
        if event.kind == "exit":
            return self._exit(warp)
        if not lanes.any():
            return None
        return _HANDLERS[event.kind](self, warp, event, lanes, block)

    def say(self, kind: str, line: int, text: str, warp: int, lane: int | None = None) -> None:
        self.seen[kind, line] += 1
        if self.seen[kind, line] > 1:
            return
        block = self.blocks[warp // self.warps]
        number = warp % self.warps
        who = f"warp {number}" if lane is None else f"thread {number * 32 + lane}"
        self.faults.append(Fault(kind, line, text, f"block {block}, {who}"))

    def rows(self, warp: int) -> slice:
        """The threads of a warp."""
        return slice(warp * 32, warp * 32 + 32)

    def step(self, warp: int) -> None:
        """What the warp does from here on is not covered by what it has released."""
        self.tick[warp] += 1
        threads = np.arange(warp * 32, warp * 32 + 32)
        self.clock[threads, threads] = self.tick[warp]

    # -- places ----------------------------------------------------------------------------------

    def places_of(self, warp: int, address: Any) -> Any:
        """Byte addresses in the shared memory of the cluster, block after block."""
        own = warp // self.warps
        rank = address >> RANK_SHIFT
        return np.where(rank > 0, rank - 1, own) * self.stride + (address & _OFFSET)

    def granules(self, bytes_at: Any, size: int) -> Any:
        count = max(1, size // self.grain)
        return (bytes_at[:, None] // self.grain + np.arange(count)).ravel()

    def read(self, warp: int, e: Event, at: Any, threads: Any, bits: Any) -> None:
        """Reads of ``at`` by ``threads``, one for each place, or by a whole warp (None)."""
        s = self.shadow
        writer, written = s.writer[at], s.written[at]
        if not (self.pads and e.kind == "load") and not written.all():
            bad = int(np.flatnonzero(written == 0)[0])
            self.say(
                kinds.UNWRITTEN, e.line, f"byte {self.byte_of(at[bad])} of shared memory", warp
            )
        known = self._known(warp, threads, writer)
        if (known < written).any():
            bad = int(np.flatnonzero(known < written)[0])
            self._race(warp, e, at[bad], "reads", int(s.line[at[bad]]), "written")
        if s.barrier[at].any():
            self.say(kinds.BARRIER, e.line, "reads a barrier as if it were data", warp)
        s.note_read(at, warp, self.tick[warp], bits, e.line)

    def _known(self, warp: int, threads: Any, component: Any) -> Any:
        if threads is None:
            return self.clock[self.rows(warp)].min(axis=0)[component]
        return self.clock[threads, component]

    def byte_of(self, place: Any) -> int:
        return int(place) * self.grain % self.stride

    def _race(self, warp: int, e: Event, place: Any, does: str, line: int, did: str) -> None:
        text = (
            f"{does} byte {self.byte_of(place)} of shared memory, {did} in line {line}, unordered"
        )
        self.say(kinds.RACE, e.line, text, warp)

    def write(self, warp: int, e: Event, at: Any, threads: Any) -> None:
        """Checks of a write: after all that was written and read there."""
        s = self.shadow
        writer, written = s.writer[at], s.written[at]
        known = self.clock[threads, writer]
        if (known < written).any():
            bad = int(np.flatnonzero(known < written)[0])
            self._race(warp, e, at[bad], "writes", int(s.line[at[bad]]), "written")
        if s.barrier[at].any():
            self.say(kinds.BARRIER, e.line, "writes over a barrier", warp)
        for other, ticks in s.readers(at):
            rows = self.rows(other)
            known_all: Any = self.clock[threads, rows]
            if np.isscalar(threads):
                late = ticks > int(known_all.min())
            else:
                late = ticks > known_all.min(axis=1)
            if not late.any():
                continue
            for n in np.flatnonzero(late):
                inside = (s.lanes[other, at[n]] & _BITS) != 0
                mine = known_all if np.isscalar(threads) else known_all[n]
                if (mine[inside] < ticks[n]).any():
                    line = int(s.read_line[other, at[n]])
                    self._race(warp, e, at[n], "writes", line, "read")
                    break

    def last_barrier(self, warp: int) -> tuple[int, Any]:
        """How often all threads of the block have met, and what all of them know since."""
        barrier = self.barriers.get((warp // self.warps, 0))
        count = 0 if barrier is None else int(self.clock[warp * 32, barrier.component])
        if barrier is None or not count or barrier.expected != self.threads:
            return 0, np.zeros(self.clock.shape[1], np.int32)
        return count, barrier.over[count - 1][0]

    def settled(self, warp: int, at: Any) -> Any:
        """Whether all accesses so far were before that."""
        s, known = self.shadow, self.last_barrier(warp)[1]
        found = known[s.writer[at]] >= s.written[at]
        for other, ticks in s.readers(at):
            found &= ticks <= known[self.rows(other)].min()
        return found

    def unfenced(self, warp: int, e: Event, at: Any, threads: Any, who: str) -> None:
        """What ordinary stores wrote is fenced before TMA or tensor cores touch it."""
        s = self.shadow
        stored = s.generic[at] & (s.written[at] > 0) & (s.written[at] < UNDER_WAY)
        if not stored.any():
            return
        places = at[stored]
        writer = s.writer[places]
        if threads is None:
            known = self.fenced[self.rows(warp)].min(axis=0)[writer]
        else:
            known = self.fenced[threads, writer]
        if (known < s.written[places]).any():
            bad = int(np.flatnonzero(known < s.written[places])[0])
            line = int(s.line[places[bad]])
            where = self.byte_of(places[bad])
            text = f"{who} byte {where}, written in line {line} without a proxy fence"
            self.say(kinds.PROXY, e.line, text, warp)

    def note_remote(self, warp: int, e: Event, address: Any, threads: Any) -> None:
        """Accesses of other blocks' memory, which must be there from first to last."""
        ranks = np.unique(address >> RANK_SHIFT)
        for rank in ranks[ranks > 0]:
            owner = int(rank) - 1
            if owner == warp // self.warps:
                continue
            if owner >= len(self.blocks):
                self.say(kinds.BOUNDS, e.line, f"block {owner} of a smaller cluster", warp)
                continue
            there = slice(owner * self.threads, (owner + 1) * self.threads)
            if not (self.clock[threads, there].max(axis=-1) > 0).all():
                text = f"block {owner} of the cluster may not have begun"
                self.say(kinds.LIFETIME, e.line, text, warp)
            kept = self.remote.setdefault(owner, {})
            for t in np.atleast_1d(threads):
                kept[int(t)] = (self.tick[warp], e.line)

    # -- the end ---------------------------------------------------------------------------------

    def _exit(self, warp: int) -> None:
        self.gone[self.rows(warp)] = True
        if any(self.products[warp]):
            self.say(kinds.REGISTERS, 0, "products are under way when the warp ends", warp)

    def _at_the_end(self) -> None:
        for bar in self.mbarriers.values():
            owner = bar.address // self.stride
            rows = slice(owner * self.threads, (owner + 1) * self.threads)
            seen = int(self.clock[rows, bar.component].max())
            late = [line for phase, line in bar.copied.items() if phase >= seen]
            if late:
                text = f"nobody waits for a copy to block {self.blocks[owner]} before it ends"
                self.say(kinds.LIFETIME, late[0], text, owner * self.warps)
        for owner, kept in self.remote.items():
            rows = slice(owner * self.threads, (owner + 1) * self.threads)
            for thread, (tick, line) in kept.items():
                if int(self.clock[rows, thread].max()) < tick:
                    text = f"block {owner} of the cluster may have ended"
                    self.say(kinds.LIFETIME, line, text, thread // 32)
                    break


Handler = Callable[[Order, int, Event, Any, int], None]
_HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Says who does events of these kinds."""

    def put(function: Handler) -> Handler:
        for name in names:
            _HANDLERS[name] = function
        return function

    return put
