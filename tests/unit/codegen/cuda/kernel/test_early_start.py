"""CUDA kernels that are placed on the GPU while the one before them still runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
import several_kernels
from cuda_plans import for_cuda

from mirage_py.codegen.cuda.kernel.module import emit_cuda
from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.codegen.tiling.dependent_launch import launch_orders

WAIT, START = "wait_for_kernel_before(", "next_kernel_may_start();"


def emitted(arch: str) -> tuple[CudaKernel, ...]:
    plan = several_kernels.plan("split_attention")
    first, second = (o.with_flag("arch", arch) for o in plan.options)
    early = (first, second.with_flag("start", "early"))
    return emit_cuda(replace(plan, backend="cuda", options=early))


def test_the_first_lets_the_second_start_at_once():
    """It is placed when all blocks of the first one have begun, and takes no block's place."""
    first, second = emitted("sm_90a")
    assert first.body.count(START) == 1
    assert WAIT not in first.body
    head, _ = first.body.split(START)
    assert not any(name in head for name in ("blockIdx", "cp_async", "mma_f16"))
    assert not first.uses_pdl
    assert second.uses_pdl


def test_the_second_waits_before_it_reads():
    _, second = emitted("sm_90a")
    before, after = second.body.split("{\n", 1)[1].split(WAIT)
    reads = ("cp_async", "load_", "reinterpret_cast<const")
    assert not any(read in before for read in reads)
    assert any(read in after for read in reads)


def test_the_last_one_lets_nobody_start():
    """A plan that follows itself, as under a clock, would seem shorter than it is."""
    _, second = emitted("sm_90a")
    assert START not in second.body


def test_what_threads_load_by_themselves_is_named_to_the_wait():
    """Copies to shared memory stay behind it anyway."""
    first, second = emit_cuda(
        for_cuda(several_kernels.plan("split_attention"), arch="sm_90a", start="early")
    )
    assert f"{WAIT});" in first.body
    (named,) = re.findall(r"wait_for_kernel_before\((.*)\);", second.body)
    read = {t.name for t in second.pointers if f"const float* __restrict__ {t.name}" in second.body}
    assert set(named.split(", ")) == read


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_no_load_is_of_the_kind_that_moves_up_in_front_of_the_wait(tmp_path):
    """ptxas had put two of six ld.global.nc of a kernel there."""
    _, second = emitted("sm_90a")
    (tmp_path / "kernel.cu").write_text(second.source)
    code = "-gencode=arch=compute_90a,code=compute_90a"
    done = subprocess.run(
        ["nvcc", code, "-ptx", "-o", "kernel.ptx", "kernel.cu"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loads = re.findall(r"\bld\.(?!param|shared)[a-z.]*", (tmp_path / "kernel.ptx").read_text())
    assert loads
    assert all(kind.startswith("ld.global") and ".nc" not in kind for kind in loads)


def test_the_first_one_waits_for_what_lies_in_front_of_the_plan():
    plan = several_kernels.plan("split_attention")
    flags = {"arch": "sm_90a", "start": "early"}
    first, second = emit_cuda(for_cuda(plan, **flags))
    assert first.uses_pdl
    before, after = first.body.split("{\n", 1)[1].split(WAIT)
    assert "reinterpret_cast<const" not in before
    assert "cp_async" in after
    assert START in before
    assert second.uses_pdl


def test_in_triton_the_first_one_does_not():
    """It reads inputs before it waits."""
    plan = several_kernels.plan("split_attention")
    options = tuple(o.with_flag("start", "early") for o in plan.options)
    orders = launch_orders(replace(plan, options=options))
    assert [order.uses_pdl for order in orders] == [False, True]


def test_older_gpus_have_no_early_start():
    for kernel in emitted("sm_80"):
        assert not kernel.uses_pdl
        assert WAIT not in kernel.body
        assert START not in kernel.body
