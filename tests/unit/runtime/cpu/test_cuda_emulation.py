from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plans import (
    attention_plan,
    attention_reference,
    random_inputs,
    relative_error,
    rms_plan,
    rms_reference,
)

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import CompileError, InputError
from mirage_py.reasons import Code
from mirage_py.runtime.base.emission import ZeroFill
from mirage_py.runtime.cpu import cpu_build, cuda_emulation
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.runtime.cpu.cuda_emulation import check_emulated, run_emulated, run_kernels
from mirage_py.ugraph.ir.dtypes import BF16, F16, F32
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import LibraryCall

pytestmark = pytest.mark.skipif(cpp_compiler() is None, reason="no C++ compiler")

C_NAMES = {F16: "__half", BF16: "__nv_bfloat16", F32: "float"}


def doubling(x: Tensor, y: Tensor, statement: str = "Y[at] = float(X[at]) + float(X[at]);"):
    """A kernel over 4 blocks of 32 threads, in which ``at`` is the number of an element."""
    body = f"""\
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void __launch_bounds__(32) doubling(
    const {C_NAMES[x.dtype]}* __restrict__ X, {C_NAMES[y.dtype]}* __restrict__ Y) {{
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    {statement}
}}
"""
    return CudaKernel("doubling", body, body, (x, y), (), 4, 1, 32, 0, 80, LaunchConfig())


def program_of(x: Tensor, y: Tensor) -> Program:
    return Program("doubling", (), (x,), (), (Output(y, 0, ()),))


X, Y = Tensor("X", (128,), F32), Tensor("Y", (128,), F32)
ARRAYS = {"X": np.arange(128) / 7}


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_inputs_are_rounded_first(dtype):
    x, y = replace(X, dtype=dtype), replace(Y, dtype=dtype)
    got = run_kernels(program_of(x, y), (doubling(x, y),), ARRAYS)["Y"]
    assert got.dtype == np.float64
    assert relative_error(got, 2 * ARRAYS["X"]) < 2 * dtype.unit_roundoff
    if dtype != F32:
        assert relative_error(got, 2 * ARRAYS["X"]) > 1e-5


def test_strides_are_kept():
    x, y = Tensor("X", (8, 16), F32, (1, 8)), Tensor("Y", (8, 16), F32, (1, 8))
    arrays = {"X": np.arange(128.0).reshape(8, 16)}
    got = run_kernels(program_of(x, y), (doubling(x, y),), arrays)["Y"]
    np.testing.assert_array_equal(got, 2 * arrays["X"])


def test_what_nobody_writes_is_nan():
    kernel = doubling(X, Y, "if (at < 100) Y[at] = X[at];")
    got = run_kernels(program_of(X, Y), (kernel,), ARRAYS)["Y"]
    assert np.isnan(got[100:]).all()
    assert not np.isnan(got[:100]).any()


def test_libraries_and_zero_fills_between_kernels():
    kernel = doubling(X, Y, "atomicAdd(Y + at / 2, X[at]);")
    between = Tensor("Z", (128,), F32)
    steps = (
        LibraryCall("twice", "add", ("X", "X"), "Z"),
        ZeroFill("Y"),
        replace(kernel, pointers=(between, Y)),
    )
    got = run_kernels(program_of(X, Y), steps, ARRAYS, tensors=(between,))["Y"]
    want = 2 * ARRAYS["X"].reshape(64, 2).sum(1)
    np.testing.assert_allclose(got[:64], want, rtol=1e-6)
    assert (got[64:] == 0).all()


def test_a_kernel_is_compiled_once(monkeypatch):
    run_kernels(program_of(X, Y), (doubling(X, Y),), ARRAYS)
    monkeypatch.setattr(cpu_build, "_compile", None)
    run_kernels(program_of(X, Y), (doubling(X, Y),), ARRAYS)


@pytest.mark.skipif("g++" not in (cpp_compiler() or ""), reason="clang reads the text")
def test_a_kernel_takes_the_header_precompiled(monkeypatch):
    run, files = cpu_build.subprocess.run, []

    def listed(command, **more):
        done = run([*command, "-H"], **more)  # "! FILE" for a precompiled one that fits
        files.extend(done.stderr.splitlines())
        return done

    monkeypatch.setattr(cpu_build.subprocess, "run", listed)
    cpu_build.executable(doubling(X, Y, "Y[at] = X[at] * 17.0f;"))
    assert [f for f in files if "device.h" in f] == [f for f in files if f.startswith("! ")] != []


def test_without_a_cache_it_is_kept_for_this_process(monkeypatch, tmp_path):
    monkeypatch.setenv("MIRAGE_PY_NO_CACHE", "1")
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_build, "scratch_folder", lambda: tmp_path)
    monkeypatch.setattr(cpu_build, "_compile", lambda command, kernel: made(command[-1]))
    path = cpu_build.executable(doubling(X, Y))
    assert path.parent == tmp_path
    assert not (tmp_path / "cache").exists()


