"""Loops that a mask leaves without an iteration: nothing behind them counts on what is in them."""

from __future__ import annotations

import numpy as np
import pytest
from plans import random_inputs, relative_error
from several_kernels import over

from mirage_py.codegen.cuda.module import emit_cuda
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


@pytest.mark.parametrize("producer", ["", "warps"])
def test_tiles_have_arrived(producer):
    options = LaunchOptions(4, (2,)).with_flag("arch", "sm_90a")
    if producer:
        options = options.with_flag("producer", producer)
    plan = Plan(over(parse(SCORES), SCORES_KERNEL), (options,), backend="cuda")
    x = halves(plan)
    want = masked(x["Q"] @ x["K"].T * 0.125) @ x["V"] + (x["Q"] ** 2).sum(1, keepdims=True)
    assert relative_error(run_emulated(plan, x)["O"], want) < 1e-3


def test_memory_used_before_a_loop_that_always_has_an_iteration_is_free_behind_it():
    """Causal: each row sees itself."""

    def bytes_of(ahead: int) -> int:
        spec, kernel = (t.replace("q - 70", f"q - {ahead}") for t in (SUMS, SUMS_KERNEL))
        plan = Plan(over(parse(spec), kernel), (LaunchOptions(4, (2,)),), backend="cuda")
        (emitted,) = emit_cuda(plan)
        return emitted.smem_bytes

    assert bytes_of(0) < bytes_of(70)
