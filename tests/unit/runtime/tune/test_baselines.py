"""Which baselines a program is timed beside."""

from __future__ import annotations

import pytest

from mirage_py.frontend.spec import parse
from mirage_py.runtime.tune.baselines import baselines

ROWS = "B = 8, S = 16\nX[B, S] : f16\nY[b, s] = softmax[s](X[b, s])"
PRODUCT = "M = 8, K = 16, N = 8\nA[M, K], B[K, N] : f16\nC[m, n] = sum[k](A[m, k] * B[k, n])"


@pytest.mark.parametrize(
    ("source", "effort", "names"),
    [
        (ROWS, "none", ["eager"]),
        (ROWS, "quick", ["eager", "compile", "compile_max_autotune"]),
        (PRODUCT, "quick", ["eager", "compile"]),
        (PRODUCT, "full", ["eager", "compile", "compile_max_autotune"]),
    ],
)
def test_max_autotune_is_timed_where_it_compiles_in_seconds(source, effort, names):
    assert list(baselines(parse(source), effort=effort)) == names
