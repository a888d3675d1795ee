"""Shifts in base 2, also those that go from one kernel to another."""

from __future__ import annotations

import numpy as np
import several_kernels
from families import stabilize

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted, run_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.rewrite.split_dim import split_dim

LOG_SUM = """
B = 4, N = 96
X[B, N] : f16
Y[b] : f32 = log(sum[n](exp(X[b, n])))
"""

# The shift is taken out of the logarithm again: there it must be what it says.
LOG_SUM_KERNELS = """
tensor M[4, 4] : f32
tensor L[4, 4] : f32
kernel partial {
  grid n_part by 1, b by 1
  loop n by 8 {
    %0 = load X[b, n_part * 24 + n]
    %1 = max[n] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[n] %4
    %6 = accum_rescaled[1] %5, %2
  }
  store M[n_part, b] = %2
  store L[n_part, b] = %6
}
kernel combine {
  grid b by 1
  %0 = load M[n_part, b]
  %1 = max[n_part] %0
  %2 = shift %1
  %3 = sub %0, %2
  %4 = exp %3
  %5 = load L[n_part, b]
  %6 = mul %5, %4
  %7 = sum[n_part] %6
  %8 = log %7
  %9 = add %8, %2
  store Y[b] = %9
}
"""

# The second kernel computes the exponential again, with the shift that the first one stored.
SOFTMAX = """
B = 4, N = 96
X[B, N] : f16
Y[b, n] : f32 = exp(X[b, n]) / sum[n](exp(X[b, n]))
"""

SOFTMAX_KERNELS = """
tensor M[4] : f32
tensor L[4] : f32
kernel sums {
  grid b by 1
  loop n by 16 {
    %0 = load X[b, n]
    %1 = max[n] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[n] %4
    %6 = accum_rescaled[1] %5, %2
  }
  store M[b] = %2
  store L[b] = %6
}
kernel divide {
  grid b by 1, n by 32
  %0 = load X[b, n]
  %1 = load M[b]
  %2 = sub %0, %1
  %3 = exp %2
  %4 = load L[b]
  %5 = div %3, %4
  store Y[b, n] = %5
}
"""


def plan_of(spec: str, kernels: str, split: str = "") -> Plan:
    program = parse(spec)
    graph = several_kernels.over(split_dim(program, split, 4) if split else program, kernels)
    return Plan(graph, (LaunchConfig(1, (1,)), LaunchConfig(1)))


def sources(plan: Plan) -> list[str]:
    return [kernel.text.source for kernel in emit_triton(plan)]


def test_a_stored_shift_is_in_base_two():
    partial, combine = sources(several_kernels.plan("split_attention"))
    assert "tl.exp(" not in partial + combine
    assert "tl.exp2(m_tile - shift2[:, None])" in combine
    assert "1.44" not in combine


def test_a_shift_that_is_added_to_a_logarithm_is_turned_back_there():
    plan = plan_of(LOG_SUM, LOG_SUM_KERNELS, split="n")
    partial, combine = sources(plan)
    assert "tl.exp(" not in partial + combine
    assert combine.count(", 0.6931471805599453, 0.5)") == 1
    found = check_interpreted(parse(LOG_SUM), plan, seed=1)
    assert found.passed, found.reason


def test_a_kernel_that_only_reads_the_shift():
    plan = plan_of(SOFTMAX, SOFTMAX_KERNELS)
    sums, divide = sources(plan)
    assert "tl.exp(" not in sums + divide
    assert "1.4426950408889634, 2.0) - m_tile" in divide
    found = check_interpreted(parse(SOFTMAX), plan, seed=1)
    assert found.passed, found.reason


def test_a_shift_that_is_an_output_stays_as_it_is():
    """What a user sees is in no base of ours."""
    text = SOFTMAX_KERNELS.replace("tensor M[4] : f32\n", "")
    spec = SOFTMAX + "M[b] : f32 = max[n](X[b, n])\n"
    plan = plan_of(spec, text)
    first, _ = sources(plan)
    assert "tl.exp(" in first


WHOLLY_MASKED = """
T = 8, S = 40, D = 16
Q[T, D], K[S, D], V[S, D] : f16
let w[t, s] = exp(where(s < t - 3, sum[d](Q[t, d] * K[s, d]), -1e30))
O[t, e] = sum[s](w[t, s] * V[s, e]) / sum[s](w[t, s])
"""

WHOLLY_MASKED_KERNEL = """
kernel attend {
  grid t by 16
  %0 = load Q[t, d]
  %1 = const -1e+30
  loop s by 16 {
    %2 = load K[s, d]
    %3 = matmul[d] %0, %2
    %4 = mask (s < t - 3)
    %5 = where %4, %3, %1
    %6 = exp %5
    %7 = sum[s] %6
    %8 = accum_sum %7
    %9 = load V[s, e]
    %10 = matmul[s] %6, %9
    %11 = accum_sum %10
  }
  %12 = div %11, %8
  store O[t, e] = %12
}
"""


def test_a_row_without_keys_is_the_mean_of_all_values():
    """As of a softmax of equal numbers, however low: the running maximum begins no higher."""
    graph = stabilize(several_kernels.over(parse(WHOLLY_MASKED), WHOLLY_MASKED_KERNEL))
    assert any(n.op == "accum_max" for n in graph.kernels[0].nodes)
    plan = Plan(graph, (LaunchConfig(4, (2,)),))
    rng = np.random.default_rng(0)
    arrays = {
        n: rng.normal(size=(s, 16)).astype(np.float16) for n, s in (("Q", 8), ("K", 40), ("V", 40))
    }
    arrays = {n: x.astype(np.float64) for n, x in arrays.items()}
    got = run_interpreted(plan, arrays)["O"]
    np.testing.assert_allclose(got[:4], np.tile(arrays["V"].mean(0), (4, 1)), atol=2e-3)
