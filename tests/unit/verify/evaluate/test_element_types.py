from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage_py.ugraph.ir.dtypes import (
    ALL_DTYPES,
    BF16,
    BOOL,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I32,
)
from mirage_py.verify.evaluate.element_types import (
    _FORMATS,
    _by_places,
    _rounded,
    round_to,
    smallest_normal,
    underflow_step,
)

floats = st.floats(allow_nan=False, width=64)


def one(value, dtype):
    return float(round_to(np.array([value]), dtype)[0])


@given(floats)
def test_halves_and_singles_as_numpy_rounds_them(value):
    with np.errstate(over="ignore"):
        for dtype, of_numpy in ((F16, np.float16), (F32, np.float32)):
            assert one(value, dtype) == float(of_numpy(value))
            assert float(_rounded(np.array([value]), dtype)[0]) == float(of_numpy(value))
    assert one(value, F64) == value


@given(st.floats(allow_nan=False, width=32))
def test_bfloat16_as_the_bits_say(value):
    bits = np.float32(value).view(np.uint32)
    rounded = (int(bits) + 0x7FFF + ((int(bits) >> 16) & 1)) & 0xFFFF0000
    assert one(value, BF16) == float(np.uint32(rounded).view(np.float32))


@given(floats, st.sampled_from([F16, BF16, F32, F8E4M3, F8E5M2, I8, I32]))
def test_rounding_twice_is_rounding_once(value, dtype):
    once = round_to(np.array([value]), dtype)
    assert np.array_equal(round_to(once, dtype), once)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F8E4M3, F8E5M2])
def test_unit_roundoff_is_what_the_type_says(dtype):
    above = 1 + 2 * dtype.unit_roundoff
    assert one(above, dtype) == above
    assert one(1 + dtype.unit_roundoff, dtype) == 1
    assert one(1 + 1.01 * dtype.unit_roundoff, dtype) == above
    assert one(dtype.max_finite, dtype) == dtype.max_finite


def test_beyond_the_largest_value():
    assert one(1e6, F16) == np.inf
    assert one(-1e39, BF16) == -np.inf
    assert one(1e6, F8E4M3) == 448
    assert one(1e6, I8) == 127
    assert one(-1e6, I8) == -128
    assert one(0.3, BOOL) == 1


def test_near_zero():
    assert one(2.0**-24, F16) == 2.0**-24
    assert one(2.0**-26, F16) == 0
    assert smallest_normal(F16) == 2.0**-14
    assert underflow_step(F16) == 2.0**-24
    assert underflow_step(F32) == 2.0**-126
    assert all(underflow_step(d) > 0 for d in ALL_DTYPES)


@pytest.mark.parametrize("dtype", [BF16, F8E4M3, F8E5M2], ids=str)
@pytest.mark.parametrize("scale", [1e-45, 1e-38, 1.0, 1e3, 1e38])
def test_rounding_on_the_bits_is_rounding_to_the_last_place(dtype, scale):
    """In more pieces than one; ties among them, and what is not finite."""
    values = np.random.default_rng(0).normal(size=(2, 20_000)) * scale
    values[0, :6] = 0.0, -0.0, np.inf, -np.inf, np.nan, dtype.max_finite * 1.001
    values[1, :1000] = np.round(values[1, :1000] / scale * 512) / 512 * scale
    form = _FORMATS[dtype.name]
    with np.errstate(invalid="ignore"):
        expected = _by_places(values, form)
        outside = np.abs(expected) > dtype.max_finite
        expected[outside] = np.sign(values[outside]) * form.beyond
    found = round_to(values, dtype)
    np.testing.assert_array_equal(found, expected)
    assert np.array_equal(np.signbit(found), np.signbit(expected))
