"""Draws of a search: equal numbers on purpose, and constants in any number."""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.pipeline.pipeline import normalise
from mirage_py.search.closure.hits import DRAWS
from mirage_py.search.enumerate.search import search
from mirage_py.ugraph.field import FIELDS, FieldOps


def _found(text):
    return search(normalise(parse(text), seed=0), seed=0)


@pytest.mark.parametrize("pair", [(">", ">="), ("<", "<=")])
def test_a_comparison_and_its_tie_are_two_values(pair):
    """Their difference is W where X is 0.5, and not 0."""
    strict, loose = pair
    found = _found(
        "B = 4, D = 6\nX[B, D], W[B, D] : f32\n"
        f"Y[b, d] = where(X[b, d] {strict} 0.5, W[b, d], 0) + "
        f"2 * where(X[b, d] {loose} 0.5, W[b, d], 0)"
    )
    assert found.families
    for family in found.families:
        ops = {n.op for k in family.ugraph.kernels for n in k.nodes}
        assert len(ops & {"lt", "le", "gt", "ge"}) == 2, ops


def test_many_constants_leave_a_search_its_draws():
    """No draw of 16 has these constants in their real order."""
    constants = (31, -43, 61, -113, 131, 7)
    for field in FIELDS[:2]:
        assert not any(FieldOps(field, seed).orders_truly(constants) for seed in range(DRAWS))
    terms = " + ".join(f"max(X[b, d], {c})" for c in constants)
    assert _found(f"B = 4, D = 6\nX[B, D] : f32\nY[b, d] = {terms}").families


@pytest.mark.covering(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("guard", "op"),
    [("max(max[s](abs(X[b, s])), 1e-6)", "maximum"), ("min(min[s](X[b, s]), -1)", "minimum")],
)
def test_a_guard_is_not_taken_for_what_it_guards(guard, op, seed):
    """In one row of many the constant is the greatest: without it the quotient of zeros is NaN."""
    text = f"B = 16, S = 64\nX[B, S] : f32\nY[b, s] = X[b, s] / {guard}"
    families = search(normalise(parse(text), seed=0), seed=seed).families
    assert len(families) >= 4
    for family in families:
        nodes = [n for k in family.ugraph.kernels for n in k.nodes]
        assert any(n.op in (op, "maximum") for n in nodes), nodes
        assert any(n.op == "const" for n in nodes), nodes
