"""Compilation of a plan for a target that is not present, and a check that it fits."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import CompileError
from mirage_py.reasons import Code, Reason, reason
from mirage_py.runtime.base.emission import EmittedKernel, emit_kernels
from mirage_py.runtime.compile.compile import compile_kernel
from mirage_py.runtime.compile.compile_cuda import CudaSource, compile_cuda
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """What the kernels of a plan take by their machine code; ``fault`` is why one of them would not
    run on the target, None if nothing is known against it.
    """

    facts: tuple[CompiledFacts, ...] = ()
    fault: Reason | None = None


def compiled_plan(plan: Plan, target: Target) -> CompiledPlan:
    """Compile the kernels of a plan until one has a fault.

    Raises ScheduleError where the plan's back end cannot express a block graph.
    """
    if plan.backend == "triton" and interprets():
        return CompiledPlan()  # TRITON_INTERPRET is set: kernels are no code for a compiler
    found: list[CompiledFacts] = []
    for kernel in emit_kernels(plan):
        try:
            found.append(compiled(kernel, target.capability))
        except CompileError as error:
            return CompiledPlan(tuple(found), reason(error.code, str(error).splitlines()[0]))
        if fault := memory_fault(found[-1], target):
            return CompiledPlan(tuple(found), fault)
    return CompiledPlan(tuple(found))


def compiled(kernel: EmittedKernel, capability: int) -> CompiledFacts:
    """A kernel of either back end, compiled for sm_``capability``. Raises CompileError."""
    if isinstance(kernel, TritonKernel):
        return compile_kernel(kernel, capability)
    return compile_cuda(CudaSource.of(kernel), capability)


def interprets() -> bool:
    """Whether TRITON_INTERPRET is set."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def memory_fault(facts: CompiledFacts, target: Target) -> Reason | None:
    """What of a block does not fit; None if all does."""
    taken, there = facts.smem_bytes, target.smem_per_block_bytes
    if taken <= there:
        return None
    return reason(Code.SHARED_MEMORY, facts.name, taken, target.name, there)
