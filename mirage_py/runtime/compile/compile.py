"""Ahead-of-time compilation of emitted kernels: needs triton, and no GPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirage_py.codegen.triton.module import TritonKernel, parameter_type
from mirage_py.errors import CompileError
from mirage_py.reasons import Code
from mirage_py.runtime.base.modules import load_module
from mirage_py.runtime.compile.checked_code import check_once
from mirage_py.runtime.compile.compiled_facts import CompiledFacts, resources

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
    uses_pdl: bool = False
    # Scalars, by place among the parameters, that are multiples of 16.
    aligned_scalars: tuple[int, ...] = ()

    @classmethod
    def of(cls, kernel: TritonKernel, aligned_scalars: tuple[int, ...] = ()) -> KernelSource:
        """The part of an emitted kernel that the compiler sees."""
        text = kernel.text
        types = tuple(parameter_type(t.dtype, text.tiles.get(t.name)) for t in kernel.pointers)
        types += ("i64" if text.is_wide else "i32",) * len(text.scalars)
        early = kernel.order.uses_pdl
        warps = kernel.options.num_warps
        return cls(kernel.name, kernel.source, types, warps, early, aligned_scalars)


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
    compiled = checked_handle(kernel, capability)
    seconds = time.perf_counter() - start
    cubin: bytes = compiled.asm["cubin"]
    taken = resources(cubin)
    return CompiledFacts(
        name=kernel.name,
        capability=capability,
        smem_bytes=int(compiled.metadata.shared),
        registers=taken.registers,
        spills=taken.spills,
        cubin_bytes=len(cubin),
        seconds=seconds,
        asm_path=_asm_path(compiled.metadata_group),
    )


def checked_handle(kernel: KernelSource, capability: int) -> Any:
    """``compiled_handle`` of a kernel that may be launched. Raises CompileError, also where triton
    or the assembler has made code of it that cannot be right.
    """
    compiled = compiled_handle(kernel, capability)
    if "wgmma" in compiled.asm["ptx"]:
        where = f"{kernel.name} for sm_{capability}"
        check_once(compiled.asm["cubin"], compiled.asm["ttgir"], where)
    return compiled


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
        if kind.startswith("*") or i in kernel.aligned_scalars
    }
    try:
        return triton.compile(
            ASTSource(function, signature, {}, aligned),
            target=GPUTarget("cuda", capability, _WARP_SIZE),
            options={
                "num_warps": kernel.num_warps,
                "launch_pdl": kernel.uses_pdl,
                # Kernels are checked with a b + c in one rounding. Triton 3.9 warns that what it
                # does without this option will change.
                "enable_fp_fusion": True,
            },
        )
    except Exception as error:
        raise CompileError(
            f"triton does not compile it: {_last_lines(error)}",
            where=f"{kernel.name} for sm_{capability}",
            code=Code.NOT_COMPILED,
        ) from error


def _last_lines(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: " + " | ".join(line.strip() for line in lines[-_LAST_LINES:])


def _asm_path(files: Mapping[str, str]) -> str | None:
    return next((str(path) for name, path in files.items() if name.endswith(".ptx")), None)
