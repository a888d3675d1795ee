"""Instructions on integers, as the checker of emitted code follows them."""

from __future__ import annotations

import numpy as np

from mirage_py.runtime.code_check.ptx.integers import UNKNOWN, compute


def test_dot_products_of_two_numbers_and_bytes():
    low, high = (("dp2a", half, "u32", "u32") for half in ("lo", "hi"))
    word = 0x89AB_CDEF
    assert compute(low, (3 << 16 | 2, word, 1)) == 2 * 0xEF + 3 * 0xCD + 1
    assert compute(high, (3 << 16 | 2, word, 1)) == 2 * 0xAB + 3 * 0x89 + 1
    words = np.arange(0, 1 << 16, 257, dtype=np.int64)
    found = compute(low, (0x1001 << 16, words, 0))
    np.testing.assert_array_equal(found, (words >> 8) * 0x1001)
    assert compute(low, (2, UNKNOWN, 0)) is UNKNOWN
    assert compute(("dp2a", "lo", "s32", "u32"), (2, word, 0)) is UNKNOWN
