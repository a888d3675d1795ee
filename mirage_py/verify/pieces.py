"""The pieces of an output, at the real sizes, on each of which two sides compute alike.

A side is a program or the kernels of a µGraph. Its conditions cut its iteration space into cells
(see ``cells``). A cell is reached by some elements of the output and by others not; and where both
sides read a tensor, what one reads in one cell and the other in another one is read for some
elements only. The sets of these elements, projections of integer sets, cut the output into pieces:
elements of one piece pass through the same cells, and reads agree for all of them or for none. A
difference that conditions make is therefore one in the whole of some piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mirage_py.ugraph.node import Access
from mirage_py.verify.cells import Cut, Side, split
from mirage_py.verify.integer_sets import (
    IntegerSets,
    OutOfOperationsError,
    Points,
    common,
    corners,
    leading,
    random_point,
    without,
)

# Of isl; about a second.
MAX_OPERATIONS = 3_000_000
_MAX_PIECES = 256
_MAX_PAIRS = 2000
_RANDOM_POINTS = 2


@dataclass(frozen=True, slots=True)
class Pieces:
    """For each piece some points: its corners and random ones.

    A point has a coordinate for each of ``axes``, those axes of the output that conditions tell
    apart. ``unknown`` says why there are no pieces; empty if there are.
    """

    axes: tuple[int, ...]
    points: tuple[tuple[tuple[int, ...], ...], ...]
    unknown: str = ""


def pieces_of(sides: Sequence[Side], shape: tuple[int, ...], *, seed: int) -> Pieces:
    """The pieces of an output of this shape, which each of two sides computes."""
    sets = IntegerSets(MAX_OPERATIONS)
    draw = np.random.default_rng([seed, len(shape)])
    try:
        cuts = [Cut(side, sets) for side in sides]
        axes = tuple(n for n in range(len(shape)) if any(_is_cut(cut, n) for cut in cuts))
        pieces = [sets.box({str(n): shape[n] for n in axes})]
        domains = (*_reached(cuts, axes, sets), *_read(cuts, axes, sets))
        for domain in {str(d): d for d in domains}.values():
            pieces = split(pieces, domain)
            if len(pieces) > _MAX_PIECES:
                raise OutOfOperationsError(f"conditions make more than {_MAX_PIECES} pieces")
        points = [
            dict.fromkeys(
                [*corners(piece), *(random_point(piece, draw) for _ in range(_RANDOM_POINTS))]
            )
            for piece in pieces
        ]
    except OutOfOperationsError as error:
        return Pieces((), (), str(error))
    return Pieces(axes, tuple(map(tuple, points)))


def _is_cut(cut: Cut, axis: int) -> bool:
    """Whether what a side computes may depend on the position along an axis by a condition."""
    named = [d for region in cut.regions for d in region.names]
    named += [d for access in cut.loads for e in access.index if not e.is_dim for d in e.dims()]
    return any(d in named for d in cut.index[axis].dims())


def _reached(cuts: Sequence[Cut], axes: Sequence[int], sets: IntegerSets) -> Iterator[Points]:
    """For each cell the elements that pass through it."""
    for cut in cuts:
        index = [cut.index[n] for n in axes]
        for region in cut.regions:
            for cell in region.cells:
                yield sets.image(cell, region.names, index, cut.sizes)


def _read(cuts: Sequence[Cut], axes: Sequence[int], sets: IntegerSets) -> Iterator[Points]:
    """The elements for which one side reads in one cell what the other reads in another one, or
    not at all.
    """
    if not axes:
        return
    ours, theirs = cuts
    pairs = 0
    for tensor in dict.fromkeys(access.tensor for access in ours.loads):
        places = _compared_axes(cuts, tensor)
        if not places:
            continue
        for left in _reads(ours, tensor, axes, places, sets):
            for right in _reads(theirs, tensor, axes, places, sets):
                pairs += len(left) * len(right)
                if pairs > _MAX_PAIRS:
                    raise OutOfOperationsError(f"more than {_MAX_PAIRS} pairs of reads")
                yield from (leading(p, len(axes)) for p in _overlaps(left, right))


def _overlaps(left: Sequence[Points], right: Sequence[Points]) -> Iterator[Points]:
    rests: list[Points | None] = list(right)
    for one in left:
        rest: Points | None = one
        for n, other in enumerate(right):
            both = common(one, other)
            if both is not None:
                yield both
                rest = rest and without(rest, other)
                held = rests[n]
                rests[n] = held and without(held, one)
        if rest is not None:
            yield rest
    yield from (rest for rest in rests if rest is not None)


def _reads(
    cut: Cut, tensor: str, axes: Sequence[int], places: Sequence[int], sets: IntegerSets
) -> list[list[Points]]:
    """For each load of a tensor the pairs of an element of the output and what is read for it, cell
    by cell.
    """
    found = []
    for access in cut.loads:
        if access.tensor != tensor:
            continue
        exprs = [*(cut.index[n] for n in axes), *(access.index[n] for n in places)]
        found += [
            [sets.image(cell, region.names, exprs, cut.sizes) for cell in region.cells]
            for region in cut.touching(access)
        ]
    return found


def _compared_axes(cuts: Sequence[Cut], tensor: str) -> list[int]:
    """Axes of a tensor along which it is not read as a whole by whoever reads it."""
    accesses = [(cut, access) for cut in cuts for access in cut.loads if access.tensor == tensor]
    if not accesses:
        return []
    return [
        n
        for n in range(len(accesses[0][1].index))
        if not all(_is_plain(cut, access, n) for cut, access in accesses)
    ]


def _is_plain(cut: Cut, access: Access, axis: int) -> bool:
    expr = access.index[axis]
    return expr.is_dim and not any(expr.name in region.names for region in cut.regions)
