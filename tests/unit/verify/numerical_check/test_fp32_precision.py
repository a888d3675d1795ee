"""The numerical check on matmuls of float32 by tensor cores: TF32 passes only where it is allowed,
three matmuls of TF32 also where float32 has to be exact.

Tensor cores are emulated at their worst: further bits of operands than 10 of mantissa are left out,
as Triton leaves it to them, and each step's sum is cut off towards zero.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.reasons import Code
from mirage_py.ugraph.ir.dtypes import Fp32Precision
from mirage_py.verify.numerical_check.numerical_check import (
    input_sets,
    judge,
    reference,
    tolerance,
)

# Positions that one instruction multiplies, and those of an iteration of a kernel.
STEP, TILE = 8, 32
TERMS = (32, 1024)


def program_of(terms, precision=Fp32Precision.IEEE):
    text = f"B = 6, D = {terms}, N = 8\nX[B, D], W[D, N] : f32\nY[b, n] = sum[d](X[b, d] * W[d, n])"
    return parse(text).held_to(precision)


def nearest(x):
    """Of TF32: ties away from zero."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)


def cut_off(x):
    found = x.astype(np.float32)
    return np.where(np.abs(found) > np.abs(x), np.nextafter(found, np.float32(0)), found)


def seen(x):
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def tensor_cores(a, b, total):
    a, b = seen(a), seen(b)
    for k in range(0, a.shape[1], STEP):
        step = a[:, k : k + STEP].astype(np.float64) @ b[k : k + STEP].astype(np.float64)
        total = cut_off(total + step)
    return total


def tf32(x, w):
    return tensor_cores(x, w, np.zeros((len(x), w.shape[1]), np.float32))


def tf32x3(x, w, tile=TILE):
    total = np.zeros((len(x), w.shape[1]), np.float32)
    for k in range(0, x.shape[1], tile):
        a, b = x[:, k : k + tile], w[k : k + tile]
        big_a, big_b = nearest(a), nearest(b)
        part = tensor_cores(a - big_a, big_b, np.zeros_like(total))
        part = tensor_cores(big_a, b - big_b, part)
        total = total + tensor_cores(big_a, big_b, part)
    return total


def multiply_adds(x, w):
    total = np.zeros((len(x), w.shape[1]), np.float32)
    for k in range(x.shape[1]):
        total = (total + x[:, k, None].astype(np.float64) * w[None, k]).astype(np.float32)
    return total


@pytest.fixture(scope="module", params=TERMS)
def drawn(request):
    """Inputs of each set in float32, by name."""
    sets = input_sets(program_of(request.param), 0)
    return {s.name: {n: v.astype(np.float32) for n, v in s.arrays.items()} for s in sets}


def judged(arrays, compute, eager, precision):
    program = program_of(arrays["W"].shape[0], precision)
    with np.errstate(over="ignore", invalid="ignore"):
        got, of_eager = ({"Y": f(arrays["X"], arrays["W"])} for f in (compute, eager))
    return judge(program, reference(program, arrays), got, eager=of_eager)


def test_three_of_tf32_are_as_exact_as_float32(drawn):
    for name, arrays in drawn.items():
        found = judged(arrays, tf32x3, multiply_adds, Fp32Precision.IEEE)
        assert found.passed, (name, found)


def test_long_sums_in_tensor_cores_are_not():
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((6, 1024), (1024, 8)))
    found = judged({"X": x, "W": w}, partial(tf32x3, tile=1024), multiply_adds, Fp32Precision.IEEE)
    assert found.reason.code is Code.WORSE_THAN_EAGER


def test_tf32_is_not(drawn):
    names = ("random", "outliers", "small")
    found = {n: judged(drawn[n], tf32, multiply_adds, Fp32Precision.IEEE) for n in names}
    assert {n: f.reason.code for n, f in found.items()} == dict.fromkeys(names, Code.TOO_FAR)


def test_tf32_passes_where_it_is_allowed(drawn):
    for name, arrays in drawn.items():
        found = judged(arrays, tf32, tf32, Fp32Precision.TF32)
        assert found.passed, (name, found)


def test_but_not_where_eager_is_exact(drawn):
    found = judged(drawn["random"], tf32, multiply_adds, Fp32Precision.TF32)
    assert found.reason.code is Code.WORSE_THAN_EAGER


def test_what_is_allowed():
    exact, rounded = (program_of(64, Fp32Precision(p)) for p in ("ieee", "tf32"))
    assert tolerance(exact) < 2**-17
    assert 2**-10 < tolerance(rounded) < 2**-8
