"""The type of a tensor of a network: its shape and its element type."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mirage_py.ugraph.ir.dtypes import F32, DType


@dataclass(frozen=True, slots=True)
class TensorType:
    """Static extents, all of them positive, and an element type."""

    shape: tuple[int, ...]
    dtype: DType = F32

    @property
    def rank(self) -> int:
        """How many axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """How many elements."""
        return prod(self.shape)

    def of_shape(self, shape: tuple[int, ...]) -> TensorType:
        """The same element type under another shape."""
        return TensorType(shape, self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
