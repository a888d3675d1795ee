"""Comparison of one kernel output with its reference: elements that must agree, and tolerances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import starmap
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from mirage_py.reasons import Code, Reason, reason
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.verify.evaluate.element_types import underflow_step
from mirage_py.verify.numerical_check.places import Places

# Rounding errors are spread about half as widely as the estimate, and the largest of some million
# of them lies five to six times their spread away.
SPREAD = 4.0
_EAGER_FACTOR = 2.0
# Of the elements of a form of the user's own function, the share that may be beyond what is allowed
# whatever eager's are, and how far.
_FEW, _FEW_EXCESS = 1e-3, 2.0
# An error that output rounding alone can make is no reason to reject.
_EAGER_FLOOR_ROUNDOFFS = 2.0


@dataclass(frozen=True, slots=True)
class SetFinding:
    """What one input set has shown: ``telling`` of its ``elements`` were compared within less than
    they are, ``vague`` ones within more; ``nonfinite`` ones have no finite value. ``evaluated`` are
    those with a reference. ``excess`` is the largest error as a share of what is allowed there.
    """

    name: str
    elements: int
    evaluated: int
    telling: int
    vague: int
    nonfinite: int
    excess: float

    def with_more(self, other: SetFinding) -> SetFinding:
        """Both together."""
        return SetFinding(
            self.name,
            self.elements + other.elements,
            self.evaluated + other.evaluated,
            self.telling + other.telling,
            self.vague + other.vague,
            self.nonfinite + other.nonfinite,
            max(self.excess, other.excess),
        )


@dataclass(frozen=True, slots=True)
class FloatEvidence:
    """``max_rel_error`` is the norm of the error over the norm of the reference, of the worst
    output, over its telling elements if most are; ``bound`` is what rounding can make of it there.
    ``reason`` says why it did not pass.

    ``nonfinite`` counts elements whose reference has no finite value in the output's type,
    ``compared`` those that were compared with a finite one, ``telling`` those of them for which
    rounding is less than they are. ``spread`` is how far results of repeated launches are apart, as
    a share of the result: 0 where every bit is the same, None where it was not measured. ``sets``
    says what was seen of each input set, once there are several. ``row_excess`` is ``excess`` where
    an element may be as far off as the mean of its row. ``outside`` is the share of the compared
    elements of an output that are farther off than is allowed. Of several outputs ``outputs`` has
    the evidence of each.
    """

    max_rel_error: float
    bound: float
    eager_rel_error: float | None
    passed: bool
    reason: Reason | None = None
    nonfinite: int = 0
    compared: int = 0
    spread: float | None = None
    elements: int = 0
    evaluated: int = 0
    telling: int = 0
    excess: float = 0.0
    sets: tuple[SetFinding, ...] = ()
    row_excess: float = 0.0
    outside: float = 0.0
    outputs: tuple[FloatEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an output: its index, what a kernel gave, and what it should be."""

    place: tuple[int, ...]
    value: float
    expected: float
    allowed: float


@dataclass(frozen=True, slots=True)
class Finding:
    """Of the elements of an output: the largest error as a share of what is allowed, there or in
    the mean of the element's row, what is wrong with the first that is not as it must be, and which
    share of those that are compared is farther off than is allowed.
    """

    excess: float
    row_excess: float
    fault: Reason | None
    outside: float = 0.0


@dataclass(frozen=True, slots=True)
class EagerError:
    """How far eager PyTorch's output is off: the norm of its error over that of the reference, and
    its ``row_excess`` where it does not pass itself, else 0.
    """

    error: float
    row_excess: float

    @classmethod
    def of(cls, error: float, found: Finding) -> EagerError:
        """From what was found of its output."""
        is_far = found.fault is not None and found.fault.code is Code.TOO_FAR
        return cls(error, found.row_excess if is_far else 0.0)

    def is_as_far(self, error: float, found: Finding) -> bool:
        """Whether a result that is too far off is about as close as eager, which is so too."""
        if found.fault is None or found.fault.code is not Code.TOO_FAR:
            return False
        close = error <= _EAGER_FACTOR * self.error
        return close and found.row_excess <= _EAGER_FACTOR * self.row_excess


