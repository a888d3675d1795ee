"""The static tile scheduler of a persistent kernel whose work tiles are unequal under masks.

Longest first (LPT), in groups of eight tiles that are neighbours along the other axes (they share
data in the L2), each to the block that is free first: list scheduling (Graham, 1969), with loop
iterations as time. The GPU would assign blocks in the same way; here it is known at compile time.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from itertools import product

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.codegen.tiling.unmasked_tiles import iterations

_GROUP = 8


def schedule_tiles(tiling: Tiling, uneven: Collection[str], blocks: int) -> list[list[int]]:
    """For each of ``blocks`` the numbers of its work tiles in order; the first axis of the grid
    runs fastest.
    """
    return _assigned(_in_order(tiling, uneven), blocks)


def _in_order(tiling: Tiling, uneven: Collection[str]) -> list[tuple[int, int]]:
    """All work tiles with their work, in the order in which they are assigned."""
    axes = tiling.axes
    # A section without a loop counts for an iteration.
    counts = [iterations(tiling, s) for s in range(len(tiling.block.sections))]
    even_tiles: dict[tuple[int, ...], int] = {}
    found: list[tuple[tuple[int, int, int], int, int]] = []
    ranges = [range(blocks) for _, blocks in reversed(axes)]
    for tile, backwards in enumerate(product(*ranges)):
        numbers = {d: n for (d, _), n in zip(axes, reversed(backwards), strict=True)}
        even = tuple(n for d, n in numbers.items() if d not in uneven)
        beside = even_tiles.setdefault(even, len(even_tiles))
        work = sum(count(numbers) for count in counts)
        found.append(((beside // _GROUP, -work, beside), tile, work))
    return [(tile, work) for _, tile, work in sorted(found)]


def _assigned(tiles: Sequence[tuple[int, int]], blocks: int) -> list[list[int]]:
    free = [(0, block) for block in range(blocks)]
    found: list[list[int]] = [[] for _ in range(blocks)]
    for tile, work in tiles:
        time, block = heapq.heappop(free)
        found[block].append(tile)
        heapq.heappush(free, (time + work, block))
    return found
