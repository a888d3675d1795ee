"""Running maxima that stay behind, and sums that are rescaled only where one has moved."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_plans import cuda_plan, kernel_of
from plans import attention_reference, relative_error
from rising_attention import attention, rising_inputs

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.ugraph.ir.plan import Plan

WARPS = {"rescaling": "lazy"}
GROUPS = {**WARPS, "arch": "sm_90a", "producer": "warps", "overlap": "across"}


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("slope", [0.0, 0.05, 0.6, -0.6], ids="slope {}".format)
@pytest.mark.parametrize("flags", [WARPS, GROUPS], ids=["sm_80", "sm_90a, overlap"])
def test_agrees_with_numpy(flags, slope):
    """Maxima that do not rise, rise by less than the slack, and by more in some rows."""
    x = rising_inputs(slope)
    found = run_emulated(attention(**flags), x)["O"]
    assert relative_error(found, attention_reference(x)) < 2e-3


@pytest.mark.parametrize("flags", [WARPS, GROUPS], ids=["sm_80", "sm_90a, overlap"])
def test_sums_are_multiplied_where_a_maximum_of_the_warp_has_moved(flags):
    body = kernel_of(attention(**flags)).body
    assert "_top > peak4[r] + 8.0f" in body
    voted = r"if \(__any_sync\(0xffffffffu, peak4_rises\)\) \{\s*#pragma[^}]*\*= peak4"
    assert re.search(voted, body)
    assert "fmaxf(peak4" not in body


def test_a_maximum_that_is_a_result_is_exact():
    assert "_rises" not in kernel_of(attention(is_shift=False, **WARPS)).body


WEIGHTED = """
B[16, 64], G[64], V[64, 16] : TYPE
O[q, e] = sum[s](softmax[s](B[q, s]) * G[s] * V[s, e])
"""

WEIGHTED_KERNEL = """
kernel weighted {
  grid q by 16
  loop s by 16 {
    %0 = load B[q, s]
    %1 = max[s] %0
    %2 = accum_max[shift] %1
    %3 = sub %0, %2
    %4 = exp %3
    %5 = sum[s] %4
    %6 = accum_rescaled[1] %5, %2
    %7 = load G[s]
    %8 = mul %4, %7
    %9 = load V[s, e]
    %10 = matmul[s] %8, %9
    %11 = accum_rescaled[1] %10, %2
  }
  %12 = div %11, %6
  store O[q, e] = %12
}
"""


def weighted(dtype: str) -> Plan:
    return cuda_plan(WEIGHTED.replace("TYPE", dtype), WEIGHTED_KERNEL, 2, **WARPS)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_no_half_overflows_where_exponentials_are_multiplied(dtype):
    """800 times 2^7 is more than a float16 holds."""
    x = {
        "B": np.broadcast_to(np.arange(64) / 16 * 1.25, (16, 64)),
        "G": np.full(64, 800.0),
        "V": np.ones((64, 16)),
    }
    assert relative_error(run_emulated(weighted(dtype), x)["O"], np.full((16, 16), 800.0)) < 8e-3
    assert ("_rises" in kernel_of(weighted(dtype)).body) == (dtype == "bf16")
