"""Forms of CUDA kernels: which launch options bring them about, and which a plan has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_plans import cuda_plan, for_cuda
from plans import two_kernel_plan
from rising_attention import attention

from benchmarks.checks.kernel_forms import (
    DETAILS,
    IN_KERNEL,
    OPTIONS,
    PATHS,
    forms_of,
    text_of,
    with_other_texts,
)
from mirage_py.ugraph.ir.plan import Plan

GROUPS = {"arch": "sm_90a", "producer": "warps"}

CORRECTED = """
X[64, 64], W[64, 64], A[64, 16], C[16, 64] : f16
Y[b, n] = sum[d](X[b, d] * W[d, n]) + sum[r](sum[k](X[b, k] * A[k, r]) * C[r, n])
"""
CORRECTED_KERNEL = """
kernel corrected {
  %0 = load X[b, d]
  %1 = load W[d, n]
  %2 = matmul[d] %0, %1
  %3 = load X[b, k]
  %4 = load A[k, r]
  %5 = matmul[k] %3, %4
  %6 = load C[r, n]
  %7 = matmul[r] %5, %6
  %8 = add %2, %7
  store Y[b, n] = %8
}
"""
BESIDE = """
X[128, 64], U[64, 32], V[64, 32] : f16
Y[m, n] = sum[k](X[m, k] * U[k, n])
Z[m, e] = sum[k](X[m, k] * V[k, e])
"""
BESIDE_KERNEL = """
kernel products {
  grid m by 64
  loop k by 32 {
    %0 = load X[m, k]
    %1 = load U[k, n]
    %2 = matmul[k] %0, %1
    %3 = accum_sum %2
    %4 = load V[k, e]
    %5 = matmul[k] %0, %4
    %6 = accum_sum %5
  }
  store Y[m, n] = %3
  store Z[m, e] = %6
}
"""


def test_a_triton_plan_has_none():
    plan = two_kernel_plan()
    assert forms_of(plan) == ()
    assert list(with_other_texts(plan)) == []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, set()),
        ({"arch": "sm_90a", "copies": "descriptors"}, {"copy engine"}),
        (GROUPS, {"producer"}),
        ({**GROUPS, "overlap": "on"}, {"producer", "overlap on"}),
        ({"rescaling": "optimistic"}, {"rescaling optimistic"}),
        ({"rescaling": "lazy", "sums": "producer"}, {"rescaling lazy"}),
        ({"arch": "sm_90a", "start": "early"}, {"first kernel starts early"}),
    ],
    ids=["none", "engine", "producer", "overlap", "optimistic", "lazy", "early"],
)
def test_an_option_counts_where_it_changes_the_text(flags, expected):
    found = set(forms_of(attention(**flags)))
    assert found - {"products by warp groups", "kept operands"} == expected


def test_later_kernels_that_start_early():
    plan = for_cuda(two_kernel_plan(), arch="sm_90a", start="early")
    assert {"first kernel starts early", "later kernel starts early"} <= set(forms_of(plan))
    first, last = plan.options
    plan = replace(plan, options=(first.with_flag("start", ""), last))
    assert "first kernel starts early" not in forms_of(plan)


def test_sums_that_go_on_in_the_registers_of_others():
    plan = cuda_plan(CORRECTED, CORRECTED_KERNEL)
    assert "sums go on in another product's registers" in forms_of(plan)
    alone = cuda_plan(BESIDE, BESIDE_KERNEL, 2)
    assert "sums go on in another product's registers" not in forms_of(alone)


def test_products_side_by_side():
    plan = cuda_plan(BESIDE, BESIDE_KERNEL, 2, **GROUPS)
    found = {f.removeprefix("products side by side in ") for f in forms_of(plan)}
    assert {"a kernel", "an instruction"} <= found


def test_blocks_that_stay_are_fewer_than_places():
    found = dict(with_other_texts(cuda_plan(BESIDE, BESIDE_KERNEL, 2, arch="sm_90a")))
    (options,) = found["stay"].options
    assert options.persistent_blocks == 1
    assert {"producer", "blocks that stay"} <= set(forms_of(found["stay"]))


def test_no_two_texts_are_equal():
    plans: dict[str, Plan] = dict(with_other_texts(attention(arch="sm_90a")))
    assert {"producer", "overlap", "lazy", "optimistic overlap"} <= set(plans)
    assert len({text_of(plan) for plan in plans.values()}) == len(plans)


def test_every_option_that_makes_a_form_is_switched():
    switched = {c for changes in (*PATHS.values(), *DETAILS.values()) for c in changes.items()}
    assert set(OPTIONS.values()) <= switched
    assert not OPTIONS.keys() & IN_KERNEL.keys()