class Case:
    """One output and its reference, wherever their arrays lie.

    ``bound`` is the norm of what is allowed over that of the reference: over the elements that say
    something, ``said`` of them, or over all where most do not. ``checked`` elements are compared
    with a finite value, and ``nonfinite`` have none; both are of those that are ``known``, of
    ``size``. Where there are ``places`` arrays are lists, of the elements there. Each element
    ``stands_for`` so many of an output of another size.
    """

    tensor: Tensor
    places: Places | None
    bound: float
    nonfinite: int
    checked: int
    known: int
    size: int
    said: int
    stands_for: float = 1.0

    @property
    def says_much(self) -> bool:
        """Whether most of what is compared says something."""
        return 2 * self.said >= self.checked

    def evidence(self, error: float, finding: Finding, eager: EagerError | None) -> FloatEvidence:
        """From an error, what was found of the elements, and eager's error."""
        fault = finding.fault
        if eager is not None:
            if eager.is_as_far(error, finding):
                fault = None
            fault = fault or self._eager_fault(error, eager.error)
        return FloatEvidence(
            max_rel_error=error,
            bound=self.bound,
            eager_rel_error=None if eager is None else eager.error,
            passed=fault is None,
            reason=fault,
            nonfinite=self.nonfinite,
            compared=self.checked,
            elements=self.size,
            evaluated=self.known,
            telling=self.said,
            excess=finding.excess,
            row_excess=finding.row_excess,
            outside=finding.outside,
        )

    def not_finite(self, found: Element) -> Reason:
        """What is wrong where a finite value is expected."""
        return reason(Code.NOT_FINITE, self._at(found))

    def finite(self, found: Element) -> Reason:
        """What is wrong where none is."""
        return reason(Code.FINITE, self._at(found))

    def far(self, found: Element, count: int, size: int) -> Reason:
        """What is wrong with the first of ``count`` elements, of ``size``, that are too far off."""
        return reason(Code.TOO_FAR, self._at(found), f"{found.allowed:.3g}", count - 1, size)

    def place(self, number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The index in the output of an element of arrays of this shape."""
        if self.places is not None:
            number, shape = int(self.places.flat[number]), self.places.shape
        return tuple(int(i) for i in np.unravel_index(number, shape))

    def _at(self, found: Element) -> str:
        element = f"{self.tensor.name}[{', '.join(map(str, found.place))}]"
        return f"{element} = {found.value:.6g} instead of {found.expected:.6g}"

    def _eager_fault(self, error: float, eager: float) -> Reason | None:
        floor = _EAGER_FLOOR_ROUNDOFFS * self.tensor.dtype.unit_roundoff
        # The norm of few errors is left to chance: of a single number eager's may be none at all.
        count = self.stands_for * (self.said if self.says_much else self.checked)
        chance = self.bound / SPREAD / sqrt(count) if count and self.bound < inf else 0.0
        if error <= max(_EAGER_FACTOR * eager, floor) + chance:
            return None
        name = self.tensor.name
        return reason(Code.WORSE_THAN_EAGER, name, f"{error:.3g}", f"{eager:.3g}")


class OutputCase(Case):
    """A case in NumPy: all that does not depend on the kernel.

    ``compared`` elements have to lie within ``allowed`` of ``expected``; those that ``overflows``
    must not be finite. ``scale`` is the norm of what is compared.
    """

    def __init__(
        self,
        tensor: Tensor,
        expected: FloatArray,
        errors: FloatArray | None,
        tolerance: float,
        places: Places | None = None,
    ) -> None:
        self.tensor = tensor
        self.places = places
        self.name = tensor.name
        self.expected = np.asarray(expected, np.float64)
        size = np.abs(self.expected)
        limit = tensor.dtype.max_finite
        spread = np.zeros_like(size) if errors is None else SPREAD * errors
        with np.errstate(invalid="ignore"):
            allowed = tolerance * size + spread + underflow_step(tensor.dtype)
            unknown = np.isnan(self.expected)
            if tensor.dtype.is_float:  # NaN is any integer
                unknown &= np.isposinf(spread)
            known = ~unknown
            self.overflows = known & ~(size - allowed <= limit)
            self.compared = known & (size + allowed <= limit)
            rounding = allowed - underflow_step(tensor.dtype)
            sizes = np.where(self.compared, size, 0.0)
            self.telling = self.compared & (rounding <= np.maximum(size, row_means(sizes, places)))
        self.allowed = allowed
        self.nonfinite, self.checked = int(self.overflows.sum()), int(self.compared.sum())
        self.known, self.size = int(known.sum()), places.size if places else size.size
        self.said = int(self.telling.sum())
        self.normed = self.telling if self.says_much else self.compared
        self.scale = float(np.linalg.norm(self.expected[self.normed]))
        self.bound = self._relative(allowed)

    def judge(self, got: FloatArray, eager: FloatArray | None) -> FloatEvidence:
        """Compare what a kernel gave, and hold its error against eager's if there is any."""
        whole = np.asarray(got, np.float64)
        shape = self.places.shape if self.places else self.expected.shape
        if whole.shape != shape:
            return wrong_shape(self.tensor, whole.shape, shape)
        values = self._taken(whole)
        error = self._relative(self._distance(values))
        return self.evidence(error, self._finding(values), self._of_eager(eager))

    def _of_eager(self, eager: FloatArray | None) -> EagerError | None:
        if eager is None:
            return None
        found = self._finding(self._taken(np.asarray(eager, np.float64)))
        return EagerError.of(self.error(eager), found)

    def error(self, values: FloatArray) -> float:
        """The relative error of an output of the right shape."""
        return self._relative(self._distance(self._taken(np.asarray(values, np.float64))))

    def _taken(self, values: FloatArray) -> FloatArray:
        return self.places.taken(values) if self.places else values

    def _finding(self, values: FloatArray) -> Finding:
        fault, excess = self._fault(values), self._excess(values, self.allowed)
        if fault is None:
            return Finding(excess, excess, fault)
        means = row_means(np.where(self.compared, self.allowed, 0.0), self.places)
        row_excess = self._excess(values, np.maximum(self.allowed, means))
        outside = int((self.compared & (self._distance(values) > self.allowed)).sum())
        return Finding(excess, row_excess, fault, outside / max(1, self.checked))

    def _excess(self, values: FloatArray, allowed: FloatArray) -> float:
        with np.errstate(invalid="ignore"):
            shares = self._distance(values) / allowed
        return float(shares[self.compared].max(initial=0.0))

    def _distance(self, values: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            distance = np.abs(values - self.expected)
        return np.where(np.isfinite(values), distance, inf)

    def _relative(self, distance: FloatArray) -> float:
        """Norm over norm; 0 / 0 is 0.

        What underflow may cost counts as nothing: of a result that is all underflow it would be 1.
        """
        part = np.maximum(distance[self.normed] - underflow_step(self.tensor.dtype), 0.0)
        if not part.size or not part.any():
            return 0.0
        with np.errstate(over="ignore"):
            norm = float(np.linalg.norm(part))
        return norm / self.scale if self.scale else inf

    def _fault(self, values: FloatArray) -> Reason | None:
        finite = np.isfinite(values)
        lost = self.compared & ~finite
        if lost.any():
            return self.not_finite(self._first(lost, values))
        wrong = self.overflows & finite & (np.abs(values) < self.tensor.dtype.max_finite)
        if wrong.any():
            return self.finite(self._first(wrong, values))
        far = self.compared & (self._distance(values) > self.allowed)
        if far.any():
            return self.far(self._first(far, values), int(far.sum()), far.size)
        return None

    def _first(self, which: NDArray[np.bool_], values: FloatArray) -> Element:
        """The first element where it is true."""
        number = int(which.argmax())
        if self.places is not None:
            numbers = np.flatnonzero(which)
            number = int(numbers[self.places.flat[numbers].argmin()])
        found = (float(a.reshape(-1)[number]) for a in (values, self.expected, self.allowed))
        return Element(self.place(number, which.shape), *found)


def allowed_by_eager(found: FloatEvidence, eager: FloatEvidence) -> FloatEvidence:
    """The evidence for another form of the user's own function: it passes too where it is about as
    close as eager PyTorch, which rounds every intermediate, on the same inputs.

    Close is an error of all elements, in the norm, of no more than twice eager's, and single ones
    that are no more than twice as far beyond what is allowed, or a few, at most twice as many as of
    eager's, that are not far beyond it: which of millions are is left to chance.

    Single elements may be as far off as the mean of their row: where eager's rounding makes a small
    negative number of a positive one, a ReLU behind it has 0, for which next to nothing is allowed.
    Values that are not finite are forgiven where eager has them too, of at most twice as many
    elements or few. Of several outputs each is held against eager's.
    """
    if found.passed or found.reason is None:
        return found
    if found.outputs and len(found.outputs) == len(eager.outputs):
        pairs = zip(found.outputs, eager.outputs, strict=True)
        refused = [one for one in starmap(allowed_by_eager, pairs) if not one.passed]
        return replace(found, passed=not refused, reason=refused[0].reason if refused else None)
    of_eager = eager.reason.code if eager.reason is not None else None
    if found.reason.code not in (Code.TOO_FAR, of_eager):
        return found
    close = found.max_rel_error <= _EAGER_FACTOR * eager.max_rel_error
    as_far = found.row_excess <= _EAGER_FACTOR * eager.row_excess
    few = found.outside <= max(_EAGER_FACTOR * eager.outside, _FEW)
    if eager.row_excess == inf:  # beside no number everything is close
        as_far = few
    if close and (as_far or (few and found.row_excess <= _FEW_EXCESS)):
        return replace(found, passed=True, reason=None)
    return found


def wrong_shape(tensor: Tensor, shape: tuple[int, ...], wanted: tuple[int, ...]) -> FloatEvidence:
    """The evidence of an output of another shape."""
    fault = reason(Code.WRONG_SHAPE, tensor.name, [*shape], [*wanted])
    return FloatEvidence(inf, 0.0, None, False, fault)


def row_means(sizes: FloatArray, places: Places | None = None) -> FloatArray:
    """The mean over the last axis, for every element; over those that there are."""
    if places is not None:
        number, count = places.rows()
        return np.asarray((np.bincount(number, sizes) / count)[number])
    return sizes.mean(axis=-1, keepdims=True) if sizes.ndim else sizes
