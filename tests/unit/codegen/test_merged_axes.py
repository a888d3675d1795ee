"""Matmuls whose rows or columns are several axes: matrices inside the loop, tiles behind it."""

from __future__ import annotations

import pytest
import several_kernels

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.compile.compile import KernelSource, checked_handle
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program

# Weights by how they lie in memory: the summed axis last, or a column's.
WEIGHTS = {"W[n, k, d]": "W[N, K, D]", "W[d, n, k]": "W[D, N, K]"}
KERNEL = """
kernel products {
  grid a by 32, b by 2, n by 16, k by 4
  loop d by 32 {
    %0 = load X[a, b, d]
    %1 = load WEIGHT
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }
  store Y[n, a, b, k] = %3
}
"""


def plan_for(weight: str, warps: int = 4) -> tuple[Program, Plan]:
    sizes = "A = 32, B = 2, N = 16, K = 4, D = 96"
    inputs = f"X[A, B, D], {WEIGHTS[weight]} : f16"
    program = parse(f"{sizes}\n{inputs}\nY[n, a, b, k] = sum[d](X[a, b, d] * {weight})")
    ugraph = several_kernels.over(program, KERNEL.replace("WEIGHT", weight))
    return program, Plan(ugraph, (LaunchConfig(warps, (3,)),))


@pytest.mark.parametrize("weight", WEIGHTS)
def test_columns_of_several_axes_are_a_wgmma(weight: str) -> None:
    """As the columns of a matrix behind the summed axis, Triton 3.6 did not compile them. Its sum
    is the accumulator: nothing is added for itself.
    """
    _, plan = plan_for(weight)
    (kernel,) = emit_triton(plan)
    ptx = checked_handle(KernelSource.of(kernel), 90).asm["ptx"]
    assert ptx.count("wgmma.mma_async.sync.aligned.m64n64k16") == 2
    assert "add.f32" not in ptx


@pytest.mark.parametrize("weight", WEIGHTS)
def test_numbers(weight: str) -> None:
    program, plan = plan_for(weight)
    found = check_interpreted(program, plan, seed=1)
    assert found.passed, found.reason
