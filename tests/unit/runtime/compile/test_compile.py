from __future__ import annotations

from dataclasses import replace

import pytest
from plans import attention_plan, rms_plan, two_kernel_plan

from mirage_py.errors import CompileError
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.compile import (
    KernelSource,
    compile_kernel,
    compile_source,
    compiled_handle,
)
from mirage_py.runtime.compile.compiled_facts import Resources, parse_resource_usage


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("plan", [rms_plan(), attention_plan(), two_kernel_plan()])
def test_compiles_ahead_of_time(plan, capability: int):
    for kernel in emit_kernels(plan):
        facts = compile_kernel(kernel, capability)
        assert facts.name == kernel.name
        assert facts.capability == capability
        assert facts.cubin_bytes > 1000
        assert 0 <= facts.smem_bytes < 200_000
        assert facts.registers is None or 8 <= facts.registers <= 255
        assert facts.spills in (None, 0)


def test_products_and_sums_are_one_rounding_in_every_version_of_triton(
    monkeypatch: pytest.MonkeyPatch,
):
    import triton

    seen = []
    monkeypatch.setattr(triton, "compile", lambda *_, options, **__: seen.append(options))
    compiled_handle(KernelSource.of(emit_kernels(rms_plan())[0]), 90)
    assert [options["enable_fp_fusion"] for options in seen] == [True]


def test_the_error_of_the_compiler_is_passed_on():
    (kernel,) = emit_kernels(rms_plan())
    source = KernelSource.of(kernel)
    broken = replace(source, source=source.source.replace("tl.dot(", "tl.nothing_like_this("))
    with pytest.raises(CompileError, match="nothing_like_this") as raised:
        compile_source(broken, 90)
    assert "rms_kernel for sm_90" in str(raised.value)


def test_reads_what_cuobjdump_prints():
    text = " Function k:\n  REG:168 STACK:16 SHARED:1024 LOCAL:8 CONSTANT[0]:944\n"
    assert parse_resource_usage(text) == Resources(168, 6, 1024)
    assert parse_resource_usage("nothing") == Resources()
