"""Compilation of a plan for a target that is not present, and a check that it fits."""

from __future__ import annotations

from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import CompileError
from mirage_py.runtime.base.emission import EmittedKernel, emit_kernels
from mirage_py.runtime.compile.compile import compile_kernel
from mirage_py.runtime.compile.compile_cuda import CudaSource, compile_cuda
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan


def compile_fault(plan: Plan, target: Target) -> str:
    """Why a kernel of the plan would not run on the target, empty if nothing is known against it.

    Raises ScheduleError where the plan's back end cannot express a block graph.
    """
    if plan.backend == "triton" and interprets():
        return ""  # TRITON_INTERPRET is set: kernels are no code for a compiler
    for kernel in emit_kernels(plan):
        try:
            facts = compiled(kernel, target.capability)
        except CompileError as error:
            return str(error).splitlines()[0]
        if fault := memory_fault(facts, target):
            return fault
    return ""


def compiled(kernel: EmittedKernel, capability: int) -> CompiledFacts:
    """A kernel of either back end, compiled for sm_``capability``. Raises CompileError."""
    if isinstance(kernel, TritonKernel):
        return compile_kernel(kernel, capability)
    return compile_cuda(CudaSource.of(kernel), capability)


def interprets() -> bool:
    """Whether TRITON_INTERPRET is set."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def memory_fault(facts: CompiledFacts, target: Target) -> str:
    """What of a block does not fit; empty if all does."""
    if facts.smem_bytes <= target.smem_per_block_bytes:
        return ""
    return (
        f"{facts.name} takes {facts.smem_bytes} bytes of shared memory, "
        f"{target.name} has {target.smem_per_block_bytes}"
    )
