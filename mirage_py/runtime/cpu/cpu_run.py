"""Checks of a plan on a machine without its GPU: it runs on the CPU and compiles for the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mirage_py.errors import CompileError, MirageError, ScheduleError
from mirage_py.reasons import Code, Reason, reason
from mirage_py.runtime.compile import ahead_of_time
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.runtime.cpu.cpu_build import cpp_compiler
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

_NOTHING = FloatEvidence(0.0, 0.0, None, True)


@dataclass(frozen=True, slots=True)
class CpuCheck:
    """``fault`` is what speaks against the plan, None if nothing does. ``evidence`` is of the run,
    ``source`` where it was; ``notes`` say what could not be done here, ``facts`` what compiled
    kernels take.
    """

    evidence: FloatEvidence
    source: str
    fault: Reason | None = None
    notes: tuple[str, ...] = ()
    facts: tuple[CompiledFacts, ...] = ()


def check_on_cpu(
    program: Program,
    plan: Plan,
    target: Target,
    *,
    seed: int,
    progress: Callable[[str], None] = lambda _: None,
) -> CpuCheck:
    """Run a plan of ``program`` at a reduced size without a GPU, then compile it for ``target``.

    Triton kernels run in Triton's interpreter, CUDA kernels under CPU emulation, if a C++ compiler
    is there.
    """
    run = _run_cuda if plan.backend == "cuda" else _run_triton
    try:
        found = run(program, plan, seed, progress)
        return _compiled(found, plan, target, progress)
    except ScheduleError as error:
        # The back end cannot express the plan, as it does not fit a block, say.
        return CpuCheck(_NOTHING, "not run", reason(Code.NO_SCHEDULE, error))
    except MirageError:
        raise
    except Exception as error:  # noqa: BLE001
        # A fault of the emitter costs the plan: the next one may do.
        why = reason(Code.NOT_EMITTED, f"{type(error).__name__}: {error}")
        return CpuCheck(_NOTHING, "not run", why)


def _compiled(
    found: CpuCheck, plan: Plan, target: Target, progress: Callable[[str], None]
) -> CpuCheck:
    """What came of running a plan, with what comes of compiling it."""
    if not found.evidence.passed:
        return CpuCheck(found.evidence, found.source, found.evidence.reason, found.notes)
    notes = found.notes
    if plan.backend == "cuda" and (without := _no_compiler()):
        notes = (*notes, f"not compiled for {target.name}: {without}")
        return CpuCheck(found.evidence, found.source, None, notes)
    progress(f"compiling for {target.name}")
    compiled = ahead_of_time.compiled_plan(plan, target)
    return CpuCheck(found.evidence, found.source, compiled.fault, notes, compiled.facts)


def _run_triton(
    program: Program, plan: Plan, seed: int, progress: Callable[[str], None]
) -> CpuCheck:
    from mirage_py.runtime.cpu.triton_interpreter import check_interpreted

    progress("running in Triton's interpreter")
    evidence = check_interpreted(program, plan, seed=seed)
    return CpuCheck(evidence, "interpreter, reduced size")


def _run_cuda(program: Program, plan: Plan, seed: int, progress: Callable[[str], None]) -> CpuCheck:
    if cpp_compiler() is None:
        note = "the kernels were not run: there is no GPU, and no C++ compiler for CPU emulation"
        return CpuCheck(_NOTHING, "not run", notes=(note,))
    from mirage_py.runtime.cpu.cuda_emulation import check_emulated

    progress("running under CPU emulation")
    return CpuCheck(check_emulated(program, plan, seed=seed), "CPU emulation, reduced size")


def _no_compiler() -> str:
    from mirage_py.runtime.compile.cuda_compiler import cuda_compiler

    try:
        cuda_compiler()
    except CompileError as error:
        return error.what
    return ""
