"""The numerical campaign: kernels and eager PyTorch against float64, on every set of inputs.

    python -m benchmarks.numerical.numerical_plans DIR                     # needs egglog, no GPU
    python -m benchmarks.numerical --plans DIR -o OUT.json       # on the GPU
    python -m benchmarks.numerical --plans DIR --cpu [--only TEXT]   # under CPU emulation

Every operator at the points where it may lose digits (numerical_points.py), and plans of every kind
of each example in each type on all sets of inputs, whole rows of them hidden by masks and far from
zero among them. Passed is what is no farther from float64 than four times eager, or than the
output's rounding (numerical_error.py). Ends with 1 where something is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from os import sched_getaffinity
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.numerical.numerical_error import Compared, compared
from benchmarks.numerical.numerical_plans import Emitted, read
from benchmarks.numerical.numerical_points import PointCase, kinds_of_points, point_cases
from benchmarks.report.provenance import commit
from mirage_py.errors import MirageError
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.eager.eager_source import torch_function
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.numerical_check.input_store import to_arrays
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.input_sets import drawn_sets, set_names
from mirage_py.verify.numerical_check.numerical_check import reference

_CAPABILITY = 90
Arrays = Mapping[str, FloatArray]
Run = Callable[[Plan, Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Row:
    """One plan on one set, or an operator on one kind of points; ``fault`` is why there is none."""

    name: str
    dtype: str
    kind: str
    inputs: str
    found: Compared | None
    fault: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ran and is no worse than it may be."""
        return self.found is not None and self.found.passed

    def document(self) -> dict[str, object]:
        """The JSON form."""
        of = {"name": self.name, "type": self.dtype, "kind": self.kind, "inputs": self.inputs}
        return of | (self.found.document() if self.found else {"fault": self.fault})


# -- operators -----------------------------------------------------------------------------------


def judge_points(case: PointCase, run: Run, device: str) -> Iterator[Row]:
    """A row for each kind of points; of functions that reduce, for all rows together."""
    kind = case.plan.backend
    program = case.plan.ugraph.program
    output = program.outputs[0].tensor.name
    try:
        got = run(case.plan, case.arrays)[output]
    except (MirageError, RuntimeError) as error:
        yield Row(case.name, str(case.dtype), kind, "all", None, " ".join(str(error).split()))
        return
    eager = _eager(case.eager, program, case.arrays, device)[output]
    for number, points in enumerate(kinds_of_points()):
        part = slice(number, number + 1)
        values = [{output: x[part]} for x in (case.expected, got, eager)]
        found = compared(program, *values, by_point=True)
        yield Row(case.name, str(case.dtype), kind, points, found)


# -- plans ---------------------------------------------------------------------------------------


def judge_plans(
    plans: Sequence[Emitted], run: Run, device: str, prepared: Callable[[Program, str], Any]
) -> Iterator[Row]:
    """A row for each plan and set; ``prepared`` gives the inputs of a set and the right outputs."""
    programs = dict.fromkeys(e.program for e in plans)
    for program in programs:
        eager = torch_function(program)
        for name in set_names(program):
            arrays, expected = prepared(program, name)
            theirs = _eager(eager, program, arrays, device)
            for emitted in (e for e in plans if e.program == program):
                of = (emitted.example, emitted.dtype, emitted.kind, name)
                try:
                    got = run(emitted.plan, arrays)
                except (MirageError, RuntimeError) as error:
                    yield Row(*of, None, " ".join(str(error).split()))
                    continue
                yield Row(*of, compared(program, expected, got, theirs))


def prepare(program: Program, name: str) -> tuple[dict[str, FloatArray], ...]:
    """The inputs of a set, and the outputs in float64, all of them."""
    (inputs,) = drawn_sets(program, 0, [name])
    found = reference(program, inputs.arrays, max_work=float("inf"), operands=F32)
    return inputs.arrays, found.outputs


class Prepared:
    """Sets and references, made by other processes in the order in which they are asked for."""

    def __init__(self, programs: Sequence[Program], workers: int) -> None:
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        self._found: dict[tuple[Program, str], Future[Any]] = {
            (p, n): self._pool.submit(prepare, p, n) for p in programs for n in set_names(p)
        }

    def __call__(self, program: Program, name: str) -> Any:
        return self._found.pop((program, name)).result()

    def close(self) -> None:
        """Stop the processes."""
        self._pool.shutdown(cancel_futures=True)


# -- running -------------------------------------------------------------------------------------


def emulated(plan: Plan, arrays: Arrays) -> Arrays:
    """On the CPU."""
    return (run_emulated if plan.backend == "cuda" else run_interpreted)(plan, arrays)


def on_gpu(plan: Plan, arrays: Arrays) -> Arrays:
    """On the current device, into memory that holds NaN."""
    program = plan.ugraph.program
    return to_arrays(program, PlanRunner(plan).run_poisoned(*_tensors(program, arrays, "cuda")))


