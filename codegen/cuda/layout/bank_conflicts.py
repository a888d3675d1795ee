"""Bank conflicts: the number of shared-memory wavefronts of a warp's access.

Shared memory has 32 banks of 4 bytes: word ``w`` lies in bank ``w mod 32``. One wavefront serves
one word of each bank, for any number of lanes. An access of 8 bytes per lane is served for 16 lanes
at a time, one of 16 bytes for 8 lanes, and ``ldmatrix`` for the 8 lanes that address the rows of a
matrix.
"""

from __future__ import annotations

from collections.abc import Callable

BANKS = 32
BANK_BYTES = 4
WARP = 32


def wavefronts(
    address: Callable[[int], int], width_bytes: int, lanes: int = WARP
) -> tuple[int, ...]:
    """For each group of lanes that goes together its wavefronts; all 1 without conflicts.

    ``address(lane)`` is the byte that a lane's access of ``width_bytes`` (at most 16, a power of
    two) begins at, a multiple of its width.
    """
    together = min(lanes, WARP * BANK_BYTES // max(width_bytes, BANK_BYTES))
    counts = []
    for first in range(0, lanes, together):
        words: dict[int, dict[int, None]] = {}
        for lane in range(first, first + together):
            begin = address(lane)
            assert begin % width_bytes == 0, f"lane {lane}: {begin} is no multiple of {width_bytes}"
            last = begin + width_bytes - 1
            for word in range(begin // BANK_BYTES, last // BANK_BYTES + 1):
                words.setdefault(word % BANKS, {})[word] = None
        counts.append(max(len(found) for found in words.values()))
    return tuple(counts)
