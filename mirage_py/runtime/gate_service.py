"""The float gate inside its worker: a wrong address spoils this process's GPU context, no other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage_py.errors import FormatError, UnsupportedError
from mirage_py.runtime.eager import torch_function
from mirage_py.runtime.gate_store import GateStore, to_arrays
from mirage_py.runtime.launch import PlanRunner
from mirage_py.ugraph.json_form import load_text
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.program import Program
from mirage_py.verify.float_gate import FloatEvidence, input_sets, reference

if TYPE_CHECKING:
    import torch


def prepare(task: Mapping[str, Any]) -> list[str]:
    """Fill the store in ``folder`` for ``program`` and ``seed``; the names of the input sets."""
    import torch

    store = _store(task["folder"], task["program"])
    program = store.program
    device = torch.device(task["device"])
    try:
        eager = torch_function(program)
    except UnsupportedError:
        eager = None
    names = []
    for inputs in input_sets(program, task["seed"]):
        names.append(inputs.name)
        store.write_inputs(inputs.name, inputs.arrays)
        store.write_reference(inputs.name, reference(program, inputs.arrays))
        if eager is not None:
            with torch.no_grad():
                found = eager(*store.inputs(inputs.name, device))
            outputs = found if isinstance(found, tuple) else (found,)
            store.write_eager(inputs.name, to_arrays(program, outputs))
    store.write_names(tuple(names))
    return names


def gate(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run ``plan`` on the input ``sets`` and judge it; the worst evidence as plain values."""
    import torch

    store = _store(task["folder"], task["program"])
    plan = load_text(task["plan"], "plan")
    if not isinstance(plan, Plan):
        raise FormatError("is no plan", where="gate task")
    device = torch.device(task["device"])
    torch.cuda.set_device(device)
    runner = PlanRunner(plan)
    worst: FloatEvidence | None = None
    for name in task["sets"]:
        found = _judged(store, runner, name, device)
        if not found.passed:
            return _plain(found, f"{name} inputs: {found.reason}")
        if worst is None or found.max_rel_error > worst.max_rel_error:
            worst = found
    assert worst is not None
    return _plain(worst, "")


def _judged(store: GateStore, runner: PlanRunner, name: str, device: torch.device) -> FloatEvidence:
    import torch

    inputs = _inputs(store.folder, store.program, name, device)
    before = [x.clone() for x in inputs]
    outputs = runner.run_poisoned(*inputs)
    torch.cuda.synchronize(device)
    found = store.judge(name, to_arrays(store.program, outputs))
    for tensor, x, kept in zip(store.program.inputs, inputs, before, strict=True):
        if not torch.equal(x, kept):
            _inputs.cache_clear()
            reason = f"it writes to its input {tensor.name}"
            return FloatEvidence(found.max_rel_error, found.bound, None, False, reason)
    return found


def _plain(found: FloatEvidence, reason: str) -> dict[str, Any]:
    return {
        "max_rel_error": found.max_rel_error,
        "bound": found.bound,
        "eager_rel_error": found.eager_rel_error,
        "passed": found.passed,
        "reason": reason,
        "nonfinite": found.nonfinite,
    }


@lru_cache(maxsize=2)
def _store(folder: str, program_text: str) -> GateStore:
    program = load_text(program_text, "program")
    if not isinstance(program, Program):
        raise FormatError("is no program", where="gate task")
    return GateStore(Path(folder), program)


@lru_cache(maxsize=8)
def _inputs(
    folder: Path, program: Program, name: str, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Input sets stay on the GPU from one candidate to the next."""
    return GateStore(folder, program).inputs(name, device)
