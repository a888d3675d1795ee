"""Families that rounding spoils are dropped; what is as accurate as the program stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from families import safe_families

import mirage_py
from mirage_py.pipeline.pipeline import normalise
from mirage_py.reasons import Code, reason
from mirage_py.search.enumerate.search import SearchLimits, search
from mirage_py.search.stabilize.stabilize import stabilized
from mirage_py.ugraph.interpret import evaluate_program, evaluate_ugraph
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.text_form import parse_ugraph
from mirage_py.verify.rounding import float_screen
from mirage_py.verify.rounding.float_screen import FloatScreen
from mirage_py.verify.rounding.kernel_meaning import KernelMeaning
from mirage_py.verify.sizes.small_sizes import instantiate_small

STD = """
B = 4, D = 6
X[B, D] : f32
Y[b] = sqrt(mean[d]((X[b, d] - mean[d](X[b, d]))^2))
"""
POOLING = """
B = 3, S = 5, D = 4
X[B, S, D], W[D] : f32
M[B, S] : bool
n[b] = sum[s](M[b, s])
p[b, d] = where(n[b] > 0, sum[s](where(M[b, s], X[b, s, d], 0)) / n[b], 0)
Y[b] = sum[d](p[b, d] * W[d])
"""
LOG_SUM_EXP = """
B = 3, D = 5
A[B, D], L[B] : f32
Y[b] = sum[d](exp(A[b, d] - L[b]))
"""
BACKWARD = """
S = 7, T = 5, D = 3
Q[S, D], K[T, D], V[T, D], O[S, D] : f32
L[S], R[S] : f32
P[s, t] = exp(sum[d](Q[s, d] * K[t, d]) - L[s])
G[s, t] = P[s, t] * (sum[d](O[s, d] * V[t, d]) - R[s])
Y[s, d] = sum[t](G[s, t] * K[t, d])
"""
COVARIANCE = """
N = 7, D = 4
X[N, D] : f32
c[n, d] = X[n, d] - mean[n](X[n, d])
Y[i, j] = sum[n](c[n, i] * c[n, j])
"""

ONE_PASS = """
ugraph program
dim b = 4
dim d = 6
input X[4, 6] : f32
output Y[4] : f32
program {
  %0 = load X[b, d]
  %1 = sum[d] %0 : [b]
  %2 = size d
  %3 = div %1, %2 : [b]
  %4 = sub %0, %3 : [b, d]
  %5 = square %4 : [b, d]
  %6 = sum[d] %5 : [b]
  %7 = div %6, %2 : [b]
  %8 = sqrt %7 : [b]
  return Y[b] = %8
}
kernel one_pass {
  grid b by ?
  %0 = load X[b, d]  # b <- grid 0
  %1 = sum[d] %0 : [b]
  %2 = size d
  %3 = div %1, %2 : [b]
  %4 = square %0 : [b, d]
  %5 = sum[d] %4 : [b]
  %6 = div %5, %2 : [b]
  %7 = square %3 : [b]
  %8 = sub %6, %7 : [b]
  %9 = sqrt %8 : [b]
  store Y[b] = %9  # b -> grid 0
}
"""
TWO_PASS = (
    ONE_PASS.split("kernel", maxsplit=1)[0]
    + """kernel two_pass {
  grid b by ?
  %0 = load X[b, d]  # b <- grid 0
  %1 = sum[d] %0 : [b]
  %2 = size d
  %3 = div %1, %2 : [b]
  %4 = sub %0, %3 : [b, d]
  %5 = square %4 : [b, d]
  %6 = sum[d] %5 : [b]
  %7 = div %6, %2 : [b]
  %8 = sqrt %7 : [b]
  store Y[b] = %8  # b -> grid 0
}
"""
)
# The first element of each row is taken away before anything is squared.
SHIFTED = (
    ONE_PASS.split("kernel", maxsplit=1)[0]
    + """kernel shifted {
  grid b by ?
  %0 = load X[b, d]  # b <- grid 0
  %1 = load X[b, 0]  # b <- grid 0
  %2 = sub %0, %1 : [b, d]
  %3 = sum[d] %2 : [b]
  %4 = size d
  %5 = div %3, %4 : [b]
  %6 = square %2 : [b, d]
  %7 = sum[d] %6 : [b]
  %8 = div %7, %4 : [b]
  %9 = square %5 : [b]
  %10 = sub %8, %9 : [b]
  %11 = sqrt %10 : [b]
  store Y[b] = %11  # b -> grid 0
}
"""
)


def test_a_one_pass_variance_is_dropped_and_says_why() -> None:
    fault = FloatScreen().fault(parse_ugraph(ONE_PASS, "text"))
    assert "Y" in fault
    assert "far_X" in fault


@pytest.mark.parametrize("text", [TWO_PASS, SHIFTED])
def test_two_passes_and_a_shifted_one_stay(text: str) -> None:
    assert FloatScreen().fault(parse_ugraph(text, "text")) == ""


def test_a_program_that_is_written_in_one_pass_keeps_its_spelling() -> None:
    text = STD.replace(
        "sqrt(mean[d]((X[b, d] - mean[d](X[b, d]))^2))",
        "sqrt(mean[d](X[b, d]^2) - mean[d](X[b, d])^2)",
    )
    kept = safe_families(search(normalise(mirage_py.parse(text))).families).ugraphs
    assert any(
        [n.op for n in k.nodes].count("sub") == 1
        for u in kept
        for k in u.kernels
        if len(u.kernels) == 1
    )


def far(shape: tuple[int, ...]) -> FloatArray:
    rng = np.random.default_rng(5)
    return np.asarray(1e4 + rng.normal(size=shape), dtype=np.float32).astype(np.float64)


def pooled() -> dict[str, FloatArray]:
    rng = np.random.default_rng(6)
    mask = rng.integers(0, 2, size=(3, 5)) > 0
    mask[1] = False
    return {
        "X": rng.normal(size=(3, 5, 4)),
        "W": rng.normal(size=4),
        "M": np.asarray(mask, dtype=np.bool_),
    }


def logits() -> dict[str, FloatArray]:
    rng = np.random.default_rng(7)
    q, k = rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    q *= 120.0 / np.abs(q @ k.T).max()
    s = q @ k.T
    top = s.max(axis=1, keepdims=True)
    return {
        "Q": q,
        "K": k,
        "V": rng.normal(size=(5, 3)),
        "O": rng.normal(size=(7, 3)),
        "L": (top[:, 0] + np.log(np.exp(s - top).sum(axis=1))),
        "R": rng.normal(size=7),
    }


CASES = {
    "std": (STD, lambda: {"X": far((4, 6))}),
    "covariance": (COVARIANCE, lambda: {"X": far((7, 4))}),
    "pooling": (POOLING, pooled),
    "log_sum_exp": (LOG_SUM_EXP, lambda: {"A": far((3, 5)) - 9900.0, "L": far((3,)) - 9900.0}),
    "backward": (BACKWARD, logits),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_search_finds_is_right_in_float32(name: str) -> None:
    """Every family that is left, on inputs that the screen did not draw, against float64."""
    text, draw = CASES[name]
    program = normalise(mirage_py.parse(text))
    found = search(program, limits=SearchLimits(max_kernels=2 if name == "pooling" else 1))
    unscreened = [s.ugraph for f in found.families if not (s := stabilized(f.ugraph)).faults]
    if name == "log_sum_exp":  # the stabiliser shifts exp(A) / exp(L)
        unscreened = [f.ugraph for f in found.families]
    kept = safe_families(found.families).ugraphs
    inputs = draw()
    assert kept
    assert all(excess(program, u, inputs) <= 0.0 for u in kept)
    # The search still finds forms that are wrong here: the test has something to miss.
    assert any(not excess(program, u, inputs) < 1e-3 for u in unscreened)


def excess(program: Program, ugraph: UGraph, inputs: dict[str, FloatArray]) -> float:
    """By how much an error, as a share of the largest element of an output, is more than 20 times
    the program's own and more than 1e-5; NaN where a result is none.
    """
    single = KernelMeaning(np.float32, 1)
    batched = {n: np.asarray(x)[..., np.newaxis] for n, x in inputs.items()}
    with np.errstate(all="ignore"):
        expected = evaluate_program(program, inputs, FloatMeaning())
        own = evaluate_program(program, batched, single)
        got = evaluate_ugraph(instantiate_small(ugraph), batched, single)
    worst = 0.0
    for name, exact in expected.items():
        scale = np.abs(exact).max()
        errors = [float(np.abs(x[name][..., 0] - exact).max() / scale) for x in (got, own)]
        worst = float(np.maximum(worst, errors[0] - 20.0 * errors[1] - 1e-5))
    return worst


def test_every_example_keeps_families() -> None:
    text = """
    B = 4, D = 6, N = 5
    X[B, D], G[D], Z[D], W[D, N], C[N] : f16
    h[b, d] = X[b, d] - mean[d](X[b, d])
    Y[b, n] = sum[d]((h[b, d] / sqrt(mean[d](h[b, d]^2) + 1e-5) * G[d] + Z[d]) * W[d, n]) + C[n]
    """
    safe = safe_families(search(normalise(mirage_py.parse(text))).families)
    kinds = {len(u.kernels) for u in safe.ugraphs}
    assert 1 in kinds
    assert any("far_X" in fault for fault in safe.faults)


def test_a_guard_at_a_constant_of_the_program_stays() -> None:
    text = """
    B = 4, D = 6
    A[B, D], C[D] : f32
    Y[b] = sum[d](where(C[d] != 3, A[b, d] / (C[d] - 3), 0))
    """
    program = normalise(mirage_py.parse(text))
    found = search(program, limits=SearchLimits(max_kernels=1))
    rng = np.random.default_rng(8)
    inputs = {"A": rng.normal(size=(4, 6)), "C": np.array([1.0, 3.0, 2.0, 3.0, 5.0, 3.0])}
    kept = safe_families(found.families).ugraphs
    assert kept
    assert all(excess(program, u, inputs) <= 0.0 for u in kept)
    assert len(kept) < len(found.families)


@pytest.mark.parametrize(
    "text",
    [
        """
        B = 4, D = 6
        X[B, D] : f32
        m[b] = mean[d](X[b, d])
        s[b] = sqrt(mean[d]((X[b, d] - m[b])^2))
        Y[b, d] = where(s[b] > 0, (X[b, d] - m[b]) / s[b], 0)
        """,
        """
        B = 4, D = 6
        A[B, D], W[D] : f32
        Y[b] = sum[d](where(A[b, d] > 0, A[b, d] * log(A[b, d]), 0) * W[d])
        """,
    ],
)
def test_one_kernel_is_left_of_a_guarded_program(text: str) -> None:
    """The cheapest ways to these lose their guard: they are gone before extraction."""
    found = search(normalise(mirage_py.parse(text)), limits=SearchLimits(max_kernels=1))
    assert safe_families(found.families).ugraphs
    assert reason(Code.ROUNDING) in found.counters.pruned


# A sum is compared with itself where M is true, and with 0 elsewhere.
COUNT = """
ugraph count
dim b = 5
dim d = 4
dim k = 6
input Z[5, 6] : f32
input M[5, 4] : bool
output Y[5, 4] : f32
tensor mid[5, 4] : f32
program {
  %0 = load Z[b, k]
  %1 = load M[b, d]
  %2 = sum[k] %0 : [b]
  %3 = const 0.0
  %4 = where %1, %2, %3 : [b, d]
  %5 = ne %2, %4 : [b, d]
  return Y[b, d] = %5
}
kernel first {
  grid b by ?, d by ?
  %0 = load Z[b, k]  # b <- grid 0
  %1 = load M[b, d]  # b <- grid 0, d <- grid 1
  %2 = sum[k] %0 : [b]
  %3 = const 0.0
  %4 = where %1, %2, %3 : [b, d]
  store mid[b, d] = %4  # b -> grid 0, d -> grid 1
}
kernel last {
  grid b by ?, d by ?
  %0 = load Z[b, k]  # b <- grid 0
  %1 = sum[k] %0 : [b]
  %2 = load mid[b, d]  # b <- grid 0, d <- grid 1
  %3 = ne %1, %2 : [b, d]
  store Y[b, d] = %3  # b -> grid 0, d -> grid 1
}
"""
COUNT_ONCE = (
    COUNT.split("kernel", maxsplit=1)[0].replace("tensor mid[5, 4] : f32\n", "")
    + """kernel once {
  grid b by ?, d by ?
  %0 = load Z[b, k]  # b <- grid 0
  %1 = load M[b, d]  # b <- grid 0, d <- grid 1
  %2 = sum[k] %0 : [b]
  %3 = const 0.0
  %4 = where %1, %2, %3 : [b, d]
  %5 = ne %2, %4 : [b, d]
  store Y[b, d] = %5  # b -> grid 0, d -> grid 1
}
"""
)


def test_a_tie_that_the_program_makes_stays_one() -> None:
    """Two kernels may add up in two orders: then rounding decides what is no question of it."""
    assert "Y" in FloatScreen().fault(parse_ugraph(COUNT, "text"))
    assert FloatScreen().fault(parse_ugraph(COUNT_ONCE, "text")) == ""


def test_a_sum_of_whole_numbers_may_be_computed_twice() -> None:
    """Nothing is rounded in either kernel."""
    text = COUNT.replace("input Z[5, 6] : f32", "input Z[5, 6] : i8")
    assert FloatScreen().fault(parse_ugraph(text, "text")) == ""


def test_a_tie_that_the_program_leaves_to_rounding_may_go_either_way() -> None:
    """sum((x + y) z) and sum(x z) + sum(y z) are equal, and their floats hardly ever."""
    text = """
    B = 4, D = 6
    X[B, D], U[B, D], Z[B, D] : f32
    Y[b] = where(sum[d]((X[b, d] + U[b, d]) * Z[b, d])
                 > sum[d](X[b, d] * Z[b, d]) + sum[d](U[b, d] * Z[b, d]), 1, 0)
    """
    assert safe_families(search(normalise(mirage_py.parse(text))).families).ugraphs


def test_a_search_drops_what_computes_a_compared_number_twice() -> None:
    """Seed 1800 of tests/adversarial/random_programs.py: v in a kernel and by a library's product
    was accepted and proved.
    """
    text = """
    B = 5, D = 4, K = 4, N = 1
    Z[B, K], U[K, N] : f32
    M[B, D] : bool
    let v[b, k] = sum[n](sum[k](U[k, n] * Z[b, k]) * U[k, n])
    Y[b, d] = sum[k](where(v[b, k] != where(M[b, d], v[b, k], 0), 1, 0))
    """
    found = search(normalise(mirage_py.parse(text)), limits=SearchLimits(max_nodes=2_000))
    safe = safe_families(found.families)
    assert safe.ugraphs
    for family in safe.ugraphs:
        nodes = [n for k in family.kernels for n in getattr(k, "nodes", ())]
        products = [n for n in nodes if n.op == "matmul" and "k" in n.reduced]
        calls = [k for k in family.kernels if not hasattr(k, "nodes")]
        assert len(products) + len(calls) <= 1


@pytest.mark.parametrize(
    ("condition", "drawn"), [("M[b, d] == 0", False), ("sum[d](X[b, d]) > 0", True)]
)
def test_only_comparisons_of_what_is_rounded_are_tried_with_other_roundings(
    monkeypatch: pytest.MonkeyPatch, condition: str, drawn: bool
) -> None:
    """A mask that is an input is the same however anything is rounded."""
    text = f"""
    B = 4, D = 6
    X[B, D], M[B, D] : f32
    Y[b, d] = where({condition}, X[b, d], M[b, d])
    """
    used: list[int] = []

    class Counting(float_screen.RandomRounding):
        def __init__(self, *args: Any) -> None:
            used.append(1)
            super().__init__(*args)

    monkeypatch.setattr(float_screen, "RandomRounding", Counting)
    families = safe_families(search(normalise(mirage_py.parse(text))).families)
    assert families.ugraphs
    assert bool(used) == drawn
