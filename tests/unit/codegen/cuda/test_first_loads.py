"""What the code in front of a loop reads is asked for before the loop's first tiles."""

from __future__ import annotations

import pytest
from cuda_plans import cuda_plan, for_cuda, kernel_of

PROGRAM = """
X[128, 64], W[64, 256], G[128] : f16
Y[b] = max[n](sum[k](X[b, k] * W[k, n]) * G[b])
"""
KERNEL = """
kernel scaled {
  grid b by 64
  %0 = load X[b, k]
  %1 = load G[b]
  loop n by 64 {
    %2 = load W[k, n]
    %3 = matmul[k] %0, %2
    %4 = mul %3, %1
    %5 = max[n] %4
    %6 = accum_max %5
  }
  store Y[b] = %6
}
"""
FLAGS = {"arch": "sm_90a", "copies": "descriptors"}


@pytest.mark.parametrize("fetching", [True, False], ids=["producer", "alone"])
@pytest.mark.parametrize("warps", [4, 8])
def test_they_are_asked_for_first(warps, fetching):
    flags = {**FLAGS, "producer": "warps"} if fetching else FLAGS
    body = kernel_of(for_cuda(cuda_plan(PROGRAM, KERNEL, 3), warps, **flags)).body
    begin, rest = body.split("mbarrier_init", 1)
    assert "cp_async_16" in begin or "= *reinterpret_cast<const unsigned*>(X" in begin
    assert "(G" in begin or "G[" in begin
    assert "X + " not in rest
    # Warps that fetch have no part of these tiles.
    assert begin.count(f"if (warp < {warps})") == (2 if fetching else 0)
