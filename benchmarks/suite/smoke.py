"""A run that measures nothing: every stage but the clock, on two programs that are tiny.

They are searched, their best plan is emitted, run on the CPU and compiled for the target, and it
and eager PyTorch on the CPU are compared with float64. Times are null.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from benchmarks.report.record import Record
from benchmarks.suite.families import Candidate, Searched, read, search_workload
from benchmarks.suite.options import Options
from benchmarks.suite.plan_format import described, digest
from benchmarks.suite.roofline import roofline
from benchmarks.suite.run_suite import new_record
from benchmarks.workloads.suites import SMOKE, named
from benchmarks.workloads.workload import Workload
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.cpu.cpu_run import check_on_cpu
from mirage_py.runtime.numerical_check.input_store import to_arrays
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import H200
from mirage_py.ugraph.text.json_form import to_json
from mirage_py.verify.numerical_check.numerical_check import (
    FloatEvidence,
    input_sets,
    judge,
    reference,
)

Json = dict[str, Any]

NOTHING = "nothing was measured: times are null"
_TARGET = H200


def run_smoke(options: Options, on_row: Callable[[Json], None]) -> Record:
    """The record of the suite ``smoke``, whatever suite the options name."""
    machine = {
        "gpu": None,
        "cpu": platform.machine(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
    }
    record = new_record(options, machine, SMOKE)
    record.notes.append(NOTHING)
    for workload in named(SMOKE):
        row, measurements = smoke_row(workload, _searched(workload, options))
        record.add(row, measurements)
        on_row(row)
    return record


def smoke_row(workload: Workload, searched: Searched) -> tuple[Json, list[Json]]:
    """A row without times, and a line for each plan."""
    started = time.perf_counter()
    best = searched.candidates[0]
    cpu_check = check_on_cpu(searched.program, best.plan, _TARGET, seed=0)
    judged = cpu_check.evidence
    eager = _judged_eager(workload, searched)
    bound = roofline(searched.program, _TARGET)
    row: Json = {
        "workload": workload.name,
        "batch": workload.batch,
        "sizes": dict(workload.sizes),
        "backend": best.plan.backend,
        "ours_us": None,
        "result_us": None,
        "result": None,
        "peers_us": {"eager": None},
        "peers": {"eager": {"us": None, "error": eager.max_rel_error, "agrees": eager.passed}},
        "peers_wrong": [] if eager.passed else ["eager"],
        "floor_us": round(bound.floor_us, 3),
        "bound_by": bound.bound_by,
        "moved_bytes": bound.moved_bytes,
        "flops": bound.flops,
        "launch_us": None,
        "max_rel_error": judged.max_rel_error if judged.passed else None,
        "error_bound": judged.bound,
        "eager_rel_error": eager.max_rel_error,
        "search_s": round(searched.search_s, 2),
        "verify_s": round(searched.verify_s, 2),
        "tune_s": None,
        "row_s": round(time.perf_counter() - started, 1),
        "candidates": len(searched.candidates),
        "notes": [str(text) for text in (cpu_check.fault, *cpu_check.notes) if text],
        "kind": describe(best.plan.ugraph),
        "plan": described(best.plan),
        "digest": digest(best.plan),
    }
    return row, [_line(workload, n, candidate) for n, candidate in enumerate(searched.candidates)]


def _searched(workload: Workload, options: Options) -> Searched:
    path = options.families / f"{workload.key}.json" if options.families else None
    if path is not None and path.exists():
        return read(path, options.most_plans, options.backend)
    return search_workload(workload, _TARGET, "none", options.backend)


def _judged_eager(workload: Workload, searched: Searched) -> FloatEvidence:
    """What eager PyTorch gives on the CPU for random inputs, against float64."""
    import torch

    program = searched.program
    arrays = next(iter(input_sets(program, 0))).arrays
    inputs = [laid_out(t, torch.from_numpy(arrays[t.name])) for t in program.inputs]
    with torch.no_grad():
        found = workload.torch_function()(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    return judge(program, reference(program, arrays), to_arrays(program, outputs))


def _line(workload: Workload, number: int, candidate: Candidate) -> Json:
    return {
        "key": workload.key,
        "n": number,
        "digest": digest(candidate.plan),
        "kind": describe(candidate.plan.ugraph),
        "predicted_us": round(candidate.predicted_us, 3),
        "kernels": list(candidate.kernels),
        "us": None,
        "plan": to_json(candidate.plan),
    }
