"""A frame: the positions of each dimension that are under evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Tile:
    """One block's tile of a grid axis, or one iteration's of a loop."""

    dim: str
    start: int
    is_loop: bool

    def __str__(self) -> str:
        return f"{'step' if self.is_loop else 'block'} {self.dim} {self.start}"


# Consecutive positions, or any list of them (one axis).
Span = range | NDArray[np.int64]

# NumPy 1 stops at 32 axes, and full-rank arrays have one per dimension.
MAX_DIMS = 32


class Frame:
    """Spans of all dimensions of a program, in its order.

    ``tiles`` are the cuts that led here, outermost first: those of the grid, then of a loop.
    """

    __slots__ = ("_coordinates", "axis", "order", "spans", "tiles")

    def __init__(
        self, order: tuple[str, ...], spans: Mapping[str, Span], tiles: tuple[Tile, ...] = ()
    ) -> None:
        if len(order) > MAX_DIMS:
            raise UnsupportedError(
                f"a program with {len(order)} dimensions",
                why=f"the interpreter's arrays have one axis each, and NumPy has {MAX_DIMS}",
                repair="cut the program into parts",
            )
        self.order = order
        self.axis = {d: place for place, d in enumerate(order)}
        self.spans = spans
        self.tiles = tiles
        self._coordinates: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def whole(cls, sizes: Mapping[str, int]) -> Frame:
        """Every point of every dimension."""
        return cls(tuple(sizes), {d: range(n) for d, n in sizes.items()})

    def moved(self, spans: Mapping[str, Span], tiles: tuple[Tile, ...] = ()) -> Frame:
        """The same frame with other positions of some dimensions, which ``tiles`` are."""
        return Frame(self.order, {**self.spans, **spans}, (*self.tiles, *tiles))

    def label(self, dims: Sequence[str]) -> str:
        """Names what a value over ``dims`` may differ between: tiles of them, and iterations.

        Blocks along a grid axis that a value does not have compute it alike, bit by bit.
        """
        return " ".join(str(t) for t in self.tiles if t.is_loop or t.dim in dims)

    def extent(self, dim: str) -> int:
        """How many positions of a dimension there are."""
        return len(self.spans[dim])

    def shape(self, dims: Iterable[str]) -> tuple[int, ...]:
        """Full-rank shape of a value that depends on ``dims``."""
        out = [1] * len(self.order)
        for d in dims:
            out[self.axis[d]] = len(self.spans[d])
        return tuple(out)

    def coordinates(self, dims: Iterable[str]) -> dict[str, NDArray[np.int64]]:
        """Positions of each of ``dims`` as full-rank arrays."""
        for d in dims:
            if d not in self._coordinates:
                positions = np.asarray(self.spans[d], dtype=np.int64)
                self._coordinates[d] = positions.reshape(self.shape((d,)))
        return self._coordinates

    def axes(self, dims: Iterable[str]) -> tuple[int, ...]:
        """Positions of dimensions in full-rank arrays."""
        return tuple(self.axis[d] for d in dims)
