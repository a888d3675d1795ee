"""Codes of four and eight bits: 16 bytes at a time to the registers of a matmul, and exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_plans import cuda_plan, kernel_of
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


LOOPS = {
    "signed bytes": (
        """
        B = 16, J = 448, N = 64
        X[B, J] : bf16, W[N, J] : i8
        Y[b, n] : f32 = sum[j](X[b, j] * W[n, j])
        """,
        """
        kernel codes {
          grid n by 32, b by 16
          loop j by 128 {
            %0 = load X[b, j]
            %1 = load W[n, j]
            %2 = matmul[j] %0, %1 : [b, n]
            %3 = accum_sum %2 : [b, n]
          }
          store Y[b, n] = %3
        }
        """,
    ),
    "nibbles": (
        f"""
        B = 16, J = 384, N = 64
        X[B, 2 * J] : bf16, W[N, J] : u8
        index c < 2
        Y[b, n] : f32 = sum[j, c](X[b, 2 * j + c] * (where(c < 1, {LOW}, {HIGH}) - 8))
        """,
        """
        kernel codes {
          grid n by 32, b by 16
          %0 = mask (c < 1)
          %1 = const 15.0
          %2 = const 4.0
          %3 = const 8.0
          loop j by 128 {
            %4 = load X[b, j * 2 + c]
            %5 = load W[n, j]
            %6 = bit_and %5, %1 : [n, j]
            %7 = shift_right %5, %2 : [n, j]
            %8 = where %0, %6, %7 : [n, j, c]
            %9 = sub %8, %3 : [n, j, c]
            %10 = matmul[j, c] %4, %9 : [b, n]
            %11 = accum_sum %10 : [b, n]
          }
          store Y[b, n] = %11
        }
        """,
    ),
}


def plan_of(text: str, half: str) -> Plan:
    options = LaunchConfig(num_warps=2, reversed_axes=True, arch=Arch.SM_90A)
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
def test_whole_numbers_are_exact(name: str):
    plan = plan_of(PROGRAMS[name][1], "bf16")
    assert_exact(plan)


@pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("kind", LOOPS)
def test_codes_of_a_loop_are_copied_ahead_by_the_thread_that_reads_them(kind: str):
    program, kernel = LOOPS[kind]
    plan = cuda_plan(program, kernel, 3, **{"evict:W": "evict_first", "axes": "reversed"})
    source = kernel_of(plan).source
    # A cp.async with a cache policy is an illegal instruction of sm_90.
    assert "cp_async_16(w_tiles + stage * " in source
    assert "cp_async_16(x_tiles + stage * " in source
    assert_exact(plan)


def assert_exact(plan: Plan) -> None:
    draw = np.random.default_rng(3)
    arrays = {
        t.name: draw.integers(
            *((-8, 9) if t.name == "X" else (t.dtype.lowest, t.dtype.max_finite + 1)), t.shape
        ).astype(np.float64)
        for t in plan.ugraph.program.inputs
    }
    want = evaluate_program(plan.ugraph.program, arrays, FloatMeaning())["Y"]
    np.testing.assert_array_equal(run_emulated(plan, arrays)["Y"], want)
