"""Rows that are padding do not change hands when warps add up their parts of a product."""

from __future__ import annotations

import pytest
from cuda_plans import cuda_plan, error_of, kernel_of

from mirage_py.ugraph.ir.plan import Plan

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
    return cuda_plan(text.format(rows=rows), kernel, warps="1x1x4")


def skips(plan: Plan) -> bool:
    body = kernel_of(plan).body
    assert "Each warp has a part of" in body
    return "& 2) == 0) {" in body


@pytest.mark.parametrize("rows", [1, 8])
def test_eight_rows_of_sixteen(rows: int):
    plan = plan_of(PRODUCT, PRODUCT_KERNEL, rows)
    assert skips(plan)
    assert error_of(plan, lambda x: x["X"] @ x["W"]) < HALF


def test_nine_rows_of_sixteen():
    assert not skips(plan_of(PRODUCT, PRODUCT_KERNEL, 9))


def test_rows_that_are_summed_are_all_there():
    plan = plan_of(TOTAL, TOTAL_KERNEL, 8)
    assert not skips(plan)
    assert error_of(plan, lambda x: (x["X"] @ x["W"]).sum(0)) < HALF
