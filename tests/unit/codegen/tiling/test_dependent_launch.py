"""Kernels that start before the one in front of them has ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import several_kernels
from plans import random_inputs

from mirage_py.codegen.tiling.dependent_launch import LaunchOrder, launch_orders
from mirage_py.codegen.triton.module import emit_triton
from mirage_py.errors import CompileError
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.compile import KernelSource, compile_kernel, compiled_handle
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.ugraph.ir.plan import Plan

SPLIT = ["split_attention", "split_rms_norm_matmul"]


def early(name: str) -> Plan:
    """A sample in which every kernel asks to start early."""
    plan = several_kernels.plan(name)
    options = tuple(replace(o, early_start=True) for o in plan.options)
    return replace(plan, options=options)


def lines_of(source: str) -> list[str]:
    return [line.strip() for line in source.splitlines()]


@pytest.mark.parametrize("name", SPLIT)
def test_the_second_kernel_waits_before_it_touches_what_the_first_writes(name: str) -> None:
    first, second = emit_triton(early(name))
    assert (first.order, second.order) == (LaunchOrder(False, True), LaunchOrder(True, False))
    lines = lines_of(first.text.source)
    trigger = lines.index("cuda.gdc_launch_dependents()")
    assert all("tl.store" in line for line in lines[trigger + 1 :] if line)
    assert sum("tl.store" in line for line in lines[:trigger]) == 0
    assert "gdc_wait" not in first.source
    lines = lines_of(second.text.source)
    wait = lines.index("cuda.gdc_wait()")
    assert all("tl.load" not in line and "tl.store" not in line for line in lines[:wait])
    assert lines.count("cuda.gdc_wait()") == 1
    assert "launch_pdl=True" in second.source
    assert "launch_pdl" not in first.source


def test_inputs_are_loaded_before_the_wait() -> None:
    plan = early("residual_gated")
    for number, kernel in enumerate(emit_triton(plan)[1:]):
        lines = lines_of(kernel.text.source)
        wait = lines.index("cuda.gdc_wait()")
        inputs = {t.name for t in plan.ugraph.program.inputs}
        written = [t.name for t in kernel.pointers if t.name not in inputs]
        assert not any(f"{name}_ptr +" in line for name in written for line in lines[1:wait]), (
            number
        )


def test_nothing_to_start_early_behind() -> None:
    """A library call, a tensor that is made zero before, nothing at all."""
    for name in ("library_prologue", "library_epilogue", "split_matmul_added"):
        assert not any(o.uses_pdl for o in launch_orders(early(name)))
        assert "gdc" not in "".join(k.source for k in emit_kernels(early(name)))


@pytest.mark.parametrize("name", SPLIT)
def test_computes_the_same_in_the_interpreter(name: str) -> None:
    """What starts in turn is compared with float64 in tests/unit/test_several_kernels.py."""
    arrays = random_inputs(several_kernels.program(name))
    in_turn = run_interpreted(several_kernels.plan(name), arrays)
    found = run_interpreted(early(name), arrays)
    assert list(found) == list(in_turn)
    for tensor, value in in_turn.items():
        assert np.isfinite(value).all()
        np.testing.assert_array_equal(found[tensor], value)


@pytest.mark.parametrize("capability", [90, 100])
def test_compiles_for_what_has_it(capability: int) -> None:
    first, second = emit_triton(early("split_attention"))
    assert "griddepcontrol.launch_dependents" in ptx(KernelSource.of(first), capability)
    assert "griddepcontrol.wait" in ptx(KernelSource.of(second), capability)
    assert compiled_handle(KernelSource.of(second), capability).metadata.launch_pdl
    assert not compiled_handle(KernelSource.of(first), capability).metadata.launch_pdl


def test_does_not_compile_for_what_has_it_not() -> None:
    first, _ = emit_triton(early("split_attention"))
    with pytest.raises(CompileError, match="sm_80"):
        compile_kernel(first, 80)


def ptx(source: KernelSource, capability: int) -> str:
    text: str = compiled_handle(source, capability).asm["ptx"]
    return text
