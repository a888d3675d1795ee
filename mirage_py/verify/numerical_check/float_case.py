"""Comparison of one kernel output with its reference: elements that must agree, and tolerances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import starmap
from math import inf, prod, sqrt
from typing import Any

import numpy as np

from mirage_py.reasons import Code, Reason, reason
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.verify.evaluate.element_types import underflow_step
from mirage_py.verify.numerical_check.common_error import CommonError, some_of
from mirage_py.verify.numerical_check.places import Places

# Rounding errors are spread about half as widely as the estimate, and the largest of some million
# of them lies five to six times their spread away.
SPREAD = 4.0
EAGER_FACTOR = 2.0
# Of the elements of a form of the user's own function, and of any whose allowance is an estimate,
# the share that may be beyond what is allowed whatever eager's are, and how far.
_FEW, _FEW_EXCESS = 1e-3, 2.0
# Elements in a row in which errors are compared with eager's, where those are what is allowed; the
# share of elements that may be beyond what eager's errors close by allow; and that of the least.
_STRETCH = 1 << 17
_SOME = 0.1
_LEAST = 0.9
# An error that output rounding alone can make is no reason to reject.
_EAGER_FLOOR_ROUNDOFFS = 2.0


@dataclass(frozen=True, slots=True)
class SetFinding:
    """What one input set has shown: ``telling`` of its ``elements`` were compared within less than
    they are, ``vague`` ones within more; ``nonfinite`` ones have no finite value. ``evaluated`` are
    those with a reference. ``excess`` is the largest error as a share of what is allowed there.
    ``weak`` names the outputs of which it says little.
    """

    name: str
    elements: int
    evaluated: int
    telling: int
    vague: int
    nonfinite: int
    excess: float
    weak: tuple[str, ...] = ()

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
            (*self.weak, *other.weak),
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
    elements of an output that are farther off than is allowed. ``weak`` names the outputs most of
    whose elements say nothing. Of several outputs ``outputs`` has the evidence of each.
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
    weak: tuple[str, ...] = ()
    outputs: tuple[FloatEvidence, ...] = ()


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

    @property
    def is_little(self) -> bool:
        """Whether few elements are farther off than is allowed, and not by far."""
        is_far = self.fault is not None and self.fault.code is Code.TOO_FAR
        return is_far and self.outside <= _FEW and self.row_excess <= _FEW_EXCESS


# Of each stretch of an output how far off it is, as three numbers.
Stretches = tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True)
class EagerError:
    """How far eager PyTorch's output is off: the norm of its error over that of the reference, and
    its ``row_excess`` where it does not pass itself, else 0. Where its errors are what is allowed,
    ``stretches`` has for each 2^17 elements ``error``, that of the nine tenths that are least off,
    and the largest of what exceeds ``tolerance``. ``together`` are the errors that
    elements of a group and all elements have in common, as shares of what is allowed.
    """

    error: float
    row_excess: float
    stretches: Stretches = ()
    together: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(
        cls, error: float, found: Finding, stretches: Stretches, together: tuple[float, float]
    ) -> EagerError:
        """From what was found of its output."""
        is_far = found.fault is not None and found.fault.code is Code.TOO_FAR
        return cls(error, found.row_excess if is_far else 0.0, stretches, together)

    def is_as_far(self, error: float, found: Finding) -> bool:
        """Whether a result that is too far off is about as close as eager, which is so too."""
        if found.fault is None or found.fault.code is not Code.TOO_FAR:
            return False
        close = error <= EAGER_FACTOR * self.error
        return close and found.row_excess <= EAGER_FACTOR * self.row_excess

    def is_as_far_everywhere(self, found: Finding, stretches: Stretches, floor: float) -> bool:
        """Whether few elements are beyond what eager's errors close by allow, and in no stretch of
        the output the norm of all errors, that of the nine tenths that are smallest (both above
        ``floor``) or the largest is more than twice eager's.

        An error that a whole row has in common, as of a sum that all of its elements are multiplied
        by, is one number: eager's says next to nothing of how large another may be. Of two that are
        equally spread every thirteenth is eight times the other. Over a thousand rows they differ
        little. For the same reason the norms are not those of the elements of which eager's errors
        say something: there these happen to be small.
        """
        if found.fault is not None and found.fault.code is not Code.TOO_FAR:
            return False
        pairs = list(zip(stretches, self.stretches, strict=True))
        if not pairs or found.outside > _SOME:
            return False
        return all(
            far <= EAGER_FACTOR * its_far < inf
            and all(x <= max(EAGER_FACTOR * y, floor) for x, y in zip(errors, its, strict=True))
            for (*errors, far), (*its, its_far) in pairs
        )


class OutputCase:
    """One output and its reference: all that does not depend on the kernel.

    ``compared`` elements have to lie within ``allowed`` of ``expected``; those that ``overflows``
    must not be finite. ``bound`` is the norm of what is allowed over that of the reference: over
    the elements that say something, ``said`` of them, or over all where most do not. ``checked``
    elements are compared with a finite value, and ``nonfinite`` have none; both are of those that
    are ``known``, of ``size``. Where there are ``places`` arrays are lists, of the elements there.
    Each element ``stands_for`` so many of an output of another size, and all of them may have the
    errors of no more than so many ``draws``.

    Values that are not finite count as equal, but where the program ``selects_infinity``: minus
    infinity is that and nothing else.

    Where the errors that are expected are measured ones of eager PyTorch, elements of which they
    say little may be ``farthest`` off, twice what is allowed anywhere, and a few others somewhat
    beyond what is.

    Arrays are those of ``library``: of NumPy, or of torch on any device, where ``flat`` are the
    places.
    """

    stands_for: float = 1.0

    def __init__(
        self,
        tensor: Tensor,
        expected: Any,
        errors: Any,
        tolerance: float,
        places: Places | None = None,
        *,
        draws: float = inf,
        is_measured: bool = False,
        selects_infinity: bool = False,
        library: Any = np,
        flat: Any = None,
    ) -> None:
        xp = self._library = library
        self._is_measured, self._selects_infinity = is_measured, selects_infinity
        self.tensor, self.places, self.name = tensor, places, tensor.name
        self._draws = draws
        self._flat = places.flat if places is not None and flat is None else flat
        self.expected = xp.asarray(expected, dtype=xp.float64)
        self.shape = places.shape if places else tuple(self.expected.shape)
        self._step, self._tolerance = underflow_step(tensor.dtype), tolerance
        size, limit = xp.abs(self.expected), tensor.dtype.max_finite
        spread = xp.zeros_like(size) if errors is None else SPREAD * errors
        with np.errstate(invalid="ignore"):
            self.allowed = tolerance * size + spread + self._step
            unknown = xp.isnan(self.expected)
            if tensor.dtype.is_float:  # NaN is any integer
                unknown &= xp.isposinf(spread)
            known = ~unknown
            self.overflows = known & ~(size - self.allowed <= limit)
            self.compared = known & (size + self.allowed <= limit)
            means = self._row_means(xp.where(self.compared, size, 0.0))
            rounding = self.allowed - self._step
            self.telling = self.compared & (rounding <= xp.maximum(size, means))
        self.farthest = self._twice_the_largest() if is_measured else inf
        self._floor = _EAGER_FLOOR_ROUNDOFFS * tensor.dtype.unit_roundoff
        self.nonfinite, self.checked = int(self.overflows.sum()), int(self.compared.sum())
        self.known, self.size = int(known.sum()), prod(self.shape)
        self.said = int(self.telling.sum())
        self.normed = self.telling if self.says_much else self.compared
        self.scale = self._norm(self.expected)
        self.bound = self._relative(self.allowed)

    def _twice_the_largest(self) -> float:
        limits = self._library.where(self.compared & (self.allowed < inf), self.allowed, 0.0)
        return EAGER_FACTOR * float(limits.max()) if prod(limits.shape) else 0.0

    def _spread(self, expected: Any, allowed: Any) -> Any:
        """What is allowed beyond the tolerance and the smallest step: it is not kept, as another
        array of the size of the output.
        """
        with np.errstate(invalid="ignore"):
            beyond = allowed - self._tolerance * self._library.abs(expected) - self._step
            return self._library.clip(beyond, 0.0, None)

    @property
    def says_much(self) -> bool:
        """Whether most of what is compared says something."""
        return 2 * self.said >= self.checked

    def judge(self, got: Any, eager: Any = None) -> FloatEvidence:
        """Compare what a kernel gave, and hold its error against eager's output if there is any."""
        return self.evidence(got, None if eager is None else self.of_eager(eager))

    def of_eager(self, output: Any) -> EagerError:
        """How far eager PyTorch's output is off."""
        together = self._together(output)
        return EagerError.of(*self._found(output), self._stretches(output), together)

    def evidence(self, got: Any, eager: EagerError | None) -> FloatEvidence:
        """From what a kernel gave, and eager's error."""
        if tuple(got.shape) != self.shape:
            return wrong_shape(self.tensor, tuple(got.shape), self.shape)
        error, finding = self._found(got)
        fault = finding.fault
        if self._is_measured and finding.is_little:
            fault = None
        if eager is not None:
            fault = None if eager.is_as_far(error, finding) else fault
            fault = fault or self._eager_fault(error, eager.error)
        by_eager = eager.together if eager is not None else (0.0, 0.0)
        together = (0.0, 0.0) if fault else self._together(got)
        fault = fault or self._common_fault(together[0], by_eager[0])
        if fault is not None and self._is_as_far(got, finding, eager):
            fault, together = None, self._together(got)
        fault = fault or self._common_fault(together[1], by_eager[1])
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
            weak=() if self.says_much and self.said else (self.name,),
        )

    def _is_as_far(self, output: Any, finding: Finding, eager: EagerError | None) -> bool:
        """Where eager's errors are what is allowed, whether it is nowhere farther off."""
        if eager is None or not self._is_measured:
            return False
        return eager.is_as_far_everywhere(finding, self._stretches(output), self._floor)

    def _found(self, output: Any) -> tuple[float, Finding]:
        """The relative error of an output of the right shape, and what its elements are."""
        xp = self._library
        values, finite, distance = self._distance(output)
        error, excess = self._relative(distance), self._excess(distance, self.allowed)
        held: Any = True
        if self._is_measured:
            held = self.telling | (distance > self.farthest)
        far = self.compared & held & (distance > self.allowed)
        wrong = self.overflows & finite & (xp.abs(values) < self.tensor.dtype.max_finite)
        other = self.overflows & (self.expected == -inf) & (values != -inf)
        other = other & self._selects_infinity
        if not bool((far | wrong | other).any()):
            return error, Finding(excess, excess, None)
        count = int(far.sum())
        faults = (
            (Code.NOT_FINITE, far & ~finite),
            (Code.FINITE, wrong),
            (Code.NOT_SELECTED, other),
            (Code.TOO_FAR, far),
        )
        code, which = next((code, which) for code, which in faults if bool(which.any()))
        number = self._first(which)
        found: list[object] = [self._at(number, values)]
        if code is Code.TOO_FAR:
            limit = float(self.allowed.reshape(-1)[number])
            found += [f"{limit:.3g}", count - 1, prod(far.shape)]
        means = self._row_means(xp.where(self.compared, self.allowed, 0.0))
        row_excess = self._excess(distance, xp.maximum(self.allowed, means))
        fault, outside = reason(code, *found), count / max(1, self.checked)
        return error, Finding(excess, row_excess, fault, outside)

    def _distance(self, output: Any) -> tuple[Any, Any, Any]:
        """An output's elements, which are finite, and how far off they are."""
        xp = self._library
        values = self._values(output)
        finite = xp.isfinite(values)
        with np.errstate(invalid="ignore"):
            return values, finite, xp.where(finite, xp.abs(values - self.expected), inf)

    def _values(self, output: Any) -> Any:
        some = output if self._flat is None else output.reshape(-1)[self._flat]
        return self._library.asarray(some, dtype=self._library.float64)

    def _stretches(self, output: Any) -> Stretches:
        """See EagerError; of what is not measured none."""
        if not self._is_measured:
            return ()
        xp = self._library
        *_, distance = self._distance(output)
        size = xp.where(self.compared, xp.abs(self.expected), 0.0).reshape(-1)
        off = xp.where(self.compared, distance, 0.0).reshape(-1)
        found = []
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, prod(off.shape), _STRETCH):
                mine, of = off[start : start + _STRETCH], size[start : start + _STRETCH]
                least = xp.where(mine <= xp.quantile(mine, _LEAST), mine, 0.0)
                error, of_least = (float(xp.linalg.norm(x)) for x in (mine, least))
                scale = float(xp.linalg.norm(of)) or 1.0
                far = float((mine - self._tolerance * of).max()) - self._step
                found.append((error / scale, of_least / scale, max(0.0, far)))
        return tuple(found)

    def _together(self, output: Any) -> tuple[float, float]:
        """The error that elements of a group and all of them have in common."""
        if not self.tensor.dtype.is_float:
            return 0.0, 0.0
        xp = self._library
        compared_with = self.expected, self.compared, self.allowed
        if self._flat is None and (some := some_of(self.shape)) is not None:
            axis, places = some
            at = (*(slice(None) for _ in range(axis)), xp.asarray(places))
            output, compared_with = output[at], tuple(x[at] for x in compared_with)
        values, (expected, compared, allowed) = self._values(output), compared_with
        held = compared & xp.isfinite(values)
        with np.errstate(invalid="ignore"):
            distance = xp.abs(values - expected) - self._step
            off = xp.sign(values - expected) * xp.clip(distance, 0.0, None)
            weights, off, spread = (
                xp.where(held, x / allowed, 0.0)
                for x in (expected, off, self._spread(expected, allowed))
            )
        number = None if self._flat is None else self._row_of_places()[0]
        roundoff = self.tensor.dtype.unit_roundoff
        common = CommonError(xp, expected, weights, off, spread, self._tolerance, roundoff, number)
        return common.excess()

    def _common_fault(self, together: float, eager: float) -> Reason | None:
        # Measured errors are a sample of what may be expected.
        limit = EAGER_FACTOR if self._is_measured else 1.0
        if together <= max(limit, EAGER_FACTOR * eager):
            return None
        return reason(Code.OFF_TOGETHER, self.name, f"{together:.3g}")

    def _excess(self, distance: Any, allowed: Any) -> float:
        with np.errstate(invalid="ignore"):
            shares = self._library.where(self.compared, distance / allowed, 0.0)
        return float(shares.max()) if prod(shares.shape) else 0.0

    def _row_means(self, sizes: Any) -> Any:
        """The mean over the last axis, for every element; over those that there are."""
        if self._flat is None:
            return sizes.mean(axis=-1, keepdims=True) if sizes.ndim else sizes
        number, count = self._row_of_places()
        return (self._library.bincount(number, weights=sizes) / count)[number]

    def _row_of_places(self) -> tuple[Any, Any]:
        """Which row each place is in, by numbers from 0 on, and how many places a row has."""
        rows = self._flat // self.shape[-1] if self.shape else self._flat
        _, number, count = self._library.unique(rows, return_inverse=True, return_counts=True)
        return number, count

    def _relative(self, distance: Any) -> float:
        """Norm over norm; 0 / 0 is 0.

        What underflow may cost counts as nothing: of a result that is all underflow it would be 1.
        """
        norm = self._norm(self._library.clip(distance - self._step, 0.0, None))
        if norm == 0.0:
            return 0.0
        return norm / self.scale if self.scale else inf

    def _norm(self, values: Any) -> float:
        xp = self._library
        with np.errstate(over="ignore"):
            return float(xp.linalg.norm(xp.where(self.normed, values, 0.0).reshape(-1)))

    def _first(self, which: Any) -> int:
        """The number of the first element of the output where it is true."""
        numbers = self._library.argwhere(which.reshape(-1))[:, 0]
        return int(numbers[0 if self._flat is None else self._flat[numbers].argmin()])

    def _at(self, number: int, values: Any) -> str:
        """An element, what it is and what it should be."""
        value, expected = (float(a.reshape(-1)[number]) for a in (values, self.expected))
        place = int(self.places.flat[number]) if self.places is not None else number
        index = ", ".join(str(int(i)) for i in np.unravel_index(place, self.shape))
        return f"{self.name}[{index}] = {value:.6g} instead of {expected:.6g}"

    def _eager_fault(self, error: float, eager: float) -> Reason | None:
        # The norm of few errors is left to chance: of a single number eager's may be none at all.
        count = self.stands_for * (self.said if self.says_much else self.checked)
        chance = self.bound / SPREAD / sqrt(count) if count and self.bound < inf else 0.0
        if self._draws < inf:  # as few errors as sums that many elements share
            spread = self._spread(self.expected, self.allowed)
            shared = self._relative(spread + self._step) / SPREAD / sqrt(self._draws)
            chance = max(chance, shared) if shared < inf else chance
        if error <= max(EAGER_FACTOR * eager, self._floor) + chance:
            return None
        return reason(Code.WORSE_THAN_EAGER, self.name, f"{error:.3g}", f"{eager:.3g}")


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
    close = found.max_rel_error <= EAGER_FACTOR * eager.max_rel_error
    as_far = found.row_excess <= EAGER_FACTOR * eager.row_excess
    few = found.outside <= max(EAGER_FACTOR * eager.outside, _FEW)
    if eager.row_excess == inf:  # beside no number everything is close
        as_far = few
    if close and (as_far or (few and found.row_excess <= _FEW_EXCESS)):
        return replace(found, passed=True, reason=None)
    return found


def wrong_shape(tensor: Tensor, shape: tuple[int, ...], wanted: tuple[int, ...]) -> FloatEvidence:
    """The evidence of an output of another shape."""
    fault = reason(Code.WRONG_SHAPE, tensor.name, [*shape], [*wanted])
    return FloatEvidence(inf, 0.0, None, False, fault)
