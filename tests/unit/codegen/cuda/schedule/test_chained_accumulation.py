"""Products that are added to other sums go on in the registers of these."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_plans import cuda_plan, error_of, kernel_of, planned

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.ugraph.ir.plan import Plan

HALF = 1e-3

LORA = """X[{b}, 64], W[64, {n}], A[64, 16], C[16, {n}] : f16
Y[b, n] = sum[d](X[b, d] * W[d, n]) + sum[r](sum[d](X[b, d] * A[d, r]) * C[r, n])"""
STRAIGHT = """
kernel lora {{
  grid b by {rows}, n by {columns}
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = matmul[d] %0, %1
  %3 = load C[r, n]
  %4 = load A[d, r]
  %5 = matmul[d] %0, %4
  %6 = matmul[r] %5, %3
  %7 = add {terms}
  store Y[b, n] = %7
}}
"""
LOOP = """
kernel lora {
  grid b by 64, n by 64
  loop d by 32 {
    %0 = load X[b, d]
    %1 = load W[d, n]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
    %4 = load A[d, r]
    %5 = matmul[d] %0, %4
    %6 = accum_sum %5
  }
  %7 = load C[r, n]
  %8 = matmul[r] %6, %7
  %9 = add %3, %8
  store Y[b, n] = %9
}
"""
HOPPER = {"arch": "sm_90a"}


def lora(rows: int, columns: int, terms: str = "%2, %6", **flags: str) -> Plan:
    spec = LORA.format(b=rows, n=columns)
    kernel = STRAIGHT.format(rows=rows, columns=columns, terms=terms)
    return cuda_plan(spec, kernel, **flags)


def reference(x: dict[str, np.ndarray]) -> np.ndarray:
    return x["X"] @ x["W"] + x["X"] @ x["A"] @ x["C"]


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "plan",
    [
        lora(64, 64, **HOPPER),
        lora(64, 64, "%6, %2", **HOPPER),
        lora(64, 64, stores="rows", **HOPPER),
        lora(16, 64, axes="reversed", **HOPPER),
        lora(64, 64, axes="reversed", **HOPPER),
        lora(16, 64),
        lora(50, 40, stores="rows", **HOPPER),
        cuda_plan(LORA.format(b=64, n=64), LOOP, 2, **HOPPER),
        cuda_plan(LORA.format(b=64, n=64), LOOP, 2, producer="warps", **HOPPER),
    ],
    ids=[
        "warp groups", "the other way round", "stored in rows", "16 rows, transposed", "transposed",
        "by warps", "tails", "behind a loop", "behind a fed loop",
    ],
)  # fmt: skip
def test_agrees_with_float64(plan: Plan):
    assert error_of(plan, reference) < HALF


@pytest.mark.parametrize("terms", ["%2, %6", "%6, %2"])
def test_one_set_of_sums_holds_both_products(terms: str):
    plan = planned(lora(64, 64, terms, **HOPPER))
    first, _, last = plan.layouts.mmas
    assert plan.chains.first == {last: first}
    assert [*plan.chains.by_addition.values()] == [last]
    # The left operand of the last is what another matmul made, in registers.
    assert plan.operands.lefts[last] is None
    assert plan.facts.comes_from_dot(plan.operands.sides[last][0])
    body = kernel_of(lora(64, 64, terms, **HOPPER)).body
    assert "wgmma_m64n64k16_f16_rs_kt(dot2, dot5_f16[0]" in body
    assert "float dot7" not in body


def test_transposed_sums_are_not_turned_for_what_is_added():
    """The 16 x 16 numbers of X A are, once; then the result for the store."""
    body = kernel_of(lora(16, 64, axes="reversed", **HOPPER)).body
    assert body.count("changes hands") == 2
    assert "dot5_f16 changes hands" in body
    assert "mma_f16(dot2[4 * n]" in body


def test_sums_that_something_else_reads_stay_as_they_are():
    spec = LORA.format(b=64, n=64).replace("Y[b, n] = sum", "Y[b, n] = 2 * sum")
    kernel = """
    kernel lora {
      grid b by 64, n by 64
      %0 = load X[b, d]
      %1 = load W[d, n]
      %2 = matmul[d] %0, %1
      %3 = load C[r, n]
      %4 = load A[d, r]
      %5 = matmul[d] %0, %4
      %6 = matmul[r] %5, %3
      %7 = add %2, %6
      %8 = add %7, %2
      store Y[b, n] = %8
    }
    """
    plan = cuda_plan(spec, kernel, **HOPPER)
    assert "float dot7[32]" in kernel_of(plan).body
    assert error_of(plan, lambda x: reference(x) + x["X"] @ x["W"]) < HALF


@pytest.mark.parametrize("flags", [{}, {"producer": "warps"}], ids=["cp.async", "fed"])
def test_a_small_tile_for_behind_the_loop_comes_while_it_works(flags: dict[str, str]):
    plan = cuda_plan(LORA.format(b=64, n=64), LOOP, 2, **HOPPER, **flags)
    before, behind = kernel_of(plan).body.split("for (int d_start", 1)
    assert "C[r_, n]: 16 x 64" in before
    assert before.count("C + ") == 1
    assert "C + " not in behind


def test_a_large_tile_comes_behind_the_loop():
    """It would take the memory of a stage."""
    spec = LORA.format(b=64, n=64).replace("A[64, 16], C[16,", "A[64, 128], C[128,")
    before, behind = kernel_of(cuda_plan(spec, LOOP, 2, **HOPPER)).body.split("for (int d_start", 1)
    assert "C + " not in before
    assert "C + " in behind
