"""Warp tiles: tiles of a loop of which each warp multiplies a part that no other warp reads. It
copies this part by itself, so that no warp waits for another at the head of an iteration. Of small
tiles that several warps read, such as scales of groups, each has a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.layout_choice import Layouts
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.cuda.text.layout import LANE_BITS, Bit, Layout

# Of a tile that each warp copies, though it reads what others read.
_MOST_COPIED_BYTES = 1024


def warp_tiles(
    facts: BlockAnalysis,
    layouts: Layouts,
    staged: Mapping[int, Staged],
    private: Collection[int],
) -> dict[int, tuple[Bit, ...]]:
    """The bits of a position that are the warp's number, of each such tile; none where each warp
    has a copy. Only of loops in which warps share nothing: all other tiles are codes that threads
    copy for themselves.
    """
    found = {
        n: bits for n, s in staged.items()
        if (bits := _warps_of(facts, layouts, s)) or _is_small(s)
    }  # fmt: skip
    sections = {facts.section(n) for n in private}
    alone = [
        number for number in sections
        if all(n in found for n in facts.block.sections[number].nodes if n in staged)
    ]  # fmt: skip
    return {n: bits for n, bits in found.items() if facts.section(n) in alone}


def _warps_of(facts: BlockAnalysis, layouts: Layouts, staged: Staged) -> tuple[Bit, ...]:
    """The warps of the one matmul that reads a tile; empty where others read it, or several warps
    the same.
    """
    takers = [
        layout for plan in layouts.mmas.values() for n, layout in plan.sides(facts)
        if n == staged.load and plan.has_codes
    ]  # fmt: skip
    if len(takers) != 1 or facts.reads_in_registers(staged.load) or not staged.is_asynchronous:
        return ()
    bits = tuple(b for b in takers[0].warps if b is not None)
    apart = staged.tile.bits[staged.vector.bit_length() - 1 :]
    is_own = len(bits) == len(takers[0].warps) and all(b in apart for b in bits)
    return bits if is_own and len(apart) >= LANE_BITS + len(bits) else ()


def _is_small(staged: Staged) -> bool:
    return staged.is_asynchronous and staged.tile.size_bytes <= _MOST_COPIED_BYTES


def copied_by_warps(staged: Staged, warps: tuple[Bit, ...]) -> Layout:
    """Who copies which vectors of a tile: neighbouring lanes neighbours, of their warp's part."""
    rest = [b for b in staged.tile.bits[staged.vector.bit_length() - 1 :] if b not in warps]
    lanes = (*rest[:LANE_BITS], *[None] * (LANE_BITS - len(rest)))
    return Layout(tuple(rest[LANE_BITS:]), lanes, warps)
