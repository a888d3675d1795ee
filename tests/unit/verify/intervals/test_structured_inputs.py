"""Structured inputs: what random numbers never show has to be among them."""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.intervals.real_test import real_comparison
from mirage_py.verify.intervals.structured_inputs import structured_inputs


def limited(limit: float) -> Program:
    """The least of each row, but no more than a limit: reached where a whole row lies above it."""
    b = ProgramBuilder("limited")
    b.dim("b", 5)
    b.dim("d", 14)
    b.input("X", (5, 14), F32)
    capped = b.apply("minimum", b.load("X", ("b", "d")), b.const(limit))
    b.output("Z", b.apply("neg", b.max(b.apply("neg", capped), ("d",))), ("b",), F32)
    return b.build()


@pytest.mark.parametrize("seed", range(20))
def test_a_limit_of_a_minimum_of_many_is_reached(seed: int):
    found = real_comparison(limited(1.0), limited(2.0), [("Z", "Z")], seed=seed)
    assert found.mismatch is not None


@pytest.mark.parametrize("seed", range(20))
def test_whole_rows_lie_beyond_all_constants(seed: int):
    x = structured_inputs(limited(3.0), 160, seed)["X"].mid
    assert np.any(np.all(x > 3, axis=1))
    assert np.any(np.all(x < -3, axis=1))
