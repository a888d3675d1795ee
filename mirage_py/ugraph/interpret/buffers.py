"""Output buffers that are written tile by tile, and detect holes and contradictory writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import ValidationError
from mirage_py.ugraph.field.values import FieldArray

A = TypeVar("A")
FloatArray = NDArray[np.float64]
Slot = slice | int | NDArray[np.int64]
Index = tuple[Slot, ...]


class Buffer(Protocol[A]):
    """A tensor being written, which knows what has been written so far."""

    def write(self, index: Index, value: A) -> None:
        """Put ``value`` (of the indexed shape) there; ValidationError if another value is there."""

    def missing(self) -> int:
        """How many elements were never written."""

    def read(self) -> A:
        """The tensor; what was never written is NaN in floats and 0 in a field."""


class FloatBuffer:
    """A float64 tensor. Values count as equal within rounding."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._values = np.full(tuple(shape), np.nan)
        self._written = np.zeros(tuple(shape), dtype=np.bool_)

    def write(self, index: Index, value: FloatArray) -> None:
        before = np.asarray(self._written[index])
        if before.any() and not _close(self._values[index][before], value[before]):
            raise _contradiction()
        self._values[index] = value
        self._written[index] = True
        if _may_repeat(index) and not _close(self._values[index], value):
            raise _contradiction()

    def missing(self) -> int:
        return int(self._written.size - self._written.sum())

    def read(self) -> FloatArray:
        return self._values


class FieldBuffer:
    """A tensor over the field pair; it has a q part if all that was written has one."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._parts = (
            np.zeros(tuple(shape), dtype=np.int64),
            np.zeros(tuple(shape), dtype=np.int64),
        )
        self._written = np.zeros(tuple(shape), dtype=np.bool_)
        self._has_q = True

    def write(self, index: Index, value: FieldArray) -> None:
        self._has_q = self._has_q and value.q is not None
        before = np.asarray(self._written[index])
        for held, part in zip(self._parts, (value.p, value.q), strict=True):
            if part is None or (held is self._parts[1] and not self._has_q):
                continue
            if before.any() and not np.array_equal(held[index][before], part[before]):
                raise _contradiction()
            held[index] = part
            if _may_repeat(index) and not np.array_equal(held[index], part):
                raise _contradiction()
        self._written[index] = True

    def missing(self) -> int:
        return int(self._written.size - self._written.sum())

    def read(self) -> FieldArray:
        p_part, q_part = self._parts
        return FieldArray(p_part, q_part if self._has_q else None)


def _may_repeat(index: Index) -> bool:
    """Whether one write may name an element twice: slices cannot, arrays can."""
    return any(isinstance(slot, np.ndarray) for slot in index)


def _close(left: FloatArray, right: FloatArray) -> bool:
    return bool(np.allclose(left, right, rtol=1e-9, atol=0.0, equal_nan=True))


def _contradiction() -> ValidationError:
    return ValidationError(
        "an element is written twice, with different values",
        why="blocks and iterations run in any order, so the result would depend on chance",
        repair="give every grid axis and the loop around the store a place in its indices",
    )
