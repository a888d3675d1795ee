"""Norms of a tile's rows by the warps that fetch it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_plans import cuda_plan, for_cuda, kernel_of
from nightly import NIGHTLY
from plans import relative_error

from mirage_py.errors import ScheduleError
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.search.tilings.hopper_paths import other_paths
from mirage_py.targets import target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

PROGRAM = """
Q[64, C], K[S, C], V[S, 64] : f16
let n[s] = sqrt(sum[c](K[s, c] * K[s, c]) + 0.5)
let A[q, s] = sum[c](Q[q, c] * K[s, c]) / n[s]
O[q, e] = sum[s](softmax[s](A[q, s]) * V[s, e])
"""
KERNEL = """
kernel normed {
  grid q by 64
  %0 = load Q[q, c]
  %1 = const 0.5
  loop s by 64 {
    %2 = load K[s, c]
    %3 = matmul[c] %0, %2
    %4 = square %2
    %5 = sum[c] %4
    %6 = add %5, %1
    %7 = sqrt %6
    %8 = div %3, %7
    %9 = max[s] %8
    %10 = accum_max[shift] %9
    %11 = sub %8, %10
    %12 = exp %11
    %13 = sum[s] %12
    %14 = accum_rescaled[1] %13, %10
    %15 = load V[s, e]
    %16 = matmul[s] %12, %15
    %17 = accum_rescaled[1] %16, %10
  }
  %18 = div %17, %14
  store O[q, e] = %18
}
"""
BY_PRODUCER = {"arch": "sm_90a", "producer": "warps", "sums": "producer"}
WAYS = {
    "plain": {},
    "overlap": {"overlap": "on"},
    "across": {"overlap": "across"},
    "optimistic": {"overlap": "on", "rescaling": "optimistic"},
}


def plan(keys: int = 256, width: int = 64, **flags: str) -> Plan:
    program = PROGRAM.replace("C]", f"{width}]").replace("[S,", f"[{keys},")
    return for_cuda(cuda_plan(program, KERNEL, 3), 8, **{**BY_PRODUCER, **flags})


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "sizes", [*([(256, 64)] if NIGHTLY else []), (232, 64), (192, 128), (192, 32)], ids=str
)
@pytest.mark.parametrize("way", WAYS)
def test_agrees_with_numpy(way, sizes):
    keys, width = sizes
    random = np.random.default_rng(0)
    x = {
        "Q": random.standard_normal((64, width)) * 4,
        "K": random.standard_normal((keys, width)),
        "V": random.standard_normal((keys, 64)),
    }
    x = {name: a.astype("float16").astype("float64") for name, a in x.items()}
    norms = np.sqrt((x["K"] ** 2).sum(1) + 0.5)
    scores = x["Q"] @ x["K"].T / norms
    powers = np.exp(scores - scores.max(1, keepdims=True))
    want = powers @ x["V"] / powers.sum(1, keepdims=True)
    found = run_emulated(plan(keys, width, **WAYS[way]), x)["O"]
    assert relative_error(found, want) < 2e-3


def test_warps_that_compute_do_not_read_the_tile():
    body = kernel_of(plan()).body
    fetching, computing = body.split("registers_increase", 1)
    assert re.search(r"if \(warp > 8\) \{.*total\[j & 1\] \+= square", fetching, re.DOTALL)
    assert "mbarrier_wait(sums_made + stage, parity);" in computing
    assert "square" not in computing
    assert "square" in kernel_of(plan(sums="")).body.split("registers_increase", 1)[1]


def test_the_made_up_tensor_is_no_argument():
    kernel = kernel_of(plan())
    assert [t.name for t in kernel.pointers] == ["Q", "K", "V", "O"]
    assert sorted(m.tensor for m in kernel.tensor_maps) == ["K", "V"]


def test_shifts_stay_in_base_two():
    assert "exp_fast" not in kernel_of(plan()).body


def test_there_has_to_be_a_group_that_fetches():
    with pytest.raises(ScheduleError, match="sums 'producer'"):
        kernel_of(plan(producer=""))


def test_nothing_changes_without_such_a_sum():
    program = """
    Q[64, 64], K[64, 256] : f16
    O[q] = sum[s](sum[c](Q[q, c] * K[c, s]))
    """
    kernel = """
    kernel scores {
      grid q by 64
      %0 = load Q[q, c]
      loop s by 64 {
        %1 = load K[c, s]
        %2 = matmul[c] %0, %1
        %3 = sum[s] %2
        %4 = accum_sum %3
      }
      store O[q] = %4
    }
    """
    with_flag, without = (
        kernel_of(for_cuda(cuda_plan(program, kernel, 3), 8, **{**BY_PRODUCER, "sums": value}))
        for value in ("producer", "")
    )
    assert with_flag.body == without.body


def test_the_tuner_takes_it_where_a_warp_fetches():
    fetched, plain = plan(sums=""), plan(sums="", producer="")

    def asked(where: Plan) -> bool:
        (block,) = where.ugraph.kernels
        assert isinstance(block, BlockGraph)
        paths = other_paths(block, where.options[0], target("h200"))
        return any(o.producer_sums for o in paths)

    assert asked(fetched)
    assert not asked(plain)


def test_blocks_do_not_stay_where_warps_that_fetch_sum_up_rows():
    """They would wait for sums that nobody makes."""
    program = PROGRAM.replace("Q[64,", "Q[128,").replace("C]", "64]").replace("[S,", "[256,")
    for flags, blocks in (({}, 2), ({"sums": ""}, 1)):
        asked = for_cuda(cuda_plan(program, KERNEL, 3), 8, blocks="1", **BY_PRODUCER | flags)
        assert kernel_of(asked).grid == blocks
