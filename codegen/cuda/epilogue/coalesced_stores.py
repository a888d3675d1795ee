"""Coalesced stores through shared memory.

MMA results lie in pairs of halves: four lanes hold 16 bytes of a row, less than a 32-byte sector of
the L2. With the launch option ``stores rows`` each warp converts its results through shared memory,
without a block barrier, and stores rows as wide as its part of the tile. (With ``stores lanes``,
``quad_shuffles.py``, four lanes store 64 bytes and need no shared memory.)
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.cuda.text.layout import LANE_BITS, Bit, Layout

# What the L2 takes of a row at once.
_SECTOR_BYTES = 32
# What four lanes hold of a row of an MMA result of halves; fewer are scattered.
_QUAD_BYTES = 16


def coalesced_layout(
    own: Layout, bits: Sequence[Bit], vectors: tuple[int, int], element_bytes: int
) -> Layout | None:
    """The layout in which each warp stores what it has in rows; None where its ``own`` layout has
    whole sectors already, or threads that hold the same.

    ``bits`` are those of the tile, the lowest of the contiguous dimension first; ``vectors`` the
    elements that a thread stores at once in its own layout, and those that it could.
    """
    if None in own.warps or None in own.lanes:
        return None
    if _together_bytes(own, bits, vectors[0] * element_bytes) >= _SECTOR_BYTES:
        return None
    rest = tuple(b for b in bits if b not in own.warps)
    low = vectors[1].bit_length() - 1
    high = low + LANE_BITS
    return Layout((*rest[:low], *rest[high:]), rest[low:high], own.warps)


def is_scattered(own: Layout, bits: Sequence[Bit], piece_bytes: int) -> bool:
    """Whether a warp would store a tile in pieces far apart, as one that was loaded along another
    axis. A thread stores ``piece_bytes`` at once.
    """
    return _together_bytes(own, bits, piece_bytes) < _QUAD_BYTES


def _together_bytes(own: Layout, bits: Sequence[Bit], piece_bytes: int) -> int:
    """What the lanes hold of a row, in pieces of a thread each."""
    lanes = sum(1 for b in own.lanes if b is not None and b[0] == bits[0][0])
    return piece_bytes << lanes
