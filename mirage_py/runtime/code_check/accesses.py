"""What the threads of a cluster do to shared memory, in order: loads, stores, copies, products of
warp groups.
"""

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
    o.write(warp, e, at, by)
    if len(np.unique(at)) < len(at):
        o.say(kinds.RACE, e.line, "two lanes write one place at once", warp)
    if e.kind == "copy":
        o.shadow.note_write(at, by, UNDER_WAY, e.line, True)
        o.copies[warp][-1].append((at, by))
    else:
        o.shadow.note_write(at, by, o.tick[warp], e.line, True)


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
