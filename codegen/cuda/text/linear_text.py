"""Linear index arithmetic as C text: numbers made of bits of thread and register indices."""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.codegen.cuda.text.c_text import added
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Bit, Layout, moved_bits

# Which bit of the number a bit of a position becomes.
Places = Mapping[Bit, int]


def thread_part(layout: Layout, places: Places) -> str:
    """What the thread's lane and warp add to the number."""
    lanes = [(n, places[b]) for n, b in enumerate(layout.lanes) if b is not None and b in places]
    warps = [(n, places[b]) for n, b in enumerate(layout.warps) if b is not None and b in places]
    texts = moved_bits("lane", lanes, LANE_BITS)
    return added(*texts, *moved_bits("warp", warps, len(layout.warps)))


def register_part(layout: Layout, places: Places, variable: str) -> str:
    """What the number of a register adds to it."""
    if not layout.registers or variable == "0":
        return "0"
    bits = [(n, places[b]) for n, b in enumerate(layout.registers) if b in places]
    return added(*moved_bits(variable, bits, len(layout.registers)))


def linear_places(bits: tuple[Bit, ...]) -> dict[Bit, int]:
    """The number that counts all positions, ``bits`` from the lowest to the highest."""
    return {bit: n for n, bit in enumerate(bits)}


def is_only_copy(layout: Layout) -> str:
    """C condition: of the threads that hold the same, this is the first; empty if each holds its
    own.
    """
    lanes = sum(1 << n for n, b in enumerate(layout.lanes) if b is None)
    warps = sum(1 << n for n, b in enumerate(layout.warps) if b is None)
    parts = []
    if lanes:
        parts.append("lane == 0" if lanes == 31 else f"(lane & {lanes}) == 0")
    if warps:
        every = warps == (1 << len(layout.warps)) - 1
        parts.append("warp == 0" if every else f"(warp & {warps}) == 0")
    return " && ".join(parts)
