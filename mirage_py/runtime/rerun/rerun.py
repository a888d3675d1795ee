"""Running an edited artifact again: its kernels against float64 at their own sizes, and their time.

With a GPU they are checked on every set of inputs and timed beside the kernels of the plan. Without
one they run on the CPU, set by set until the time is up, and nothing is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.errors import CompileError, InputError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.env.environment import gpu
from mirage_py.runtime.rerun.edited import EditedArtifact
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.verify.numerical_check.check_strength import failed, joined, of_set, required
from mirage_py.verify.numerical_check.input_sets import drawn_sets, set_names
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence, judge, reference

if TYPE_CHECKING:
    from mirage_py.runtime.timing.timing import Timed

EDITED, STORED = "as it lies there", "as its plan has it"
_REPLAYS = 31
# What a CPU gets through in minutes: a step of a block is about a millisecond.
_MOST_STEPS = 150_000
_MOST_BYTES = 2 << 30
# Element operations of a set's reference: about a second.
_REFERENCE_WORK = 2e8


@dataclass(frozen=True, slots=True)
class Rerun:
    """``evidence`` is of the kernels as they lie there, ``source`` where they ran; ``times`` are
    theirs and those of the plan's own, in microseconds, where a GPU timed them.
    """

    evidence: FloatEvidence
    source: str
    times: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def rerun(
    edited: EditedArtifact,
    *,
    seed: int = 0,
    budget_s: float = 60.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Rerun:
    """Check the kernels as they lie in the folder, and time them where there is a GPU.

    This executes their text. Raises InputError where a CPU would take too long, and CompileError
    where the check cannot be set up.
    """
    found = gpu()
    if found is None:
        return _on_cpu(edited, seed, budget_s, progress)
    return _on_gpu(edited, seed, found.name, found.l2_bytes, progress)


# -- without a GPU --------------------------------------------------------------------------------


def _on_cpu(
    edited: EditedArtifact, seed: int, budget_s: float, progress: Callable[[str], None]
) -> Rerun:
    program, plan = edited.artifact.program, edited.plan
    _require_small(plan)
    run, source = _runner(edited)
    names = set_names(program)
    deadline = time.monotonic() + budget_s
    found: list[FloatEvidence] = []
    for inputs in drawn_sets(program, seed, names):
        if found and time.monotonic() > deadline:
            break
        progress(f"running on {inputs.name} inputs")
        try:
            got = run(inputs.arrays)
        except CompileError as error:
            found.append(failed(reason(Code.NOT_RUN, error).at(f"{inputs.name} inputs")))
            break
        expected = reference(program, inputs.arrays, max_work=_REFERENCE_WORK, seed=seed)
        found.append(of_set(inputs.name, judge(program, expected, got)))
        if not found[-1].passed:
            break
    notes = ["no GPU: nothing was timed"]
    if found[-1].passed and len(found) < len(names):
        left = ", ".join(names[len(found) :])
        notes.append(f"not run within {budget_s:g} s: {left} (--budget)")
    evidence = joined(found) if not found[-1].passed else required(joined(found))
    return Rerun(evidence, source, notes=tuple(notes))


def _runner(
    edited: EditedArtifact,
) -> tuple[Callable[[Mapping[str, FloatArray]], Mapping[str, FloatArray]], str]:
    if edited.plan.backend == "cuda":
        from mirage_py.runtime.cpu.cuda_emulation import run_kernels

        tensors = edited.plan.ugraph.tensors.values()
        program = edited.artifact.program
        return partial(run_kernels, program, edited.steps, tensors=tensors), "CPU emulation"
    from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

    run = partial(run_interpreted, edited.plan, steps=edited.steps)
    return run, "Triton's interpreter"


def _require_small(plan: Plan) -> None:
    """The text of a kernel is that of its own sizes, so it runs at those."""
    steps = sum(_steps(plan))
    held = sum(t.bytes for t in plan.ugraph.tensors.values())
    if steps <= _MOST_STEPS and held <= _MOST_BYTES:
        return
    raise InputError(
        "the kernels are too large to run on a CPU",
        where=plan.ugraph.program.name,
        why=f"they take {steps} steps of blocks on {held} bytes, where {_MOST_STEPS} steps and "
        f"{_MOST_BYTES} bytes are a few minutes",
        repair="run it on a machine with a GPU, or edit an artifact of a smaller size "
        "(superoptimize --size, --input)",
    )


def _steps(plan: Plan) -> Iterator[int]:
    """Of each kernel its blocks, each with the iterations of its loops."""
    scope = plan.ugraph.scope
    for block in plan.ugraph.kernels:
        if isinstance(block, BlockGraph):
            turns = [-(-scope.sizes[s.loop] // (s.tile or 1)) for s in block.sections if s.loop]
            yield prod([Tiling(scope, block).grid_blocks, 1 + sum(turns)])


# -- with a GPU -----------------------------------------------------------------------------------


def _on_gpu(
    edited: EditedArtifact,
    seed: int,
    name: str,
    l2_bytes: int,
    progress: Callable[[str], None],
) -> Rerun:
    import torch

    from mirage_py.errors import MirageError
    from mirage_py.runtime.base.gpu_context import require_gpu
    from mirage_py.runtime.launch.launch import PlanRunner
    from mirage_py.runtime.numerical_check.check_pool import NumericalCheck
    from mirage_py.runtime.numerical_check.input_store import rotated_inputs
    from mirage_py.runtime.timing.timing import time_interleaved

    program, index = edited.artifact.program, torch.cuda.current_device()
    device = torch.device("cuda", index)
    theirs, own = PlanRunner(edited.plan, edited.steps), edited.artifact.runner()
    source = f"{name}, full size"
    progress("checking against float64")
    with NumericalCheck(program, seed=seed, device=index) as check, torch.no_grad():
        try:
            evidence = check.of_function(theirs.run_poisoned, None, device)
        except MirageError as error:
            return Rerun(failed(reason(Code.NOT_RUN, error)), source)
        except Exception as error:  # noqa: BLE001  an edited kernel may raise anything
            require_gpu(program.name, error)
            return Rerun(failed(reason(Code.NOT_RUN, f"{type(error).__name__}: {error}")), source)
        notes = check.known.notes()
        if not evidence.passed:
            return Rerun(evidence, source, notes=notes)
        progress("timing")
        sets = rotated_inputs(check.store, l2_bytes, device)
        entries: dict[str, Callable[[int], Any]] = {
            EDITED: lambda number: theirs(*sets[number]),
            STORED: lambda number: own(*sets[number]),
        }
        timed = time_interleaved(entries, len(sets), reps=_REPLAYS)
    return Rerun(required(evidence), source, *_times(timed, notes))


def _times(
    timed: Mapping[str, Timed], notes: tuple[str, ...]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """What has a time, and why others have none."""
    faults = [f"{name} was not timed: {t.failure}" for name, t in timed.items() if t.failure]
    times = {name: t.median_us for name, t in timed.items() if isfinite(t.median_us)}
    return times, (*notes, *faults)
