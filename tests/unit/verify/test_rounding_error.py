"""Errors are those of both ends of an operand, whatever is quicker to compute."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from mirage_py.ugraph.dtypes import F32
from mirage_py.verify.rounding_error import Rounded, RoundingMeaning

OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "maximum": np.maximum,
}


def by_both_ends(op, x, y):
    """Of two operands with errors, one after the other; maxima are exact."""
    apply = OPERATORS[op]
    with np.errstate(all="ignore"):
        value = apply(x.value, y.value)
        error = (0.0 if op == "maximum" else F32.unit_roundoff) * np.abs(value)
        for of_x, of_y in ((1, 0), (0, 1)):
            ends = [
                np.abs(apply(x.value + s * of_x * x.error, y.value + s * of_y * y.error) - value)
                for s in (1, -1)
            ]
            error = np.hypot(error, np.fmax(*ends))
    return value, error


@pytest.mark.parametrize("op", sorted(OPERATORS))
@pytest.mark.parametrize("special", [None, np.inf, np.nan, 0.0, 1e-300, 1e200])
def test_an_operator_on_two_operands(op: str, special: float | None):
    draw = np.random.default_rng(0)
    x, y = (
        Rounded(draw.normal(size=(40, 5)), draw.uniform(1e-8, 1e-3, size=(40, 5))) for _ in range(2)
    )
    if special is not None:
        x.value[3, 1] = y.value[5, 2] = special
    found = RoundingMeaning(F32.unit_roundoff).apply(op, None, [x, y])
    value, error = by_both_ends(op, x, y)
    assert np.array_equal(found.value, value, equal_nan=True)
    assert np.allclose(found.error, error, rtol=1e-4, atol=0.0, equal_nan=True)
