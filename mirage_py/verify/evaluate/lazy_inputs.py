"""Lazy random inputs at real sizes: elements are computed when they are read.

Evaluating a few blocks reads a small part of the inputs. An element is a keyed function of its
position, so every reader sees the same value, and elements that nobody reads are never computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.field import FieldArray
from mirage_py.ugraph.interpret.buffers import Index
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.labels import Positions, looked_up
from mirage_py.verify.evaluate.trial import placed


@dataclass(frozen=True, slots=True, eq=False)
class LazyInput(FieldArray):
    """An input in shape only (zeros that take no memory), until it is loaded from."""

    tensor: Tensor
    positions: Positions | None = None


class LazyMeaning(FieldMeaning):
    """Field arithmetic whose inputs are drawn as they are read."""

    def load(self, x: FieldArray, index: Index) -> FieldArray:
        if not isinstance(x, LazyInput):
            return super().load(x, index)
        places = row_major(index, x.shape)
        drawn = self.ops.keyed(f"input {x.tensor.name}", FieldArray(places, None))
        if x.positions is not None:
            return placed(drawn, x.positions, self.ops)
        if x.tensor.dtype != BOOL:
            return drawn
        bits = drawn.p & 1
        return FieldArray(bits, bits)


def lazy_inputs(program: Program) -> dict[str, FieldArray]:
    """Every input by name."""
    inputs: dict[str, FieldArray] = {}
    positions = looked_up(program)
    for tensor in program.inputs:
        nothing = np.broadcast_to(np.zeros((), dtype=np.int64), tensor.shape)
        inputs[tensor.name] = LazyInput(nothing, nothing, tensor, positions.get(tensor.name))
    return inputs


def row_major(index: Index, shape: Sequence[int]) -> NDArray[np.int64]:
    """Row-major positions of the indexed elements, in the shape that indexing gives."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    if any(isinstance(slot, np.ndarray) for slot in index):
        total = sum(np.asarray(s) * stride for s, stride in zip(index, strides, strict=True))
        return np.asarray(total, dtype=np.int64)
    # Slices and integers: one axis of the result for each slice.
    result = np.zeros((), dtype=np.int64)
    for slot, stride, extent in zip(index, strides, shape, strict=True):
        if isinstance(slot, slice):
            result = result[..., None] + np.arange(extent, dtype=np.int64)[slot] * stride
        else:
            result = result + int(np.asarray(slot)) * stride
    return np.asarray(result, dtype=np.int64)
