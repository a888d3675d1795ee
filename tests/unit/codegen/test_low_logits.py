"""Softmax where masks add torch.finfo(dtype).min, in both back ends: as eager PyTorch has it. A row
with nothing else is the mean of all values, one of minus infinities is no number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import several_kernels
import torch
from families import stabilize

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan

LOWEST = {"bf16": torch.finfo(torch.bfloat16).min, "f32": torch.finfo(torch.float32).min}
SIZES = {"Q": (16, 16), "K": (40, 16), "V": (40, 16), "M": (16, 40)}
# By the mask's type: given as a tensor that is added, and as a choice by positions.
ADDED = """
T = 16, S = 40, D = 16
Q[T, D], K[S, D], V[S, D] : bf16
M[T, S] : {kind}
let w[t, s] = exp(sum[d](Q[t, d] * K[s, d]) + M[t, s])
O[t, e] = sum[s](w[t, s] * V[s, e]) / sum[s](w[t, s])
"""
CHOSEN = """
T = 16, S = 40, D = 16
Q[T, D], K[S, D], V[S, D] : bf16
let w[t, s] = exp(where(s + 7 < t * 4, sum[d](Q[t, d] * K[s, d]), {lowest!r}))
O[t, e] = sum[s](w[t, s] * V[s, e]) / sum[s](w[t, s])
"""
KERNEL = """
kernel attend {{
  grid t by 16
  %0 = load Q[t, d]
  loop s by 16 {{
    %1 = load K[s, d]
    %2 = matmul[d] %0, %1
{masked}
    %{0} = exp %{logits}
    %{1} = sum[s] %{0}
    %{2} = accum_sum %{1}
    %{3} = load V[s, e]
    %{4} = matmul[s] %{0}, %{3}
    %{5} = accum_sum %{4}
  }}
  %{6} = div %{5}, %{2}
  store O[t, e] = %{6}
}}
"""
ADDS = ["load M[t, s]", "add %2, %3"]
CHOOSES = ["mask (s + 7 < t * 4)", "const {lowest!r}", "where %3, %2, %4"]
# The maximum in a loop of its own.
SOFTMAX = """
B = 6, N = 40
X[B, N] : {kind}
Y[b, n] = softmax[n](where(n + 5 < b * 8, X[b, n], {lowest!r}))
"""
TWO_LOOPS = """
kernel softmax {{
  grid b by 2
  loop n by 16 {{
    %0 = load X[b, n]
    %1 = mask (n + 5 < b * 8)
    %2 = const {lowest!r}
    %3 = where %1, %0, %2
    %4 = max[n] %3
    %5 = accum_max[shift] %4
  }}
  loop n by 16 {{
    %6 = load X[b, n]
    %7 = mask (n + 5 < b * 8)
    %8 = const {lowest!r}
    %9 = where %7, %6, %8
    %10 = sub %9, %5
    %11 = exp %10
    %12 = sum[n] %11
    %13 = accum_sum %12
  }}
  loop n by 16 {{
    %14 = load X[b, n]
    %15 = mask (n + 5 < b * 8)
    %16 = const {lowest!r}
    %17 = where %15, %14, %16
    %18 = sub %17, %5
    %19 = exp %18
    %20 = div %19, %13
    store Y[b, n] = %20
  }}
}}
"""


def run(backend: str, plan: Plan, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if backend == "triton":
        return run_interpreted(plan, arrays)
    if cpp_compiler() is None:
        pytest.skip("no C++ compiler")
    return run_emulated(replace(plan, backend="cuda"), arrays)


def attend(program: str, masked: list[str]) -> Plan:
    """The kernel with these nodes between product and exponential."""
    lines = "\n".join(f"    %{3 + n} = {text}" for n, text in enumerate(masked))
    logits = 2 + len(masked)
    text = KERNEL.format(*range(logits + 1, logits + 8), masked=lines, logits=logits)
    graph = stabilize(several_kernels.over(parse(program), text))
    return Plan(graph, (LaunchConfig(4, (2,)),))


def drawn(kind: str) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        name: torch.from_numpy(draw.normal(size=shape)).bfloat16().double().numpy()
        for name, shape in SIZES.items()
        if name != "M" or kind
    }


def attention(arrays: dict[str, np.ndarray], mask: torch.Tensor, lowest: float) -> np.ndarray:
    q, k, v = (torch.from_numpy(arrays[n]).float() for n in "QKV")
    z = q @ k.T + torch.from_numpy(arrays["M"]).float() if "M" in arrays else q @ k.T
    return (torch.softmax(torch.where(mask, z, lowest), 1) @ v).numpy()


@pytest.mark.parametrize("kind", LOWEST)
@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_a_mask_that_is_added(backend: str, kind: str):
    plan = attend(ADDED.format(kind=kind), ADDS)
    arrays = drawn(kind)
    mask = np.where(np.tri(16, 40, 3) > 0, 0.0, LOWEST[kind])
    mask[5] = LOWEST[kind]
    mask[6], mask[7, 1::2], mask[7, ::2] = -np.inf, -np.inf, LOWEST[kind]
    arrays["M"] = mask
    want = attention(arrays, torch.ones(16, 40, dtype=torch.bool), 0.0)
    assert np.isnan(want).all(1).tolist() == [row == 6 for row in range(16)]
    np.testing.assert_allclose(want[5], arrays["V"].mean(0), atol=1e-5)
    got = run(backend, plan, arrays)["O"]
    np.testing.assert_allclose(got, want, atol=0.02)


@pytest.mark.covering(1)
@pytest.mark.parametrize("lowest", [-1e30, -1e31, *LOWEST.values()])
@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_a_mask_of_positions(backend: str, lowest: float):
    masked = [line.format(lowest=lowest) for line in CHOOSES]
    plan = attend(CHOSEN.format(lowest=lowest), masked)
    arrays = drawn("")
    mask = torch.arange(40)[None, :] + 7 < 4 * torch.arange(16)[:, None]
    want = attention(arrays, mask, lowest)
    np.testing.assert_allclose(want[0], arrays["V"].mean(0), atol=1e-5)
    got = run(backend, plan, arrays)["O"]
    np.testing.assert_allclose(got, want, atol=0.02)


@pytest.mark.covering(2)
@pytest.mark.parametrize("lowest", [-1e30, -1e31, *LOWEST.values()])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_the_maximum_in_a_loop_of_its_own(backend: str, kind: str, lowest: float):
    """A loop that takes the maximum alone skips no tile of a mask that is a logit."""
    program = parse(SOFTMAX.format(kind=kind, lowest=lowest))
    graph = several_kernels.over(program, TWO_LOOPS.format(lowest=lowest))
    x = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float16).astype(float)
    mask = np.arange(40)[None, :] + 5 < 8 * np.arange(6)[:, None]
    want = torch.softmax(torch.from_numpy(np.where(mask, x, lowest)).float(), 1).numpy()
    got = run(backend, Plan(graph, (LaunchConfig(2, (1, 1, 1)),)), {"X": x})["Y"]
    np.testing.assert_allclose(got, want, atol=0.02)


@pytest.mark.parametrize(("lowest", "is_base_two"), [(-1e4, True), (-1e9, False), (-1e38, False)])
def test_what_rounding_would_show_of_is_not_kept_in_base_two(lowest: float, is_base_two: bool):
    """A GPU multiplies and adds at once: 2^(x log2(e) - M) of x = -1e9 is 2^18 where M is rounded,
    which no half holds. The interpreter rounds in between.
    """
    masked = [line.format(lowest=lowest) for line in CHOOSES]
    (kernel,) = emit_triton(attend(CHOSEN.format(lowest=lowest), masked))
    source = kernel.text.source
    assert ("max6 * tl.where(" in source) == is_base_two
    assert ("1.4426950408889634, 2.0) - peak7" in source) == is_base_two
    assert ("tl.exp2(peak7_old - peak7)" in source) == is_base_two
    assert ("tl.exp(peak7_old - peak7)" in source) != is_base_two
