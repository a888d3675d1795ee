"""Accesses to the shared memory of a cluster, in order: loads, stores, copies, wgmma operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirage_py.runtime.code_check import events as kinds
from mirage_py.runtime.code_check.events import Event, UnsupportedError, row_of
from mirage_py.runtime.code_check.execute import RANK_SHIFT
from mirage_py.runtime.code_check.order import Order, handles
from mirage_py.runtime.code_check.shadow import UNDER_WAY, described

_ALL_LANES = 0xFFFFFFFF
_BITS = 1 << np.arange(32, dtype=np.uint32)


@handles("load", "store", "copy", "matrix_store")
def _access(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    active = np.flatnonzero(lanes)
    address = row_of(e.address, block)[active]
    threads = warp * 32 + active
    at = o.granules(o.places_of(warp, address), e.size)
    count = len(at) // len(active)
    by = np.repeat(threads, count)
    if int(address.max()) >> RANK_SHIFT:
        o.note_remote(warp, e, address, threads)
    if e.kind == "load":
        o.read(warp, e, at, by, np.repeat(_BITS[active], count))
        return
    places, first = np.unique(at, return_index=True)
    decides = o.stored.get(e.line, -1)
    twice = np.arange(0)
    if len(places) < len(at):
        # ``by`` of the first lane of each place, for all.
        others = by[first][np.searchsorted(places, at)]
        if ((others ^ by) & decides).any():
            o.say(kinds.RACE, e.line, "two lanes write one place at once", warp)
        twice = np.flatnonzero(others != by)
    first.sort()
    again = _is_stored_again(o, warp, e, at[first], by[first], decides)
    new = first[~again]
    at_new, by_new = at[new], by[new]
    settled = o.settled(warp, at_new)
    o.write(warp, e, at_new, by_new)
    if e.kind == "copy":
        o.shadow.note_write(at_new, by_new, UNDER_WAY, e.line, not o.by_triton)
        o.copies[warp][-1].append((at_new, by_new))
        return
    o.shadow.note_write(at_new, by_new, o.tick[warp], e.line, True)
    o.shadow.store[at_new] = _number_of(o, warp, e)
    o.shadow.settled[at_new] = settled
    o.times[warp, e.line] += 1
    # Who writes there next comes after all of those that stored it, as after those that read it.
    more = np.concatenate([first[again], twice])
    if len(more):
        bits = _BITS[by[more] % 32]
        o.shadow.note_read(at[more], warp, o.tick[warp], bits, e.line)


def _number_of(o: Order, warp: int, e: Event) -> int:
    """Of the same store in all warps of a block: one line, as often, between the same barriers."""
    count, _ = o.last_barrier(warp)
    key = e.line, o.times[warp, e.line], count * len(o.blocks) + warp // o.warps
    return o.stores.setdefault(key, len(o.stores) + 1)


def _is_stored_again(o: Order, warp: int, e: Event, at: Any, by: Any, decides: int) -> Any:
    """For each place whether another warp has just stored the same there, and nobody did anything
    else since all threads have met.
    """
    s = o.shadow
    found = (s.store[at] == _number_of(o, warp, e)) & s.settled[at]
    if e.kind == "copy" or not found.any():
        return np.zeros(len(at), bool)
    found &= (s.writer[at] ^ by) & decides == 0
    for other, ticks in s.readers(at):
        found &= (ticks == 0) | (s.read_line[other, at] == e.line)
    return found


@handles("matrix_load")
def _matrix_load(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    address = row_of(e.address, block)[lanes]
    at = o.granules(o.places_of(warp, address), 16)
    o.read(warp, e, at, None, _ALL_LANES)


@handles("copy_commit")
def _copy_commit(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    if not (lanes | o.gone[o.rows(warp)]).all() and any(o.copies[warp]):
        raise UnsupportedError(f"line {e.line}: groups of copies that a part of a warp ends")
    o.copies[warp].append([])


@handles("copy_wait")
def _copy_wait(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    groups = o.copies[warp]
    left = int(e.data)
    # The last one is still open.
    ended = groups[: max(0, len(groups) - 1 - left)]
    if left == 0 and e.data is not None:
        ended = groups[:-1]
    for group in ended:
        for at, by in group:
            mine = (o.shadow.written[at] == UNDER_WAY) & (o.shadow.writer[at] == by)
            o.shadow.written[at[mine]] = o.tick[warp]
    o.copies[warp] = groups[len(ended) :]


# -- products of warp groups -----------------------------------------------------------------------


@handles("wgmma")
def _wgmma(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    tiles, width, depth = e.data
    own = warp // o.warps * o.stride
    for value, rows, turned in tiles:
        bits = int(row_of(value, block)[np.flatnonzero(lanes)[0]])
        key = bits, rows, turned, width, depth, own
        at = o.areas.get(key)
        if at is None:
            found = described(bits & (1 << 64) - 1, rows, turned, width, depth)
            if found is None:
                raise UnsupportedError(f"line {e.line}: a descriptor with a base offset")
            if int(found.max()) + 16 > o.stride:
                text = f"a product reads up to byte {int(found.max()) + 16} of {o.stride}"
                o.say(kinds.BOUNDS, e.line, text, warp)
                continue
            at = o.areas[key] = o.granules(found + own, 16)
        o.read(warp, e, at, None, _ALL_LANES)
        o.unfenced(warp, e, at, None, "tensor cores read")
        o.shadow.read[warp, at] = UNDER_WAY
        o.products[warp][-1].append(at)


@handles("wgmma_commit")
def _wgmma_commit(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    o.products[warp].append([])


@handles("wgmma_wait")
def _wgmma_wait(o: Order, warp: int, e: Event, lanes: Any, block: int) -> None:
    groups = o.products[warp]
    ended = groups[: max(0, len(groups) - 1 - int(e.data))]
    o.products[warp] = groups = groups[len(ended) :]
    for at in (at for group in ended for at in group):
        ticks = o.shadow.read[warp, at]
        o.shadow.read[warp, at] = np.where(ticks == UNDER_WAY, o.tick[warp], ticks)
    for at in (at for group in groups for at in group):
        o.shadow.read[warp, at] = UNDER_WAY
