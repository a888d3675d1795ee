"""Loops of one iteration are straight code: every tile is on its way before one is waited for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plans
import pytest
from cuda_plans import cuda_plan, error_of, for_cuda, kernel_of, planned
from plans import attention_plan, attention_reference
from several_kernels import over

from mirage_py.codegen.cuda.analysis.loop_elision import elide_loops
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.split_dim import split_dim

HALF = 1e-3

# A product over all of k in one iteration, then a loop of three over n.
TWO = """
X[40, 48], W[48, 96], V[96, 32] : f16
O[q, e] = sum[n](sum[k](X[q, k] * W[k, n]) * V[n, e])
"""
TWO_KERNEL = """
kernel both {{
  grid q by 16
  loop k by {k} {{
    %0 = load X[q, k]
    %1 = load W[k, n]
    %2 = matmul[k] %0, %1
    %3 = accum_sum %2
  }}
  %4 = load V[n, e]
  %5 = matmul[n] %3, %4
  store O[q, e] = %5
}}
"""

# Rows that see no column have no iteration.
MASKED = """
A[96, 32], V[32, 64] : f16
let P[q, s] = A[q, s] * (s <= q - 70)
O[q, e] = sum[s](P[q, s] * V[s, e])
"""
MASKED_KERNEL = """
kernel masked {
  grid q by 32
  loop s by 32 {
    %0 = load A[q, s]
    %1 = mask (s <= q - 70)
    %2 = mul %0, %1
    %3 = load V[s, e]
    %4 = matmul[s] %2, %3
    %5 = accum_sum %4
  }
  store O[q, e] = %5
}
"""


def product(k: int, **flags: str) -> Plan:
    return cuda_plan(TWO, TWO_KERNEL.format(k=k), 3, **flags)


def loops(plan: Plan) -> list[str]:
    """The dimensions of the loops that are left."""
    return [s.loop for s in planned(plan).facts.block.sections if s.loop is not None]


def body(plan: Plan) -> list[str]:
    lines = kernel_of(plan).body.splitlines()
    return [line.strip() for line in lines if not line.startswith("//")]


@pytest.mark.parametrize("s", [64, 50])
def test_attention_whose_keys_are_one_tile(s: int):
    plan = for_cuda(attention_plan(1, 20, s, 16, (16, 64)))
    assert not loops(plan)
    assert error_of(plan, attention_reference) < HALF


def test_a_loop_of_two_iterations_stays():
    assert len(loops(for_cuda(attention_plan(1, 20, 65, 16, (16, 64))))) == 1


def test_tiles_are_waited_for_behind_the_last_copy():
    lines = body(product(64))
    copies = [n for n, line in enumerate(lines) if line.startswith("cp_async_commit")]
    waits = [n for n, line in enumerate(lines) if line.startswith("cp_async_wait")]
    assert len(copies) == 3
    assert max(copies) < min(waits)


@pytest.mark.parametrize("k", [16, 64])
def test_numbers_with_and_without_the_loop(k: int):
    assert len(loops(product(k))) == (k < 48)
    assert error_of(product(k), lambda x: x["X"] @ x["W"] @ x["V"]) < HALF


@pytest.mark.parametrize("flags", [{"copies": "descriptors"}, {"producer": "warps"}], ids=str)
def test_the_copy_engine_serves_loops(flags: dict[str, str]):
    assert loops(product(64, arch="sm_90a", **flags))


def test_a_loop_that_some_blocks_skip_stays():
    assert loops(cuda_plan(MASKED, MASKED_KERNEL, 2))


def test_the_options_of_other_loops_stay():
    plan = product(64)
    (block,) = plan.ugraph.kernels
    found, options = elide_loops(plan.ugraph.program, block, plan.options[0])
    assert [s.loop for s in found.sections] == [None]
    assert options.num_stages == ()
    same, kept = elide_loops(plan.ugraph.program, *product(16).ugraph.kernels, plan.options[0])
    assert same.sections[0].loop == "k"
    assert kept == plan.options[0]


IN_TURN = """
X[16, 256], W[256, 256], V[256, 256] : f16
A[q] = sum[k, n](X[q, k] * W[k, n])
O[q] = sum[k, n](X[q, k] * V[k, n])
"""
IN_TURN_KERNEL = """
kernel in_turn {
  grid q by 16
  loop k by 256 {
    %0 = load X[q, k]
    %1 = load W[k, n]
    %2 = matmul[k] %0, %1
    %3 = accum_sum %2
  }
  %4 = sum[n] %3
  store A[q] = %4
  loop k by 256 {
    %6 = load X[q, k]
    %7 = load V[k, n]
    %8 = matmul[k] %6, %7
    %9 = accum_sum %8
  }
  %10 = sum[n] %9
  store O[q] = %10
}
"""


def test_tiles_that_do_not_fit_at_once_come_one_after_the_other():
    """128 KB each: the loop gives the first one's memory back."""
    assert len(loops(cuda_plan(IN_TURN, IN_TURN_KERNEL, 1, 1, arch="sm_90a"))) == 2


SPLIT = """
B[20, 96], V[96, 32] : f16
O[q, e] = sum[s](exp(B[q, s]) * V[s, e]) / sum[s](exp(B[q, s]))
"""
SPLIT_KERNELS = """
tensor M[2, 20] : f32
tensor L[2, 20] : f32
tensor A[2, 20, 32] : f32
kernel partial {{
  grid q by 16, s_part by 1
  loop s by {s} {{
    %0 = load B[q, s_part * 48 + s]
    %1 = max[s] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[s] %4
    %6 = accum_rescaled[1] %5, %2
    %7 = load V[s_part * 48 + s, e]
    %8 = matmul[s] %4, %7
    %9 = accum_rescaled[1] %8, %2
  }}
  store M[s_part, q] = %2
  store L[s_part, q] = %6
  store A[s_part, q, e] = %9
}}
kernel combine {{
  grid q by 8
  %0 = load M[s_part, q]
  %1 = max[s_part] %0
  %2 = shift %1
  %3 = sub %0, %2
  %4 = exp %3
  %5 = load L[s_part, q]
  %6 = mul %5, %4
  %7 = sum[s_part] %6
  %8 = load A[s_part, q, e]
  %9 = mul %8, %4
  %10 = sum[s_part] %9
  %11 = div %10, %7
  store O[q, e] = %11
}}
"""


@pytest.mark.covering(1)
@pytest.mark.parametrize("s", [32, 64])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_a_part_of_minus_infinities_has_a_shift(dtype: str, s: int):
    """A row that has all its numbers in other parts is no NaN."""
    graph = over(split_dim(parse(SPLIT.replace("f16", dtype)), "s", 2), SPLIT_KERNELS.format(s=s))
    plan = for_cuda(Plan(graph, (LaunchConfig(4, (2,)), LaunchConfig(4))))
    x = plans.random_inputs(plan.ugraph.program)
    x["B"][3, 48:], x["B"][5, :48] = -np.inf, -np.inf
    weights = np.exp(x["B"])
    want = weights @ x["V"] / weights.sum(1, keepdims=True)
    assert plans.relative_error(run_emulated(plan, x)["O"], want) < HALF
    if s == 64 and dtype == "f16":
        straight = [
            elide_loops(graph.program, k, o)
            for k, o in zip(graph.kernels, plan.options, strict=True)
            if isinstance(k, BlockGraph)
        ]
        kernels, options = zip(*straight, strict=True)
        in_triton = Plan(replace(graph, kernels=kernels), options)
        assert plans.relative_error(run_interpreted(in_triton, x)["O"], want) < HALF
