"""How far results are from float64, beside eager PyTorch's: the one rule of the numerical campaign.

An error is that of the worst row: the norm of what a row is off over the norm of the row, or, for
an operator, the worst of a group of points. What is not finite where the reference is counts as
infinitely far. Passed is what is no farther than four times eager's error, or than two units of
rounding of the output's type; of float32, in which everything is computed, than four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from mirage_py.ugraph.buffers import FloatArray
from mirage_py.ugraph.dtypes import F32
from mirage_py.ugraph.program import Program, Tensor
from mirage_py.verify.element_types import underflow_step

FACTOR = 4.0
_FLOOR_ROUNDOFFS = {F32.name: 4.0}


@dataclass(frozen=True, slots=True)
class Compared:
    """``error`` and ``eager`` of one result; ``elements`` were compared, of ``size``."""

    error: float
    eager: float
    floor: float
    elements: int
    size: int

    @property
    def passed(self) -> bool:
        """Whether it is no worse than it may be."""
        return self.error <= max(FACTOR * self.eager, self.floor)

    @property
    def ratio(self) -> float:
        """The error over eager's, or over what output rounding may make of it."""
        if self.error == 0.0 or (self.eager == inf and self.error == inf):
            return 0.0
        return self.error / max(self.eager, self.floor / FACTOR)

    def document(self) -> dict[str, object]:
        """The JSON form; infinite is null."""
        return {
            "error": _number(self.error),
            "eager": _number(self.eager),
            "elements": self.elements,
            "size": self.size,
            "passed": self.passed,
        }


def worst(found: list[Compared]) -> Compared:
    """The one that comes closest to what it may be, or exceeds it most, with the counts of all."""
    one = max(found, key=lambda c: (not c.passed, c.ratio))
    elements, size = sum(c.elements for c in found), sum(c.size for c in found)
    return Compared(one.error, one.eager, one.floor, elements, size)


def compared(
    program: Program,
    expected: Mapping[str, FloatArray],
    got: Mapping[str, FloatArray],
    eager: Mapping[str, FloatArray],
    *,
    by_point: bool = False,
) -> Compared:
    """The worst of the outputs."""
    found = []
    for output in program.outputs:
        tensor = output.tensor
        ours, theirs = (
            _error(tensor, expected[tensor.name], x[tensor.name], by_point) for x in (got, eager)
        )
        known = _known(tensor, expected[tensor.name])
        floor = _FLOOR_ROUNDOFFS.get(tensor.dtype.name, 2.0) * tensor.dtype.unit_roundoff
        found.append(Compared(ours, theirs, floor, int(known.sum()), known.size))
    return worst(found)


def _known(tensor: Tensor, expected: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Where a finite result is expected, and no rounding leads out of the type's range."""
    limit = tensor.dtype.max_finite * (1.0 - 4.0 * tensor.dtype.unit_roundoff)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(expected) <= limit)


def _error(tensor: Tensor, expected: FloatArray, got: FloatArray, by_point: bool) -> float:
    known = _known(tensor, expected)
    expected = np.where(known, expected, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.where(np.isfinite(got), np.abs(got - expected), inf)
        distance = np.where(known, np.maximum(distance - underflow_step(tensor.dtype), 0.0), 0.0)
        size = np.abs(expected)
        if not by_point:
            rows = (-1, expected.shape[-1] if expected.ndim else 1)
            distance, size = (np.linalg.norm(x.reshape(rows), axis=1) for x in (distance, size))
        shares = np.where(distance > 0.0, distance / np.where(size > 0.0, size, 1e-300), 0.0)
    return float(shares.max(initial=0.0))


def _number(value: float) -> float | None:
    return float(f"{value:.3g}") if isfinite(value) else None
