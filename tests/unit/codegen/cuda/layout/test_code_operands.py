"""Codes of four and eight bits: 16 bytes at a time to the registers of a matmul, and exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from naive import naive_plan

from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.frontend.spec import parse
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.interpret.program import evaluate_program
from mirage_py.ugraph.ir.launch_choices import Arch
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan

SIZES = "B = 16, J = 128, N = 64\nindex c < 2\n"
BYTES = "B = 16, J = 128, N = 64\nX[B, J] : HALF, W[N, J] : i8\n"
PACKED = f"{SIZES}X[B, 2 * J] : HALF, W[N, J] : u8\n"
LOW, HIGH = "bit_and(W[n, j], 15)", "shift_right(W[n, j], 4)"
PROGRAMS = {
    "signed bytes": (
        "codes_i8",
        f"{BYTES}Y[b, n] : f32 = sum[j](X[b, j] * W[n, j])",
    ),
    "nibbles less a zero point": (
        "codes_u4",
        f"{PACKED}Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * (where(c < 1, {LOW}, {HIGH}) - 8))",
    ),
    "each less a zero point": (
        "codes_u4",
        f"{PACKED}Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * where(c < 1, {LOW} - 8, {HIGH} - 8))",
    ),
    "the high nibble first": (
        "",
        f"{PACKED}Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * (where(c < 1, {HIGH}, {LOW}) - 8))",
    ),
}


def plan_of(text: str, half: str, stages: int = 1) -> Plan:
    options = LaunchConfig(
        num_warps=2, num_stages=(stages,), reversed_axes=True, arch=Arch.SM_90A
    )
    plan = naive_plan(parse(text.replace("HALF", half)), {"n": 32}, options)
    return replace(plan, backend="cuda")


@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_are_taken_apart_in_registers(name: str):
    function, text = PROGRAMS[name]
    for half in ("bf16", "f16"):
        (kernel,) = emit_cuda(plan_of(text, half))
        assert "*reinterpret_cast<const uint4*>(W" in kernel.source
        assert not function or f"{function}_{half}(&" in kernel.source
        assert function or "codes_" not in kernel.source


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["signed bytes", "each less a zero point"])
def test_whole_numbers_are_exact_copied_ahead(name: str):
    plan = plan_of(PROGRAMS[name][1].replace("J = 128", "J = 448"), "bf16", stages=3)
    (kernel,) = emit_cuda(plan)
    assert "cp_async_16(w_tiles + stage" in kernel.source
    # X too, whichever way its index is made.
    assert "cp_async_4(" not in kernel.source
    draw = np.random.default_rng(3)
    arrays = {
        t.name: draw.integers(
            *((-8, 9) if t.name == "X" else (t.dtype.lowest, t.dtype.max_finite + 1)), t.shape
        ).astype(np.float64)
        for t in plan.ugraph.program.inputs
    }
    want = evaluate_program(plan.ugraph.program, arrays, FloatMeaning())["Y"]
    np.testing.assert_array_equal(run_emulated(plan, arrays)["Y"], want)
