"""The space of evaluation: small representative extents, and the dimensions that are looped.

Every array has an axis for trials, then two for every dimension, loop and tile, of extent 1 where
a tensor does not depend on it. The extents have nothing to do with the real sizes; they only have
to be distinct enough that no two different things look the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, cycle, islice
from math import prod

from mirage_py.search.space.abstraction import loopable_dims, reduced_dims
from mirage_py.search.space.leaves import scalars_of
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.trial import ORDERED

ITERATIONS = 2
_TILES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_PURE_TILES = (2, 3)
# Where a value has so many dimensions that these would make it large.
_SHORT_TILES = range(2, 16)
_PIECEWISE = ("mask", "where", *ORDERED)
_ROOTS = ("sqrt", "rsqrt", "pow")
_ROOT_POINTS = 16
_FEWEST_TRIALS, _MOST_TRIALS, _MOST_ELEMENTS = 8, 32, 1 << 14
# A value with more elements is drawn over shorter dimensions: in all trials over a field, and for
# each set of inputs on which rounding is looked at.
_LARGE, _LARGE_SET = 1 << 13, 1 << 10


@dataclass(frozen=True)
class Space:
    """``tiles`` gives the extent of each tile axis; loopable dimensions have iterations too.

    ``trials`` is how often the inputs are drawn, side by side.
    """

    dims: tuple[str, ...]
    loopable: tuple[str, ...]
    tiles: Mapping[str, int]
    trials: int

    @cached_property
    def axes(self) -> Mapping[str, tuple[int, int]]:
        """Positions of the loop and the tile axis of each dimension."""
        return {d: (2 * n + 1, 2 * n + 2) for n, d in enumerate(self.dims)}

    @property
    def rank(self) -> int:
        """Number of axes of every array."""
        return 1 + 2 * len(self.dims)

    def extent(self, dim: str) -> int:
        """How many points a dimension has here."""
        return self.tiles[dim] * (ITERATIONS if dim in self.loopable else 1)

    def shape(self, dims: Sequence[str]) -> tuple[int, ...]:
        """Shape of a leaf that depends on all of ``dims``."""
        full = [self.trials]
        for d in self.dims:
            loop = ITERATIONS if d in self.loopable else 1
            full += [loop, self.tiles[d]] if d in dims else [1, 1]
        return tuple(full)

    def tile_dims(self, shape: Sequence[int]) -> tuple[str, ...]:
        """The dimensions whose tile axis an array of this shape has."""
        return tuple(d for d in self.dims if shape[self.axes[d][1]] > 1)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What one kernel does with the dimensions that the program reduces somewhere.

    ``looped`` ones are read tile by tile in loops, ``gridded`` ones must be shared out among blocks
    and so are not reduced here; the others are unsplit in a block, or on its grid if the kernel
    turns out not to reduce them. Dimensions that nothing reduces are no part of it: along them
    every tensor of the closure is pointwise, so one closure serves every choice of grid over them.
    """

    looped: tuple[str, ...] = ()
    gridded: tuple[str, ...] = ()

    def __str__(self) -> str:
        loops = f"loop over {', '.join(self.looped)}" if self.looped else "no loop"
        return f"{loops}, grid over {', '.join(self.gridded)}" if self.gridded else loops


def representative_space(program: Program, variant: int = 0, splits: tuple[str, ...] = ()) -> Space:
    """Extents for a program; variants differ in all, so one shows the coincidences of another.

    The size of a reduced dimension must not equal a constant of the program: the mean over 6
    points would be taken for a division by 6.
    """
    reduced = reduced_dims(program)
    taken = [abs(c) for c in scalars_of(program)]
    free = [t for t in _TILES if ITERATIONS * t not in taken and t not in taken]
    start = variant * max(1, len(reduced)) % len(free)
    primes = cycle([*free[start:], *free[:start]])
    pure = islice(cycle(_PURE_TILES), variant % len(_PURE_TILES), None)
    loopable = loopable_dims(program, splits)
    tiles = {d: next(primes) if d in loopable else next(pure) for d in program.dim_names}
    space = _with_trials(program, Space(program.dim_names, loopable, tiles, 1))
    if space.trials * _largest(program, space) > _LARGE:
        space = _with_trials(program, _shortened(program, space, variant))
    return space


def rounding_space(program: Program, space: Space) -> Space:
    """The extents at which rounding is looked at: those of a space, or shorter ones."""
    return _shortened(program, space, 0) if _largest(program, space) > _LARGE_SET else space


def _shortened(program: Program, space: Space, variant: int) -> Space:
    """The shortest tiles that can be told apart: dimensions whose size is a value differ in it, and
    of the others only the axes count.
    """
    taken = [abs(c) for c in scalars_of(program)]
    free = [t for t in _SHORT_TILES if ITERATIONS * t not in taken and t not in taken]
    loopable = space.loopable
    sized = [d for d in loopable if any(n.op == "size" and n.attr == d for n in program.nodes)]
    turn = len(sized) + 1
    short = {
        d: free[(sized.index(d) + variant) % turn] if d in sized else free[0] for d in loopable
    }
    return replace(space, tiles={**space.tiles, **short})


def _largest(program: Program, space: Space) -> int:
    """Elements of the largest value of a program, in one trial."""
    return max(prod(space.extent(d) for d in n.dims) for n in program.nodes)


def shortest_space(program: Program, splits: tuple[str, ...] = ()) -> Space:
    """Two points in every reduced dimension, one per iteration. For programs already found only.

    relu(max(x)) and max(x) differ where all of x is negative: at every fourth pair, and hardly ever
    on a long row.
    """
    loopable = loopable_dims(program, splits)
    tiles = {d: 1 if d in loopable else _PURE_TILES[0] for d in program.dim_names}
    return _with_trials(program, Space(program.dim_names, loopable, tiles, 1))


def has_pieces(program: Program) -> bool:
    """Whether some function is made of pieces, so that two can agree on many inputs and yet differ.

    A sum of products that is zero at one random point is zero (up to one chance in a billion);
    relu(x) is x at every second point.
    """
    return any(n.op in _PIECEWISE for n in program.nodes)


def _with_trials(program: Program, space: Space) -> Space:
    """As many trials as keep the arrays small, where one is not enough.

    A root has two values: at every second point sqrt(x * x) is x.
    """
    if not has_pieces(program):
        roots = [n for n in program.nodes if n.op in _ROOTS]
        fewest = min((prod(space.extent(d) for d in n.dims) for n in roots), default=_ROOT_POINTS)
        return replace(space, trials=-(-_ROOT_POINTS // fewest))
    # A row that is masked away in one of many trials would divide by zero.
    most = _FEWEST_TRIALS if any(n.op == "mask" for n in program.nodes) else _MOST_TRIALS
    trials = max(_FEWEST_TRIALS, min(most, _MOST_ELEMENTS // _largest(program, space)))
    return replace(space, trials=trials)


def configurations(
    program: Program,
    max_loop_dims: int,
    *,
    gridded: tuple[str, ...] = (),
    unsplit: Sequence[str] = (),
) -> Iterator[Configuration]:
    """No loop first, then every choice of up to ``max_loop_dims`` dimensions to loop over.

    ``gridded`` ones are on the grid, ``unsplit`` ones are complete in each block.
    """
    fixed = (*gridded, *unsplit)
    candidates = [d for d in reduced_dims(program) if d not in fixed and program.sizes[d] > 1]
    for count in range(min(max_loop_dims, len(candidates)) + 1):
        for looped in combinations(candidates, count):
            yield Configuration(looped, gridded)
