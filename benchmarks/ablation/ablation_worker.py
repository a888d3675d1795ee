"""The worker process of the ablation: one GPU is all that it sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ablation.ablation_row import Bench, ablation_row
from benchmarks.report.ahead import fastest_plans, with_winners_first
from benchmarks.report.record import read_document
from benchmarks.report.summary import key_of
from benchmarks.suite import families
from benchmarks.workloads.suites import ALL, named
from mirage_py.errors import InputError
from mirage_py.runtime.base import stages
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.env.environment import detect_target
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.numerical_check.check_pool import NumericalCheck
from mirage_py.runtime.numerical_check.input_store import InputSet, rotated_inputs
from mirage_py.runtime.timing.timing import Entry, Timed, time_interleaved
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import from_json

# Replays to choose among plans by, and to compare variants by.
_CHOOSING_REPS, _COMPARING_REPS = 9, 31
# Of a run's CUDA plans so many are timed again.
_WINNERS = 3


def read_plans(
    folder: Path, key: str, limit: int, winners: Path | None
) -> tuple[Program, tuple[Plan, ...]]:
    """A workload's program and its CUDA plans: the first ``limit`` of those searched, or the
    fastest few that the run in ``winners`` has measured.

    Raises InputError where there are none.
    """
    searched = families.read(folder / f"{key}.json", limit, "cuda")
    plans = searched.plans
    if winners is not None:
        rows = {key_of(row): row for row in read_document(winners)["rows"]}
        lines = fastest_plans(winners, [key], backend="cuda")[key]
        lines = with_winners_first(lines, rows.get(key, {}).get("digest"))[:_WINNERS]
        plans = tuple(p for line in lines if isinstance(p := from_json(line["plan"]), Plan))
    if not plans:
        raise InputError(f"there is no CUDA plan of {key}", repair="search with --backend cuda")
    return searched.program, plans


def measure(task: Mapping[str, Any]) -> dict[str, Any]:
    """The row of the workload ``key``, its plans as ``read_plans`` takes them."""
    import torch

    stages.enter("reading")
    (workload,) = named(ALL, [task["key"]])
    winners = Path(task["winners"]) if task["winners"] else None
    program, plans = read_plans(Path(task["plans"]), task["key"], task["limit"], winners)
    target = detect_target()
    if target is None:
        raise InputError("there is no NVIDIA GPU to measure on")
    device = torch.device("cuda", torch.cuda.current_device())
    with (
        NumericalCheck(program, seed=0, device=device.index) as check,
        CompilePool(task["compile_workers"]) as pool,
    ):

        def race(of: Sequence[Plan]) -> list[Timed]:
            stages.enter(f"timing {len(of)} variants")
            sets = rotated_inputs(check.store, target.l2_bytes, device)
            entries = {str(n): _on_sets(PlanRunner(plan), sets) for n, plan in enumerate(of)}
            with torch.no_grad():
                return list(time_interleaved(entries, len(sets), reps=_COMPARING_REPS).values())

        bench = Bench(
            lambda of: check.first(of, l2_bytes=target.l2_bytes, reps=_CHOOSING_REPS),
            check.remaining,
            race,
        )
        stages.enter("compiling and checking")
        return ablation_row(
            workload, plans, target, lambda of: pool.compile(of, target.capability), bench
        )


def _on_sets(runner: PlanRunner, sets: Sequence[InputSet]) -> Entry:
    return lambda number: runner(*sets[number])
