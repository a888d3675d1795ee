"""Loops that a mask leaves without an iteration: nothing behind them counts on what is in them."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_plans import cuda_plan, error_of, kernel_of

# The first rows see no column.
AHEAD = 70

SUMS = """
A[160, 96], V[96, 64], G[64, 160] : f16
let P[q, s] = A[q, s] * (s <= q - 70)
O[e, q] = sum[s](P[q, s] * V[s, e]) + sum[x](G[x, q])
"""

# The sum in front goes through shared memory, and so does the store.
SUMS_KERNEL = """
kernel sums {
  grid q by 64
  %0 = load G[x, q]
  %1 = sum[x] %0
  loop s by 32 {
    %2 = load A[q, s]
    %3 = mask (s <= q - 70)
    %4 = mul %2, %3
    %5 = load V[s, e]
    %6 = matmul[s] %4, %5
    %7 = accum_sum %6
  }
  %8 = add %7, %1
  store O[e, q] = %8
}
"""


def masked(a: np.ndarray) -> np.ndarray:
    rows, columns = a.shape
    return a * (np.arange(columns) <= np.arange(rows)[:, None] - AHEAD)


STAYING = {"arch": "sm_90a", "producer": "warps", "blocks": "2"}


@pytest.mark.parametrize(
    "flags", [{}, {"arch": "sm_90a", "copies": "descriptors"}, STAYING], ids=str
)
def test_memory_used_before_is_not_written_behind(flags):
    def reference(x):
        return (masked(x["A"]) @ x["V"]).T + x["G"].sum(0)

    assert error_of(cuda_plan(SUMS, SUMS_KERNEL, 2, **flags), reference) < 1e-3


SCORES = """
Q[160, 256], K[96, 256], V[96, 64] : f16
let Z[q, s] = sum[c](Q[q, c] * K[s, c]) * 0.125
O[q, e] = sum[s](Z[q, s] * (s <= q - 70) * V[s, e]) + sum[c](Q[q, c]^2)
"""

# Only the loop's first product and the squares behind it read Q.
SCORES_KERNEL = """
kernel scores {
  grid q by 64
  %0 = load Q[q, c]
  %1 = const 0.125
  loop s by 32 {
    %2 = load K[s, c]
    %3 = matmul[c] %0, %2
    %4 = mul %3, %1
    %5 = mask (s <= q - 70)
    %6 = mul %4, %5
    %7 = load V[s, e]
    %8 = matmul[s] %6, %7
    %9 = accum_sum %8
  }
  %10 = square %0
  %11 = sum[c] %10
  %12 = add %9, %11
  store O[q, e] = %12
}
"""


@pytest.mark.parametrize(
    "flags", [{"arch": "sm_90a"}, {"arch": "sm_90a", "producer": "warps"}, STAYING], ids=str
)
def test_tiles_have_arrived(flags):
    def reference(x):
        return masked(x["Q"] @ x["K"].T * 0.125) @ x["V"] + (x["Q"] ** 2).sum(1, keepdims=True)

    plan = cuda_plan(SCORES, SCORES_KERNEL, 2, **flags)
    assert error_of(plan, reference) < 1e-3


def test_memory_used_before_a_loop_that_always_has_an_iteration_is_free_behind_it():
    """Causal: each row sees itself."""

    def bytes_of(ahead: int) -> int:
        spec, kernel = (t.replace("q - 70", f"q - {ahead}") for t in (SUMS, SUMS_KERNEL))
        return kernel_of(cuda_plan(spec, kernel, 2)).smem_bytes

    assert bytes_of(0) < bytes_of(70)
