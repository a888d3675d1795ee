"""The worker side of the numerical check: a wrong address spoils only its own GPU context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from math import hypot, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage_py.errors import FormatError, UnsupportedError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.base.gpu_memory import MOST_IDLE_BYTES, give_back, make_room
from mirage_py.runtime.base.stages import LAUNCH, stage
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.env.matmul_setting import matmuls_as_in
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.numerical_check import judge
from mirage_py.runtime.numerical_check.device_reference import (
    OTHERS_SHARE,
    kept_share,
    needs_device,
)
from mirage_py.runtime.numerical_check.input_store import (
    RANDOM,
    InputSet,
    InputStore,
    rotated_inputs,
)
from mirage_py.runtime.numerical_check.judge import add_eager, in_pieces, judge_there
from mirage_py.runtime.timing.timing import Timed, first_sets, time_interleaved
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.text.json_form import load_text
from mirage_py.verify.numerical_check.check_strength import joined, of_set, plain_evidence
from mirage_py.verify.numerical_check.input_sets import SET_NAMES, drawn_sets
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence, reference

if TYPE_CHECKING:
    import torch

    Outputs = Sequence[torch.Tensor]

# Of sets other than the random one, of which each has other windows, so that all of them together
# compare more than one does.
_MOST_ELEMENTS = 1 << 20
# Of inputs of which no more than one set stays in the GPU's memory: to make one takes a moment.
_LARGE_BYTES = 1 << 28
# Of the random set: each array of so many numbers takes half a gigabyte where it is compared.
_MOST_RANDOM_ELEMENTS = 1 << 26
# Checks in which eager PyTorch does not fit the GPU: what a kernel computes in place, as windows of
# an input, it may write out.
_TOO_LARGE: set[Path] = set()
# Of the replays of a first timing, beyond which a slow plan has three: checking it takes longer.
_REPLAYS_S = 0.02
# Launches after the first. Of additions in any order a few show how far the results spread.
_AGAIN, _AGAIN_ATOMIC = 1, 4


def prepare(task: Mapping[str, Any]) -> dict[str, tuple[float, float, bool]]:
    """Fill the store in ``folder`` with the input ``sets`` of ``program`` and ``seed`` and their
    references, on the host.

    Each within ``max_work``, ``threads`` and ``deadline`` as ``reference`` takes them; of each the
    share of the outputs' elements that is known, of those the share that is vague, and whether the
    set is mild. Where the host cannot, the references are left to who judges, on the device.
    """
    store = _store(task["folder"], task["program"])
    shares = {}
    on_device = needs_device(store.program, task["max_work"])
    for inputs in drawn_sets(store.program, task["seed"], task["sets"], task["deadline"]):
        store.write_inputs(inputs.name, inputs.inputs)
        is_random = inputs.name == RANDOM
        if on_device:
            share = kept_share(store.program, is_random=is_random)
            shares[inputs.name] = (share, 0.0, inputs.is_mild)
            continue
        found = reference(
            store.program,
            inputs.inputs,
            max_work=task["max_work"] * (1.0 if is_random else OTHERS_SHARE),
            max_elements=_MOST_RANDOM_ELEMENTS if is_random else _MOST_ELEMENTS,
            seed=SET_NAMES.index(inputs.name),
            threads=task["threads"],
            deadline=task["deadline"],
        )
        store.write_reference(inputs.name, found)
        shares[inputs.name] = (found.share, found.vague, inputs.is_mild)
    return shares


def ready(task: Mapping[str, Any]) -> str:
    """Start using the device; its name."""
    import torch

    torch.cuda.set_device(torch.device(task["device"]))
    return torch.cuda.get_device_name()


def forget(task: Mapping[str, Any]) -> None:
    """Give back what a check left in memory: the worker waits for the next one."""
    del task
    for kept in (*_INPUTS, _rotated, _store, _eager):
        kept.cache_clear()
    _TOO_LARGE.clear()
    judge.forget()
    make_room()


def check_plan(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run ``plan`` on the input ``sets`` and judge it: the worst ``evidence`` as plain values.

    With ``reps`` a plan that passes is timed too, over inputs that exceed ``l2_bytes``: ``time``.
    """
    import torch

    store = _store(task["folder"], task["program"])
    plan = load_text(task["plan"], "plan")
    if not isinstance(plan, Plan):
        raise FormatError("is no plan", where="numerical check task")
    device = torch.device(task["device"])
    torch.cuda.set_device(device)
    runner = PlanRunner(plan)
    with matmuls_as_in(store.program):
        evidence = _worst(store, runner, task["sets"], device)
        reply: dict[str, Any] = {"evidence": plain_evidence(evidence)}
        if evidence.passed and "reps" in task:
            l2_bytes = int(task["l2_bytes"])
            sets = _rotated(store.folder, store.program, l2_bytes, device)
            sets = sets[: first_sets(sum(t.bytes for t in store.program.inputs), l2_bytes)]
            with stage(LAUNCH):
                reply["time"] = asdict(_timed(runner, sets, int(task["reps"])))
    return reply


def _worst(
    store: InputStore, runner: PlanRunner, names: Sequence[str], device: torch.device
) -> FloatEvidence:
    parts: list[FloatEvidence] = []
    for name in names:
        parts.append(of_set(name, _judged(store, runner, name, device)))
        if not parts[-1].passed:
            break
    return joined(parts)


