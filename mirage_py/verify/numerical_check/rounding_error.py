"""A running error analysis: numbers with the error that a correct kernel may have.

A kernel computes in float32, rounds the computed operands of a matmul to the half type of the
inputs, and rounds its results. Each value carries the size of the error that this causes,
propagated through every operator by evaluating it at both ends of its operands' errors
(mirage_py.verify.numerical_check.carried_error). So a value that is the small difference of large
ones, or the exp of a large one, has the large error that any order of evaluation gives it.

Errors of a sum are taken to be partly common to all terms (a scale that is off) and partly
independent: the common part grows with the sum, the rest with the root of the sum of squares. That
is a statistical estimate, not a worst case; mirage_py.verify.numerical_check.numerical_check
multiplies it by a factor.

Three terms and more may be added in any order: x + b - 0.5 is x + (b - 0.5). Where x is 2^60 and b
-2^60, the first is -0.5 and the second 0. If x or b is an input of a half type, the largest such
term may be off by a rounding to float32. What comes out is then right for inputs that are off by
2^-24 of themselves, and they were rounded to 2^-9 or 2^-12. It matters only where a sum is
thousands of times smaller than that term. Sums of float32 inputs alone are held to the program's
order: eager PyTorch loses nothing of them there, and a user may rely on it.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, section 3.3 (running error),
and N. J. Higham and T. Mary, A new approach to probabilistic rounding error analysis, 2019 (root
growth).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.interpret.buffers import Buffer, FloatArray, FloatBuffer, Index
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import F32, DType, Fp32Precision
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.operators import operator
from mirage_py.verify.evaluate.element_types import smallest_normal, underflow_step
from mirage_py.verify.numerical_check.carried_error import carried_error, joined
from mirage_py.verify.numerical_check.periodic_input import PeriodicInput

# Products that a tensor core adds to its accumulator at a time, and cuts the sum off.
_PRODUCTS_AT_A_TIME = 16
# Inputs below so many of the smallest normal number count as imprecise.
_EDGE = 64.0
# Operators whose results are whole numbers because their operands are, in whatever order.
_OF_WHOLE = ("add", "sub", "mul", "square", "cast")
_LARGEST_WHOLE = 2.0**24
_LARGEST_WHOLE_OF_HALVES = 2.0**8


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """Values and the expected size of their errors; None where there is none. ``is_input`` values
    go into a matmul unrounded. ``is_coarse`` are inputs of a type less precise than float32, and
    ``largest_term`` has the magnitude of the largest one in the sum that the value is.
    """

    value: FloatArray
    error: FloatArray | None = None
    is_input: bool = False
    # The largest magnitude that a kernel may divide it by before it is rounded for a product.
    divisor: float = 1.0
    # What is read in place of the value.
    source: PeriodicInput | None = None
    is_coarse: bool = False
    largest_term: FloatArray | None = None

    def moved(self, move: Callable[[FloatArray], FloatArray]) -> Rounded:
        """With all of its arrays reshaped alike."""
        error, term = (None if a is None else move(a) for a in (self.error, self.largest_term))
        value = move(self.value)
        return replace(self, value=value, error=error, largest_term=term, source=None)


def rounded_input(
    values: FloatArray | PeriodicInput, dtype: DType, held_to: Fp32Precision = Fp32Precision.IEEE
) -> Rounded:
    """An input. It is exact, unless it lies where its type loses precision.

    There it has the error of half a last place: a kernel that scales it before it is rounded again
    (as a fused normalisation does) cannot do better. Where matmuls of float32 are ``held_to`` TF32
    they round such an input.
    """
    source = values if isinstance(values, PeriodicInput) else None
    array = values if isinstance(values, np.ndarray) else np.zeros(())
    magnitude = source.mean_magnitude() if source else float(np.abs(array).mean())
    value = np.broadcast_to(array, values.shape)
    error: FloatArray | None = None
    if dtype.is_float and 0.0 < magnitude < _EDGE * smallest_normal(dtype):
        error = np.broadcast_to(underflow_step(dtype) / 2, values.shape)
    is_rounded = dtype == F32 and held_to is not Fp32Precision.IEEE
    if is_rounded and error is None:
        error = np.broadcast_to(0.0, values.shape)
    is_coarse = dtype.is_float and dtype.unit_roundoff > F32.unit_roundoff
    return Rounded(value, error, is_input=not is_rounded, source=source, is_coarse=is_coarse)


class RoundingMeaning:
    """``operand_roundoff`` is the unit roundoff of the type of matmul operands, ``operand_step``
    the last place of its subnormal numbers.
    """

    def __init__(self, operand_roundoff: float, operand_step: float = 0.0) -> None:
        self._operand_roundoff = operand_roundoff
        self._operand_step = operand_step
        self._cuts_off = operand_roundoff > F32.unit_roundoff
        self._floats = FloatMeaning()

    def apply(self, op: str, attr: Attr, args: Sequence[Rounded]) -> Rounded:
        values = [a.value for a in args]
        value = self._floats.apply(op, attr, values)
        row = operator(op)
        is_exact = all(a.error is None for a in args) and (row.ulps == 0 or _is_whole(op, value))
        term = _largest_term(args) if op in ("add", "sub") else None
        if is_exact and (term is None or _is_whole("add", term)):
            # However it is computed. Truth values are numbers, and 1 - (1 - m) is one.
            return Rounded(value, is_input=_fits_halves(value), largest_term=term)
        roundoff = row.ulps * F32.unit_roundoff
        if isinstance(attr, DType):
            roundoff = attr.unit_roundoff
        # 0.5 x (1 + erf) cancels for negative x, with tanh too: its error is a share of x, not of
        # the result.
        scale = values[0] if row.rounds == "operand" else value
        error = _share(roundoff, scale)
        if op in ("add", "sub"):
            if term is not None and any(a.largest_term is not None for a in args):
                error = joined(error, F32.unit_roundoff * term)
            error = np.where(_absorbed(value, values), 0.0, error)
        if row.divides:
            # The reciprocal of more than 2^126 is flushed to 0 before it is multiplied.
            by = values[0] if row.divides == "operand" else np.asarray(1.0)
            error = error + _flushed(by, value)
        errors = [a.error for a in args]
        for place, own in enumerate(errors):
            if own is not None:
                error = joined(error, carried_error(op, values, errors, place, value))
        divisor = _divisor(args, value) if op == "mul" else 1.0
        return Rounded(value, error, divisor=divisor, largest_term=term)

    def power(self, x: Rounded, exponent: float) -> Rounded:
        return self.apply("pow", None, (x, self.const(exponent)))

    def select(self, mask: Rounded, x: Rounded) -> Rounded:
        value = self._floats.select(mask.value, x.value)
        return Rounded(value, None if x.error is None else self._floats.select(mask.value, x.error))

    def shift(self, x: Rounded, key: str) -> Rounded:
        del key
        return x

    def const(self, value: float) -> Rounded:
        return Rounded(self._floats.const(value))

    def size(self, extent: int) -> Rounded:
        return Rounded(self._floats.size(extent))

    def index(self, values: NDArray[np.int64]) -> Rounded:
        return Rounded(self._floats.index(values))

    def mask(self, truth: NDArray[np.bool_]) -> Rounded:
        return Rounded(self._floats.mask(truth))

    def sum(self, x: Rounded, axes: Sequence[int]) -> Rounded:
        with np.errstate(all="ignore"):
            if x.error is None and _is_whole("add", x.value):
                total = self._floats.sum(np.abs(x.value), axes)
                if float(total.max(initial=0.0)) <= _LARGEST_WHOLE:
                    # A count: in every order each part of it is exact.
                    value = self._floats.sum(x.value, axes)
                    return Rounded(value, is_input=_fits_halves(value))
            squares = self._floats.sum(x.value**2, axes)
            errors = None if x.error is None else self._floats.sum(x.error**2, axes)
        terms = prod(x.value.shape[a] for a in axes)
        return _summed(self._floats.sum(x.value, axes), squares, errors, terms)

    def max(self, x: Rounded, axes: Sequence[int]) -> Rounded:
        value = self._floats.max(x.value, axes)
        return Rounded(value, None if x.error is None else self._floats.max(x.error, axes))

    def contract(self, a: Rounded, b: Rounded, axes: Sequence[int]) -> Rounded:
        contract = self._floats.contract
        shape = np.broadcast_shapes(a.value.shape, b.value.shape)
        error_a, error_b = self._operand_error(a), self._operand_error(b)
        errors: FloatArray | None = None
        with np.errstate(all="ignore"):
            squares = contract(a.value**2, b.value**2, axes)
            if error_a is not None:
                errors = contract(error_a**2, b.value**2, axes)
            if error_b is not None:
                more = contract(a.value**2, error_b**2, axes)
                errors = more if errors is None else errors + more
        terms = prod(shape[x] for x in axes)
        drift = terms / _PRODUCTS_AT_A_TIME / 2 if self._cuts_off else 0.0
        return _summed(contract(a.value, b.value, axes), squares, errors, terms, drift)

    def rescale(self, old: Rounded, new: Rounded, degree: int) -> Rounded:
        return Rounded(self._floats.rescale(old.value, new.value, degree))

    def shape(self, x: Rounded) -> tuple[int, ...]:
        return x.value.shape

    def reshape(self, x: Rounded, shape: Sequence[int]) -> Rounded:
        wanted = tuple(shape)
        return replace(x.moved(lambda a: a.reshape(wanted)), is_input=False)

    def transpose(self, x: Rounded, perm: Sequence[int]) -> Rounded:
        order = tuple(perm)
        return x.moved(lambda a: a.transpose(order))

    def stretch(self, x: Rounded, shape: Sequence[int]) -> Rounded:
        wanted = tuple(shape)
        return x.moved(lambda a: np.broadcast_to(a, wanted))

    def load(self, x: Rounded, index: Index) -> Rounded:
        error = None if x.error is None else np.asarray(x.error[index])
        value = x.source.read(index) if x.source else self._floats.load(x.value, index)
        return Rounded(value, error, x.is_input, is_coarse=x.is_coarse)

    def integers(self, x: Rounded) -> NDArray[np.int64]:
        return self._floats.integers(x.value)

    def buffer(self, shape: Sequence[int]) -> Buffer[Rounded]:
        return _RoundedBuffer(shape)

    def _operand_error(self, a: Rounded) -> FloatArray | None:
        """An input goes into a matmul unrounded, a computed value is rounded first."""
        if a.is_input or a.error is None:
            return a.error
        size = np.abs(a.value)
        # The smallest lose more, but no more than themselves.
        least = np.minimum(a.divisor * self._operand_step / 2, size)
        return joined(a.error, np.maximum(self._operand_roundoff * size, least))


class _RoundedBuffer:
    def __init__(self, shape: Sequence[int]) -> None:
        self._value = FloatBuffer(shape)
        self._error = FloatBuffer(shape)

    def write(self, index: Index, value: Rounded) -> None:
        error = np.zeros_like(value.value) if value.error is None else value.error
        self._value.write(index, value.value)
        self._error.write(index, error)

    def missing(self) -> int:
        return self._value.missing()

    def read(self) -> Rounded:
        return Rounded(self._value.read(), self._error.read())


def _is_whole(op: str, value: FloatArray) -> bool:
    """Whether the results of exact operands are whole numbers that float32 holds."""
    if op not in _OF_WHOLE:
        return False
    with np.errstate(invalid="ignore"):
        return bool((np.abs(value) <= _LARGEST_WHOLE).all() and (np.rint(value) == value).all())


def _fits_halves(value: FloatArray) -> bool:
    """Whether operands of these values are the same in any type."""
    return _is_whole("add", value) and bool((np.abs(value) <= _LARGEST_WHOLE_OF_HALVES).all())


def _divisor(factors: Sequence[Rounded], product: FloatArray) -> float:
    """What a kernel may divide a product by so that it stays in range: the largest magnitude of a
    vector that is a factor. Numbers that become subnormal lose so much more.
    """
    vectors = [x.value for x in factors if x.error is None and 1 < x.value.size < product.size]
    return max([1.0, *(float(np.abs(v).max()) for v in vectors)])


def _largest_term(terms: Sequence[Rounded]) -> FloatArray | None:
    """The magnitude of the largest input of a half type that is added; None where there is none."""
    own = (np.abs(t.value) if t.is_coarse else t.largest_term for t in terms)
    found = [t for t in own if t is not None]
    if not found:
        return None
    shape = np.broadcast_shapes(*(t.value.shape for t in terms))
    return np.broadcast_to(reduce(np.maximum, found), shape)


def _absorbed(value: FloatArray, terms: Sequence[FloatArray]) -> NDArray[np.bool_]:
    """Where not even float64 sees more than one term, as a mask's lowest number and a logit: so
    the result is exact in float32.
    """
    one, other = terms
    seen = (value == one) & (other != 0) | (np.abs(value) == np.abs(other)) & (one != 0)
    return np.asarray(seen & (np.abs(value) > _LARGEST_WHOLE))


def _share(roundoff: float, scale: FloatArray) -> FloatArray:
    """That share of a magnitude; none of an infinite one, which rounding does not change."""
    with np.errstate(all="ignore"):
        error = roundoff * np.abs(scale)
        return error if np.isfinite(error.sum()) else np.where(np.isinf(scale), 0.0, error)


def _flushed(numerator: FloatArray, quotient: FloatArray) -> FloatArray:
    """What a quotient of this numerator loses with its reciprocal.

    Nothing where it is infinite, or 0 because its divisor is.
    """
    is_number = np.isfinite(quotient) & (quotient != 0)
    return np.where(is_number, _share(smallest_normal(F32), numerator), 0.0)


def _summed(
    value: FloatArray,
    squares: FloatArray,
    errors: FloatArray | None,
    terms: int,
    drift: float = 0.0,
) -> Rounded:
    """A sum whose terms have this sum of squares, and errors with this sum of squares.

    ``drift`` are roundings that all point the same way.
    """
    with np.errstate(all="ignore"):
        spread = np.sqrt(squares)
        error = F32.unit_roundoff * (sqrt(terms) + drift) * (spread + np.abs(value))
        if errors is not None:
            independent = np.sqrt(errors)
            relative = np.where(spread > 0, independent / np.where(spread > 0, spread, 1.0), 0.0)
            error = joined(joined(error, independent), relative * np.abs(value))
        if not np.isfinite(error.sum()):
            sure = True if errors is None else np.isfinite(errors)
            error = np.where(np.isinf(value), np.where(sure, 0.0, np.inf), error)
    return Rounded(value, error)
