"""Launch options that switch off one decision each: other texts, equal results."""

from __future__ import annotations

import plans
import pytest
from cuda_plans import error_of, for_cuda
from oracles.layout_solver.layout_solver import solved_layouts

from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.codegen.cuda.plan import kernel_plan
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.text.text_form import parse_ugraph

SWITCHES = {
    "": "",
    "threads": "off",
    "schedule": "off",
    "memory": "off",
    "layouts": "naive",
}
PLANS = {"rms": (plans.rms_plan, plans.rms_reference)}
PLANS["attention"] = (plans.attention_plan, plans.attention_reference)


def switched(plan: Plan, name: str, value: str) -> Plan:
    return for_cuda(plan, **{name: value} if name else {})


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("name", PLANS)
def test_equal_results_without_races(name, switch):
    make, reference = PLANS[name]
    plan = switched(make(), switch, SWITCHES[switch])
    assert error_of(plan, reference) < 4e-3


@pytest.mark.parametrize("name", PLANS)
def test_equal_results_in_layouts_of_least_cost(name, monkeypatch):
    monkeypatch.setattr(kernel_plan, "decided_layouts", solved_layouts)
    make, reference = PLANS[name]
    assert error_of(switched(make(), "", ""), reference) < 4e-3


def barriers(plan: Plan) -> int:
    return sum(k.body.count("__syncthreads();") for k in emit_cuda(plan))


def smem_bytes(plan: Plan) -> int:
    return sum(k.smem_bytes for k in emit_cuda(plan))


@pytest.mark.parametrize("name", PLANS)
def test_what_each_decision_is_worth(name):
    plan = PLANS[name][0]()
    best = switched(plan, "", "")
    assert barriers(best) <= barriers(switched(plan, "schedule", "off"))
    assert barriers(best) < barriers(switched(plan, "layouts", "naive"))
    assert smem_bytes(best) <= smem_bytes(switched(plan, "memory", "off"))


LOW_RANK = """
ugraph low_rank
dim b = 16
dim d = 64
dim n = 64
dim r = 16
input X[16, 64] : f16
input W[64, 64] : f16
input A[64, 16] : f16
input C[16, 64] : f16
output Y[16, 64] : f16
program {
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = matmul[d] %0, %1
  %3 = load A[d, r]
  %4 = matmul[d] %0, %3
  %5 = load C[r, n]
  %6 = matmul[r] %4, %5
  %7 = add %2, %6
  return Y[b, n] = %7
}
kernel low_rank {
  grid b by 16
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = matmul[d] %0, %1
  %3 = load A[d, r]
  %4 = matmul[d] %0, %3
  %5 = load C[r, n]
  %6 = matmul[r] %4, %5
  %7 = add %2, %6
  store Y[b, n] = %7
}
"""


def test_one_barrier_for_two_products_whose_sums_cross_warps():
    plan = Plan(parse_ugraph(LOW_RANK, "low_rank"), (LaunchConfig(4),), "cuda")
    off = switched(plan, "schedule", "off")
    assert barriers(plan) < barriers(off)
    for chosen in (plan, off):
        assert error_of(chosen, lambda x: x["X"] @ x["W"] + x["X"] @ x["A"] @ x["C"]) < 4e-3
