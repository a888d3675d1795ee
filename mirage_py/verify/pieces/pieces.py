"""Pieces: regions of an output, at the real sizes, in each of which two sides compute alike.

A side is a program or the kernels of a µGraph. Its conditions divide its iteration space into cells
(see ``cells``). A cell is reached by some elements of the output and not by others; and where both
sides read a tensor, what one reads in one cell and the other in another is read for some elements
only. The sets of these elements, projections of integer sets, divide the output into pieces:
elements of one piece pass through the same cells, and reads agree for all of them or for none. A
difference that conditions cause therefore shows in all of some piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mirage_py.ugraph.ir.node import Access
from mirage_py.verify.pieces.cells import Cut, Side, split
from mirage_py.verify.pieces.integer_sets import (
    IntegerSets,
    OutOfOperationsError,
    Points,
    common,
    corners,
    leading,
    random_point,
    without,
)

# Of isl; a second or a few.
MAX_OPERATIONS = 1_000_000
_MAX_PIECES = 256
_MAX_PAIRS = 2000
_RANDOM_POINTS = 2


@dataclass(frozen=True, slots=True)
class Pieces:
    """For each piece some points: its corners and random ones.

    A point has a coordinate for each of ``axes``, those axes of the output that conditions tell
    apart. ``unknown`` says why these are not all pieces but those that each condition makes alone,
    or none; empty if they are.
    """

    axes: tuple[int, ...]
    points: tuple[tuple[tuple[int, ...], ...], ...]
    unknown: str = ""


def pieces_of(sides: Sequence[Side], shape: tuple[int, ...], *, seed: int) -> Pieces:
    """The pieces of an output of this shape, which each of two sides computes."""
    try:
        return _pieces(sides, shape, seed, together=True)
    except OutOfOperationsError as error:
        unknown = str(error)
    try:
        return replace(_pieces(sides, shape, seed, together=False), unknown=unknown)
    except OutOfOperationsError:
        return Pieces((), (), unknown)


def _pieces(sides: Sequence[Side], shape: tuple[int, ...], seed: int, *, together: bool) -> Pieces:
    """``together``: by cells of conditions and by what is read in them; else by each condition
    alone.
    """
    sets = IntegerSets(MAX_OPERATIONS)
    draw = np.random.default_rng([seed, len(shape)])
    cuts = [Cut(side, sets, together=together) for side in sides]
    axes = tuple(n for n in range(len(shape)) if any(_is_cut(cut, n) for cut in cuts))
    pieces = [sets.box({str(n): shape[n] for n in axes})]
    domains = [*_reached(cuts, axes, sets), *(_read(cuts, axes, sets) if together else ())]
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
    pairs = 0
    for tensor in dict.fromkeys(access.tensor for access in cuts[0].loads):
        places = _compared_axes(cuts, tensor)
        if not places:
            continue
        left, right = ([*_reads(cut, tensor, axes, places, sets)] for cut in cuts)
        for one, other in product(left, right):
            pairs += len(one.cells) * len(other.cells)
            if pairs > _MAX_PAIRS:
                raise OutOfOperationsError(f"more than {_MAX_PAIRS} pairs of reads")
            found = [common(*cells) for cells in product(one.cells, other.cells)]
            found += [without(one.whole, other.whole), without(other.whole, one.whole)]
            yield from (leading(p, len(axes)) for p in found if p is not None)


@dataclass(frozen=True, slots=True)
class _Read:
    """Pairs of an element of the output and what is read for it: of a whole load, and by cells."""

    whole: Points
    cells: tuple[Points, ...]


def _reads(
    cut: Cut, tensor: str, axes: Sequence[int], places: Sequence[int], sets: IntegerSets
) -> Iterator[_Read]:
    """For each load of a tensor, and each region that it shares a dimension with."""
    for access in cut.loads:
        if access.tensor != tensor:
            continue
        exprs = [*(cut.index[n] for n in axes), *(access.index[n] for n in places)]
        whole = sets.image(cut.box(()), (), exprs, cut.sizes)
        for region in cut.touching(access):
            cells = [sets.image(cell, region.names, exprs, cut.sizes) for cell in region.cells]
            yield _Read(whole, tuple(cells))


def _compared_axes(cuts: Sequence[Cut], tensor: str) -> list[int]:
    """Axes of a tensor along which no reader reads all of it."""
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
