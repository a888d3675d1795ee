"""Products of the same rows by several narrow operands: one instruction of a warp group."""

from __future__ import annotations

import re

import pytest
from cuda_plans import cuda_plan, kernel_of, planned

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import check_emulated

needs_compiler = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
FLAGS = {"arch": "sm_90a", "producer": "warps"}

PRODUCTS = """
X[128, 64], U[64, 32], V[64, 16], W[64, 32] : f16
Y[m, n] = sum[k](X[m, k] * U[k, n])
Z[m, e] = sum[k](X[m, k] * V[k, e])
S[m, f] = sum[k](X[m, k] * W[k, f])
"""

KERNEL = """
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
    %7 = load W[k, f]
    %8 = matmul[k] %0, %7
    %9 = accum_sum %8
  }
  store Y[m, n] = %3
  store Z[m, e] = %6
  store S[m, f] = %9
}
"""


def instructions(**flags: str) -> list[tuple[int, ...]]:
    """What multiplies in one step: the columns of each matmul in it."""
    plan = planned(cuda_plan(PRODUCTS, KERNEL, 2, **FLAGS | flags))
    joined = plan.pipeline.concatenated
    alone = [
        (8 * mma.fragments.column_tiles,) for n, mma in plan.layouts.mmas.items()
        if n not in joined and mma.uses_wgmma
    ]  # fmt: skip
    return sorted([*alone, *{m.columns for m in joined.values()}])


@needs_compiler
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"overlap": "on"},
        {"producer": "", "copies": "descriptors"},
        {"blocks": "1"},
        {"schedule": "off"},
    ],
    ids=["producer", "overlap", "descriptors", "blocks", "order as written"],
)
def test_agrees_with_float64(flags: dict[str, str]) -> None:
    """Races and deadlocks would be errors. As written, another product stands between those that
    are one instruction.
    """
    plan = cuda_plan(PRODUCTS, KERNEL, 2, **FLAGS | flags)
    judged = check_emulated(plan.ugraph.program, plan, seed=3)
    assert judged.passed, judged.reason


def test_operands_of_equal_panels_are_one() -> None:
    assert instructions() == [(16,), (32, 32)]
    assert instructions(joins="off") == [(16,), (32,), (32,)]
    body = kernel_of(cuda_plan(PRODUCTS, KERNEL, 2, **FLAGS)).body
    assert sorted(re.findall(r"wgmma_m64n(\d+)k16", body)) == ["16", "64"]


def test_loops_without_the_copy_engine_have_them_apart() -> None:
    assert instructions(producer="") == [(16,), (32,), (32,)]


def test_tiles_of_one_instruction_lie_side_by_side() -> None:
    plan = cuda_plan(PRODUCTS, KERNEL, 2, **FLAGS)
    found, body = planned(plan), kernel_of(plan).body
    tensors = {n: found.facts.block.nodes[n].access.tensor for n in found.pipeline.boxes}
    slots = {tensor: found.pipeline.slots[n] for n, tensor in tensors.items()}
    assert slots == {"X": (4096, 0), "U": (4096, 0), "V": (1024, 0), "W": (4096, 2048)}
    assert "u_tiles + stage * 4096 + 2048, &W_map" in body
    # Waits count products.
    assert body.count("wgmma_commit();") == 3
