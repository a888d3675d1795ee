"""The checker of emitted code on kernels that Triton compiled, and on faults in them.

``python -m benchmarks.checks.code_faults --backend triton`` plants many more, into many more
kernels.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from code_launches import TRITON, checked, launch_for, text_of
from several_kernels import over

from benchmarks.checks.planted_code import Planted, planted
from benchmarks.checks.planted_triton import OF_TRITON
from mirage_py.formatting.evidence_format import format_evidence
from mirage_py.frontend.spec import parse
from mirage_py.runtime.code_check.check import CodeReport, Effort, check_plan, check_winner
from mirage_py.runtime.code_check.events import OUTPUT, RACE, Fault, Tensor
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan

# Lines in which such a fault reads other places of the same tensor: a wrong value, in order.
_IN_ORDER = {
    ("triton/attention_last", "wrong stride"): (42, 43),
    ("triton/attention_last", "half a stage"): (38,),
    # The group ends with the next one, and both are waited for together.
    ("triton/lora", "copy commit left out"): (63, 75),
}


def test_the_kernels_themselves_are_clean():
    assert len(TRITON) == 3
    for name in TRITON:
        found = checked(text_of(name), launch_for(name))
        assert found.clean, str(found)
        assert found.classes == 1


def _first(kind: str) -> tuple[str, Planted]:
    for name in sorted(TRITON, key=lambda n: len(text_of(n))):
        excepted = _IN_ORDER.get((name, kind), ())
        for fault in planted(text_of(name), {kind: OF_TRITON[kind]}):
            if fault.line not in excepted:
                return name, fault
    pytest.fail(f"'{kind}' fits none of {TRITON}")


@pytest.mark.parametrize("kind", OF_TRITON)
def test_a_planted_fault_is_found(kind: str) -> None:
    name, fault = _first(kind)
    found = checked(fault.text, launch_for(name))
    assert found.faults, f"{fault.name} of {name} was not found: {found}"


@pytest.mark.parametrize("name", TRITON)
@pytest.mark.parametrize("more", [-1, 1])
def test_a_wrong_grid_is_found(name: str, more: int) -> None:
    launch = launch_for(name)
    found = checked(text_of(name), replace(launch, blocks=launch.blocks + more))
    assert found.faults
    if more < 0:
        assert found.faults[0].kind == OUTPUT
        assert "written by nobody" in found.faults[0].what


SPEC = "X[8, 1024] : f16\nY[b, d] = X[b, d] / sum[d](X[b, d] * X[b, d])"
KERNEL = """
kernel scaled {
  grid b by 1
  %0 = load X[b, d]
  %1 = square %0
  %2 = sum[d] %1
  %3 = div %0, %2
  store Y[b, d] = %3
}
"""


@pytest.mark.parametrize("capability", [80, 90])
def test_what_triton_compiles_is_checked(capability: int) -> None:
    plan = Plan(over(parse(SPEC), KERNEL), (LaunchConfig(4, ()),))
    (found,) = check_plan(plan, capability)
    assert found.clean, str(found)
    assert found.blocks == 8
    assert found.events > 8


def test_a_report_says_what_was_checked_of_the_winner() -> None:
    plan = Plan(over(parse(SPEC), KERNEL), (LaunchConfig(4, ()),))
    (found,) = check_winner(plan, 90)
    assert found.clean
    (sentence,) = format_evidence(_verification(found), "")[-1:]
    assert "its 8 blocks stay inside" in sentence
    (left,) = check_plan(plan, 90, Effort(events=3))
    assert "more than 3" in left.unsupported
    assert "was not checked" in format_evidence(_verification(left), "")[-1]
    (cuda,) = check_winner(replace(plan, backend="cuda"), 90)
    assert "verify --code" in cuda.unsupported
    wrong = replace(found, faults=(Fault(RACE, 7, "two threads"),))
    assert "has a fault: race, line 7" in format_evidence(_verification(wrong), "")[-1]


def _verification(report: CodeReport) -> dict[str, object]:
    return {
        "trials": 1,
        "primes": [7],
        "error_bound": None,
        "bound_reason": "",
        "samples": 0,
        "max_rel_error": 0.0,
        "float_bound": 1.0,
        "float_source": "here",
        "code": [report.document()],
    }


_SAME = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry kernel(.param .u64 X, .param .u64 Y)
{
.reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<99>;
ld.param.b64 %rd1, [X];
ld.param.b64 %rd2, [Y];
mov.u32 %r1, %tid.x;
and.b32 %r2, %r1, LOADED;
mul.wide.u32 %rd3, %r2, 4;
add.s64 %rd4, %rd1, %rd3;
ld.global.b32 %r3, [%rd4];
SUMMED
and.b32 %r4, %r1, STORED;
shl.b32 %r5, %r4, 2;
mov.b32 %r6, global_smem;
add.s32 %r7, %r6, %r5;
st.shared.b32 [%r7], %r3;
BARRIER
ld.shared.b32 %r8, [%r6];
mul.wide.u32 %rd5, %r1, 4;
add.s64 %rd6, %rd2, %rd5;
mov.pred %p1, -1;
@%p1 st.global.b32 [%rd6], %r8;
ret;
}
"""
_BUTTERFLY = "shfl.sync.bfly.b32 %r9, %r3, 1, 31, -1;\nadd.f32 %r3, %r3, %r9;"
_FUSED = "mul.f32 %r10, %r3, %r3;\nshfl.sync.bfly.b32 %r9, %r10, 1, 31, -1;\n"
_FUSED += "fma.rn.f32 %r3, %r3, %r3, %r9;"
_SHIFTED = "shfl.sync.down.b32 %r9, %r3, 1, 31, -1;\nadd.f32 %r3, %r3, %r9;"


@pytest.mark.parametrize(
    ("loaded", "summed", "stored", "fault"),
    [
        (63, "", 63, ""),
        (31, "", 31, ""),  # both warps store the same
        (62, "", 62, ""),  # two lanes store the same
        (63, "", 31, RACE),
        (63, "", 62, RACE),
        (63, _BUTTERFLY, 62, ""),
        (63, _FUSED, 62, ""),
        (63, _BUTTERFLY, 61, RACE),
        (63, _SHIFTED, 62, RACE),
        (31, _BUTTERFLY, 30, ""),
    ],
)
def test_several_threads_may_store_the_same(
    loaded: int, summed: str, stored: int, fault: str
) -> None:
    text = _SAME.replace("LOADED", str(loaded)).replace("STORED", str(stored))
    text = text.replace("SUMMED", summed)
    launch = replace(launch_for(TRITON[0]), blocks=1, threads=64, smem_bytes=256, waits=False)
    tensors = {"X": _tensor("X"), "Y": replace(_tensor("Y"), is_output=True)}
    launch = replace(launch, tensors=tensors, maps={})
    found = checked(text.replace("BARRIER", "bar.sync 0;"), launch)
    assert [f.kind for f in found.faults][:1] == ([fault] if fault else []), str(found)
    assert checked(text.replace("BARRIER", ""), launch).faults


def _tensor(name: str) -> Tensor:
    return Tensor(name, 256, 4)
