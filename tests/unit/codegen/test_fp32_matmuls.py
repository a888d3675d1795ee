"""Matmuls of float32 as they are emitted: the instructions, and what they round."""

from __future__ import annotations

import re

import pytest
import several_kernels
from cuda_plans import for_cuda, kernel_of
from fp32_plans import KERNEL, matmul_plan, matmul_program

from mirage_py.codegen.triton.module import emit_triton
from mirage_py.errors import ScheduleError
from mirage_py.frontend.spec import parse
from mirage_py.reasons import Code
from mirage_py.runtime.compile.compile import KernelSource, checked_handle
from mirage_py.runtime.cpu.cuda_emulation import check_emulated
from mirage_py.runtime.cpu.triton_interpreter import check_interpreted
from mirage_py.ugraph.ir.dtypes import Fp32Precision
from mirage_py.ugraph.ir.launch_choices import Precision
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan

TF32_ROUNDOFF = 2.0**-11
# Y = X V with the rows of V along the inner positions, as wgmma takes TF32.
ALONG = """
B = 70, D = 96, N = 72
X[B, D], V[N, D] : f32
Y[b, n] = sum[d](X[b, d] * V[n, d])
"""


def by_wgmma(spec: str = ALONG, tile: str = "V[n, d]", **flags: str) -> Plan:
    """A matmul in TF32 that is asked to go by wgmma."""
    program = parse(spec).held_to(Fp32Precision("tf32"))
    kernel = KERNEL.replace("W[d, n]", tile)
    config = LaunchConfig(4, (2,), precision=Precision.TF32)
    plan = Plan(several_kernels.over(program, kernel), (config,), "cuda")
    asked = {"arch": "sm_90a", "producer": "warps", "products": "wgmma"}
    return for_cuda(plan, **asked | flags)


def test_exact_unless_it_is_said():
    """Triton's own default is TF32."""
    (kernel,) = emit_triton(matmul_plan(matmul_program(), None))
    assert 'input_precision="ieee"' in kernel.text.source


def test_of_halves_nothing_is_said():
    (kernel,) = emit_triton(matmul_plan(matmul_program(dtype="f16"), None))
    assert "tl.dot(" in kernel.text.source
    assert "input_precision" not in kernel.text.source


@pytest.mark.parametrize(("capability", "instruction"), [
    (80, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
    (90, "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32"),
])  # fmt: skip
def test_instructions(capability, instruction):
    """Where float32 has to be exact each iteration's sum is added to the accumulator for itself."""
    counts = {}
    for precision in (None, Precision.TF32, Precision.TF32X3):
        (kernel,) = emit_triton(matmul_plan(matmul_program(), precision))
        ptx = checked_handle(KernelSource.of(kernel), capability).asm["ptx"]
        counts[precision] = ptx.count(instruction), len(re.findall(r"\badd(\.rn)?\.f32", ptx))
    added = 64 * 64 // 128
    (products, additions) = counts[Precision.TF32]
    assert products > 0
    assert additions == 0
    assert counts[Precision.TF32X3] == (3 * products, added)
    assert counts[None] == (0, added)


@pytest.mark.parametrize(("backend", "check"), [
    ("triton", check_interpreted), ("cuda", check_emulated),
])  # fmt: skip
def test_numbers(backend, check):
    """Without a GPU too a kernel of TF32 rounds: it fails where float32 has to be exact."""
    exact, rounded = (matmul_program(64, 64, 64, p) for p in ("ieee", "tf32"))
    found = check(exact, matmul_plan(exact, Precision.TF32X3, backend), seed=1)
    assert found.passed, found.reason
    assert found.max_rel_error < TF32_ROUNDOFF / 64
    refused = check(exact, matmul_plan(exact, Precision.TF32, backend), seed=1)
    assert refused.reason.code is Code.TOO_FAR
    found = check(rounded, matmul_plan(rounded, Precision.TF32, backend), seed=1)
    assert found.passed, found.reason
    # Rounded to the nearest: twice as much where bits are left out, and of one sign.
    assert TF32_ROUNDOFF / 8 < found.max_rel_error < TF32_ROUNDOFF


def test_wgmma_in_tf32_reads_what_tma_has_rounded():
    plan = by_wgmma()
    kernel = kernel_of(plan)
    assert "wgmma_m64n64k8_tf32_ss_kk(" in kernel.body
    assert [m.rounds for m in kernel.tensor_maps] == [True, True]
    found = check_emulated(plan.ugraph.program, plan, seed=1)
    assert found.passed, found.reason
    assert TF32_ROUNDOFF / 8 < found.max_rel_error < TF32_ROUNDOFF


def test_wgmma_in_tf32_only_where_it_can_be():
    """Rows of both operands lie along the inner positions, and TMA loads them."""
    across = ALONG.replace("V[N, D]", "V[D, N]").replace("V[n, d]", "V[d, n]")
    for plan in (
        by_wgmma(across, "V[d, n]"),
        by_wgmma(producer=""),
        by_wgmma(arch="sm_80"),
        by_wgmma(products="mma"),
    ):
        body = kernel_of(plan).body
        assert "mma_tf32(" in body
        assert "wgmma" not in body
    # Rows of 98 floats are no steps of TMA's.
    with pytest.raises(ScheduleError, match="nothing else rounds it"):
        kernel_of(by_wgmma(ALONG.replace("D = 96", "D = 98")))
