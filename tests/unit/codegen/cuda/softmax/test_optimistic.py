"""Exponentials that are taken before the maximum of their tile is known."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_plans import cuda_plan, kernel_of
from plans import attention_reference, relative_error
from rising_attention import KERNEL, SPEC, attention, rising_inputs

from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated

WARPS = {"rescaling": "optimistic"}
GROUPS = {**WARPS, "arch": "sm_90a", "producer": "warps"}
OVERLAP = {**GROUPS, "overlap": "on"}
VOTE = r"bool peak4_rises = __any_sync\(0xffffffffu, !\(acc\d_tile\[0\] < 32768\.0f && "


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("slope", [0.0, 0.05, 0.6, -0.6], ids="slope {}".format)
@pytest.mark.parametrize("flags", [WARPS, GROUPS, OVERLAP], ids=["sm_80", "sm_90a", "overlap"])
def test_agrees_with_numpy(flags, slope):
    """Maxima that do not rise, rise by less than the room above them, and by more in some rows."""
    x = rising_inputs(slope)
    found = run_emulated(attention(**flags), x)["O"]
    assert relative_error(found, attention_reference(x)) < 2e-3


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("flags", [WARPS, OVERLAP], ids=["sm_80", "overlap"])
def test_nan_comes_through(flags):
    x = rising_inputs(0.05)
    x["K"][3, 200] = np.nan
    assert np.isnan(run_emulated(attention(**flags), x)["O"]).all()


@pytest.mark.parametrize("flags", [WARPS, OVERLAP], ids=["sm_80", "overlap"])
def test_the_maximum_is_found_where_a_sum_is_large(flags):
    body = kernel_of(attention(**flags)).body
    (vote,) = re.finditer(VOTE, body)
    behind = body[vote.end() :]
    assert behind.index("if (peak4_rises)") < behind.index("fmaxf(max3")
    assert ": 2.0f) + 4.0f" in body
    rescaled = r"if \(peak4_rises\) \{\s*#pragma[^}]*acc12\[r\] \*= peak4"
    assert re.search(rescaled, behind)


def test_late_products_are_waited_for_behind_the_vote():
    body = kernel_of(attention(**OVERLAP)).body
    assert body.index("peak4_rises = __any_sync") < body.index(
        "wgmma_wait<0>();\n        keep(acc12)"
    )


def test_a_maximum_that_is_a_result_is_exact():
    body = kernel_of(attention(is_shift=False, **WARPS)).body
    assert "_rises" not in body
    assert "+ 4.0f" not in body


def test_across_iterations_the_maximum_is_found_first():
    """What rescales sums there is another iteration's."""
    flags = {**OVERLAP, "overlap": "across"}
    assert (
        kernel_of(attention(**flags)).body
        == kernel_of(attention(**{**flags, "rescaling": ""})).body
    )


MASKED = """
Q[64, 32], K[32, 64], V[64, 32] : f16
let A[q, s] = where(s >= 63 - q, sum[c](Q[q, c] * K[c, s]), -1e30)
O[q, e] = sum[s](softmax[s](A[q, s]) * V[s, e])
"""

MASKED_KERNEL = """
kernel masked {
  grid q by 64
  %0 = load Q[q, c]
  %1 = const -1e+30
  loop s by 16 {
    %2 = load K[c, s]
    %3 = matmul[c] %0, %2
    %4 = mask (s >= 63 - q)
    %5 = where %4, %3, %1
    %6 = max[s] %5
    %7 = accum_max[shift] %6
    %8 = sub %5, %7
    %9 = exp %8
    %10 = mul %9, %4
    %11 = sum[s] %10
    %12 = accum_rescaled[1] %11, %7
    %13 = load V[s, e]
    %14 = matmul[s] %10, %13
    %15 = accum_rescaled[1] %14, %7
  }
  %16 = div %15, %12
  store O[q, e] = %16
}
"""


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
def test_rows_without_a_position_in_the_first_tiles():
    """Nothing of a row is known until its first position comes."""
    random = np.random.default_rng(0)
    x = {
        "Q": random.standard_normal((64, 32)),
        "K": random.standard_normal((32, 64)),
        "V": random.standard_normal((64, 32)),
    }
    x = {name: a.astype("float16").astype("float64") for name, a in x.items()}
    seen = np.arange(64) >= 63 - np.arange(64)[:, None]
    plan = cuda_plan(MASKED, MASKED_KERNEL, 3, **WARPS)
    assert "_rises" in kernel_of(plan).body
    assert relative_error(run_emulated(plan, x)["O"], attention_reference(x, seen)) < 2e-3


def test_what_the_maximum_is_of_is_computed_with_the_exponentials():
    """A scale of each column: in the common way it is no more than a factor there."""
    program = SPEC.replace("V[224, 64]", "V[224, 64], G[224]").replace(
        "K[c, s])", "K[c, s]) * G[s]"
    )
    kernel = re.sub(r"%(\d+)", lambda m: f"%{int(m[1]) + (2 if int(m[1]) > 2 else 0)}", KERNEL)
    kernel = kernel.replace(
        "%5 = max[s] %2", "%3 = load G[s]\n    %4 = mul %2, %3\n    %5 = max[s] %4"
    )
    kernel = kernel.replace("%7 = sub %2, %6", "%7 = sub %4, %6")
    body = kernel_of(cuda_plan(program, kernel, 3, **OVERLAP)).body
    loop = body[body.index("__any_sync") :]
    assert not re.search(r"float mul\d+\[\d+\]", loop.split("for (int s_start")[0])
    assert len(re.findall(r"const float mul\d+ = dot2", loop.split("keep(acc")[0])) == 2


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("flags", [WARPS, OVERLAP], ids=["sm_80", "overlap"])
def test_what_no_sum_bounds_is_shifted_by_its_maximum(flags):
    """The sum is of what a mask leaves, the product of all exponentials: those that the mask hides
    rise by 2^24.
    """
    program = SPEC.replace("softmax[s](A[q, s]) * V[s, e])", "exp(A[q, s]) * V[s, e]) / ").strip()
    program += "sum[s](exp(A[q, s]) * (s < 32))\n"
    kernel = re.sub(r"%(\d+)", lambda m: f"%{int(m[1]) + (2 if int(m[1]) > 6 else 0)}", KERNEL)
    masked = "%7 = mask (s < 32)\n    %8 = mul %6, %7\n    %9 = sum[s] %8"
    plan = cuda_plan(program, kernel.replace("%9 = sum[s] %6", masked), 3, **flags)
    x = rising_inputs(0.0)
    x["Q"][:, 0] = 0.0742
    x["V"] *= 2.0**-12
    x = {name: a.astype(np.float16).astype(np.float64) for name, a in x.items()}
    powers = np.exp(x["Q"] @ x["K"])
    want = powers @ x["V"] / powers[:, :32].sum(1, keepdims=True)
    assert relative_error(run_emulated(plan, x)["O"], want) < 2e-3
