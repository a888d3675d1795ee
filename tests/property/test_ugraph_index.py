"""Index expressions: simplification and bounds against brute evaluation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirage_py.ugraph.ir import index as ix

SIZES = {"a": 2, "b": 3, "c": 4, "d": 6}


def expressions() -> st.SearchStrategy[ix.IndexExpr]:
    leaves = st.one_of(
        st.sampled_from(sorted(SIZES)).map(ix.dim), st.integers(-3, 30).map(ix.const)
    )

    def grow(inner: st.SearchStrategy[ix.IndexExpr]) -> st.SearchStrategy[ix.IndexExpr]:
        return st.one_of(
            st.tuples(inner, inner).map(lambda t: ix.add(*t)),
            st.tuples(inner, st.integers(-4, 24)).map(lambda t: ix.mul(*t)),
            st.tuples(inner, st.integers(1, 24)).map(lambda t: ix.floordiv(*t)),
            st.tuples(inner, st.integers(1, 24)).map(lambda t: ix.mod(*t)),
        )

    return st.recursive(leaves, grow, max_leaves=8)


def everywhere(expr: ix.IndexExpr) -> np.ndarray:
    grids = np.meshgrid(*(np.arange(n) for n in SIZES.values()), indexing="ij")
    return expr.evaluate(dict(zip(SIZES, grids, strict=True))) + np.zeros(
        tuple(SIZES.values()), int
    )


@given(expressions())
def test_simplify_keeps_the_value(expr):
    assert np.array_equal(everywhere(ix.simplify(expr, SIZES)), everywhere(expr))


@given(expressions())
def test_bounds_hold(expr):
    low, high = expr.bounds(SIZES)
    values = everywhere(expr)
    assert low <= values.min()
    assert values.max() <= high
