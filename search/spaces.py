"""Where the search evaluates: small representative extents, and which dimensions are looped.

Every dimension has two axes in every array, loop then tile, of extent 1 where a tensor does not
depend on it. The extents have nothing to do with the real sizes; they only have to be distinct
enough that no two different things look the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, cycle, islice

from mirage_py.search.abstraction import reduced_dims
from mirage_py.search.leaves import scalars_of
from mirage_py.ugraph.program import Program

ITERATIONS = 2
_TILES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_PURE_TILES = (2, 3)


@dataclass(frozen=True)
class Space:
    """``tiles`` gives the extent of each tile axis; reduced dimensions have iterations too."""

    dims: tuple[str, ...]
    reduced: tuple[str, ...]
    tiles: Mapping[str, int]

    @cached_property
    def axes(self) -> Mapping[str, tuple[int, int]]:
        """Positions of the loop and the tile axis of each dimension."""
        return {d: (2 * n, 2 * n + 1) for n, d in enumerate(self.dims)}

    @property
    def rank(self) -> int:
        """Number of axes of every array."""
        return 2 * len(self.dims)

    def extent(self, dim: str) -> int:
        """How many points a dimension has here."""
        return self.tiles[dim] * (ITERATIONS if dim in self.reduced else 1)

    def shape(self, dims: Sequence[str]) -> tuple[int, ...]:
        """Shape of a tensor that depends on all of ``dims``, whole."""
        full: list[int] = []
        for d in self.dims:
            loop = ITERATIONS if d in self.reduced else 1
            full += [loop, self.tiles[d]] if d in dims else [1, 1]
        return tuple(full)

    def tile_dims(self, shape: Sequence[int]) -> tuple[str, ...]:
        """The dimensions whose tile axis an array of this shape has."""
        return tuple(d for n, d in enumerate(self.dims) if shape[2 * n + 1] > 1)

    def loop_dims(self, shape: Sequence[int]) -> tuple[str, ...]:
        """The dimensions whose loop axis an array of this shape has."""
        return tuple(d for n, d in enumerate(self.dims) if shape[2 * n] > 1)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Which reduced dimensions are read tile by tile in loops; the others stay whole in a block.

    Grid axes are no part of it: they range over dimensions that nothing reduces, along which
    every tensor of the closure is pointwise, so one closure serves every choice of grid.
    """

    looped: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"loop over {', '.join(self.looped)}" if self.looped else "no loop"


def representative_space(program: Program, variant: int = 0) -> Space:
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
    tiles = {d: next(primes) if d in reduced else next(pure) for d in program.dim_names}
    return Space(program.dim_names, reduced, tiles)


def configurations(program: Program, max_loop_dims: int) -> Iterator[Configuration]:
    """No loop first, then every choice of up to ``max_loop_dims`` dimensions to loop over."""
    candidates = [d for d in reduced_dims(program) if program.sizes[d] > 1]
    for count in range(min(max_loop_dims, len(candidates)) + 1):
        for looped in combinations(candidates, count):
            yield Configuration(looped)
