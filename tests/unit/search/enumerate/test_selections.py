"""where(c, x, 0) with a comparison c is a selection from the search to both back ends: x may have
no value where c is false.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from families import safe_families

import mirage_py
from mirage_py.axioms.proof.prove import prove
from mirage_py.pipeline.pipeline import normalise
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.rank.instantiate import rank
from mirage_py.targets import H200
from mirage_py.ugraph.interpret import evaluate_ugraph
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.sizes.small_sizes import instantiate_small

SHAPES = {"A": "[B, D]", "X": "[B, D]", "W": "[D, N]"}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# Each with what NumPy makes of it.
MEAN = """
let n[b] = sum[d](where(A[b, d] > 0, 1, 0))
Y[b, d] = where(n[b] > 0, sum[d](X[b, d]) / n[b], 0) * X[b, d]
"""
PROGRAMS = {
    "log": (
        "Y[b] = sum[d](where(A[b, d] > 0, log(A[b, d]), 0) * X[b, d])",
        lambda a, x, w: (np.where(a > 0, np.log(a), 0) * x).sum(axis=1),
    ),
    "quotient": (
        "Y[b, d] = where(A[b, d] != 0, X[b, d] / A[b, d], 0)",
        lambda a, x, w: np.where(a != 0, x / a, 0),
    ),
    "mean": (
        MEAN,
        lambda a, x, w: np.where((a > 0).any(1), x.sum(1) / (a > 0).sum(1), 0)[:, None] * x,
    ),
    "root and product": (
        "Y[b, n] = sum[d](where(A[b, d] >= 0, sqrt(A[b, d]), 0) * W[d, n])",
        lambda a, x, w: np.where(a >= 0, np.sqrt(a), 0) @ w,
    ),
}


def inputs():
    """Zeros, negative numbers, and a row that has nothing else."""
    draw = np.random.default_rng(3)
    a = np.maximum(draw.normal(size=(16, 32)), -0.25)
    a[draw.random(a.shape) < 0.25] = 0.0
    a[2] = -np.abs(a[2])
    a[5] = 0.0
    arrays = {"A": a, "X": draw.normal(size=(16, 32)), "W": draw.normal(size=(32, 16))}
    return {n: x.astype(np.float32).astype(np.float64) for n, x in arrays.items()}


def searched(text):
    """The program of the inputs that its text reads, and its families."""
    read = [f"{name}{shape} : f32" for name, shape in SHAPES.items() if f"{name}[" in text]
    sizes = "B = 16, D = 32" + (", N = 16" if "W[" in text else "")
    program = normalise(mirage_py.parse("\n".join([sizes, *read, text])))
    return program, safe_families(search(program).families).ugraphs


@cache
def found(name):
    return searched(PROGRAMS[name][0])


def given(name):
    """The inputs that the program has, and its result."""
    arrays = inputs()
    with np.errstate(all="ignore"):
        want = PROGRAMS[name][1](*arrays.values())
    assert np.isfinite(want).all()
    return {t.name: arrays[t.name] for t in found(name)[0].inputs}, want


@pytest.mark.parametrize("name", PROGRAMS)
def test_families_select_and_are_accepted(name):
    program, families = found(name)
    tests = FamilyTests(program, trials=4, seed=5)
    arrays, want = given(name)
    assert families
    for family in families[:: max(1, len(families) // 6)]:
        for kernel in family.kernels:
            nodes = getattr(kernel, "nodes", ())
            products = [n for n in nodes if n.op == "mul"]
            assert not any(nodes[a].op in COMPARISONS for n in products for a in n.args)
        small = instantiate_small(family)
        assert tests.run(small).equal
        got = evaluate_ugraph(small, arrays, FloatMeaning())["Y"]
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    assert any(prove(program, instantiate_small(f)) is not None for f in families)


@pytest.mark.parametrize("backend", ["triton", "cuda"])
@pytest.mark.parametrize("name", ["quotient", "mean"])
def test_kernels_select(name, backend):
    arrays, want = given(name)
    (best, *_) = rank(found(name)[1], H200, 20, backend)
    run = run_interpreted if backend == "triton" else run_emulated
    np.testing.assert_allclose(run(best.plan, arrays)["Y"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_what_is_not_chosen_may_be_anything(backend):
    """Infinities and NaN where the comparison is false."""
    _, families = searched("Y[b, d] = where(A[b, d] > 0, X[b, d], 0)")
    arrays = inputs()
    arrays["X"][arrays["A"] <= 0] = np.nan
    arrays["X"][2] = np.inf
    want = np.where(arrays["A"] > 0, arrays["X"], 0)
    assert np.isfinite(want).all()
    (best, *_) = rank(families, H200, 20, backend)
    run = run_interpreted if backend == "triton" else run_emulated
    got = run(best.plan, {n: arrays[n] for n in ("A", "X")})["Y"]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_attention_with_rows_without_a_key_has_safe_families():
    """A count is greater than 0 wherever a field has its reciprocal: guards by it were lost."""
    text = """
    T = 5, S = 14, D = 3
    Q[T, D], K[S, D], V[S, D] : f32
    M[T, S] : bool
    let n[t] = sum[s](where(M[t, s], 1, 0))
    let e[t, s] = where(M[t, s], exp(sum[d](Q[t, d] * K[s, d])), 0)
    O[t, d] = where(n[t] > 0, sum[s](e[t, s] * V[s, d]) / sum[s](e[t, s]), 0)
    """
    program = normalise(mirage_py.parse(text))
    families = safe_families(search(program, limits=SearchLimits(max_kernels=1)).families).ugraphs
    assert families
    assert FamilyTests(program, trials=4, seed=5).run(instantiate_small(families[0])).equal
