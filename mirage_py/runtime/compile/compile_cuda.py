"""Machine code of CUDA kernels, cached by content: compiled by one process, loaded by all others.

It lies in CACHE/cubins/KEY.cubin, where KEY is a SHA-256 of the text, the GPU, the options and the
compiler; KEY.json beside it has its checksum and what the kernel takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import CompileError
from mirage_py.reasons import Code
from mirage_py.runtime.base.atomic import write_bytes, write_text
from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.compile.compiled_facts import (
    CHECKS,
    CompiledFacts,
    Resources,
    check_registers,
    said_by_ptxas,
)
from mirage_py.runtime.compile.cuda_compiler import OPTIONS, CudaCompiler, cuda_compiler

# GPUs from here on have instructions that no other GPU has, later ones included.
_OWN_INSTRUCTIONS = 90


@dataclass(frozen=True, slots=True)
class CudaSource:
    """What compiling one kernel needs, in plain values that travel to another process."""

    name: str
    source: str
    smem_bytes: int
    capability: int

    @classmethod
    def of(cls, kernel: CudaKernel) -> CudaSource:
        """The part of an emitted kernel that compiling it needs."""
        return cls(kernel.name, kernel.source, kernel.smem_bytes, kernel.capability)


def arch_of(capability: int) -> str:
    """What compilers call a GPU, with the instructions that only it has: ``sm_90a``, ``sm_80``."""
    return f"sm_{capability}" + ("a" if capability >= _OWN_INSTRUCTIONS else "")


def takes(capability: int, needed: int) -> bool:
    """Whether a GPU has the instructions of a text that is made for ``needed``."""
    return capability == needed if needed >= _OWN_INSTRUCTIONS else capability >= needed


def compile_cuda(kernel: CudaSource, capability: int) -> CompiledFacts:
    """Compile for sm_``capability`` and say what came out.

    Raises CompileError with what the compiler says.
    """
    start = time.perf_counter()
    made = machine_code(kernel, capability)
    return CompiledFacts(
        name=kernel.name,
        capability=capability,
        smem_bytes=kernel.smem_bytes + (made.resources.smem_bytes or 0),
        registers=made.resources.registers,
        spills=made.resources.spills,
        cubin_bytes=len(made.cubin),
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A kernel that the driver loads, and what it takes."""

    cubin: bytes
    resources: Resources


def machine_code(kernel: CudaSource, capability: int) -> MachineCode:
    """The kernel for sm_``capability``, from the cache where any process has compiled it.

    Raises CompileError, also where the GPU lacks what the text uses, or the assembler has made code
    of it that cannot be right.
    """
    where = f"{kernel.name} for {arch_of(capability)}"
    if not takes(capability, kernel.capability):
        raise CompileError(
            f"it uses instructions of {arch_of(kernel.capability)}",
            where=where,
            repair="choose a plan for this GPU",
            code=Code.NOT_COMPILED,
        )
    compiler = cuda_compiler()
    path = cubin_path(kernel, capability, compiler)
    known = _read(path)
    if known is not None:
        return known
    cubin, log = compiler.compile(kernel.source, kernel.name, arch_of(capability))
    if "wgmma" in kernel.source:
        check_registers(cubin, where)
    made = MachineCode(cubin, said_by_ptxas(log))
    # Without a cache it is compiled once more in the next process.
    with contextlib.suppress(OSError):
        _write(path, made)
    return made


def cubin_path(kernel: CudaSource, capability: int, compiler: CudaCompiler) -> Path:
    """Where the machine code of a kernel lies, compiled or not."""
    content = [kernel.name, kernel.source, arch_of(capability), *OPTIONS, str(compiler), CHECKS]
    key = hashlib.sha256(json.dumps([*content, compiler.include]).encode()).hexdigest()
    return private_folder("cubins") / f"{key}.cubin"


def _write(path: Path, made: MachineCode) -> None:
    write_bytes(path, made.cubin)
    # Last: what it does not speak of is not read.
    facts = {"sha256": _digest(made.cubin), **asdict(made.resources)}
    write_text(path.with_suffix(".json"), json.dumps(facts) + "\n")


def _read(path: Path) -> MachineCode | None:
    """What was compiled before; None where it is not there or damaged."""
    try:
        cubin = path.read_bytes()
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        digest = facts.pop("sha256")
        return MachineCode(cubin, Resources(**facts)) if digest == _digest(cubin) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(cubin: bytes) -> str:
    return hashlib.sha256(cubin).hexdigest()
