"""Functions of float32 numbers below the normal ones, which instructions of GPUs take for 0.

The texts are evaluated in NumPy with functions that flush as the instructions do that Triton makes
of them (ex2.approx.ftz, rsqrt.approx.ftz, sqrt.approx.ftz, and erf of fma.ftz). Sums and products
do not flush.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from mirage_py.codegen.triton.expressions import elementwise

erf = np.vectorize(math.erf, otypes=[np.float64])
SMALLEST = np.float32(2.0**-126)


def flushed(x):
    return np.where(np.abs(x) < SMALLEST, np.float32(0), x).astype(np.float32)


def flushing(function):
    return lambda x: flushed(function(flushed(np.asarray(x, np.float32))))


TL = SimpleNamespace(
    exp=np.exp, exp2=flushing(np.exp2), log=np.log, abs=np.abs, floor=np.floor, sqrt_rn=np.sqrt,
    where=lambda c, x, y: np.where(c, np.asarray(x, np.float32), np.asarray(y, np.float32)),
    minimum=np.fmin, maximum=np.fmax,
    fma=lambda x, y, z: np.float32(np.float64(x) * np.float32(y) + z),
    sqrt=flushing(np.sqrt), rsqrt=flushing(lambda x: 1 / np.sqrt(x)), erf=flushing(erf),
)  # fmt: skip


def value(op, x):
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        return eval(elementwise(op, ["x"]), {"tl": TL, "x": np.asarray(x, np.float32)})


@pytest.mark.parametrize(("op", "function"), [
    ("sqrt", np.sqrt), ("rsqrt", lambda x: 1 / np.sqrt(x)), ("erf", erf),
])  # fmt: skip
def test_of_numbers_below_the_normal_ones(op, function):
    x = np.float32(2.0 ** np.linspace(-140, -90, 101))
    found = np.asarray(value(op, x), np.float64)
    expected = function(x.astype(np.float64))
    assert np.all(np.abs(found - expected) <= 1e-6 * np.abs(expected) + 2.0**-149)


@pytest.mark.parametrize(("op", "function"), [
    ("sqrt", np.sqrt), ("rsqrt", lambda x: 1 / np.sqrt(x)), ("erf", erf), ("exp", np.exp),
])  # fmt: skip
def test_elsewhere_as_before(op, function):
    x = np.float32([0.0, 1e-20, 1e-4, 0.3, 1.0, 7.0, 80.0, 1e30 if op != "exp" else 88.0, np.inf])
    with np.errstate(divide="ignore"):
        assert np.allclose(value(op, x), function(x.astype(np.float64)), rtol=1e-6)
    assert np.isnan(value(op, np.nan))


def test_exponentials_below_the_normal_numbers():
    x = np.float32(np.linspace(-97, -50, 95))
    found = np.asarray(value("exp", x), np.float64)
    expected = np.exp(x.astype(np.float64))
    assert np.all(np.abs(found - expected) <= 1e-6 * expected + 2.0**-149)
    assert value("exp", np.float32(-200.0)) == 0.0


def test_exponentials_of_large_arguments_keep_their_digits():
    """x / log(2) is off by 5e-6 there, and the power with it."""
    x = np.float32(np.linspace(-87, 88, 100_001))
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(value("exp", x) / exact - 1)) <= 2.5e-7
    assert np.max(np.abs(value("sigmoid", x) * (1 + 1 / exact) - 1)) <= 3e-7
    far = np.float32([-np.inf, -3e38, -1e30, 1e30, 3e38, np.inf])
    assert value("exp", far).tolist() == [0.0, 0.0, 0.0, np.inf, np.inf, np.inf]
