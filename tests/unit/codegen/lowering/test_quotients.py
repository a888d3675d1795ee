"""A quotient by a number is a product with its inverse, but where a last place decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.codegen.lowering.lowering import reduce_strength
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

RUNS = {"triton": run_interpreted, "cuda": run_emulated}
HEAD = "M = 6, N = 50\nX[M, N] : f32\nY[m, n] = "


@pytest.mark.parametrize("backend", sorted(RUNS))
@pytest.mark.parametrize(
    ("text", "expected", "is_product"),
    [
        ("exp(X[m, n] / 0.9)", lambda x: np.exp(x / 0.9), True),
        ("tanh(X[m, n] / 49) * 49", lambda x: np.tanh(x / 49) * 49, True),
        # 49 times the nearest float32 to 1 / 49 is below 1.
        ("floor(X[m, n] / 49)", lambda x: np.floor(x / 49), False),
        ("X[m, n] / 1e-30", lambda x: x / np.float64(np.float32(1e-30)), False),
    ],
)
def test_of_a_number(backend, text, expected, is_product):
    plan = replace(one_kernel(parse(HEAD + text, name="quotient"), {"m": 4}), backend=backend)
    x = np.arange(300.0).reshape(6, 50)
    found = RUNS[backend](plan, {"X": x})["Y"]
    if "exp" in text:
        x, found = x[:1], found[:1]
    np.testing.assert_allclose(found, expected(x), rtol=1e-5, atol=0)
    (block,) = plan.ugraph.kernels
    ops = [n.op for n in reduce_strength(block).nodes]
    assert ("div" not in ops) == is_product
