"""Shadow memory of a cluster's shared memory: the last writer of each location, its readers since,
and accesses in flight.

A place is a granule of two bytes, or of one where something is so small. Writes carry a component
of the vector clocks and its value: a thread's own, or that of a barrier whose phase says that a
bulk copy has arrived. Reads are kept by warp: a tick and the lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

UNDER_WAY = 1 << 30
_Bits = np.uint32


class Shadow:
    """Of ``places`` granules and ``warps`` warps."""

    def __init__(self, places: int, warps: int) -> None:
        self.writer = np.zeros(places, np.int32)
        self.written = np.zeros(places, np.int32)
        self.generic = np.zeros(places, bool)
        self.line = np.zeros(places, np.int32)
        self.barrier = np.zeros(places, bool)
        # Stores of the same by several threads have a number; before the first of them all else was
        # over for the whole block.
        self.store = np.zeros(places, np.int32)
        self.settled = np.zeros(places, bool)
        self.read = np.zeros((warps, places), np.int32)
        self.lanes = np.zeros((warps, places), _Bits)
        self.read_line = np.zeros((warps, places), np.int32)
        self.has_reads = np.zeros(places, bool)

    def readers(self, at: Any) -> Iterator[tuple[int, Any]]:
        """Warps that have read some of these places since they were written."""
        if not self.has_reads[at].any():
            return
        ticks = self.read[:, at]
        for warp in np.flatnonzero(ticks.any(axis=1)):
            yield int(warp), ticks[warp]

    def note_write(self, at: Any, writer: Any, tick: int, line: int, generic: bool) -> None:
        """It is the last write there now; nobody has read it."""
        self.writer[at] = writer
        self.written[at] = tick
        self.generic[at] = generic
        self.line[at] = line
        self.store[at] = 0
        if self.has_reads[at].any():
            self.read[:, at] = 0
            self.lanes[:, at] = 0
            self.has_reads[at] = False

    def note_read(self, at: Any, warp: int, tick: int, lanes: Any, line: int) -> None:
        """``lanes`` are bits, for all places or for each."""
        self.read[warp, at] = np.maximum(self.read[warp, at], tick)
        if isinstance(lanes, np.ndarray):
            np.bitwise_or.at(self.lanes[warp], at, lanes.astype(_Bits))
        else:
            self.lanes[warp, at] |= _Bits(lanes)
        self.read_line[warp, at] = line
        self.has_reads[at] = True


def described(bits: int, rows: int, turned: bool, width: int, depth: int) -> Any:
    """Byte addresses of the 16-byte chunks that a product reads of a matrix that a descriptor
    names: ``rows`` along M or N, ``depth`` along K, elements of ``width`` bytes.

    PTX ISA, asynchronous warpgroup level matrix shared memory layout. None for what is not known
    here.
    """
    start = (bits & 0x3FFF) << 4
    leading = (bits >> 16 & 0x3FFF) << 4
    stride = (bits >> 32 & 0x3FFF) << 4
    mode = bits >> 62 & 3
    swizzle = (0, 128, 64, 32)[mode]
    if bits >> 49 & 7:
        return None
    each = 16 // width
    if not turned:
        row = np.arange(rows)[:, None]
        chunk = np.arange(depth // each)[None, :]
        at = start + row // 8 * stride
        at = at + (row % 8 * swizzle + chunk * 16 if swizzle else row % 8 * 16 + chunk * leading)
    else:
        chunk = np.arange(rows // each)[:, None]
        k = np.arange(depth)[None, :]
        if swizzle:
            wide = swizzle // 16
            at = start + chunk % wide * 16 + chunk // wide * leading
            at = at + k % 8 * swizzle + k // 8 * stride
        else:
            at = start + chunk * stride + k % 8 * 16 + k // 8 * leading
    at = at.ravel()
    if swizzle:
        at = at ^ ((at >> 7 & (swizzle // 16 - 1)) << 4)
    return np.unique(at)
