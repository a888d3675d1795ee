"""Rounding to the significant bits of a type."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.ugraph.ir.dtypes import BF16, F16, F32
from mirage_py.verify.rounding.kernel_meaning import with_bits_of


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda t: t.name)
def test_significant_bits_are_rounded_to_even_whatever_the_range(dtype):
    rng = np.random.default_rng(0)
    unit = dtype.unit_roundoff
    values = np.concatenate(
        [
            rng.normal(size=2_000) * np.exp2(rng.integers(-300, 300, 2_000).astype(float)),
            [1.0 + unit, 1.0 + 3.0 * unit, -1.0 - unit, 2.0 - unit, 0.0, -0.0],
            [np.inf, -np.inf, np.nan, 1e308],
        ]
    )
    fraction, exponent = np.frexp(values)
    expected = np.ldexp(np.rint(fraction / unit) * unit, exponent)
    found = with_bits_of(dtype, values)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    shaped = values[:2_000].reshape(4, 500).T
    np.testing.assert_array_equal(with_bits_of(dtype, shaped), expected[:2_000].reshape(4, 500).T)
    assert values[0] != found[0]