def _eager(
    function: Callable[..., Any], program: Program, arrays: Arrays, device: str
) -> dict[str, FloatArray]:
    import torch

    with torch.no_grad():
        found = function(*_tensors(program, arrays, device))
    return to_arrays(program, found if isinstance(found, tuple) else (found,))


def _tensors(program: Program, arrays: Arrays, device: str) -> list[Any]:
    import torch

    return [
        laid_out(t, torch.from_numpy(np.array(arrays[t.name])).to(device)) for t in program.inputs
    ]


# -- results -------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """A line for each name and back end: by type how many rows, the worst one and where it is."""
    lines = [
        "| what | back end | results | worse | worst error | eager there | at |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.name, row.kind.split()[0]), []).append(row)
    for (name, backend), found in groups.items():
        known = [r for r in found if r.found is not None]
        bad = sum(not r.passed for r in found)
        if not known:
            lines.append(f"| {name} | {backend} | {len(found)} | {bad} | | | did not run |")
            continue
        top = worst_row(known)
        assert top.found is not None
        lines.append(
            f"| {name} | {backend} | {len(found)} | {bad} | {top.found.error:.2g} "
            f"| {top.found.eager:.2g} | {top.dtype}, {top.inputs} |"
        )
    return "\n".join(lines)


def worst_row(rows: Sequence[Row]) -> Row:
    """That which is closest to what it may be, or exceeds it most."""
    return max(rows, key=lambda r: (not r.passed, r.found.ratio if r.found else 0.0))


def document(points: Sequence[Row], plans: Sequence[Row], where: str, commit: str) -> Any:
    """What a result file holds: what is worse than it may be, and of the rest the worst of each."""
    rows = [*points, *plans]
    best: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        best.setdefault((row.name, row.dtype, row.kind), []).append(row)
    return {
        "schema": 1,
        "command": "python -m benchmarks.numerical " + " ".join(sys.argv[1:]),
        "commit": commit,
        "where": where,
        "operators": len(points),
        "plans": len(plans),
        "within_rounding": sum(r.found is not None and r.found.within_rounding for r in rows),
        "worse": [r.document() for r in rows if not r.passed],
        "worst": [worst_row(found).document() | {"results": len(found)} for found in best.values()],
    }


def _where() -> str:
    import torch
    import triton

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU emulation"
    return f"{name}, torch {torch.__version__}, triton {triton.__version__}"


def _compile(plans: Sequence[Plan], workers: int) -> None:
    """All at once, so that the runs find them."""
    with CompilePool(workers) as pool:
        outcomes = pool.compile(list(plans), _CAPABILITY)
    for plan, outcome in zip(plans, outcomes, strict=True):
        if not outcome.compiled:
            print(f"{plan.ugraph.program.name}, {plan.backend}: {outcome.reason}", flush=True)


def main() -> int:
    """Judge the operators and the plans; 1 where one is worse than it may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--plans", type=Path, help="what numerical_plans wrote")
    parser.add_argument("--cpu", action="store_true", help="without a GPU")
    parser.add_argument("--only", default="", help="a part of a name, as softmax/f16")
    parser.add_argument("--no-points", action="store_true", help="no operators")
    parser.add_argument("--commit", default="", help="the commit that is checked")
    chosen = parser.parse_args()
    started = time.perf_counter()

    def said(text: str) -> None:
        print(f"{time.perf_counter() - started:6.1f} s  {text}", flush=True)

    workers = max(1, len(sched_getaffinity(0)) - 2)
    cases = [] if chosen.no_points else list(point_cases())
    cases = [c for c in cases if chosen.only in f"{c.name}/{c.dtype}/{c.plan.backend}"]
    plans = [e for e in read(chosen.plans) if chosen.only in e.name] if chosen.plans else []
    device = "cpu" if chosen.cpu else "cuda"
    run = emulated if chosen.cpu else on_gpu
    said(f"{len(cases)} operators, {len(plans)} plans")
    if not chosen.cpu:
        _compile([*(c.plan for c in cases), *(e.plan for e in plans)], workers)
        said("compiled")
    points = [row for case in cases for row in judge_points(case, run, device)]
    said(f"{len(points)} results of operators")
    prepared = Prepared(list(dict.fromkeys(e.program for e in plans)), workers)
    found = list(judge_plans(plans, run, device, prepared))
    prepared.close()
    said(f"{len(found)} results of plans")
    print(table([*points, *found]))
    for row in (*points, *found):
        if not row.passed:
            what = f"{row.found.error:.3g}, eager {row.found.eager:.3g}" if row.found else row.fault
            print(f"WORSE {row.name}/{row.dtype}/{row.kind} on {row.inputs}: {what}")
    if chosen.out:
        text = json.dumps(document(points, found, _where(), commit(chosen.commit)), indent=1)
        chosen.out.write_text(text + "\n", encoding="utf-8")
    return int(not all(r.passed for r in (*points, *found)))


if __name__ == "__main__":
    raise SystemExit(main())
