"""An oracle for the checker of emitted code: random runs of the same events, without vector clocks.

Threads of one cluster run warp by warp in random order; barriers and mbarriers are counters, as in
hardware; copies and products happen at random moments, as early or as late as they may. What each
read sees is compared with what it sees in the first run. It knows of no proxies and no registers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mirage_py.runtime.code_check.events import Event, row_of
from mirage_py.runtime.code_check.execute import RANK_SHIFT
from mirage_py.runtime.code_check.shadow import described

Seen = dict[tuple[int, int, int], int]
_OFFSET = (1 << RANK_SHIFT) - 1


@dataclass(slots=True)
class _Bar:
    """A counter with phases."""

    expected: int
    arrived: int = 0
    phase: int = 0
    bytes: int = 0


@dataclass
class Run:
    """One run. ``late`` is how likely what is under way stays so."""

    traces: Sequence[Sequence[Event]]
    blocks: Sequence[int]
    shared_bytes: int
    warps: int
    seed: int
    late: float
    # Which bits of a thread's number decide what it stores, by line (``thread_bits.py``).
    stored: Mapping[int, int] = field(default_factory=dict)
    seen: Seen = field(default_factory=dict)
    stuck: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        count = self.warps * len(self.blocks)
        self.stride = -(-self.shared_bytes // 16) * 16
        self.memory: Any = np.zeros(self.stride * len(self.blocks) // 2 + 1, np.int64)
        self.at = [0] * count
        self.waits: dict[int, int] = {}
        self.named: dict[tuple[int, int], _Bar] = {}
        self.bars: dict[int, _Bar] = {}
        self.copies: list[list[list[Any]]] = [[[]] for _ in range(count)]
        self.products: list[list[list[Any]]] = [[[]] for _ in range(count)]
        self.bulk: list[tuple[Any, int, int, int]] = []
        self.times: dict[tuple[int, int], int] = {}
        self.cluster = _Bar(count * 32)

    def go(self) -> Run:
        """To the end, or until nobody can go on."""
        count = len(self.at)
        order = list(range(count))
        self.rng.shuffle(order)
        left = count
        while left:
            moved = False
            if self.rng.random() < 0.3:
                self.rng.shuffle(order)
            for warp in order:
                steps = self.rng.choice((1, 5, 60))
                trace = self.traces[warp % self.warps]
                while steps and self.at[warp] < len(trace):
                    if not self._do(warp, trace[self.at[warp]]):
                        break
                    self.at[warp] += 1
                    steps -= 1
                    moved = True
                    left -= self.at[warp] == len(trace)
                    self._arrive_late()
            if not moved and not self._arrive_now():
                self.stuck = True
                return self
        return self

    # -- what is under way -------------------------------------------------------------------------

    def _arrive_late(self) -> None:
        if self.bulk and self.rng.random() > self.late:
            self._land(self.rng.randrange(len(self.bulk)))

    def _arrive_now(self) -> bool:
        if not self.bulk:
            return False
        self._land(self.rng.randrange(len(self.bulk)))
        return True

    def _land(self, number: int) -> None:
        at, mark, size, place = self.bulk.pop(number)
        self.memory[at] = mark
        bar = self.bars[place]
        bar.bytes -= size
        self._end(bar)

    def _end(self, bar: _Bar) -> None:
        if bar.arrived >= bar.expected and not bar.bytes:
            bar.arrived -= bar.expected
            bar.phase += 1

    def _places(self, warp: int, address: Any) -> Any:
        rank = address >> RANK_SHIFT
        return np.where(rank > 0, rank - 1, warp // self.warps) * self.stride + (address & _OFFSET)

    def _granules(self, at: Any, size: int) -> Any:
        return (at[:, None] // 2 + np.arange(max(1, size // 2))).ravel()

    def _mark(self, warp: int, e: Event) -> int:
        key = warp, e.line
        self.times[key] = self.times.get(key, 0) + 1
        return hash((warp, e.line, self.times[key]))

    def _see(self, warp: int, line: int, time: int, at: Any) -> None:
        values = self.memory[at]
        weights = np.arange(1, len(values) + 1)
        self.seen[warp, line, time] = int(np.sum((values ^ (values >> 7)) * weights))

    # -- events ------------------------------------------------------------------------------------

    def _do(self, warp: int, e: Event) -> bool:
        """One event; False where the warp has to wait."""
        block = self.blocks[warp // self.warps]
        lanes = e.lanes_of(block)
        if e.kind == "exit" or not lanes.any():
            return True
        function = getattr(self, f"_{e.kind}", None)
        return True if function is None else bool(function(warp, e, lanes, block))

    def _access(self, warp: int, e: Event, lanes: Any, block: int) -> Any:
        return self._granules(self._places(warp, row_of(e.address, block)[lanes]), e.size)

    def _load(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        self._mark(warp, e)
        at = self._access(warp, e, lanes, block)
        self._see(warp, e.line, self.times[warp, e.line], at)
        return True

    _matrix_load = _load

    def _store(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        at = self._access(warp, e, lanes, block)
        self._mark(warp, e)
        threads = warp % self.warps * 32 + np.flatnonzero(lanes)
        count = len(at) // len(threads)
        who = np.repeat(threads & self.stored.get(e.line, -1), count) * 64
        mark = hash((warp // self.warps, e.line, self.times[warp, e.line]))
        self.memory[at] = mark // 2 + who + np.tile(np.arange(count), len(threads))
        return True

    _matrix_store = _store

    def _copy(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        at = self._access(warp, e, lanes, block)
        self.copies[warp][-1].append((at, self._mark(warp, e) + np.arange(len(at))))
        return True

    def _copy_commit(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        self.copies[warp].append([])
        return True

    def _copy_wait(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        groups = self.copies[warp]
        while len(groups) - 1 > int(e.data):
            for at, values in groups.pop(0):
                self.memory[at] = values
        return True

    def _bar(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        goes_on, number, count = e.data
        first = int(np.flatnonzero(lanes)[0])
        key = warp // self.warps, int(row_of(number, block)[first])
        bar = self.named.setdefault(key, _Bar(0))
        if warp in self.waits:
            if bar.phase <= self.waits[warp]:
                return False
            del self.waits[warp]
            return True
        phase = bar.phase
        bar.expected = int(row_of(count, block)[first])
        bar.arrived += 32
        self._end(bar)
        if goes_on or bar.phase > phase:
            return True
        self.waits[warp] = phase
        return False

    def _cluster_arrive(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        self.waits[-1 - warp] = self.cluster.phase
        self.cluster.arrived += 32
        self._end(self.cluster)
        return True

    def _cluster_wait(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        return self.cluster.phase > self.waits.get(-1 - warp, -1)

    def _init(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        for lane in np.flatnonzero(lanes):
            place = int(self._places(warp, row_of(e.address, block)[lane]))
            self.bars[place] = _Bar(int(row_of(e.data, block)[lane]))
        return True

    def _expect(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        for lane in np.flatnonzero(lanes):
            bar = self.bars.get(int(self._places(warp, row_of(e.address, block)[lane])))
            if bar is None:
                return False
            bar.bytes += int(row_of(e.data[1], block)[lane])
            bar.arrived += int(row_of(e.data[0], block)[lane])
            self._end(bar)
        return True

    def _tma(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        for lane in np.flatnonzero(lanes):
            place = int(self._places(warp, row_of(e.data, block)[lane]))
            if place not in self.bars:
                return False
            first = int(self._places(warp, row_of(e.address, block)[lane])) // 2
            at = slice(first, first + e.size // 2)
            self.bulk.append((at, self._mark(warp, e), e.size, place))
        return True

    def _wait(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        first = int(np.flatnonzero(lanes)[0])
        bar = self.bars.get(int(self._places(warp, row_of(e.address, block)[first])))
        return bar is not None and bar.phase & 1 != int(row_of(e.data, block)[first]) & 1

    def _wgmma(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        tiles, width, depth = e.data
        areas = []
        for value, rows, turned in tiles:
            bits = int(row_of(value, block)[np.flatnonzero(lanes)[0]]) & (1 << 64) - 1
            found = described(bits, rows, turned, width, depth)
            areas.append(self._granules(found + warp // self.warps * self.stride, 16))
        self._mark(warp, e)
        job = (e.line, self.times[warp, e.line], np.concatenate(areas))
        if self.rng.random() > self.late:
            self._see(warp, *job)
        else:
            self.products[warp][-1].append(job)
        return True

    def _wgmma_commit(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        self.products[warp].append([])
        return True

    def _wgmma_wait(self, warp: int, e: Event, lanes: Any, block: int) -> bool:
        groups = self.products[warp]
        while len(groups) - 1 > int(e.data):
            for job in groups.pop(0):
                self._see(warp, *job)
        return True


def differs(
    traces: Sequence[Sequence[Event]],
    blocks: Sequence[int],
    shared_bytes: int,
    reference: Seen,
    runs: int,
    stored: Mapping[int, int],
) -> str:
    """How one of several random runs differs from the reference; empty if none does."""
    for n in range(runs):
        late = (0.0, 0.5, 0.95, 1.0)[n % 4]
        run = Run(traces, blocks, shared_bytes, len(traces), n, late, stored).go()
        if run.stuck:
            return f"run {n} does not end"
        wrong = [k for k, value in run.seen.items() if reference.get(k, value) != value]
        if wrong:
            return f"run {n}: another value in line {wrong[0][1]}"
    return ""
