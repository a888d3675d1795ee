"""CUDA kernels become machine code without a GPU, once for all processes."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from cuda_kernels import KERNELS, doubling_plan, emitting, kernel

from mirage_py.errors import CompileError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.compile import compile_cuda, cuda_compiler
from mirage_py.runtime.compile.ahead_of_time import compiled_plan
from mirage_py.runtime.compile.compile_cuda import CudaSource, arch_of, machine_code, takes
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.compile.compiled_facts import (
    CompiledFacts,
    Resources,
    cuda_tools,
    said_by_ptxas,
)
from mirage_py.runtime.compile.cuda_compiler import CudaCompiler, nvcc, whole_elf
from mirage_py.runtime.cpu.cpu_run import check_on_cpu
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply
from mirage_py.runtime.sass.sass import disassembled, is_readable
from mirage_py.targets import target
from mirage_py.ugraph.ir.plan import Plan

PLAN = doubling_plan()


def source(kind: str = "plain") -> CudaSource:
    return CudaSource.of(kernel(PLAN, kind))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CudaCompiler:
    try:
        found = cuda_compiler.cuda_compiler()
    except CompileError as error:
        pytest.skip(error.what)
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    return found


class Compiler:
    """Says what it was asked, and that a kernel takes 40 registers."""

    include = ""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def compile(self, source: str, name: str, arch: str) -> tuple[bytes, str]:
        self.asked.append((name, arch))
        return source.encode() + arch.encode(), "Used 40 registers, 16 bytes smem"

    def __str__(self) -> str:
        return "fake 1.0"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    monkeypatch.setenv("MIRAGE_PY_CACHE_DIR", str(tmp_path))
    counting = Compiler()
    monkeypatch.setattr(compile_cuda, "cuda_compiler", lambda: counting)
    return counting


@pytest.mark.parametrize(
    ("capability", "arch"), [(80, "sm_80"), (86, "sm_86"), (89, "sm_89"), (90, "sm_90a")]
)
def test_what_a_gpu_is_called(capability: int, arch: str):
    assert arch_of(capability) == arch


def test_instructions_of_one_gpu_are_of_no_other():
    assert takes(80, 80)
    assert takes(90, 80)
    assert takes(90, 90)
    assert not takes(80, 90)
    assert not takes(100, 90)


@pytest.mark.parametrize("kind", KERNELS)
def test_kernels_compile(compiler: CudaCompiler, kind: str):
    facts = compile_cuda.compile_cuda(source(kind), 90)
    assert facts.registers is not None
    assert 8 <= facts.registers <= 64
    assert facts.spills == 0
    assert facts.smem_bytes == {"plain": 0, "copied": 1024 + 128}.get(kind, 1024)
    assert facts.cubin_bytes > 1000


def test_the_error_of_the_compiler_is_passed_on(compiler: CudaCompiler):
    broken = replace(source(), source=source().source.replace("X[i] + X[i]", "Z[i]"))
    with pytest.raises(CompileError, match='"Z" is undefined') as raised:
        machine_code(broken, 90)
    assert "doubling for sm_90a" in str(raised.value)


def test_what_is_compiled_once_is_read(counted: Compiler):
    first = machine_code(source(), 90)
    assert first.resources == Resources(40, 0, 16)
    assert machine_code(source(), 90) == first
    assert counted.asked == [("doubling", "sm_90a")]
    machine_code(source(), 80)
    machine_code(replace(source(), source="// another\n"), 90)
    assert [arch for _, arch in counted.asked] == ["sm_90a", "sm_80", "sm_90a"]


@pytest.mark.parametrize("suffix", [".cubin", ".json"])
def test_a_damaged_file_is_none(counted: Compiler, tmp_path: Path, suffix: str):
    first = machine_code(source(), 90)
    (path,) = (tmp_path / "cubins").glob(f"*{suffix}")
    path.write_bytes(path.read_bytes()[:-3])
    assert machine_code(source(), 90) == first
    assert len(counted.asked) == 2


def test_code_for_another_gpu_is_refused(counted: Compiler):
    for capability in (80, 100):
        with pytest.raises(CompileError, match="instructions of sm_90a"):
            machine_code(source("copied"), capability)
    assert counted.asked == []


def test_code_that_the_assembler_spoilt_is_not_kept(
    counted: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def spoilt(*_, **__) -> None:
        raise CompileError("ptxas made code that reads registers nothing has written")

    monkeypatch.setattr(compile_cuda, "check_registers", spoilt)
    machine_code(source(), 90)
    wgmma = replace(source(), source="// wgmma.mma_async\n")
    for _ in range(2):
        with pytest.raises(CompileError, match="nothing has written"):
            machine_code(wgmma, 90)
    assert len(list((tmp_path / "cubins").glob("*.cubin"))) == 1


def test_code_that_was_kept_before_a_check_is_not_taken(
    counted: Compiler, monkeypatch: pytest.MonkeyPatch
):
    machine_code(source(), 90)
    monkeypatch.setattr(compile_cuda, "CHECKS", 99)
    machine_code(source(), 90)
    assert len(counted.asked) == 2


def test_reads_what_ptxas_says():
    log = "Function properties for k\n  256 bytes stack frame, 8 bytes spill stores\n"
    log += "ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem\n"
    assert said_by_ptxas(log) == Resources(32, 64, 1024)
    assert said_by_ptxas("nothing") == Resources()


def test_workers_compile_what_this_process_then_reads(
    compiler: CudaCompiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    kinds = {8: "plain", 16: "copied"}
    emitting(monkeypatch, lambda plan: kinds[plan.ugraph.program.sizes["r"]])
    with CompilePool(1, timeout_s=300.0) as pool:
        outcomes = pool.compile([doubling_plan(8), doubling_plan(16)], 90)
        (refused,) = pool.compile([doubling_plan(16)], 80)
    assert [o.reason for o in outcomes] == [None, None]
    assert [f.name for o in outcomes for f in o.facts] == ["doubling", "doubling"]
    assert refused.reason.code is Code.NOT_COMPILED
    assert "instructions of sm_90a" in str(refused.reason)
    monkeypatch.setattr(CudaCompiler, "compile", None)
    assert machine_code(source(), 90).cubin[:4] == b"\x7fELF"


def test_a_fault_of_the_emitter_costs_its_plan_alone(
    counted: Compiler, monkeypatch: pytest.MonkeyPatch
):
    def kind(plan: Plan) -> str:
        if plan.ugraph.program.sizes["r"] == 16:
            raise IndexError("list index out of range")
        return "plain"

    emitting(monkeypatch, kind)
    done = Reply("done", [asdict(CompiledFacts("doubling", 90, 0, 8, 0, 100, 0.1))])
    monkeypatch.setattr(
        WorkerPool, "map", lambda _, tasks, *, on_reply, **__: [on_reply(0, done) for _ in tasks]
    )
    with CompilePool(1) as pool:
        first, second = pool.compile([doubling_plan(8), doubling_plan(16)], 90)
    assert first.compiled
    assert second.reason == reason(Code.NOT_EMITTED, "IndexError: list index out of range")
    found = check_on_cpu(PLAN.ugraph.program, doubling_plan(16), target("h200"), seed=1)
    assert found.fault == second.reason


def test_a_plan_for_a_target_that_is_not_here(
    compiler: CudaCompiler, monkeypatch: pytest.MonkeyPatch
):
    emitting(monkeypatch, lambda _: "copied")
    assert compiled_plan(PLAN, target("h100")).fault is None
    assert compiled_plan(PLAN, target("a100")).fault.code is Code.NOT_COMPILED
    small = replace(target("h100"), smem_per_block_bytes=1024)
    assert compiled_plan(PLAN, small).fault.code is Code.SHARED_MEMORY
    assert "1152" in compiled_plan(PLAN, small).fault.data


def test_without_a_compiler_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def without() -> CudaCompiler:
        raise CompileError("CuPy is not there")

    monkeypatch.setattr(cuda_compiler, "_nvrtc", without)
    monkeypatch.setattr(cuda_compiler, "nvcc", lambda: None)
    with pytest.raises(CompileError) as raised:
        cuda_compiler.cuda_compiler.__wrapped__()
    assert "CuPy is not there" in str(raised.value)
    assert 'pip install "mirage_py[cuda13]"' in str(raised.value)


def test_nvcc_alone_will_do(compiler: CudaCompiler):
    found = nvcc()
    if found is None:
        pytest.skip("there is no nvcc")
    cubin, log = found.compile(source().source, "doubling", "sm_80")
    assert cubin[:4] == b"\x7fELF"
    assert said_by_ptxas(log).registers


def test_code_that_lacks_its_last_byte_gets_it_back():
    """As CuPy gives what NVRTC made: nvdisasm would not read it, and nobody would check it."""
    tables = bytes(64)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF", 2, 190, 1, 0, 64, 72, 0, 64, 4, 2, 8, 6, 0)
    whole = head + tables[:56]
    assert whole_elf(whole[:-1]) == whole
    assert whole_elf(whole) == whole
    assert whole_elf(whole[:-2]) == whole[:-2]
    assert whole_elf(b"\x7fELF") == b"\x7fELF"
    assert whole_elf(b"// PTX") == b"// PTX"


@pytest.mark.skipif(nvcc() is None or not cuda_tools("nvdisasm"), reason="no nvcc, or no nvdisasm")
def test_what_is_checked_is_read_by_nvdisasm():
    compiler = nvcc()
    assert compiler is not None
    cubin, _ = compiler.compile('extern "C" __global__ void nothing() {}', "nothing", "sm_90a")
    tool = cuda_tools("nvdisasm")[0]
    assert whole_elf(cubin) == cubin
    assert is_readable(disassembled(whole_elf(cubin[:-1]), tool))
    with pytest.raises(subprocess.CalledProcessError):
        disassembled(cubin[:-1], tool)
