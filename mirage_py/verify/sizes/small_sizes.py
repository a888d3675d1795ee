"""Small sizes and small tiles at which different things have different extents."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from math import prod

import numpy as np

from mirage_py.errors import InputError
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Kernel, Section, UGraph
from mirage_py.verify.sizes.affine import affine
from mirage_py.verify.sizes.conditions import comparisons
from mirage_py.verify.sizes.shrink import covering, digit_sizes, fixed_dims, predicates_of
from mirage_py.verify.sizes.tied_dims import TiedDims

# 6 is left out: 2 and 3 divide it, so that it would need a larger tile to have a tail.
_EXTENTS = (3, 4, 5, 7, 8, 9, 10, 11)
# More sizes to choose from than dimensions, so that seeds differ.
_SPARE = 3
# Of the points of one value, beyond which dimensions have the smallest sizes that differ: a trial
# holds several values, as residues of two primes, and each family has its own.
_MANY_POINTS = 1 << 22
_LEAST = 2
# About the largest of the small sizes.
_MOST_DISTINCT = 32
# Of a dimension that chooses among pieces and keeps its size.
_MOST_PIECES = 64
# Enough tiles to have a first, a middle and a last one.
_MAX_TILES = 4
_UNTIED = TiedDims()
# So many axes of a grid are cut like that, the others in two: the blocks of all axes multiply.
FINE_AXES = 2
# Of families at their real sizes.
_GRID_TILE = 16
_LOOP_TILE = 64


def small_extents(
    program: Program,
    seed: int,
    fixed: Iterable[str] = (),
    *,
    avoid: Iterable[float] = (),
    tied: TiedDims = _UNTIED,
    in_pairs: bool = False,
) -> dict[str, int]:
    """A size for every dimension, in the program's order.

    Dimensions that an index divides keep theirs (see ``fixed_dims``) or have fewer values of each
    digit; ``fixed`` ones and those of size 1 keep theirs, and few points that an index counts down:
    of more it would be negative. The others are small, no two equal but
    for ``tied`` ones, and different from the kept ones and from the program's constants: a mean
    over 5 points is not a division by 5. A value that is read at other indices has all that they
    reach; where it cannot, all sizes are the program's.
    Where a value would have millions of points, sizes begin with 2, and where that is not enough,
    or ``in_pairs``, two dimensions have the same, others for each seed.
    No size, and no product of two or three, is one of the numbers to ``avoid``: those of kernels,
    which may be wrong. Dimensions that a mask compares keep the order of their sizes, so that a
    mask that leaves something of every row still does.
    """
    avoided = dict.fromkeys(avoid)
    digits = {
        d: n
        for d, n in digit_sizes(program).items()
        if d not in fixed and not tied.has(d) and n not in avoided
    }

    def points(extents: Mapping[str, int]) -> int:
        return max((prod(extents[d] for d in n.dims) for n in program.nodes), default=0)

    divided = (d for d in fixed_dims(program) if d not in digits)
    fixed = tied.kept((*fixed, *divided, *_counted_down(program), *_in_pieces(program)))
    kept = digits | {d.name: d.size for d in program.dims if d.name in fixed or d.size == 1}
    taken = [*kept.values(), *(abs(n.attr) for n in program.nodes if isinstance(n.attr, float))]
    first = {d: group[0] for group in tied.groups for d in group}
    free = [d for d in program.dim_names if d not in kept and first.get(d, d) == d]
    masked = dict.fromkeys(first.get(d, d) for d in _compared(program))
    compared = sorted((d for d in masked if d in free), key=lambda d: program.sizes[d])

    def with_sizes(drawn: Sequence[int]) -> dict[str, int]:
        order = np.random.default_rng(seed).permutation(len(drawn))
        chosen = dict(zip(free, (drawn[i] for i in order), strict=False))
        return everywhere(chosen)

    def everywhere(chosen: dict[str, int]) -> dict[str, int]:
        chosen |= dict(zip(compared, sorted(chosen[d] for d in compared), strict=True))
        chosen = tied.spread(chosen)
        return covering(program, {d: kept.get(d) or chosen[d] for d in program.dim_names})

    others = (taken, avoided, digits.values())

    def least(number: int) -> list[int]:
        return _distinct(number, chain((_LEAST,), _candidates()), *others)

    def with_pairs() -> dict[str, int]:
        # Neighbours here, one further for the next seed: what a pair hides the other seed shows.
        order = [*(d for d in free if d not in compared), *compared]
        places = [(place + seed % 2) // 2 for place in range(len(order))]
        drawn = least(max(places, default=0) + 1)
        return everywhere({d: drawn[n] for d, n in zip(order, places, strict=True)})

    if in_pairs:
        with contextlib.suppress(InputError):
            return with_pairs()
    try:
        found = with_sizes(_distinct(len(free) + _SPARE, _candidates(), *others))
    except InputError:  # small ones reach beyond a size that cannot change
        return dict(program.sizes)
    with contextlib.suppress(InputError):
        if points(found) > _MANY_POINTS:
            found = min(found, with_sizes(least(len(free))), key=points)
        if points(found) > _MANY_POINTS >= points(paired := with_pairs()):
            found = paired
    return found


def _distinct(
    number: int,
    candidates: Iterable[int],
    taken: Sequence[float],
    avoid: Mapping[float, None],
    others: Iterable[int],
) -> list[int]:
    """So many of the ``candidates`` that are not taken; neither they nor products of them and
    ``others`` are to be avoided.
    """
    others = tuple(others)
    drawn: list[int] = []
    for e in candidates:
        if len(drawn) == number:
            break
        factors = (1, *others, *drawn)
        if e in taken or (avoid and any(e * a * b in avoid for a in factors for b in factors)):
            continue
        drawn.append(e)
    return drawn


def _counted_down(program: Program) -> tuple[str, ...]:
    """Dimensions of few points that are subtracted in an index: x[7 - d]."""
    indices = [e for n in program.nodes if isinstance(n.attr, Access) for e in n.attr.index]
    forms = (form for e in indices if (form := affine(e)) is not None)
    down = dict.fromkeys(d for form in forms for d, factor in form.terms if factor < 0)
    return tuple(d for d in down if program.sizes[d] <= _MOST_DISTINCT)


def _in_pieces(program: Program) -> tuple[str, ...]:
    """Dimensions whose points choose among more pieces than the fewest points would have, as those
    of twelve tensors in a stack: of fewer points some pieces are no part of the result.
    """
    places: dict[str, dict[int, None]] = {}
    for predicate in predicates_of(program):
        for comparison in comparisons(predicate):
            form = affine(comparison.exprs[0] - comparison.exprs[1])
            if form is not None and len(form.terms) == 1:
                ((d, factor),) = form.terms
                places.setdefault(d, {})[form.constant * factor] = None
    return tuple(
        d
        for d, at in places.items()
        if len(at) >= min(_EXTENTS) and program.sizes[d] <= _MOST_PIECES
    )


def _compared(program: Program) -> tuple[str, ...]:
    """Dimensions that masks depend on."""
    return tuple(dict.fromkeys(d for p in predicates_of(program) for d in p.dims()))


def _candidates() -> Iterator[int]:
    return chain(_EXTENTS, count(13))


def instantiate_small(family: UGraph, *, fine_axes: int = FINE_AXES) -> UGraph:
    """Open tiles filled with small numbers that leave a shorter last tile wherever one can be.

    So many axes of each grid, its first ones, get several tiles, the others two. Loops over the
    same dimension get different tiles. Numbers that are there stay.
    """
    sizes = family.program.sizes
    return _filled(
        family,
        lambda number, axis: _tile(sizes[axis.dim], _variant(number, axis, fine_axes)),
        lambda loop, before: _tile(sizes[loop], before),
    )


def instantiate_at_real_sizes(family: UGraph) -> UGraph:
    """Open tiles filled with usual numbers: some rows of a grid, more of a loop."""
    sizes = family.program.sizes
    return _filled(
        family,
        lambda number, axis: min(_GRID_TILE, sizes[axis.dim]),
        lambda loop, before: min(_LOOP_TILE, sizes[loop]),
    )


def _filled(
    family: UGraph,
    grid_tile: Callable[[int, GridAxis], int],
    loop_tile: Callable[[str, int], int],
) -> UGraph:
    """``grid_tile`` takes the number of an axis and the axis, ``loop_tile`` a dimension and how
    many loops over it are before.
    """
    kernels: list[Kernel] = []
    for kernel in family.kernels:
        if not isinstance(kernel, BlockGraph):
            kernels.append(kernel)
            continue
        grid = tuple(
            replace(a, tile=a.tile or grid_tile(number, a)) for number, a in enumerate(kernel.grid)
        )
        seen: list[str] = []
        sections: list[Section] = []
        for section in kernel.sections:
            loop = section.loop
            if loop is None:
                sections.append(section)
                continue
            tile = section.tile or loop_tile(loop, seen.count(loop))
            sections.append(replace(section, tile=tile))
            seen.append(loop)
        kernels.append(replace(kernel, grid=grid, sections=tuple(sections)))
    return replace(family, kernels=tuple(kernels))


def _variant(number: int, axis: GridAxis, fine_axes: int) -> int:
    """Which of the tiles an axis gets. Blocks of a cluster are few, and run as one here."""
    return 0 if number < fine_axes and not axis.cluster else -1


def _tile(extent: int, variant: int) -> int:
    """A tile that cuts the extent into 2 to 4 pieces, the last one shorter if possible.

    Variants have other sizes, the last one the largest.
    """
    ragged = [t for t in range(1, extent) if 1 < -(-extent // t) <= _MAX_TILES and extent % t]
    return ragged[variant % len(ragged)] if ragged else 1
