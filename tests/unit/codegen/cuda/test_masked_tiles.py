"""Loops under a mask: tiles all over which it holds are computed without it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_plans import cuda_plan, error_of, kernel_of
from plans import attention_reference

from mirage_py.runtime.cpu.cpu_build import cpp_compiler

CAUSAL = """
Q[128, 64], K[64, 224], V[224, 64] : f16
let A[q, s] = where(s <= q + 90, 0.125 * sum[c](Q[q, c] * K[c, s]), -1e30)
O[q, e] = sum[s](softmax[s](A[q, s]) * V[s, e])
"""

KERNEL = """
kernel causal {
  grid q by 64
  %0 = load Q[q, c]
  %1 = const 0.125
  %2 = const -1e+30
  loop s by 32 {
    %3 = load K[c, s]
    %4 = matmul[c] %0, %3
    %5 = mul %4, %1
    %6 = mask (s <= q + 90)
    %7 = where %6, %5, %2
    %8 = max[s] %7
    %9 = accum_max[shift] %8
    %10 = sub %7, %9
    %11 = exp %10
    %12 = mul %11, %6
    %13 = sum[s] %12
    %14 = accum_rescaled[1] %13, %9
    %15 = load V[s, e]
    %16 = matmul[s] %12, %15
    %17 = accum_rescaled[1] %16, %9
  }
  %18 = div %17, %14
  store O[q, e] = %18
}
"""
FLAGS = [{}, {"arch": "sm_90a", "producer": "warps", "overlap": "across"}]
IDS = ["sm_80", "sm_90a, overlap"]


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("flags", FLAGS, ids=IDS)
def test_agrees_with_numpy(flags):
    seen = np.arange(224) <= np.arange(128)[:, None] + 90

    def reference(x):
        return attention_reference(x | {"Q": 0.125 * x["Q"]}, seen)

    assert error_of(cuda_plan(CAUSAL, KERNEL, 3, **flags), reference) < 2e-3


@pytest.mark.parametrize("flags", FLAGS, ids=IDS)
def test_only_the_last_tiles_are_masked(flags):
    body = kernel_of(cuda_plan(CAUSAL, KERNEL, 3, **flags)).body
    whole, *_ = re.findall(r"for \(; s_start \+ 32 <= min\(.*\); s_start \+= 32\)", body)
    rest = body[body.index(whole) :]
    inside, behind = rest.split("for (; s_start < min(", 1)
    masks = re.compile(r"const bool mask\d+ = .*<=.*q_start")
    assert not masks.search(inside)
    assert masks.search(behind)
