"""Inputs whose numbers repeat: large ones are drawn in no time, and take no memory until they are
read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret.buffers import FloatArray, Index
from mirage_py.verify.evaluate.lazy_inputs import row_major

# A prime: addresses that differ by a stride, a tile or a row read other numbers.
PERIOD = (1 << 20) + 7


def drawn_elements(shape: tuple[int, ...]) -> int:
    """How many numbers to draw for an input of this shape: all, or a period."""
    return min(prod(shape), PERIOD)


@dataclass(frozen=True, slots=True, eq=False)
class PeriodicInput:
    """Element ``i`` in row-major order is ``table[k, i mod the length of its rows]``, where k is
    its ``kind``, which is broadcast to the shape.
    """

    shape: tuple[int, ...]
    table: FloatArray
    kind: NDArray[np.uint8]

    @classmethod
    def of(cls, shape: tuple[int, ...], numbers: FloatArray) -> PeriodicInput:
        """All elements, or the first period of them."""
        return cls(shape, numbers.reshape(1, -1), np.zeros((), np.uint8))

    def read(self, index: Index) -> FloatArray:
        """The elements at an index, as NumPy indexes."""
        kinds, period = self.table.shape
        if kinds == 1 and period == prod(self.shape):
            return np.asarray(self.table.reshape(self.shape)[index], np.float64)
        places = row_major(index, self.shape) % period
        if kinds > 1:
            places += np.broadcast_to(self.kind, self.shape)[index] * np.int64(period)
        return np.asarray(self.table.reshape(-1)[places], np.float64)

    def dense(self) -> FloatArray:
        """All elements."""
        return self.read((slice(None),) * len(self.shape))

    def mapped(self, function: Callable[[FloatArray], FloatArray]) -> PeriodicInput:
        """A function of each element."""
        return PeriodicInput(self.shape, function(self.table), self.kind)

    def mean_magnitude(self) -> float:
        """Of the elements; where these are no whole number of periods, nearly."""
        if not self.table.size:
            return 0.0
        shares = np.bincount(self.kind.reshape(-1), minlength=len(self.table)) / self.kind.size
        return float(shares @ np.abs(self.table.astype(np.float64)).mean(axis=1))
