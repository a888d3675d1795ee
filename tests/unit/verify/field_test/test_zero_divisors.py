"""Divisors that are 0 in about every draw, behind a guard: what 1 / 0 is must not matter."""

from __future__ import annotations

import pytest

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.spec import parse
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.ugraph.field import FIELDS, DivisionByZero, FieldOps
from mirage_py.verify.evaluate.trial import defined
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.field_test.programs import compare_programs
from mirage_py.verify.sizes.small_sizes import instantiate_small

DECLARED = "B = 40, S = 9\nX[B, S], V[B] : f32\nlet r[b] = relu(V[b])\n"
GUARDED = "Y[b, s] = where(r[b] > 0, X[b, s] / r[b], 0)"
SAME = [
    "Y[b, s] = where(r[b] <= 0, 0, X[b, s] / r[b])",
    "Y[b, s] = where(V[b] > 0, X[b, s] / V[b], 0 * r[b])",
    "Y[b, s] = where(V[b] > 0, X[b, s] * (1 / r[b]), 0)",
]
OTHER = [
    "Y[b, s] = where(r[b] >= 0, 3 * X[b, s] / r[b], 0) - 2 * X[b, s] / r[b]",
    "Y[b, s] = where(r[b] >= 0, X[b, s] / r[b], 0)",
    "Y[b, s] = X[b, s] / r[b]",
    "Y[b, s] = where(r[b] > 0, X[b, s] / r[b], 1)",
    "Y[b, s] = where(r[b] > 0, X[b, s] / V[b], 1 / r[b] - 1 / r[b])",
    "Y[b, s] = (r[b] > 0) * (X[b, s] / r[b])",
]
FEW = SearchLimits(rings=("factored",), max_nodes=2_000, max_tensors=400)


def _program(text: str):
    return parse(DECLARED + text)


@pytest.mark.parametrize("text", SAME)
def test_guards_that_say_the_same(text: str) -> None:
    assert compare_programs(_program(GUARDED), _program(text)).equal


@pytest.mark.parametrize("text", OTHER)
def test_guards_that_let_a_zero_through(text: str) -> None:
    assert not compare_programs(_program(GUARDED), _program(text)).equal


def test_an_unguarded_division_has_no_value() -> None:
    program = parse("B = 200, S = 9\nX[B, S], V[B] : f32\nY[b, s] = X[b, s] / (V[b] - V[b])")
    with pytest.raises(UnsupportedError, match="divides by zero"):
        compare_programs(program, program)


@pytest.mark.parametrize("divisor", ["relu(V[b])", "where(V[b] > 0, V[b], 0)", "max(V[b], 0)"])
def test_a_search_finds_families(divisor: str) -> None:
    declared = f"B = 40, S = 9\nX[B, S], V[B] : f32\nlet r[b] = {divisor}\n"
    program = parse(declared + GUARDED)
    found = search(program, limits=FEW)
    assert found.families
    for family in found.families[:3]:
        ugraph = instantiate_small(family.ugraph)
        assert field_test(program, ugraph, seed=3).equal


@pytest.mark.parametrize("function", ["reciprocal", "rsqrt"])
def test_zeros_have_another_inverse_in_each_call(function: str) -> None:
    ops = FieldOps(FIELDS[0], 1, fills="zero")
    zero, two = ops.constant(0), ops.constant(2)
    inverse = getattr(ops, function)
    assert not ops.equal(inverse(zero), inverse(zero))
    assert ops.zero_divisors == 2
    assert ops.equal(inverse(two), getattr(FieldOps(FIELDS[0], 1), function)(two))
    guarded = defined(ops, lambda: ops.mul(zero, inverse(zero)), lambda found: [found])
    assert not guarded.p.any()
    with pytest.raises(DivisionByZero):
        defined(ops, lambda: inverse(zero), lambda found: [found])
