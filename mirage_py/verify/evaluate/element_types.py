"""Rounding to an element type in NumPy, also to those that NumPy lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.ir.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, F64, DType

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Format:
    """Significant bits with the leading one, exponent of the smallest normal number, and what
    stands for larger values than the largest finite one.
    """

    bits: int
    min_exponent: int
    beyond: float


_FORMATS: Final = {
    F64.name: _Format(53, -1022, math.inf),
    F32.name: _Format(24, -126, math.inf),
    F16.name: _Format(11, -14, math.inf),
    BF16.name: _Format(8, -126, math.inf),
    F8E4M3.name: _Format(4, -6, 448.0),
    F8E5M2.name: _Format(3, -14, math.inf),
}


# Elements that are rounded at a time: four arrays of them fit a core's cache.
_PIECE = 1 << 14

# Where NumPy has the type its own rounding takes a tenth of the time.
_OF_NUMPY: Final = {F16.name: np.float16, F32.name: np.float32}


def round_to(values: FloatArray, dtype: DType) -> FloatArray:
    """The nearest values of the type, ties to even, as float64.

    Subnormal ones are kept. Beyond the largest finite value lies infinity; types without one
    saturate, integers too. A truth value is 1 for all but 0.
    """
    if not dtype.is_float:
        if dtype.name == "bool":
            return np.asarray(values != 0, dtype=np.float64)
        return np.asarray(np.clip(np.rint(values), dtype.lowest, dtype.max_finite))
    if dtype.name in _OF_NUMPY:
        with np.errstate(over="ignore"):
            return np.asarray(values.astype(_OF_NUMPY[dtype.name]), dtype=np.float64)
    return _rounded(values, dtype)


def _rounded(values: FloatArray, dtype: DType) -> FloatArray:
    """``round_to`` for any floating-point type, by its bits.

    In pieces that stay in a cache: sets of inputs of hundreds of megabytes take a second and not
    ten.
    """
    form = _FORMATS[dtype.name]
    if form.bits == _FORMATS[F64.name].bits:
        return values
    given = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
    found = np.empty_like(given)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, given.size, _PIECE):
            piece = slice(start, start + _PIECE)
            _round_piece(given[piece], found[piece], form, dtype.max_finite)
    return found.reshape(values.shape)


def _round_piece(given: FloatArray, found: FloatArray, form: _Format, max_finite: float) -> None:
    """Round to nearest on the bits of float64, where what is dropped is a number of them."""
    dropped = _FORMATS[F64.name].bits - form.bits
    bits, rounded = given.view(np.int64), found.view(np.int64)
    np.right_shift(bits, dropped, out=rounded)
    rounded &= 1  # the last place that stays: ties go to even
    rounded += (1 << (dropped - 1)) - 1
    rounded += bits
    rounded &= -1 << dropped
    size = np.abs(given)
    ordinary = size >= 2.0**form.min_exponent
    if not ordinary.all():
        found[~ordinary] = _by_places(given[~ordinary], form)
    outside = ~(np.abs(found) <= max_finite)
    if outside.any():
        beyond = np.where(np.isnan(given), np.nan, np.sign(given) * form.beyond)
        found[outside] = beyond[outside]


def _by_places(values: FloatArray, form: _Format) -> FloatArray:
    """The same where the last place is that of the subnormal numbers; NaN stays."""
    _, exponents = np.frexp(values)
    # frexp has the leading bit at 1/2: the last place is `bits` below it, and no lower than that of
    # the subnormal numbers.
    place = np.maximum(exponents, form.min_exponent + 1) - form.bits
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, -place)), place))


def smallest_normal(dtype: DType) -> float:
    """The smallest positive value with full precision; 1 for integers."""
    return 2.0 ** _FORMATS[dtype.name].min_exponent if dtype.is_float else 1.0


def underflow_step(dtype: DType) -> float:
    """What a kernel may lose near zero.

    The last place of the type's subnormal numbers, but float32 arithmetic may flush its own.
    """
    if not dtype.is_float:
        return 0.5
    form = _FORMATS[dtype.name]
    return max(2.0 ** (form.min_exponent + 1 - form.bits), 2.0 ** _FORMATS[F32.name].min_exponent)
