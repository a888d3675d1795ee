"""PTX of an emitted kernel, by the compiler that makes its machine code; no GPU is needed."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirage_py.codegen.cuda.writer.cuda_kernel import CudaKernel
from mirage_py.errors import CompileError
from mirage_py.runtime.base.emission import EmittedKernel
from mirage_py.runtime.code_check.events import Launch
from mirage_py.runtime.code_check.launches import launch_of, triton_launch_of
from mirage_py.runtime.code_check.ptx.ptx import Entry
from mirage_py.runtime.compile.ahead_of_time import interprets
from mirage_py.runtime.compile.compile import KernelSource, compiled_handle
from mirage_py.runtime.compile.compile_cuda import arch_of
from mirage_py.runtime.compile.cuda_compiler import CudaCompiler, cuda_compiler
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph

_STANDARD = "--std=c++17"
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel with its PTX; ``metadata`` is what Triton says of what it compiled."""

    kernel: EmittedKernel
    text: str
    metadata: Any = None

    def launch(self, entry: Entry, program: Program, block: BlockGraph) -> Launch:
        """How it is launched, emitted for ``block`` of a plan for ``program``."""
        if isinstance(self.kernel, CudaKernel):
            return launch_of(self.kernel, entry, program, block)
        return triton_launch_of(self.kernel, entry, program, block, self.metadata)


def compiled(kernel: EmittedKernel, capability: int) -> Compiled:
    """For sm_``capability`` where Triton compiles it: CUDA text says itself what it is for. Raises
    CompileError, also where there is no compiler.
    """
    if isinstance(kernel, CudaKernel):
        return Compiled(kernel, ptx_of(kernel))
    if interprets():
        raise CompileError("TRITON_INTERPRET is set, so triton compiles nothing", where=kernel.name)
    found = compiled_handle(KernelSource.of(kernel), capability)
    return Compiled(kernel, found.asm["ptx"], found.metadata)


def ptx_of(kernel: CudaKernel) -> str:
    """Raises CompileError, also where there is no compiler."""
    compiler, arch = cuda_compiler(), arch_of(kernel.capability)
    make = _by_nvrtc if compiler.kind == "nvrtc" else _by_nvcc
    return make(compiler, kernel, arch)


def _by_nvcc(compiler: CudaCompiler, kernel: CudaKernel, arch: str) -> str:
    with tempfile.TemporaryDirectory(prefix="mirage_py_") as folder:
        source = Path(folder) / "kernel.cu"
        source.write_text(kernel.source, encoding="utf-8")
        command = [
            compiler.path,
            "-ptx",
            _STANDARD,
            f"-arch={arch}",
            "-o",
            "kernel.ptx",
            source.name,
        ]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CompileError(f"nvcc does not run: {error}", where=kernel.name) from error
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["nothing"])[0]
            raise CompileError(f"nvcc makes no PTX of it: {said}", where=kernel.name)
        return (Path(folder) / "kernel.ptx").read_text(encoding="utf-8")


def _by_nvrtc(compiler: CudaCompiler, kernel: CudaKernel, arch: str) -> str:
    from cupy.cuda import nvrtc

    # PTX is made for a virtual architecture.
    virtual = arch.replace("sm_", "compute_")
    options = (f"--gpu-architecture={virtual}", _STANDARD, f"-I{compiler.include}")
    program: Any = nvrtc.createProgram(kernel.source, f"{kernel.name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        return bytes(nvrtc.getPTX(program)).rstrip(b"\0").decode()
    except nvrtc.NVRTCError as error:
        raise CompileError(f"NVRTC makes no PTX of it: {error}", where=kernel.name) from error
    finally:
        nvrtc.destroyProgram(program)
