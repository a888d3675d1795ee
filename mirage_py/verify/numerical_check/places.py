"""The elements of an output that a reference has, where it does not have all."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.verify.evaluate.lazy_inputs import row_major


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Row-major positions ``flat``, each once, in a tensor of this shape."""

    shape: tuple[int, ...]
    flat: NDArray[np.int64]

    @classmethod
    def of(cls, shape: tuple[int, ...], index: tuple[NDArray[np.int64], ...]) -> Places:
        """The positions that indexing with arrays of one shape names."""
        return cls(shape, row_major(index, shape).reshape(-1))

    @property
    def size(self) -> int:
        """The elements of the tensor."""
        return prod(self.shape)

    def spread(self, values: FloatArray) -> FloatArray:
        """A tensor with these values there, and NaN elsewhere."""
        found = np.full(self.size, np.nan)
        found[self.flat] = values
        return found.reshape(self.shape)
