"""Rows that are padding do not change hands when warps add up their parts of a product."""

from __future__ import annotations

import pytest
from plans import random_inputs, relative_error
from several_kernels import over

from mirage_py.codegen.cuda.module import emit_cuda
from mirage_py.frontend.spec import parse
from mirage_py.runtime.emulated import run_emulated
from mirage_py.ugraph.plan import LaunchOptions, Plan

HALF = 1e-3

PRODUCT = "X[{rows}, 256], W[256, 64] : f16\nY[q, n] = sum[k](X[q, k] * W[k, n])"
PRODUCT_KERNEL = """
kernel product {
  grid q by 16
  %0 = load X[q, k]
  %1 = load W[k, n]
  %2 = matmul[k] %0, %1
  store Y[q, n] = %2
}
"""
TOTAL = "X[{rows}, 256], W[256, 64] : f16\nY[n] = sum[q, k](X[q, k] * W[k, n])"
TOTAL_KERNEL = """
kernel product {
  %0 = load X[q, k]
  %1 = load W[k, n]
  %2 = matmul[k] %0, %1
  %3 = sum[q] %2
  store Y[n] = %3
}
"""


def plan_of(text: str, kernel: str, rows: int) -> Plan:
    options = LaunchOptions(4).with_flag("warps", "1x1x4")
    return Plan(over(parse(text.format(rows=rows)), kernel), (options,), backend="cuda")


def skips(plan: Plan) -> bool:
    (kernel,) = emit_cuda(plan)
    assert "Each warp has a part of" in kernel.body
    return "& 2) == 0) {" in kernel.body


@pytest.mark.parametrize("rows", [1, 8])
def test_eight_rows_of_sixteen(rows: int):
    plan = plan_of(PRODUCT, PRODUCT_KERNEL, rows)
    assert skips(plan)
    x = random_inputs(plan.ugraph.program)
    halves = {n: a.astype("float16").astype("float64") for n, a in x.items()}
    found = run_emulated(plan, halves)["Y"]
    assert relative_error(found, halves["X"] @ halves["W"]) < HALF


def test_nine_rows_of_sixteen():
    assert not skips(plan_of(PRODUCT, PRODUCT_KERNEL, 9))


def test_rows_that_are_summed_are_all_there():
    plan = plan_of(TOTAL, TOTAL_KERNEL, 8)
    assert not skips(plan)
    x = random_inputs(plan.ugraph.program)
    halves = {n: a.astype("float16").astype("float64") for n, a in x.items()}
    found = run_emulated(plan, halves)["Y"]
    assert relative_error(found, (halves["X"] @ halves["W"]).sum(0)) < HALF
