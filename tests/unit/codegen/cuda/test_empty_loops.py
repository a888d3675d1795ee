"""Loops that a mask leaves without an iteration: nothing behind them counts on what is in them."""

from __future__ import annotations

import numpy as np
import pytest
from plans import random_inputs, relative_error
from several_kernels import over

from mirage_py.frontend.spec import parse
from mirage_py.runtime.emulated import run_emulated
from mirage_py.ugraph.plan import LaunchOptions, Plan

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


def halves(plan: Plan) -> dict[str, np.ndarray]:
    arrays = random_inputs(plan.ugraph.program)
    return {n: a.astype("float16").astype("float64") for n, a in arrays.items()}


@pytest.mark.parametrize("flags", [{}, {"arch": "sm_90a", "copies": "descriptors"}], ids=str)
def test_memory_used_before_is_not_written_behind(flags):
    options = LaunchOptions(4, (2,))
    for name, value in flags.items():
        options = options.with_flag(name, value)
    plan = Plan(over(parse(SUMS), SUMS_KERNEL), (options,), backend="cuda")
    x = halves(plan)
    want = (masked(x["A"]) @ x["V"]).T + x["G"].sum(0)
    assert relative_error(run_emulated(plan, x)["O"], want) < 1e-3
