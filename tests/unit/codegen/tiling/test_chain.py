"""Kernels of a chain: they start early behind whatever lies in front of their plan."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import several_kernels
from plans import random_inputs
from several_kernels import over

from mirage_py.codegen.tiling.dependent_launch import launch_orders
from mirage_py.frontend.spec import parse
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.code_check.check import check_code, check_plan
from mirage_py.runtime.code_check.events import Launch
from mirage_py.runtime.code_check.launches import triton_launch_of
from mirage_py.runtime.code_check.ptx.ptx import Entry
from mirage_py.runtime.compile.compile import KernelSource, compiled_handle
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.launch_choices import NextStart
from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.plan import Plan, chained

# One kernel that multiplies a row by weights, in a loop; rows of weights have a tail.
SPEC = """
B = 1, D = 256, N = 40
X[B, D], R[B, N], W[N, D] : f16
Y[b, n] = sum[d](X[b, d] * W[n, d]) + R[b, n]
"""
KERNEL = """
kernel rows {
  grid n by 16
  loop d by 64 {
    %0 = load X[b, d]
    %1 = load W[n, d]
    %2 = matmul[d] %0, %1
    %3 = accum_sum %2
  }
  %4 = load R[b, n]
  %5 = add %3, %4
  store Y[b, n] = %5
}
"""
WAIT = {"triton": "cuda.gdc_wait()", "cuda": "wait_for_kernel_before("}
START = {"triton": "cuda.gdc_launch_dependents()", "cuda": "next_kernel_may_start();"}
ACCESS = {"triton": r"tl\.(load|store|atomic_add)\(", "cuda": r"cp_async_\d+\(|\*reinterpret_cast<"}


def rows(backend: str, *stages: int) -> Plan:
    return Plan(over(parse(SPEC), KERNEL), (LaunchConfig(4, stages),), backend=backend)


def body(source: str) -> str:
    """The kernel's own text."""
    begin = re.search(r"@triton.jit|extern \"C\"", source)
    assert begin is not None
    return source[begin.start() :].split("def launch(", maxsplit=1)[0]


@pytest.mark.parametrize("backend", ["triton", "cuda"])
@pytest.mark.parametrize("name", ["split_attention", "residual_gated", "split_rms_norm_matmul"])
def test_every_kernel_waits_before_it_touches_anything(name: str, backend: str) -> None:
    plan = chained(replace(several_kernels.plan(name), backend=backend))
    for kernel in emit_kernels(plan):
        before, after = body(kernel.source).split(WAIT[backend])
        assert not re.search(ACCESS[backend], before)
        assert re.search(ACCESS[backend], after)
        assert START[backend] in after


@pytest.mark.parametrize("backend", ["triton", "cuda"])
@pytest.mark.parametrize("when", NextStart)
def test_when_the_next_kernel_may_start(when: NextStart, backend: str) -> None:
    (kernel,) = emit_kernels(chained(rows(backend, 2), following=when))
    _, after = body(kernel.source).split(WAIT[backend])
    before, after = after.split(START[backend])
    loop = "for d_start in" if backend == "triton" else "for (int d_start"
    assert (loop in before) == (when is NextStart.STORES)
    assert re.search(r"tl\.store|[(]Y [+]", after)


def test_after_a_library_call_or_a_tensor_made_zero_a_kernel_is_launched_normally() -> None:
    for name in ("library_prologue", "library_epilogue", "split_matmul_added"):
        plan = chained(several_kernels.plan(name))
        for number, order in enumerate(launch_orders(plan)):
            is_first = number == 0 and name == "library_prologue"
            assert order.uses_pdl == is_first
            assert order.is_chained


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_the_code_of_a_chain_is_clean(backend: str) -> None:
    """Of the machine code nothing touches global memory before the wait but early copies."""
    (found,) = check_plan(chained(rows(backend, 3), constants=["W"]), 90)
    assert found.clean, str(found)
    assert found.events > 8


@pytest.mark.parametrize("place", ["before the last stores", "nowhere"])
def test_a_wait_in_the_wrong_place_is_found(place: str) -> None:
    """In a chain inputs are no exception; and a block that never waits ends too soon."""
    plan = rows("triton", 2)
    (kernel,) = emit_kernels(chained(plan))
    lines = kernel.source.splitlines()
    wait = next(line for line in lines if WAIT["triton"] in line)
    lines.remove(wait)
    if place != "nowhere":
        lines.insert(next(n for n, line in enumerate(lines) if "tl.store" in line), wait)
    moved = compiled_handle(KernelSource.of(replace(kernel, source="\n".join(lines) + "\n")), 90)
    (block,) = plan.ugraph.kernels

    def launch(entry: Entry) -> Launch:
        return triton_launch_of(kernel, entry, plan.ugraph.program, block, moved.metadata)

    kinds = {fault.kind for fault in check_code(moved.asm["ptx"], "", launch).faults}
    assert kinds == {"early access"}


def test_values_are_the_same() -> None:
    plan = rows("triton", 2)
    arrays = random_inputs(plan.ugraph.program)
    (wanted,) = run_interpreted(plan, arrays).values()
    assert np.isfinite(wanted).all()
    chain = chained(plan, constants=["W"])
    (by_triton,) = run_interpreted(chain, arrays).values()
    np.testing.assert_array_equal(by_triton, wanted)
    (by_cuda,) = run_emulated(replace(chain, backend="cuda"), arrays).values()
    np.testing.assert_allclose(by_cuda, wanted, rtol=2e-3, atol=2e-3)
