"""Dimensions that are made one: operands of matmuls that are the same rows of one tensor."""

from __future__ import annotations

import pytest

import mirage_py
from mirage_py.ugraph.rewrite.dims import with_columns_last, with_shared_reads
from mirage_py.verify.field_test.programs import compare_programs

LATENT = """
H = 4, S = 12, L = 8, M = 8
Q[H, L], C[S, L] : f16
O[h, m] = sum[s](softmax[s](sum[l](Q[h, l] * C[s, l])) * C[s, m])
"""
# Both names meet in one value, which would be its diagonal.
GRAM = """
T = 8, S = 8, D = 4
X[T, D] : f16
O[t, s] = sum[d](X[t, d] * X[s, d])
"""
# One of the reads is no operand of a matmul.
RESIDUAL = """
M = 4, K = 8, F = 12, N = 8
X[M, K], W[K, F], U[F, N] : f16
O[m, n] = sum[f](sum[k](X[m, k] * W[k, f]) * U[f, n]) + X[m, n]
"""

# Columns of W stay columns, by two names.
TWICE = """
M = 4, K = 8, N = 6, J = 6
X[M, K], W[K, N], V[N, M] : f16
O[m, j] = sum[n](sum[k](X[m, k] * W[k, n]) * V[n, m]) + sum[k](X[m, k] * W[k, j])
"""


def test_keys_that_are_values_too_are_read_once():
    program = mirage_py.parse(LATENT)
    shared = with_shared_reads(program)
    loads = [n.access for n in shared.nodes if n.op == "load" and n.access.tensor == "C"]
    assert len(loads) == 1
    assert len(shared.dims) == len(program.dims) - 1
    assert compare_programs(program, shared).equal


@pytest.mark.parametrize("text", [GRAM, RESIDUAL, TWICE], ids=["gram", "residual", "twice"])
def test_other_reads_keep_their_names(text: str):
    program = mirage_py.parse(text)
    assert with_shared_reads(program) == program


def test_a_norm_reads_what_it_sums_over_once():
    """As PyTorch code has it whose gains come first: the result has their dimension's name."""
    program = mirage_py.parse(
        """
        B = 4, H = 6, K = 6, S = 8
        X[B, H, S], G[H] : f16
        Y[b, k, s] = G[k] * (X[b, k, s] - mean[h](X[b, h, s])) * max[h](X[b, h, s])
        """
    )
    shared = with_shared_reads(program)
    loads = [n.access for n in shared.nodes if n.op == "load" and n.access.tensor == "X"]
    assert len(loads) == 1
    assert compare_programs(program, shared).equal


# A norm of a norm: what the second one sums over is scaled by the first.
NORMS = """
T = 5, D = 8, E = 8, F = 8
X[T, D] : f32
let A[t, d] = X[t, d] / sqrt(sum[e](X[t, e]^2))
Y[t, d] = A[t, d] / sum[f](A[t, f]^2)
"""
# Normalised keys, which a matmul sums over.
KEYS = """
T = 5, S = 6, D = 8, E = 8
X[T, D], K[S, D] : f32
Y[t, s] = sum[d](X[t, d] * K[s, d] / sqrt(sum[e](K[s, e]^2)))
"""
# Columns of a matmul's result are split over a grid, and its operand's are not.
COLUMNS = """
T = 5, D = 8, E = 8
X[T, D], W[D, E] : f32
let A[t, e] = sum[d](X[t, d] * W[d, e])
Y[t] = sum[e](A[t, e] * X[t, e])
"""


@pytest.mark.parametrize(
    ("text", "loads"), [(NORMS, 1), (KEYS, 2), (COLUMNS, 3)], ids=["norms", "keys", "columns"]
)
def test_what_two_sums_read_is_read_once(text: str, loads: int):
    """As PyTorch code has it: each norm has a name of its own for what it sums over."""
    program = mirage_py.parse(text)
    shared = with_shared_reads(program)
    assert sum(n.op == "load" for n in shared.nodes) == loads
    assert compare_programs(program, shared).equal


def test_what_a_result_has_last_is_last():
    """Only the result has its rows first."""
    text = """
    N = 8, S = 12, D = 4
    V[N, D] : f16
    Q[S, D] : f16
    let P[n, s] = sum[d](exp(Q[s, d]) * V[n, d])
    O[s, n] = P[n, s] * 2.0
    """
    program = mirage_py.parse(text)
    last = with_columns_last(program)
    assert program.dim_names.index("n") < program.dim_names.index("s")
    assert last.dim_names.index("n") > last.dim_names.index("s")
    assert compare_programs(program, last).equal
    assert with_columns_last(last) is last
