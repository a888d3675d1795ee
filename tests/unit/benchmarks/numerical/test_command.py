"""The numerical campaign's small part: operators in Triton's interpreter, and the rule itself."""

from __future__ import annotations

import functools
from math import inf

import numpy as np
import pytest

from benchmarks.numerical.command import emulated, judge_points, prepare, table
from benchmarks.numerical.numerical_error import compared
from benchmarks.numerical.numerical_points import kinds_of_points, point_cases, points
from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.dtypes import F16, F32
from mirage_py.verify.numerical_check.input_sets import set_names

# What lost all digits near 0, or many for large arguments; the full list needs the GPU.
CHOSEN = (
    "exp", "expm1", "log1p", "tanh", "silu", "pow close", "elu", "softplus", "logsigmoid",
)  # fmt: skip
PROGRAM = parse("M = 2, N = 4\nX[M, N] : f32\nY[m, n] = X[m, n] * 3")


@functools.cache
def case_of(name):
    """Traced by its test, not by every process that collects tests."""
    (case,) = point_cases(["triton"], [F32], [name])
    assert case.name == name
    return case


@pytest.mark.parametrize("name", CHOSEN)
def test_float32_keeps_the_digits_that_eager_keeps(name):
    case = case_of(name)
    rows = list(judge_points(case, emulated, "cpu"))
    assert [r.inputs for r in rows] == list(kinds_of_points())
    worse = [(r.inputs, r.found, r.fault) for r in rows if not r.passed]
    assert worse == []
    assert all(r.found.elements > 0 for r in rows if r.inputs.startswith("below"))


def test_points_are_those_that_are_named():
    found = dict(zip(kinds_of_points(), points(F16), strict=True))
    assert np.abs(found["subnormal"]).max() <= 2.0**-14
    assert np.abs(found["ends"]).max() > 1e4
    assert np.abs(found["around -1"] + 1.0).max() < 0.11


def of(errors, eager=0.0):
    expected = np.array([[1.0, 2.0, 3.0, 4.0], [1e-6, 1e-6, 2e-6, 1e-6]])
    return compared(
        PROGRAM,
        {"Y": expected},
        {"Y": expected * (1.0 + np.asarray(errors))},
        {"Y": expected * (1.0 + eager)},
    )


def test_the_worst_row_counts_however_small_its_numbers_are():
    assert of([[0.0], [1e-3]]).error == pytest.approx(1e-3, rel=1e-6)
    assert not of([[0.0], [1e-3]]).passed


@pytest.mark.parametrize(("error", "eager", "passed"), [
    (3.9e-5, 1e-5, True), (4.2e-5, 1e-5, False), (1e-7, 0.0, True), (1e-6, 0.0, False),
    (inf, 0.1, False), (0.1, inf, True),
])  # fmt: skip
def test_four_times_eager_is_allowed_and_rounding(error, eager, passed):
    assert of([[error], [0.0]], eager).passed == passed


@pytest.mark.parametrize(("terms", "off", "passed"), [
    (1, 1.7e-7, True), (1, 1.9e-7, False),
    (1024, 1.9e-6, True), (1024, 2.1e-6, False),
])  # fmt: skip
def test_the_root_of_the_number_of_terms_is_allowed(terms, off, passed):
    """Where eager is exact: two units of the output and sqrt(n) of float32."""
    program = parse(f"M = 2, N = {terms}\nX[M, N] : f32\nY[m] = sum[n](X[m, n])")
    want = np.array([1.0, 2.0])
    found = compared(program, {"Y": want}, {"Y": want * (1.0 + off)}, {"Y": want}, by_point=True)
    assert found.passed == passed


def test_a_row_for_each_set_and_words_for_it():
    program = parse("M = 4, N = 8\nX[M, N] : f16\nY[m, n] = softmax[n](X[m, n])")
    assert {"outliers", "far", "logits", "integers"} <= set(set_names(program))
    arrays, expected = prepare(program, "outliers")
    assert np.isfinite(expected["Y"]).all()
    assert np.abs(arrays["X"]).max() > 100
    case = case_of("expm1")
    text = table(list(judge_points(case, emulated, "cpu")))
    count = len(kinds_of_points())
    assert count >= 15
    assert text.splitlines()[2].startswith(f"| expm1 | triton | {count} | 0 |")
