"""The swizzle of shared-memory tiles, as the PTX manual defines it."""

from __future__ import annotations


def swizzled(offset_bytes: int, swizzle_bytes: int) -> int:
    """Where the swizzles of TMA, and of the emitter, put a byte of a tile: the number of
    its 16-byte piece is combined by exclusive or with bits of its 128-byte line's number.

    ``swizzle_bytes`` is 128, 64, 32, or 0 for none: rows of that many bytes.
    """
    pieces = max(1, swizzle_bytes // 16)
    return offset_bytes ^ (((offset_bytes >> 7) & (pieces - 1)) << 4)
