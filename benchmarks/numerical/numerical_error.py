"""The error of results against float64, compared with eager PyTorch's: the rule of the numerical
campaign.

An error is that of the worst row: the norm of what a row is off over the norm of the row, or, for
an operator, the worst of a group of points. What is not finite where the reference is counts as
infinitely far. Passed is a row that is no farther than four times eager's error, or than two units
of rounding of the output and sqrt(n) of float32, where n is the number of terms of the program's
longest reduction: on a row of equal terms eager is exact by chance of its order of summation.
``within_rounding`` says that a row passed by that alone.

Source: N. J. Higham and T. Mary, A new approach to probabilistic rounding error analysis, 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite, prod, sqrt

import numpy as np

from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.element_types import underflow_step

FACTOR = 4.0
_FLOOR_ROUNDOFFS = 2.0


@dataclass(frozen=True, slots=True)
class Compared:
    """``error`` and ``eager`` of one result; ``elements`` were compared, of ``size``."""

    error: float
    eager: float
    floor: float
    elements: int
    size: int
    plain: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it is no worse than it may be."""
        return self.error <= max(FACTOR * self.eager, self.floor)

    @property
    def within_rounding(self) -> bool:
        """Whether it is farther than four times eager, and than the output's rounding explains."""
        return self.passed and self.error > max(FACTOR * self.eager, self.plain)

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
            "within_rounding": self.within_rounding,
        }


def worst(found: list[Compared]) -> Compared:
    """The one that comes closest to what it may be, or exceeds it most, with the counts of all."""
    one = max(found, key=lambda c: (not c.passed, c.ratio))
    elements, size = sum(c.elements for c in found), sum(c.size for c in found)
    return Compared(one.error, one.eager, one.floor, elements, size, one.plain)


def compared(
    program: Program,
    expected: Mapping[str, FloatArray],
    got: Mapping[str, FloatArray],
    eager: Mapping[str, FloatArray],
    *,
    by_point: bool = False,
) -> Compared:
    """The worst row of the outputs."""
    found = []
    sums = sqrt(longest_reduction(program)) * F32.unit_roundoff
    for output in program.outputs:
        tensor = output.tensor
        name, want = tensor.name, expected[tensor.name]
        ours, theirs = (_shares(tensor, want, x[name], by_point) for x in (got, eager))
        known = _known(tensor, want)
        plain = _FLOOR_ROUNDOFFS * tensor.dtype.unit_roundoff
        mine, worst_of_eager = (float(x.max(initial=0.0)) for x in (ours, theirs))
        counts = int(known.sum()), known.size
        found.append(Compared(mine, worst_of_eager, plain + sums, *counts, plain))
    return worst(found)


def longest_reduction(program: Program) -> int:
    """The number of terms, of matrix products and maxima too; 1 where nothing is reduced."""
    terms = (prod(program.sizes[d] for d in n.reduced) for n in program.nodes if n.op in REDUCING)
    return max(terms, default=1)


def _known(tensor: Tensor, expected: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Where a finite result is expected, and no rounding leads out of the type's range."""
    limit = tensor.dtype.max_finite * (1.0 - 4.0 * tensor.dtype.unit_roundoff)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(expected) <= limit)


def _shares(tensor: Tensor, expected: FloatArray, got: FloatArray, by_point: bool) -> FloatArray:
    """The error of each row, or point, as a share of it."""
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
    return np.asarray(shares).reshape(-1)


def _number(value: float) -> float | None:
    return float(f"{value:.3g}") if isfinite(value) else None
