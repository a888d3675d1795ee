"""One number of each warp: added up in fours."""

from __future__ import annotations

import pytest
from cuda_plans import cuda_plan, error_of, for_cuda, kernel_of

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.ugraph.ir.plan import Plan

SPEC = "X[2, 1024] : f16\nY[b, d] = X[b, d] / sum[d](X[b, d] * X[b, d])"
KERNEL = """
kernel scaled {
  grid b by 1
  %0 = load X[b, d]
  %1 = square %0
  %2 = sum[d] %1
  %3 = div %0, %2
  store Y[b, d] = %3
}
"""


def of_warps(warps: int, reduction: str = "sum") -> Plan:
    spec, kernel = SPEC, KERNEL
    if reduction == "max":
        spec = spec.replace("sum[d](X[b, d] * X[b, d])", "max[d](X[b, d] * X[b, d])")
        kernel = kernel.replace("sum[d]", "max[d]")
    return for_cuda(cuda_plan(spec, kernel), num_warps=warps)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("warps", [2, 4, 8, 16])
def test_agrees_with_float64(warps: int):
    plan = of_warps(warps)
    assert error_of(plan, lambda x: x["X"] / (x["X"] ** 2).sum(1, keepdims=True)) < 1e-3


@pytest.mark.parametrize(("warps", "loops"), [(4, 0), (8, 0), (16, 1)])
def test_four_at_a_time(warps: int, loops: int):
    body = kernel_of(of_warps(warps)).body
    behind = body[body.index("__syncthreads") :]
    assert "float4 fours = *reinterpret_cast<const float4*>(sum" in behind
    assert behind.count("w < 3") == loops
    assert "(fours.x + fours.y) + (fours.z + fours.w)" in behind


@pytest.mark.parametrize(("warps", "reduction"), [(2, "sum"), (8, "max")])
def test_of_two_warps_and_for_maxima_one_by_one(warps: int, reduction: str):
    body = kernel_of(of_warps(warps, reduction)).body
    assert "fours" not in body
    assert "_parts[1]" in body
