"""Loop bounds under a mask: fully masked tiles are not visited.

Causal attention visits half of its tiles, a sliding window a band of them. A tile of a loop is
skipped where a mask is false all over it (``mask_bounds.py``) and every accumulator would stay
unchanged (``tile_skipping_masks.py``). FlashAttention (Dao 2023, section 3.1) and FlexAttention
skip tiles of a softmax whose mask is known at compile time in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, prod

from mirage_py.codegen.tiling.low_masks import with_low_masks
from mirage_py.codegen.tiling.mask_bounds import Bound, at_most_zero, conjunction, held, solved
from mirage_py.codegen.tiling.tile_skipping_masks import tile_skipping_masks
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT

# More grids of blocks than this are not counted one by one.
_MOST_COUNTED = 4096


@dataclass(frozen=True, slots=True)
class UnmaskedRange:
    """Positions of a loop outside of which all tiles are dead: those that are at least every one
    of ``firsts`` and below every one of ``stops``.
    """

    firsts: tuple[Bound, ...] = ()
    stops: tuple[Bound, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.firsts or self.stops)

    def dims(self) -> tuple[str, ...]:
        """Dimensions that it depends on, in order of first use."""
        return tuple(dict.fromkeys(d for b in (*self.firsts, *self.stops) for d in b.dims()))


def unmasked_range(tiling: Tiling, section: int, lowest: float = -inf) -> UnmaskedRange:
    """The positions that the loop of a section has to visit; empty where that is all of them.

    ``lowest`` is that of tile_skipping_masks; where it is a number the block is not lowered yet.
    """
    loop = tiling.block.sections[section].loop
    if loop is None:
        return UnmaskedRange()
    firsts: list[Bound] = []
    stops: list[Bound] = []
    block = tiling.block
    if lowest > -inf:
        block = with_low_masks(block, tiling.program.sizes, tiling.run_time)
    for mask in tile_skipping_masks(block, section, lowest):
        for scales, offset in at_most_zero(mask):
            bound = solved(tiling, loop, scales, offset)
            if bound is not None:
                (stops if scales[loop] > 0 else firsts).append(bound)
    return UnmaskedRange(tuple(dict.fromkeys(firsts)), tuple(dict.fromkeys(stops)))


def mean_iterations(tiling: Tiling, section: int) -> float:
    """Iterations of a section's loop, on average over the blocks; 1 where it has none. The block
    graph is not lowered yet.
    """
    loop = tiling.block.sections[section].loop
    if loop is None:
        return 1.0
    tile = tiling.padded(loop, section)
    whole = -(-tiling.program.sizes[loop] // tile)
    found = unmasked_range(tiling, section, LOWEST_SHIFT)
    axes = [d for d in found.dims() if d in tiling.block.grid_tiles]
    blocks = [tiling.blocks(d) for d in axes]
    if not found or prod(blocks) > _MOST_COUNTED:
        return float(whole)
    total = 0
    for numbers in product(*map(range, blocks)):
        first, stop = _tiles(tiling, loop, tile, found, dict(zip(axes, numbers, strict=True)))
        total += max(0, stop - first)
    return total / prod(blocks)


def is_uneven(tiling: Tiling) -> bool:
    """Whether masks leave blocks unequal work. The block graph is not lowered yet."""
    return any(unmasked_range(tiling, n, LOWEST_SHIFT) for n in range(len(tiling.block.sections)))


def iterations(tiling: Tiling, section: int) -> Callable[[Mapping[str, int]], int]:
    """Iterations of a section's loop, by the numbers of a block along the grid's axes (those of one
    tile may be left out); 1 where it has none.
    """
    loop = tiling.block.sections[section].loop
    if loop is None:
        return lambda _: 1
    tile, found = tiling.padded(loop, section), unmasked_range(tiling, section)
    axes = [d for d in found.dims() if d in tiling.block.grid_tiles]

    def count(numbers: Mapping[str, int]) -> int:
        first, stop = _tiles(
            tiling, loop, tile, found, {d: numbers[d] for d in axes if d in numbers}
        )
        return max(0, stop - first)

    return count


def always_iterates(tiling: Tiling, section: int) -> bool:
    """Whether the loop of a section has an iteration in every block; False where blocks are too
    many to look at, or sizes not known.
    """
    loop = tiling.block.sections[section].loop
    found = unmasked_range(tiling, section)
    if loop is None or not found:
        return loop is not None
    axes = [d for d in found.dims() if d in tiling.block.grid_tiles]
    blocks = [tiling.blocks(d) for d in axes]
    if prod(blocks) > _MOST_COUNTED or any(d in tiling.run_time for d in (loop, *found.dims())):
        return False
    tile = tiling.padded(loop, section)
    ranges = (
        _tiles(tiling, loop, tile, found, dict(zip(axes, numbers, strict=True)))
        for numbers in product(*map(range, blocks))
    )
    return all(first < stop for first, stop in ranges)


def _tiles(
    tiling: Tiling, loop: str, tile: int, found: UnmaskedRange, numbers: Mapping[str, int]
) -> tuple[int, int]:
    """The first tile that a block visits and the one after the last."""
    ends = {}
    for dim in found.dims():
        extent = tiling.padded(dim, 0) if dim in numbers else tiling.program.sizes[dim]
        first = numbers.get(dim, 0) * extent
        ends[dim] = first, first + extent - 1
    first = max([0, *(b.value(ends) for b in found.firsts)])
    stop = min([tiling.program.sizes[loop], *(b.value(ends) for b in found.stops)])
    return first // tile, -(-stop // tile)


def unmasked_below(tiling: Tiling, section: int) -> tuple[Bound, ...]:
    """Positions of the section's loop below which all of its masks hold, wherever a block is along
    other dimensions: whole tiles there need no mask. Empty where there is no such range.
    """
    loop = tiling.block.sections[section].loop
    if loop is None:
        return ()
    found: list[Bound] = []
    for number in loop_masks(tiling.block, section):
        mask = tiling.block.nodes[number].attr
        forms = conjunction(mask) if isinstance(mask, Predicate) else None
        if forms is None:
            return ()
        for scales, offset in forms:
            bound = held(tiling, loop, scales, offset)
            if bound is None:
                return ()
            found.append(bound)
    return tuple(dict.fromkeys(found))


def loop_masks(block: BlockGraph, section: int) -> tuple[int, ...]:
    """The masks of a section that change along its loop."""
    found = block.sections[section]
    masks = (n for n in found.nodes if block.nodes[n].op == "mask")
    return tuple(n for n in masks if found.loop in block.nodes[n].dims)
