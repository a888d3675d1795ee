"""The third tier: a kernel's results against float64, on random and on ugly inputs.

A result passes if every element is as close as rounding can explain, and all of them together are
no farther than twice what eager PyTorch gets. How far rounding can take a result is worked out for
the very inputs (mirage_py.verify.rounding_error), so that a difference of large numbers is not held
to the accuracy of a plain product.

Values that are not finite: where the reference is not, or exceeds the output's type, the result
must not be finite either; it makes no difference which of NaN and the infinities it is. Where the
reference is finite the result must be. Within rounding of the type's largest value both are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.buffers import FloatArray
from mirage_py.ugraph.dtypes import F32
from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.program import Program, Tensor
from mirage_py.verify.element_types import underflow_step
from mirage_py.verify.input_sets import InputSet, input_sets
from mirage_py.verify.rounding_error import RoundingMeaning, rounded_input
from mirage_py.verify.safe_exp import add_safe_shifts
from mirage_py.verify.windows import affordable_windows

__all__ = [
    "FloatEvidence",
    "InputSet",
    "Reference",
    "input_sets",
    "judge",
    "reference",
    "tolerance",
]

# Element operations, about half a minute.
MAX_REFERENCE_WORK = 6e8
# Rounding errors are spread about half as widely as the estimate, and the largest of some million
# of them lies five to six times their spread away.
_SPREAD = 4.0
# Algebraically equal graphs round at other places than the program.
_REORDERING = 4.0
_EAGER_FACTOR = 2.0
# An error that output rounding alone can make is no reason to reject.
_EAGER_FLOOR_ROUNDOFFS = 2.0


@dataclass(frozen=True, slots=True)
class FloatEvidence:
    """``max_rel_error`` is the norm of the error over the norm of the reference, of the worst
    output; ``bound`` is what rounding can make of it there. ``reason`` says why it did not pass.

    ``nonfinite`` counts elements whose reference has no finite value in the output's type,
    ``compared`` those that were compared with a finite one.
    """

    max_rel_error: float
    bound: float
    eager_rel_error: float | None
    passed: bool
    reason: str = ""
    nonfinite: int = 0
    compared: int = 0


@dataclass(frozen=True)
class Reference(Mapping[str, FloatArray]):
    """The outputs in float64 by name; ``errors`` has the expected size of each element's error.

    Where that is infinite and the output NaN, the element was not evaluated.
    """

    outputs: dict[str, FloatArray]
    errors: dict[str, FloatArray]

    def __getitem__(self, name: str) -> FloatArray:
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


def reference(
    program: Program, arrays: Mapping[str, FloatArray], *, max_work: float = MAX_REFERENCE_WORK
) -> Reference:
    """The outputs in float64, exponentials shifted so that logits of 1e4 do not overflow.

    Large programs are evaluated window by window of their outputs; what would take more than
    ``max_work`` element operations, in some windows only, the first and the last among them.
    """
    safe = add_safe_shifts(program)
    meaning = RoundingMeaning(_operand_roundoff(program))
    inputs = {
        t.name: rounded_input(np.asarray(arrays[t.name], np.float64), t.dtype)
        for t in program.inputs
    }
    tensors = [o.tensor for o in program.outputs]
    values = {t.name: np.full(t.shape, np.nan) for t in tensors}
    errors = {t.name: np.full(t.shape, inf) for t in tensors}
    for window in affordable_windows(safe, max_work):
        for name, sample in evaluate_at(safe, inputs, meaning, window).items():
            found = sample.values
            values[name][sample.elements] = found.value
            errors[name][sample.elements] = 0.0 if found.error is None else found.error
    return Reference(values, errors)


def tolerance(program: Program) -> float:
    """The relative error that a correct kernel may have on well-conditioned inputs.

    Four times the sum of the roundings on the worst way to an output: the output's own, that of
    computed operands at each matrix product on the way, and that of float32 sums, which grows with
    the root of their length.
    """
    depth = [0] * len(program.nodes)
    terms = [0] * len(program.nodes)
    for position, node in enumerate(program.nodes):
        depth[position] = max((depth[a] for a in node.args), default=0)
        terms[position] = max((terms[a] for a in node.args), default=0)
        if node.op in ("sum", "matmul"):
            terms[position] += prod(program.sizes[d] for d in node.reduced)
        if node.op == "matmul" and any(program.nodes[a].op != "load" for a in node.args):
            depth[position] += 1
    operand = _operand_roundoff(program)
    return _REORDERING * max(
        o.tensor.dtype.unit_roundoff
        + depth[o.node] * operand
        + sqrt(max(terms[o.node], 1)) * F32.unit_roundoff
        for o in program.outputs
    )


def judge(
    program: Program,
    reference: Mapping[str, FloatArray],
    got: Mapping[str, FloatArray],
    *,
    eager: Mapping[str, FloatArray] | None = None,
) -> FloatEvidence:
    """Compare a kernel's outputs with the reference, and with eager PyTorch's if given.

    Arrays hold the outputs' values, as any float type. A reference without errors (a plain mapping)
    is compared within ``tolerance`` alone.
    """
    worst = FloatEvidence(0.0, tolerance(program), None if eager is None else 0.0, True)
    nonfinite = compared = 0
    for output in program.outputs:
        name = output.tensor.name
        errors = reference.errors[name] if isinstance(reference, Reference) else None
        case = _Case(output.tensor, reference[name], errors, tolerance(program))
        found = case.judge(got[name], None if eager is None else eager[name])
        nonfinite += found.nonfinite
        compared += found.compared
        if (found.passed, -_excess(found)) < (worst.passed, -_excess(worst)):
            worst = found
    return FloatEvidence(
        worst.max_rel_error,
        worst.bound,
        worst.eager_rel_error,
        worst.passed,
        worst.reason,
        nonfinite,
        compared,
    )


def _excess(evidence: FloatEvidence) -> float:
    return evidence.max_rel_error / evidence.bound if evidence.bound else inf


def _operand_roundoff(program: Program) -> float:
    """Of the type that computed operands of matrix products are rounded to."""
    halves = [t.dtype.unit_roundoff for t in program.inputs if t.dtype.is_half]
    return max(halves, default=F32.unit_roundoff)


class _Case:
    """One output."""

    def __init__(
        self, tensor: Tensor, expected: FloatArray, errors: FloatArray | None, tolerance: float
    ) -> None:
        self._tensor = tensor
        self._expected = np.asarray(expected, np.float64)
        size = np.abs(self._expected)
        limit = tensor.dtype.max_finite
        spread = np.zeros_like(size) if errors is None else _SPREAD * errors
        with np.errstate(invalid="ignore"):
            allowed = tolerance * size + spread + underflow_step(tensor.dtype)
            known = ~(np.isnan(self._expected) & np.isposinf(spread))
            self._overflows = known & ~(size - allowed <= limit)
            self._compared = known & (size + allowed <= limit)
        self._allowed = allowed

    def judge(self, got: FloatArray, eager: FloatArray | None) -> FloatEvidence:
        values = np.asarray(got, np.float64)
        reason = self._fault(values)
        if values.shape != self._expected.shape:
            return FloatEvidence(inf, 0.0, None, False, reason)
        error = self._relative(self._distance(values))
        bound = self._relative(self._allowed)
        eager_error: float | None = None
        if eager is not None:
            eager_error = self._relative(self._distance(np.asarray(eager, np.float64)))
            reason = reason or self._eager_fault(error, eager_error)
        counts = int(self._overflows.sum()), int(self._compared.sum())
        return FloatEvidence(error, bound, eager_error, not reason, reason, *counts)

    def _distance(self, values: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            distance = np.abs(values - self._expected)
        return np.where(np.isfinite(values), distance, inf)

    def _relative(self, distance: FloatArray) -> float:
        """Norm over norm, of the elements that are compared; 0 / 0 is 0.

        What underflow may cost counts as nothing: of a result that is all underflow it would be 1.
        """
        part = np.maximum(distance[self._compared] - underflow_step(self._tensor.dtype), 0.0)
        if not part.size or not part.any():
            return 0.0
        scale = float(np.linalg.norm(self._expected[self._compared]))
        with np.errstate(over="ignore"):
            norm = float(np.linalg.norm(part))
        return norm / scale if scale else inf

    def _fault(self, values: FloatArray) -> str:
        name = self._tensor.name
        if values.shape != self._expected.shape:
            return f"{name} has shape {list(values.shape)}, not {list(self._expected.shape)}"
        finite = np.isfinite(values)
        if (self._compared & ~finite).any():
            return f"{self._at(self._compared & ~finite, values)} is not finite"
        wrong = self._overflows & finite & (np.abs(values) < self._tensor.dtype.max_finite)
        if wrong.any():
            return f"{self._at(wrong, values)} is finite"
        far = self._compared & (self._distance(values) > self._allowed)
        if far.any():
            place = tuple(int(i) for i in np.argwhere(far)[0])
            return (
                f"{self._at(far, values)}, more than {self._allowed[place]:.3g} away, "
                f"and so are {int(far.sum()) - 1} others of {far.size}"
            )
        return ""

    def _at(self, which: NDArray[np.bool_], values: FloatArray) -> str:
        place = tuple(int(i) for i in np.argwhere(which)[0])
        element = f"{self._tensor.name}[{', '.join(map(str, place))}]"
        return f"{element} = {values[place]:.6g} instead of {self._expected[place]:.6g}"

    def _eager_fault(self, error: float, eager: float) -> str:
        floor = _EAGER_FLOOR_ROUNDOFFS * self._tensor.dtype.unit_roundoff
        if error <= max(_EAGER_FACTOR * eager, floor):
            return ""
        return (
            f"{self._tensor.name} has a relative error of {error:.3g}, more than twice "
            f"the {eager:.3g} of eager PyTorch"
        )
