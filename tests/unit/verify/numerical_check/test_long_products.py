"""Sums as long as models have them, as tensor cores compute them: right kernels pass on inputs
whose results are a matter of rounding, and wrong ones do not.
"""

from __future__ import annotations

import numpy as np
import pytest

from mirage_py.frontend.spec import parse
from mirage_py.ugraph.ir.dtypes import BF16, F32
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.numerical_check.input_sets import drawn_sets
from mirage_py.verify.numerical_check.numerical_check import judge, reference

# RMSNorm, then the gated half of an MLP: as in examples/models/norm_gated_mlp.math.
GATED_MLP = """
B = 16, D = 4096, F = 256
X[B, D], G[D], W1[D, F], W2[D, F] : bf16
let h[b, d] = rms_norm[d](X[b, d], eps=1e-6) * G[d]
Y[b, f] = silu( sum[d](h[b, d] * W1[d, f]) ) * sum[d](h[b, d] * W2[d, f])
"""
PROJECTION = """
B = 16, D = 28672, M = 128
X[B, D], W[D, M], R[B, M] : bf16
Y[b, m] = R[b, m] + sum[d](X[b, d] * W[d, m])
"""

# Row and column of the result.
IN_DOUBT = (3, 7)


def f32(values):
    return round_to(np.asarray(values), F32)


def bf16(values):
    return round_to(np.asarray(values), BF16)


def cut_off(values):
    """To float32 toward zero, by its bits."""
    return (values.view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)


def product(a, b, at_a_time=16):
    """Some products are added to the accumulator at a time, and the sum is cut off.

    Source: Fasi, Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, 2021.
    """
    total = np.zeros((len(a), b.shape[1]))
    for k in range(0, len(b), at_a_time):
        total = cut_off(total + a[:, k : k + at_a_time] @ b[k : k + at_a_time])
    return total


def silu(x):
    with np.errstate(over="ignore"):
        return x / (1.0 + np.exp(-x))


def gated_mlp(arrays, act=silu, at_a_time=16, skipped=0):
    """One kernel: the norm leaves the products."""
    x, gains = arrays["X"], arrays["G"]
    scale = f32(1.0 / np.sqrt(f32((x**2).mean(1, keepdims=True) + 1e-6)))
    h = bf16(x * gains)[:, skipped:]
    gate, up = (f32(product(h, arrays[w][skipped:], at_a_time) * scale) for w in ("W1", "W2"))
    return {"Y": bf16(f32(f32(act(gate)) * up))}


def projection(arrays, at_a_time=16):
    return {"Y": bf16(product(arrays["X"], arrays["W"], at_a_time) + arrays["R"])}


def with_a_gate_in_doubt(arrays, row, column):
    """Weights changed in a column, so that a gate is negative, by half of what a kernel is off."""
    x, gains, w = arrays["X"], arrays["G"], arrays["W1"].copy()
    exact = x[row] / np.sqrt((x[row] ** 2).mean() + 1e-6) * gains
    rounded = bf16(x[row] * gains) / np.sqrt((x[row] ** 2).mean() + 1e-6)
    for k in np.argsort(-np.abs(exact))[:4]:
        is_off = (rounded - exact) @ w[:, column]
        w[k, column] -= (exact @ w[:, column] + is_off / 2) / exact[k]
        w[:, column] = bf16(w[:, column])
    if is_off < 0:
        w[:, column] *= -1.0
    return {**arrays, "W1": w}


@pytest.fixture(scope="module")
def gated():
    program = parse(GATED_MLP)
    sets = {s.name: s.arrays for s in drawn_sets(program, 0, ["random", "large"])}
    sets["large"] = with_a_gate_in_doubt(sets["large"], *IN_DOUBT)
    return program, {name: (arrays, reference(program, arrays)) for name, arrays in sets.items()}


def test_the_sign_of_a_gate_may_be_a_matter_of_rounding(gated):
    program, sets = gated
    arrays, known = sets["large"]
    got = gated_mlp(arrays)
    assert judge(program, known, got).passed
    assert abs(known["Y"][IN_DOUBT]) < 1e-300
    assert abs(got["Y"][IN_DOUBT]) > 1e15
    # That is known of it, and of a few others.
    assert 0.0 < known.vague < 0.03


@pytest.mark.parametrize("name", ["random", "large"])
@pytest.mark.parametrize("at_a_time", [8, 16])
def test_right_kernels_pass(gated, name: str, at_a_time: int):
    program, sets = gated
    arrays, known = sets[name]
    evidence = judge(program, known, gated_mlp(arrays, at_a_time=at_a_time))
    assert evidence.passed, evidence.reason
    assert evidence.compared == known["Y"].size
    assert 0.002 < evidence.max_rel_error < evidence.bound < 0.07


@pytest.mark.parametrize("name", ["random", "large"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"act": lambda x: np.maximum(x, 0.0) * 1.1},
        {"act": lambda x: x},
        {"act": lambda x: silu(-x)},
        {"skipped": 256},
        {"skipped": 2048},
    ],
    ids=["scaled", "no gate", "other sign", "a sixteenth left out", "half left out"],
)
def test_wrong_kernels_do_not(gated, name: str, wrong: dict):
    program, sets = gated
    arrays, known = sets[name]
    assert not judge(program, known, gated_mlp(arrays, **wrong)).passed


@pytest.mark.parametrize("at_a_time", [8, 16])
def test_what_tensor_cores_cut_off_adds_up(at_a_time: int):
    program = parse(PROJECTION)
    (inputs,) = drawn_sets(program, 0, ["large"])
    known = reference(program, inputs.arrays)
    got = projection(inputs.arrays, at_a_time)
    evidence = judge(program, known, got)
    assert evidence.passed, evidence.reason
    assert 1e-3 < evidence.max_rel_error < evidence.bound < 0.02
    off = np.abs(got["Y"] - known["Y"])
    assert not judge(program, known, {"Y": got["Y"] + 2e-2 * np.abs(got["Y"]).mean()}).passed
    # What a rounding to nearest would leave is not enough.
    assert (off > np.abs(got["Y"]) * 2.0**-7).any()
