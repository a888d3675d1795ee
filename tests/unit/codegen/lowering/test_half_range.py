"""Gains in float16: a product with them stays in range, whatever the inputs are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plans
import pytest
import several_kernels
from clusters import cluster_rms_norm_matmul

from benchmarks.checks.differential_cases import one_kernel
from mirage_py.codegen.lowering.multiples import Multiples
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.dtypes import BF16, F16
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.rewrite.split_dim import split_dim
from mirage_py.verify.evaluate.element_types import round_to

RUNS = {"triton": run_interpreted, "cuda": run_emulated}


def _inputs(program, large, gain):
    """Normal numbers, with one channel of ``large`` and gains about ``gain``."""
    rng = np.random.default_rng(3)
    shapes = {t.name: t.shape for t in program.inputs}
    x = rng.normal(size=shapes["X"]) * min(large, 1.0)
    x[:, 5] = large
    arrays = {
        "X": x,
        "G": gain * (1 + 0.1 * rng.normal(size=shapes["G"])),
        "W": rng.normal(size=shapes["W"]) / shapes["W"][0] ** 0.5,
    }
    return {t.name: round_to(arrays[t.name], t.dtype) for t in program.inputs}


@pytest.mark.parametrize("backend", sorted(RUNS))
@pytest.mark.parametrize(("large", "gain"), [(3e4, 3.0), (6e4, 2e4), (1e-3, 1e-2), (1.0, 1e-4)])
def test_a_channel_far_from_the_others_leaves_no_infinity(backend, large, gain):
    plan = _plan(backend)
    arrays = _inputs(plan.ugraph.program, large, gain)
    found = RUNS[backend](plan, arrays)["Y"].astype(np.float64)
    expected = plans.rms_reference(arrays)
    kept = np.abs(expected) < F16.max_finite
    assert kept.all() or gain > 1e3
    assert np.isfinite(found[kept]).all()
    error = np.linalg.norm((found - expected)[kept]) / np.linalg.norm(expected[kept])
    assert error < 2e-3


@pytest.mark.parametrize("backend", sorted(RUNS))
def test_gains_of_zero_give_zero(backend):
    plan = _plan(backend)
    arrays = _inputs(plan.ugraph.program, 1.0, 0.0)
    assert np.array_equal(RUNS[backend](plan, arrays)["Y"], np.zeros((7, 50)))


def test_bfloat16_has_the_range_of_float32():
    (scaled,), (plain,) = (emit_triton(plans.rms_plan(dtype=t)) for t in (F16, BF16))
    assert "maximum" in scaled.source
    assert "maximum" not in plain.source


def layer_norm_plan(backend):
    """One kernel in which the gain meets x less its mean before anything is divided."""
    program = parse(
        "B = 5, D = 64, N = 24\nX[B, D], G[D], W[D, N] : f16\n"
        "Y[b, n] = sum[d]( (X[b, d] - mean[d](X[b, d])) * G[d] * W[d, n] )"
        " / sqrt( mean[d]((X[b, d] - mean[d](X[b, d]))^2) + 1e-5 )",
        name="centred",
    )
    return replace(one_kernel(program, {"b": 16, "n": 16}), backend=backend)


@pytest.mark.parametrize("backend", sorted(RUNS))
@pytest.mark.parametrize(("large", "gain"), [(3e4, 4.0), (6e4, 3.0), (6e4, 1e-4), (1e-3, 1e-2)])
def test_a_gain_of_what_is_computed_leaves_no_infinity(backend, large, gain):
    plan = layer_norm_plan(backend)
    arrays = _inputs(plan.ugraph.program, large, gain)
    arrays["X"][:, 6] = -arrays["X"][:, 5]  # a mean far from either
    arrays["X"][:, 7:40] = -arrays["X"][:, 5:6]
    x = arrays["X"] - arrays["X"].mean(1, keepdims=True)
    expected = (x * arrays["G"]) @ arrays["W"] / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5)
    found = RUNS[backend](plan, arrays)["Y"].astype(np.float64)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - expected) < 2e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize(("text", "most"), [
    ("X[b, d] - mean[d](X[b, d])", 2.0), ("X[b, d]", 1.0), ("relu(X[b, d]) + X[b, d]", 2.0),
    ("sum[d](X[b, d])", 64.0), ("0.5 * X[b, d] / 8", 1 / 16), ("X[b, d] * X[b, d]", 0.0),
    ("exp(X[b, d])", 0.0), ("X[b, d] - 1", 0.0),
])  # fmt: skip
def test_how_large_sums_of_inputs_are(text, most):
    out = "Y[b]" if text.startswith("sum") else "Y[b, d]"
    program = parse(f"B = 5, D = 64\nX[B, D] : f16\n{out} = {text}")
    block = one_kernel(program, {"b": 16}).ugraph.kernels[0]
    ((_, store),) = block.stores()
    assert Multiples(program, block, dict(program.tensors)).inputs[store.args[0]] == most


def _plan(backend):
    return replace(plans.rms_plan(), backend=backend)


@pytest.mark.parametrize("backend", sorted(RUNS))
def test_a_block_that_has_a_part_of_the_contraction_scales_its_own(backend):
    program = split_dim(plans.rms_program(d=96), "d", 4)
    nodes = several_kernels.over(program, SPLIT)
    plan = Plan(nodes, (LaunchConfig(2), LaunchConfig(1)), backend)
    arrays = _inputs(plans.rms_program(), 3e4, 3.0)
    arrays["G"][40:] *= 100.0
    found = RUNS[backend](plan, arrays)["Y"].astype(np.float64)
    expected = plans.rms_reference(arrays)
    kept = np.abs(expected) < F16.max_finite
    assert kept.any()
    assert np.linalg.norm((found - expected)[kept]) < 2e-3 * np.linalg.norm(expected[kept])


def test_a_block_of_a_cluster_scales_its_own_part():
    plan = cluster_rms_norm_matmul(b=5, d=128, n=24, parts=2, tiles=(16, 32, 32))
    program = plan.ugraph.program
    arrays = _inputs(program, 3e4, 3.0)
    arrays["G"][70:] *= 100.0
    found = run_emulated(plan, arrays)["Y"].astype(np.float64)
    expected = plans.rms_reference(arrays)
    kept = np.abs(expected) < F16.max_finite
    assert kept.any()
    assert np.linalg.norm((found - expected)[kept]) < 2e-3 * np.linalg.norm(expected[kept])


SPLIT = """
tensor P[4, 7, 50] : f32
tensor S[4, 7] : f32
kernel first {
  grid d_part by 1, b by 16, n by 32
  %0 = load X[b, d_part * 24 + d]
  %1 = load G[d_part * 24 + d]
  %2 = mul %0, %1
  %3 = load W[d_part * 24 + d, n]
  %4 = matmul[d] %2, %3
  %5 = square %0
  %6 = sum[d] %5
  store P[d_part, b, n] = %4
  store S[d_part, b] = %6
}
kernel last {
  grid b by 1, n by 32
  %0 = load P[d_part, b, n]
  %1 = sum[d_part] %0
  %2 = load S[d_part, b]
  %3 = sum[d_part] %2
  %4 = const 96.0
  %5 = div %3, %4
  %6 = const 1e-6
  %7 = add %5, %6
  %8 = sqrt %7
  %9 = div %1, %8
  store Y[b, n] = %9
}
"""
