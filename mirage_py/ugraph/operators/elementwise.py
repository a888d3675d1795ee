"""Elementwise operators: one row each, broadcast by dimension name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage_py.ugraph.operators.base import ELEMENTWISE, FloatArray, Operator, register

if TYPE_CHECKING:
    from mirage_py.ugraph.field.values import FieldArray


def _sigmoid(x: FloatArray) -> FloatArray:
    # exp of a non-positive number on both branches: no overflow at either end.
    small = np.exp(-np.abs(x))
    return _as_float(np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small)))


def _erf(x: FloatArray) -> FloatArray:
    """Error function to float64 rounding, by the standard library (NumPy has none)."""
    from math import erf

    return _as_float(np.vectorize(erf, otypes=[np.float64])(x))


def _gelu(x: FloatArray) -> FloatArray:
    """``x / 2 (1 + erf(x / sqrt(2)))``, where the sum cancels by the complement."""
    from math import erfc

    return _as_float(0.5 * x * np.vectorize(erfc, otypes=[np.float64])(-x / np.sqrt(2.0)))


def _gelu_tanh(x: FloatArray) -> FloatArray:
    # 0.5 (1 + tanh z) = sigmoid(2 z), which does not cancel.
    return _as_float(x * _sigmoid(2.0 * np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def _reciprocal_no_nan(x: FloatArray) -> FloatArray:
    """1 / x, and 0 where x is 0 (the name is TensorFlow's)."""
    return _as_float(np.where(x == 0.0, 0.0, 1.0 / np.where(x == 0.0, 1.0, x)))


def _as_float(x: object) -> FloatArray:
    return np.asarray(x, dtype=np.float64)


_UNARY: tuple[tuple[str, float, Callable[..., Any], Callable[..., FieldArray]], ...] = (
    # name, flops, over floats, over the field
    ("neg", 1, lambda x: -x, lambda f, x: f.neg(x)),
    ("exp", 4, np.exp, lambda f, x: f.exp(x)),
    ("expm1", 6, np.expm1, lambda f, x: f.expm1(x)),
    ("log", 4, np.log, lambda f, x: f.log(x)),
    ("log1p", 6, np.log1p, lambda f, x: f.log1p(x)),
    ("sqrt", 4, np.sqrt, lambda f, x: f.sqrt(x)),
    ("rsqrt", 4, lambda x: 1.0 / np.sqrt(x), lambda f, x: f.rsqrt(x)),
    ("reciprocal_no_nan", 5, _reciprocal_no_nan, lambda f, x: f.reciprocal_no_nan(x)),
    ("square", 1, lambda x: x * x, lambda f, x: f.square(x)),
    ("abs", 1, np.abs, lambda f, x: f.abs(x)),
    ("relu", 1, lambda x: np.maximum(x, 0.0), lambda f, x: f.relu(x)),
    ("sigmoid", 8, _sigmoid, lambda f, x: f.sigmoid(x)),
    ("silu", 9, lambda x: x * _sigmoid(x), lambda f, x: f.silu(x)),
    ("tanh", 10, np.tanh, lambda f, x: f.tanh(x)),
    ("gelu", 20, _gelu, lambda f, x: f.gelu(x)),
    ("gelu_tanh", 16, _gelu_tanh, lambda f, x: f.gelu_tanh(x)),
    ("erf", 16, _erf, lambda f, x: f.erf(x)),
)

_BINARY: tuple[tuple[str, str, bool, float, Callable[..., Any], Callable[..., FieldArray]], ...] = (
    # name, symbol, commutative, flops, over floats, over the field
    ("add", "+", True, 1, np.add, lambda f, x, y: f.add(x, y)),
    ("sub", "-", False, 1, np.subtract, lambda f, x, y: f.sub(x, y)),
    ("mul", "*", True, 1, np.multiply, lambda f, x, y: f.mul(x, y)),
    ("div", "/", False, 4, np.divide, lambda f, x, y: f.div(x, y)),
    ("pow", "^", False, 20, np.power, lambda f, x, y: f.pow(x, y)),
    ("maximum", "", True, 1, np.maximum, lambda f, x, y: f.maximum(x, y)),
    ("minimum", "", True, 1, np.minimum, lambda f, x, y: f.minimum(x, y)),
    ("lt", "<", False, 1, lambda x, y: _as_float(x < y), lambda f, x, y: f.lt(x, y)),
    ("le", "<=", False, 1, lambda x, y: _as_float(x <= y), lambda f, x, y: f.le(x, y)),
    ("gt", ">", False, 1, lambda x, y: _as_float(x > y), lambda f, x, y: f.gt(x, y)),
    ("ge", ">=", False, 1, lambda x, y: _as_float(x >= y), lambda f, x, y: f.ge(x, y)),
    ("eq", "==", True, 1, lambda x, y: _as_float(x == y), lambda f, x, y: f.eq(x, y)),
    ("ne", "!=", True, 1, lambda x, y: _as_float(x != y), lambda f, x, y: f.ne(x, y)),
)

for _name, _flops, _float, _field in _UNARY:
    register(Operator(_name, ELEMENTWISE, 1, _flops, over_floats=_float, over_field=_field))
for _name, _symbol, _commutes, _flops, _float, _field in _BINARY:
    register(
        Operator(
            _name, ELEMENTWISE, 2, _flops, _symbol, _float, _field, commutative=_commutes
        )
    )  # fmt: skip

WHERE = register(
    Operator(
        "where",
        ELEMENTWISE,
        3,
        1,
        over_floats=lambda c, x, y: _as_float(np.where(np.asarray(c) != 0, x, y)),
        over_field=lambda f, c, x, y: f.where(c, x, y),
    )
)
# The attribute is the target type. The numerical check covers rounding; a field is exact.
CAST = register(
    Operator("cast", ELEMENTWISE, 1, 0, over_floats=lambda x: x, over_field=lambda f, x: x)
)