def made(path: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write("")


def test_without_a_compiler_it_says_so(monkeypatch):
    monkeypatch.setattr(cpu_build, "cpp_compiler", lambda: None)
    with pytest.raises(InputError, match=r"no C\+\+ compiler"):
        run_kernels(program_of(X, Y), (doubling(X, Y),), ARRAYS)


def test_a_kernel_that_does_not_end_is_stopped(monkeypatch):
    monkeypatch.setattr(cuda_emulation, "TIMEOUT_S", 0.3)
    kernel = doubling(X, Y, "volatile int i = 1; while (i) {}")
    with pytest.raises(CompileError, match="does not end"):
        run_kernels(program_of(X, Y), (kernel,), ARRAYS)


def test_a_wrong_address_ends_the_kernel_alone():
    kernel = doubling(X, Y, "Y[at + 1] = 0;")
    with pytest.raises(CompileError) as caught:
        run_kernels(program_of(X, Y), (kernel,), ARRAYS)
    assert "block 3, thread 31: write of 4 bytes outside of Y" in str(caught.value)
    assert "line 7: Y[at + 1] = 0;" in str(caught.value)


@pytest.mark.parametrize("arrays", [{}, {"X": np.zeros(127)}], ids=["missing", "shape"])
def test_inputs_that_do_not_fit_are_refused(arrays):
    with pytest.raises(InputError, match="'X'"):
        run_kernels(program_of(X, Y), (doubling(X, Y),), arrays)


def test_plans_of_triton_are_refused():
    plan = rms_plan()
    with pytest.raises(InputError, match="triton"):
        run_emulated(plan, random_inputs(plan.ugraph.program))


def test_a_plan_with_two_loops():
    plan = replace(rms_plan(), backend="cuda")
    arrays = random_inputs(plan.ugraph.program)
    assert relative_error(run_emulated(plan, arrays)["Y"], rms_reference(arrays)) < 2e-3


def test_attention_passes_the_numerical_check():
    plan = replace(attention_plan(), backend="cuda")
    program = plan.ugraph.program
    assert check_emulated(program, plan, seed=1).passed
    arrays = random_inputs(program)
    assert relative_error(run_emulated(plan, arrays)["O"], attention_reference(arrays)) < 2e-3


def test_a_plan_that_does_not_run_has_not_passed(monkeypatch):
    plan = replace(rms_plan(), backend="cuda")
    monkeypatch.setattr(cuda_emulation, "TIMEOUT_S", 1e-4)
    evidence = check_emulated(plan.ugraph.program, plan, seed=1)
    assert not evidence.passed
    assert evidence.reason.code is Code.NOT_RUN
    assert "does not end" in str(evidence.reason)


def with_one_and_two_roundings():
    """Of ``x * log2(e) - x`` in float32: a product of two floats is exact in float64."""
    x, log2_e = np.float32(ARRAYS["X"]), np.float32(1.4426950408889634)
    once = np.float32(x.astype(np.float64) * np.float64(log2_e) - x)
    return once.astype(np.float64), (x * log2_e - x).astype(np.float64)


@pytest.mark.skipif("off" in str(cpu_build.contraction_flags()), reason="the CPU has no fma")
@pytest.mark.parametrize(
    "statement",
    [
        "Y[at] = X[at] * 1.4426950408889634f - X[at];",
        "const float m = X[at] * 1.4426950408889634f; const float y = m - X[at]; Y[at] = y;",
    ],
)
def test_products_are_contracted_as_by_nvcc(statement):
    got = run_kernels(program_of(X, Y), (doubling(X, Y, statement),), ARRAYS)["Y"]
    once, twice = with_one_and_two_roundings()
    assert (once != twice).any()
    np.testing.assert_array_equal(got, once)


@pytest.mark.parametrize(
    "statement",
    [
        "Y[at] = __fmul_rn(X[at], 1.4426950408889634f) - X[at];",
        "Y[at] = __fsub_rn(X[at] * 1.4426950408889634f, X[at]);",
        "Y[at] = __fadd_rn(X[at] * 1.4426950408889634f, -X[at]);",
    ],
)
def test_rounded_operations_are_never_contracted(statement):
    got = run_kernels(program_of(X, Y), (doubling(X, Y, statement),), ARRAYS)["Y"]
    np.testing.assert_array_equal(got, with_one_and_two_roundings()[1])


def test_a_cpu_without_fma_compiles_without(monkeypatch, tmp_path):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(cpu_build, "_CPU_INFO", info)
    monkeypatch.setattr(cpu_build.platform, "machine", lambda: "x86_64")
    statement = "Y[at] = X[at] * 1.4426950408889634f - X[at];"
    for flags in (None, "flags : sse2 avx fma4\n"):
        if flags is not None:
            info.write_text(flags)
        assert cpu_build.contraction_flags() == ("-ffp-contract=off",)
        got = run_kernels(program_of(X, Y), (doubling(X, Y, statement),), ARRAYS)["Y"]
        np.testing.assert_array_equal(got, with_one_and_two_roundings()[1])
    info.write_text("flags : sse2 avx fma\n")
    assert "-mfma" in cpu_build.contraction_flags()
