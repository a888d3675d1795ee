"""Synchronization among the threads of a cluster, in order: named barriers, cluster barriers,
mbarriers and the bulk copies that complete on them, fences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirage_py.runtime.code_check import events as kinds
from mirage_py.runtime.code_check.barriers import Barrier, MBarrier
from mirage_py.runtime.code_check.events import Event, UnsupportedError, row_of
from mirage_py.runtime.code_check.execute import RANK_SHIFT
from mirage_py.runtime.code_check.order import BlockedError, Order, handles


@handles("warp")
def _warp(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    rows = warp * 32 + np.flatnonzero(lanes)
    o.clock[rows] = o.clock[rows].max(axis=0)
    o.fenced[rows] = o.fenced[rows].max(axis=0)
    o.step(warp)


@handles("proxy")
def _proxy(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    rows = warp * 32 + np.flatnonzero(lanes)
    o.fenced[rows] = np.maximum(o.fenced[rows], o.clock[rows])
    _init_fence(o, warp, e, lanes, block)
    o.step(warp)


@handles("init_fence")
def _init_fence(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    for bar in o.mbarriers.values():
        if bar.thread // 32 == warp and lanes[bar.thread % 32]:
            bar.fenced_init = True


@handles("bar")
def _bar(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    goes_on, number, count = e.data
    numbers = np.unique(row_of(number, block)[lanes])
    counts = np.unique(row_of(count, block)[lanes])
    rows = o.rows(warp)
    if not (lanes | o.gone[rows]).all():
        o.say(kinds.BARRIER, e.line, "a part of a warp is at a barrier of whole warps", warp)
    if len(numbers) > 1 or len(counts) > 1:
        raise UnsupportedError(f"line {e.line}: lanes of a warp at several barriers")
    own = warp // o.warps
    key = own, int(numbers[0])
    barrier = o.barriers.get(key)
    if barrier is None:
        size = o.clock.shape[1]
        empty = np.zeros(size, np.int32)
        barrier = Barrier(o.components, empty, empty.copy(), expected=int(counts[0]))
        o.barriers[key] = barrier
        o.components += 1
    if warp in o.waiting_since:
        _pass(o, warp, barrier)
        return
    wanted = int(counts[0])
    if barrier.arrived and barrier.expected != wanted:
        text = f"barrier {key[1]} of {barrier.expected} and of {wanted} threads"
        o.say(kinds.BARRIER, e.line, text, warp)
    barrier.expected = wanted
    if wanted % 32:
        o.say(kinds.BARRIER, e.line, f"{wanted} threads are no whole warps", warp)
    if (o.clock[rows, barrier.component] < barrier.phase).any():
        text = f"barrier {key[1]}: a warp may arrive before the ones before it are through"
        o.say(kinds.PHASE, e.line, text, warp)
    barrier.join(o.clock[rows], o.fenced[rows])
    barrier.arrived += 32
    phase = barrier.phase
    if barrier.arrived >= wanted:
        barrier.arrived = 0
        barrier.end()
    if goes_on:
        o.step(warp)
        return
    o.waiting_since[warp] = phase
    _pass(o, warp, barrier)


def _pass(o: Order, warp: int, barrier: Barrier) -> None:
    phase = o.waiting_since[warp]
    if barrier.phase <= phase:
        raise BlockedError(f"{barrier.arrived} of {barrier.expected} threads are at the barrier")
    clock, fenced = barrier.over[phase]
    _acquire(o, o.rows(warp), clock, fenced)
    del o.waiting_since[warp]
    o.step(warp)


def _acquire(o: Order, rows: Any, clock: Any, fenced: Any) -> None:
    o.clock[rows] = np.maximum(o.clock[rows], clock)
    o.fenced[rows] = np.maximum(o.fenced[rows], fenced)


@handles("cluster_arrive")
def _cluster_arrive(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    barrier = _cluster(o)
    rows = warp * 32 + np.flatnonzero(lanes)
    if e.data:
        barrier.join(o.clock[rows], o.fenced[rows])
    for t in rows:
        if o.cluster_phase[t] != barrier.phase:
            o.say(kinds.BARRIER, e.line, "arrives twice at the barrier of the cluster", warp)
            break
        o.cluster_phase[t] += 1
    barrier.arrived += len(rows)
    if barrier.arrived + int(o.gone.sum()) >= o.total:
        barrier.arrived = 0
        barrier.end()
    o.step(warp)


def _cluster(o: Order) -> Barrier:
    barrier = o.barriers.get((-1, 0))
    if barrier is None:
        empty = np.zeros(o.clock.shape[1], np.int32)
        barrier = Barrier(o.components, empty, empty.copy(), expected=o.total)
        o.barriers[-1, 0] = barrier
        o.components += 1
    return barrier


@handles("cluster_wait")
def _cluster_wait(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    barrier = _cluster(o)
    rows = warp * 32 + np.flatnonzero(lanes)
    phases = {o.cluster_phase[t] for t in rows}
    if len(phases) > 1 or 0 in phases:
        o.say(kinds.BARRIER, e.line, "waits at the barrier of the cluster without arriving", warp)
        return
    phase = phases.pop() - 1
    if barrier.phase <= phase:
        raise BlockedError(f"{barrier.arrived} of {o.total} threads of the cluster have arrived")
    clock, fenced = barrier.over[phase]
    _acquire(o, rows, clock, fenced)
    o.step(warp)


# -- mbarriers and bulk copies ---------------------------------------------------------------------


def _mbarrier(o: Order, warp: int, e: Event, address: int, thread: int) -> MBarrier:
    place = int(o.places_of(warp, np.asarray(address)))
    bar = o.mbarriers.get(place)
    if bar is None:
        if place // o.stride != warp // o.warps:
            raise BlockedError(f"no barrier is made at byte {place % o.stride} of another block")
        raise BlockedError(f"no barrier is made at byte {place % o.stride}")
    if o.clock[thread, bar.thread] < bar.tick:
        o.say(kinds.BARRIER, e.line, "uses a barrier that may not be made yet", warp)
    return bar


@handles("init")
def _init(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    for lane in np.flatnonzero(lanes):
        address = np.asarray([row_of(e.address, block)[lane]])
        thread = warp * 32 + int(lane)
        place = int(o.places_of(warp, address)[0])
        at = o.granules(o.places_of(warp, address), 8)
        if not o.shadow.barrier[at].any():
            o.write(warp, e, at, np.repeat(thread, len(at)))
        o.shadow.barrier[at] = True
        old = o.mbarriers.get(place)
        component = old.component if old is not None else o.components
        o.components += old is None
        count = int(row_of(e.data, block)[lane])
        empty = np.zeros(o.clock.shape[1], np.int32)
        o.mbarriers[place] = MBarrier(
            component, empty, empty.copy(), address=place, count=count, pending=count,
            thread=thread, tick=o.tick[warp],
        )  # fmt: skip
        if old is not None:
            o.say(kinds.BARRIER, e.line, "makes a barrier anew", warp)


@handles("inval")
def _inval(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    for lane in np.flatnonzero(lanes):
        address = np.asarray([row_of(e.address, block)[lane]])
        at = o.granules(o.places_of(warp, address), 8)
        o.shadow.barrier[at] = False
        o.mbarriers.pop(int(o.places_of(warp, address)[0]), None)
        o.shadow.note_write(at, warp * 32 + int(lane), o.tick[warp], e.line, True)


def _end_if_due(o: Order, warp: int, e: Event, bar: MBarrier) -> None:
    if not bar.is_due:
        return
    before = bar.watched.pop(bar.phase - 1, None)
    if before is not None and (bar.clock[: o.total] < before).any():
        text = "a phase can end while a thread still waits for the one before"
        o.say(kinds.PHASE, e.line, text, warp)
    bar.end()
    bar.pending = bar.count


@handles("expect")
def _expect(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    counts, sizes = row_of(e.data[0], block), row_of(e.data[1], block)
    addresses = row_of(e.address, block)
    for lane in np.flatnonzero(lanes):
        thread = warp * 32 + int(lane)
        bar = _mbarrier(o, warp, e, int(addresses[lane]), thread)
        if int(addresses[lane]) >> RANK_SHIFT:
            o.note_remote(warp, e, addresses[lane : lane + 1], np.asarray([thread]))
            if bar.thread // o.threads != warp // o.warps and not bar.fenced_init:
                o.say(kinds.PROXY, e.line, "no fence has made the barrier known", warp)
        _knows_phase(o, warp, e, bar, thread)
        count = int(counts[lane])
        if count > bar.pending:
            o.say(kinds.BARRIER, e.line, "more threads arrive than the barrier counts", warp)
            count = bar.pending
        bar.bytes += int(sizes[lane])
        bar.join(o.clock[thread : thread + 1], o.fenced[thread : thread + 1])
        bar.pending -= count
        _end_if_due(o, warp, e, bar)
    o.step(warp)


def _knows_phase(o: Order, warp: int, e: Event, bar: MBarrier, thread: int) -> None:
    if o.clock[thread, bar.component] < bar.phase:
        text = "arrives without knowing that the phase before is over"
        o.say(kinds.PHASE, e.line, text, warp, thread % 32)


@handles("tma")
def _tma(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    addresses, places = row_of(e.address, block), row_of(e.data, block)
    for lane in np.flatnonzero(lanes):
        thread = warp * 32 + int(lane)
        bar = _mbarrier(o, warp, e, int(places[lane]), thread)
        if not bar.fenced_init and not o.by_triton:
            o.say(kinds.PROXY, e.line, "no fence has made the barrier known", warp)
        _knows_phase(o, warp, e, bar, thread)
        first = int(o.places_of(warp, addresses[lane : lane + 1])[0]) // o.grain
        at = np.arange(first, first + e.size // o.grain)
        o.write(warp, e, at, thread)
        o.unfenced(warp, e, at, thread, "TMA writes")
        o.shadow.note_write(at, bar.component, bar.phase + 1, e.line, False)
        bar.copied[bar.phase] = e.line
        bar.bytes -= e.size
        _end_if_due(o, warp, e, bar)


@handles("wait")
def _wait(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    addresses, parities = row_of(e.address, block), row_of(e.data, block)
    active = np.flatnonzero(lanes)
    if len(np.unique(addresses[active])) > 1:
        raise UnsupportedError(f"line {e.line}: lanes of a warp wait at several barriers")
    bar = _mbarrier(o, warp, e, int(addresses[active[0]]), warp * 32 + int(active[0]))
    if o.clock[warp * 32 + active, bar.thread].min() < bar.tick:
        o.say(kinds.BARRIER, e.line, "uses a barrier that may not be made yet", warp)
    rows = warp * 32 + active
    known = o.clock[rows, bar.component]
    if len(np.unique(known)) > 1:
        known = known.min(keepdims=True)
    n, parity = int(known[0]), int(parities[active[0]]) & 1
    if n & 1 == parity:
        if bar.phase <= n:
            missing = f"{bar.pending} arrivals and {bar.bytes} bytes are missing"
            raise BlockedError(
                f"phase {n} of the barrier at byte {bar.address % o.stride}: {missing}"
            )
        target = n
        if bar.phase > n + 1 or n not in bar.over:
            o.say(kinds.PHASE, e.line, "the barrier may be a phase further already", warp)
    else:
        target = n - 1
        if bar.phase > n:
            o.say(kinds.PHASE, e.line, "waits for a phase that it knows to be over", warp)
    if target in bar.over:
        _acquire(o, rows, *bar.over[target])
    watched = bar.watched.setdefault(target, np.zeros(o.total, np.int32))
    watched[rows] = o.tick[warp]