def _judged(
    store: InputStore, runner: PlanRunner, name: str, device: torch.device
) -> FloatEvidence:
    import torch

    run_eager(store, name, device)
    inputs = _inputs(store.folder, store.program, name, device)
    before = [x.clone() for x in inputs]
    with stage(LAUNCH):
        outputs = runner.run_poisoned(*inputs)
        torch.cuda.synchronize(device)
    found = judge_there(store, name, outputs)
    for tensor, x, kept in zip(store.program.inputs, inputs, before, strict=True):
        if not torch.equal(x, kept):
            for cached in (*_INPUTS, _rotated):
                cached.cache_clear()
            why = reason(Code.WRITES_TO_INPUT, tensor.name)
            return replace(found, passed=False, reason=why)
    if not found.passed:
        return found
    return _repeated(found, runner, inputs, outputs)


def _repeated(
    found: FloatEvidence,
    runner: PlanRunner,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> FloatEvidence:
    """The finding after more launches: without atomics they must all give the same bits."""
    with stage(LAUNCH):
        spread = spread_of(runner.plan, outputs, lambda: runner.run_poisoned(*inputs))
    if spread and not adds_atomically(runner.plan):
        why = reason(Code.RACE, f"{spread:.2g}")
        return replace(found, passed=False, reason=why, spread=spread)
    return replace(found, spread=spread)


def run_eager(store: InputStore, name: str, device: torch.device) -> None:
    """Judge what eager PyTorch gives for a set, unless that is known or cannot be had."""
    import torch

    function = _eager(store.program)
    known = store.folder in _TOO_LARGE or store.read_eager(name) is not None
    if function is None or known:
        return
    try:
        with torch.no_grad():
            found = function(*_inputs(store.folder, store.program, name, device))
        add_eager(store, name, found if isinstance(found, tuple) else (found,))
    except torch.OutOfMemoryError:
        # That is no fault of the plan which is checked.
        _TOO_LARGE.add(store.folder)
    # The memory that only eager needed: other processes may wait for it.
    give_back(MOST_IDLE_BYTES)


def _timed(runner: PlanRunner, sets: Sequence[InputSet], reps: int) -> Timed:
    (time,) = time_interleaved(
        {"the plan": lambda number: runner(*sets[number])},
        len(sets),
        reps=reps,
        seconds=_REPLAYS_S,
    ).values()
    return time


@lru_cache(maxsize=2)
def _store(folder: str, program_text: str) -> InputStore:
    program = load_text(program_text, "program")
    if not isinstance(program, Program):
        raise FormatError("is no program", where="numerical check task")
    return InputStore(Path(folder), program)


def _inputs(
    folder: Path, program: Program, name: str, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Input sets stay on the GPU from one candidate to the next, of large inputs one."""
    is_large = sum(t.bytes for t in program.inputs) > _LARGE_BYTES
    return (_one_set if is_large else _many_sets)(folder, program, name, device)


def _read_set(
    folder: Path, program: Program, name: str, device: torch.device
) -> tuple[torch.Tensor, ...]:
    return InputStore(folder, program).inputs(name, device)


_INPUTS = _one_set, _many_sets = lru_cache(maxsize=1)(_read_set), lru_cache(maxsize=8)(_read_set)


@lru_cache(maxsize=1)
def _rotated(folder: Path, program: Program, l2_bytes: int, device: torch.device) -> list[InputSet]:
    return rotated_inputs(InputStore(folder, program), l2_bytes, device)


@lru_cache(maxsize=2)
def _eager(program: Program) -> Callable[..., Any] | None:
    try:
        return torch_function(program)
    except UnsupportedError:
        return None


def adds_atomically(plan: Plan) -> bool:
    """Whether some kernel's blocks add to one tensor.

    Blocks of one launch write to different places and each sums in one order, so two results that
    differ are a race. Atomic additions come in the order that the GPU chooses: there results differ
    by roundings, and how far they do is measured.
    """
    return any(k.added_tensors for k in plan.ugraph.kernels if isinstance(k, BlockGraph))


def spread_of(plan: Plan, first: Outputs, launch: Callable[[], Outputs]) -> float:
    """How far the results of further launches are from those of the ``first``: the norm of the
    difference over that of the result, of the worst output and launch; 0 where all bits are equal.
    """
    times = _AGAIN_ATOMIC if adds_atomically(plan) else _AGAIN
    return max(
        _distance(one, other)
        for _ in range(times)
        for one, other in zip(first, launch(), strict=True)
    )


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    import torch

    if all(torch.equal(_bits(a), _bits(b)) for a, b in in_pieces(one, other)):
        return 0.0
    moved = scale = 0.0
    for left, right in in_pieces(one, other):
        a, b = left.double(), right.double()
        finite = torch.isfinite(a)
        if not torch.equal(finite, torch.isfinite(b)):
            return inf
        moved = hypot(moved, float(torch.linalg.vector_norm(torch.where(finite, a - b, 0.0))))
        scale = hypot(scale, float(torch.linalg.vector_norm(torch.where(finite, a, 0.0))))
    # 0 and -0, or two kinds of NaN, are no distance apart but not the same either.
    return max(moved / scale if scale else inf if moved else 0.0, 2.0**-149)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.view(torch.uint8)
