"""Ahead-of-time compilation of emitted kernels: needs triton, and no GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirage_py.codegen.triton.module import TritonKernel, parameter_type
from mirage_py.errors import CompileError
from mirage_py.runtime.machine_code import unwritten_registers
from mirage_py.runtime.modules import load_module

# Every pointer is a multiple of this many bytes; the launcher copies tensors that are not.
POINTER_ALIGNMENT_BYTES = 16
_WARP_SIZE = 32
_LAST_LINES = 6


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What compiling one kernel needs, in plain values that travel to another process."""

    name: str
    source: str
    pointer_types: tuple[str, ...]
    num_warps: int
    starts_early: bool = False

    @classmethod
    def of(cls, kernel: TritonKernel) -> KernelSource:
        """The part of an emitted kernel that the compiler sees."""
        tiles = kernel.text.tiles
        types = tuple(parameter_type(t.dtype, tiles.get(t.name)) for t in kernel.pointers)
        early = kernel.order.starts_early
        return cls(kernel.name, kernel.source, types, kernel.options.num_warps, early)


@dataclass(frozen=True, slots=True)
class CompiledFacts:
    """One compiled kernel in numbers.

    ``capability`` is 90 for sm_90. ``registers`` are those of one thread and ``spills`` the
    four-byte values that it keeps in local memory instead; both are None where triton carries no
    cuobjdump. ``asm_path`` is the PTX in triton's cache.
    """

    name: str
    capability: int
    smem_bytes: int
    registers: int | None
    spills: int | None
    cubin_bytes: int
    seconds: float
    asm_path: str | None = None


def compile_kernel(kernel: TritonKernel, capability: int) -> CompiledFacts:
    """Compile for sm_``capability`` and say what came out.

    Raises CompileError with the compiler's last lines.
    """
    return compile_source(KernelSource.of(kernel), capability)


def compile_source(kernel: KernelSource, capability: int) -> CompiledFacts:
    """``compile_kernel`` from plain values. Raises CompileError, also where the assembler has made
    code of it that cannot be right.
    """
    start = time.perf_counter()
    compiled = compiled_handle(kernel, capability)
    seconds = time.perf_counter() - start
    cubin: bytes = compiled.asm["cubin"]
    if "wgmma" in compiled.asm["ptx"]:
        _check_registers(cubin, f"{kernel.name} for sm_{capability}")
    registers, spills = _resource_usage(cubin)
    return CompiledFacts(
        name=kernel.name,
        capability=capability,
        smem_bytes=int(compiled.metadata.shared),
        registers=registers,
        spills=spills,
        cubin_bytes=len(cubin),
        seconds=seconds,
        asm_path=_asm_path(compiled.metadata_group),
    )


def compiled_handle(kernel: KernelSource, capability: int) -> Any:
    """Triton's compiled kernel, from its cache where another process has compiled it already.

    Raises CompileError.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(load_module(kernel.source, kernel.name), kernel.name)
    signature = dict(zip(function.arg_names, kernel.pointer_types, strict=True))
    aligned = {
        (i,): [["tt.divisibility", POINTER_ALIGNMENT_BYTES]]
        for i, kind in enumerate(kernel.pointer_types)
        if kind.startswith("*")
    }
    try:
        return triton.compile(
            ASTSource(function, signature, {}, aligned),
            target=GPUTarget("cuda", capability, _WARP_SIZE),
            options={"num_warps": kernel.num_warps, "launch_pdl": kernel.starts_early},
        )
    except Exception as error:
        raise CompileError(
            f"triton does not compile it: {_last_lines(error)}",
            where=f"{kernel.name} for sm_{capability}",
        ) from error


def _check_registers(cubin: bytes, where: str) -> None:
    """The descriptors of wgmma are in uniform registers, which ptxas 12.8 sometimes forgets."""
    from triton import knobs

    try:
        found = unwritten_registers(cubin, knobs.nvidia.nvdisasm.path)
    except (AttributeError, OSError, RuntimeError, subprocess.SubprocessError):
        return  # there is no such tool: nothing is known
    if found:
        raise CompileError(
            f"ptxas made code that reads registers nothing has written: {found[0]}",
            where=where,
            why="a fault of the assembler: the launch would fail, or give something else each time",
            repair="other tiles or warps avoid it, or another version of triton",
        )


def _last_lines(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: " + " | ".join(line.strip() for line in lines[-_LAST_LINES:])


def _asm_path(files: Mapping[str, str]) -> str | None:
    return next((str(path) for name, path in files.items() if name.endswith(".ptx")), None)


def _resource_usage(cubin: bytes) -> tuple[int | None, int | None]:
    """Registers of a thread and values spilled, as far as the tools say."""
    from triton import knobs

    try:
        tool = knobs.nvidia.cuobjdump.path
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.cubin"
            path.write_bytes(cubin)
            done = subprocess.run(
                [tool, "--dump-resource-usage", str(path)],
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            )
    except (AttributeError, OSError, RuntimeError, subprocess.SubprocessError):
        return None, None
    return _parse_resource_usage(done.stdout)


def _parse_resource_usage(text: str) -> tuple[int | None, int | None]:
    registers = re.search(r"\bREG:(\d+)", text)
    # The stack of a kernel without calls or local arrays is nothing but spilled registers.
    spilled = [int(n) for n in re.findall(r"\b(?:STACK|LOCAL):(\d+)", text)]
    return (int(registers[1]) if registers else None, sum(spilled) // 4 if spilled else None)
