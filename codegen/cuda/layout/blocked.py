"""Blocked layouts for coalesced access: neighbours in memory in a thread's vector first, then in
lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.codegen.cuda.text.layout import LANE_BITS, Bit, Layout


def blocked(bits: Sequence[Bit], vector: int, warp_bits: int) -> Layout:
    """``bits`` of a tile, those of neighbours in memory lowest; each thread takes ``vector``
    neighbours (a power of two), then lanes the next, warps the highest, registers the rest.
    """
    own = vector.bit_length() - 1
    rest = list(bits[own:])
    lanes: list[Bit | None] = list(rest[:LANE_BITS])
    rest = rest[LANE_BITS:]
    split = max(0, len(rest) - warp_bits)
    warps: list[Bit | None] = list(rest[split:])
    lanes += [None] * (LANE_BITS - len(lanes))
    warps += [None] * (warp_bits - len(warps))
    return Layout((*bits[:own], *rest[:split]), tuple(lanes), tuple(warps))


def copied(bits: Sequence[Bit], vector: int, warp_bits: int) -> Layout:
    """Who copies which vectors of a tile to shared memory: consecutive threads, consecutive
    vectors; a register's number counts the vectors of one thread.
    """
    rest = list(bits[vector.bit_length() - 1 :])
    threads: list[Bit | None] = list(rest[: LANE_BITS + warp_bits])
    threads += [None] * (LANE_BITS + warp_bits - len(threads))
    registers = tuple(rest[LANE_BITS + warp_bits :])
    return Layout(registers, tuple(threads[:LANE_BITS]), tuple(threads[LANE_BITS:]))
