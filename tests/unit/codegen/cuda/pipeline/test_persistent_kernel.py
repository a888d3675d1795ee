"""Blocks that take one place of the grid after another (launch option ``blocks``)."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_plans import cuda_plan, error_of, for_cuda, kernel_of, planned
from plans import attention_plan, attention_reference, rms_plan, rms_reference

from mirage_py.codegen.cuda.plan.pipeline_plan import INPUTS, Signal
from mirage_py.codegen.cuda.plan.tile_scheduler import schedule_tiles
from mirage_py.codegen.lowering.lowering import lowered
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import check_emulated
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

FLAGS = {"arch": "sm_90a", "producer": "warps"}
needs_compiler = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")

CAUSAL = """
Q[2, 256, 64], K[2, 64, 256], V[2, 256, 64] : f16
let A[h, q, s] = where(s <= q, 0.125 * sum[c](Q[h, q, c] * K[h, c, s]), -1e30)
O[h, q, e] = sum[s](softmax[s](A[h, q, s]) * V[h, s, e])
"""

KERNEL = """
kernel causal {
  grid q by 64, h by 1
  %0 = load Q[h, q, c]
  %1 = const 0.125
  %2 = const -1e+30
  loop s by 32 {
    %3 = load K[h, c, s]
    %4 = matmul[c] %0, %3
    %5 = mul %4, %1
    %6 = mask (s <= q)
    %7 = where %6, %5, %2
    %8 = max[s] %7
    %9 = accum_max[shift] %8
    %10 = sub %7, %9
    %11 = exp %10
    %12 = mul %11, %6
    %13 = sum[s] %12
    %14 = accum_rescaled[1] %13, %9
    %15 = load V[h, s, e]
    %16 = matmul[s] %12, %15
    %17 = accum_rescaled[1] %16, %9
  }
  %18 = div %17, %14
  store O[h, q, e] = %18
}
"""

PRODUCT = """
X[256, 128], W[128, 128] : f16
Y[m, n] = sum[k](X[m, k] * W[k, n])
"""

PRODUCT_KERNEL = """
kernel product {
  grid m by 64, n by 64
  loop k by 32 {
    %0 = load X[m, k]
    %1 = load W[k, n]
    %2 = matmul[k] %0, %1
    %3 = accum_sum %2
  }
  store Y[m, n] = %3
}
"""


def staying(blocks: int, warps: int = 4, **flags: str) -> Plan:
    """Attention of four places, without masks."""
    plan = attention_plan(2, 32 * warps, 192, 64, (16 * warps, 64))
    return for_cuda(plan, warps, 3, blocks=str(blocks), **FLAGS | flags)


@needs_compiler
@pytest.mark.parametrize(
    "plan",
    [
        staying(3),
        staying(1, overlap="on"),
        staying(3, overlap="across", rescaling="lazy"),
        staying(3, 8, overlap="on", turns="on"),
    ],
    ids=["no overlap", "overlap", "across", "turns"],
)
def test_agrees_with_float64(plan: Plan) -> None:
    """Races and deadlocks would be errors."""
    judged = check_emulated(plan.ugraph.program, plan, seed=3)
    assert judged.passed, judged.reason


@needs_compiler
@pytest.mark.parametrize("flags", [{}, {"overlap": "on"}, {"overlap": "across"}])
def test_places_with_unequal_work(flags):
    seen = np.arange(256) <= np.arange(256)[:, None]

    def reference(x):
        heads = [{n: a[h] for n, a in x.items()} for h in range(2)]
        return np.stack([attention_reference(one | {"Q": 0.125 * one["Q"]}, seen) for one in heads])

    plan = cuda_plan(CAUSAL, KERNEL, 3, blocks="3", **FLAGS | flags)
    assert error_of(plan, reference) < 2e-3


@needs_compiler
@pytest.mark.parametrize("stages", [1, 2])
def test_two_loops(stages):
    """With one stage the sum of squares reads its rows straight from memory, without the engine."""
    plan = for_cuda(rms_plan(40, 128, 64), 4, stages, blocks="2", **FLAGS)
    assert kernel_of(plan).grid == 2
    assert error_of(plan, rms_reference) < 2e-3


@needs_compiler
@pytest.mark.parametrize("overlap", ["", "on"])
def test_a_product(overlap):
    plan = cuda_plan(PRODUCT, PRODUCT_KERNEL, 3, blocks="3", overlap=overlap, **FLAGS)
    assert error_of(plan, lambda x: x["X"] @ x["W"]) < 2e-3


def test_places_with_unequal_work_are_dealt_out_longest_first():
    plan = cuda_plan(CAUSAL, KERNEL, 3, blocks="3", **FLAGS)
    assert planned(plan).grid == 3
    assert planned(plan).work_tiles == [[3, 1, 0], [7, 5, 4], [2, 6]]
    kernel = kernel_of(plan)
    text = re.search(r"places\[\] = \{([^}]*)\}", kernel.body)[1]
    # Four tiles of queries for each head: the last ones first, both heads side by side; each place
    # goes to the block that is free first, 8 is none.
    rounds = [[int(n) for n in text.split(",")][first : first + 3] for first in range(0, 12, 3)]
    assert rounds == [[3, 7, 2], [1, 5, 6], [0, 4, 8], [8, 8, 8]]


def test_a_block_that_is_free_first_takes_the_next_place():
    plan = cuda_plan(CAUSAL, KERNEL, 3, **FLAGS)
    block = plan.ugraph.kernels[0]
    assert isinstance(block, BlockGraph)
    low = lowered(plan.ugraph, [block]).blocks[0].block
    dealt = schedule_tiles(Tiling(plan.ugraph.program, low), {"q"}, 3)
    assert sorted(place for own in dealt for place in own) == list(range(8))
    # 2, 4, 6 or 8 iterations and two sections more.
    work = [sum(place % 4 * 2 + 4 for place in own) for own in dealt]
    assert max(work) - min(work) <= 4


@needs_compiler
def test_an_axis_of_one_tile_is_none_of_the_grid():
    """Its mask still bounds the loop."""
    seen = np.arange(96) <= np.arange(60)[:, None]

    def reference(x):
        return np.stack(
            [
                attention_reference({"Q": 0.125 * q, "K": k, "V": v}, seen)
                for q, k, v in zip(x["Q"], x["K"], x["V"], strict=True)
            ]
        )

    program = CAUSAL.replace("Q[2, 256,", "Q[3, 60,").replace("K[2, 64, 256]", "K[3, 64, 96]")
    program = program.replace("V[2, 256,", "V[3, 96,")
    plan = cuda_plan(program, KERNEL, 3, blocks="2", **FLAGS)
    assert kernel_of(plan).grid == 2
    assert error_of(plan, reference) < 2e-3


def test_places_with_equal_work_are_taken_in_turn():
    assert planned(staying(3)).work_tiles == ()
    body = kernel_of(staying(3)).body
    assert "for (int place = (int)blockIdx.x; place < 4; place += 3, ++round)" in body


def test_queries_of_the_next_place_are_fetched_while_results_are_stored():
    plan = planned(staying(3, overlap="across"))
    (query,) = plan.pipeline.inputs
    assert plan.facts.block.nodes[query].access.tensor == "Q"
    signals = [(m.signal, m.stages, m.arrivals) for m in plan.mbarriers if m.section == INPUTS]
    assert signals == [(Signal.FULL, 1, 1), (Signal.EMPTY, 1, 4)]
    assert {*plan.staged} == {*plan.pipeline.boxes}  # nothing by cp.async
    body = kernel_of(staying(3, overlap="across")).body
    behind = body[body.index("mbarrier_arrive(inputs_empty)") :]
    assert "The products of the last iteration." in behind


def test_turns_go_on_from_place_to_place():
    """The first group need not wait at a place until the last one has left the place before."""
    body = kernel_of(staying(3, 8, overlap="across", turns="on")).body
    head, places = body.split("for (int place_2", 1)
    assert "if (warp >= 4) named_arrive(2, 256);" in head
    assert "if (warp >= 4)" not in places
    inside, behind = places.rsplit("if (warp < 4) named_barrier(2, 256);", 1)
    assert "named_barrier(2, 256)" not in inside
    assert behind.split() == ["}"]


def test_without_a_warp_that_fetches_each_block_has_one_place():
    plan = attention_plan(2, 128, 192, 64, (64, 64))
    plain = for_cuda(plan, 4, 3, arch="sm_90a", copies="descriptors")
    asked = for_cuda(plan, 4, 3, arch="sm_90a", copies="descriptors", blocks="3")
    assert kernel_of(asked).body == kernel_of(plain).body
    assert kernel_of(staying(4)).grid == 4
    assert "place" not in kernel_of(staying(4)).body
