"""x - log(sum(exp(x))) keeps its digits where x is near the top, and keeps its value elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from families import stabilize

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.verify.evaluate.element_types import round_to

RUNS = {"triton": run_interpreted, "cuda": run_emulated}
PROGRAM = parse(
    "M = 6, N = 50\nX[M, N] : f32\nY[m, n] = X[m, n] - log(sum[n](exp(X[m, n])))",
    name="log_softmax",
)


@pytest.mark.parametrize("backend", sorted(RUNS))
@pytest.mark.parametrize("top", [1.0, 60.0, -2e3, 1e5])
def test_a_logit_far_above_the_others_keeps_its_digits(backend, top):
    plan = one_kernel(PROGRAM, {"m": 4})
    plan = replace(plan, ugraph=stabilize(plan.ugraph), backend=backend)
    x = np.random.default_rng(0).normal(size=(6, 50)) * 3 + top
    x[:, 7] = top + 14.0
    x = round_to(x, F32)
    below = x - x.max(1, keepdims=True)
    expected = below - np.log(np.exp(below).sum(1, keepdims=True))
    found = RUNS[backend](plan, {"X": x})["Y"]
    assert 0 < np.abs(expected[:, 7]).max() < 0.1
    # The sum is near 1: half a last place of it, as its logarithm sees that.
    assert np.abs(found - expected)[:, 7].max() < 1e-6
    assert np.abs(found / expected - 1.0).max(where=np.abs(expected) > 1.0, initial=0.0) < 1e-6
