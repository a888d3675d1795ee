"""Emitted kernels against float64, operator by operator: a table of the worst error of each.

    python -m benchmarks.checks.differential -o OUT.json                # on the GPU
    python -m benchmarks.checks.differential --interpret [--full]       # on the CPU
    python -m benchmarks.checks.differential --dry-run    # compile for sm_90, run nothing

Errors are given in parts of what rounding explains
(mirage_py.verify.numerical_check.numerical_check): what is above 1 is wrong. On the GPU each kernel
runs twice, and without atomics both results must be the same.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.checks.differential_cases import BACKENDS, Case, draw, full, quick
from benchmarks.report.provenance import commit
from mirage_py.errors import MirageError
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.cpu.cuda_emulation import run_emulated
from mirage_py.runtime.cpu.triton_interpreter import run_interpreted
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.verify.numerical_check.numerical_check import cases as output_cases
from mirage_py.verify.numerical_check.numerical_check import reference

if TYPE_CHECKING:
    import torch

_CAPABILITY = 90

# Outputs by name, from a case and its inputs; raises MirageError, or says what else went wrong.
Run = Callable[[Case, Mapping[str, FloatArray]], Mapping[str, FloatArray]]


@dataclass(frozen=True, slots=True)
class Judged:
    """One output of one case. ``ratio`` is its worst element's error over what is allowed there;
    ``fault`` says what is wrong with it.
    """

    case: Case
    output: str
    ratio: float
    fault: str = ""

    @property
    def passed(self) -> bool:
        """Whether it is right."""
        return not self.fault


def judge(case: Case, run: Run) -> list[Judged]:
    """Every output of a case."""
    arrays = draw(case)
    try:
        got = run(case, arrays)
    except (MirageError, RuntimeError) as error:
        fault = " ".join(str(error).split())
        return [Judged(case, o.tensor.name, math.inf, fault) for o in case.program.outputs]
    found = []
    for known in output_cases(case.program, reference(case.program, arrays)):
        values = got[known.name]
        with np.errstate(invalid="ignore"):
            ratios = np.abs(values - known.expected)[known.compared] / known.allowed[known.compared]
        worst = float(np.nan_to_num(ratios, nan=math.inf).max()) if ratios.size else 0.0
        fault = str(known.judge(values, None).reason or "")
        found.append(Judged(case, known.name, worst, fault))
    return found


def interpreted(case: Case, arrays: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
    """In Triton's interpreter, between guards, or under CPU emulation."""
    if case.plan.backend == "cuda":
        return run_emulated(case.plan, arrays)
    return run_interpreted(case.plan, arrays)


def on_gpu(case: Case, arrays: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
    """On the current device, into memory that holds NaN, twice. Raises RuntimeError where the two
    results differ and nothing is added atomically.
    """
    import torch

    runner = PlanRunner(case.plan)
    inputs = [
        laid_out(t, torch.from_numpy(np.ascontiguousarray(arrays[t.name])).cuda())
        for t in case.program.inputs
    ]
    first, again = (runner.run_poisoned(*inputs) for _ in range(2))
    if not _adds(case):
        for output, one, two in zip(case.program.outputs, first, again, strict=True):
            if not torch.equal(_bits(one), _bits(two)):
                raise RuntimeError(f"{output.tensor.name} differs from run to run")
    return {
        o.tensor.name: t.double().cpu().numpy()
        for o, t in zip(case.program.outputs, first, strict=True)
    }


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


def _adds(case: Case) -> bool:
    return any(o.startswith("store_add") for ops in case.operators.values() for o in ops)


def table(found: Iterable[Judged]) -> str:
    """Operators and types: how many results, the worst ratio, where it is."""
    rows: dict[tuple[str, str], list[Judged]] = {}
    for one in found:
        for op in one.case.operators[one.output]:
            rows.setdefault((op, str(one.case.dtype)), []).append(one)
    operators = list(dict.fromkeys(op for op, _ in rows))
    types = list(dict.fromkeys(t for _, t in rows))
    lines = [f"{'operator':15s}" + "".join(f"{t:>16s}" for t in types) + "  worst at"]
    for op in operators:
        cells = []
        for dtype in types:
            there = rows.get((op, dtype), [])
            bad = sum(not one.passed for one in there)
            worst = max((one.ratio for one in there), default=math.nan)
            text = f"{worst:.2f} of {len(there)}" if there else "-"
            cells.append(f"{f'{bad} WRONG of {len(there)}' if bad else text:>16s}")
        every = [one for t in types for one in rows.get((op, t), [])]
        lines.append(f"{op:15s}{''.join(cells)}  {max(every, key=lambda j: j.ratio).case.key}")
    return "\n".join(lines)


def document(found: Sequence[Judged], where: str, commit: str) -> dict[str, object]:
    """What a result file holds."""
    return {
        "schema": 1,
        "command": "python -m benchmarks.checks.differential " + " ".join(sys.argv[1:]),
        "commit": commit,
        "where": where,
        "results": len(found),
        "wrong": [
            {"case": j.case.key, "output": j.output, "fault": j.fault}
            for j in found
            if not j.passed
        ],
        "rows": [
            {
                "case": j.case.key,
                "output": j.output,
                "operators": list(j.case.operators[j.output]),
                "error_over_bound": round(j.ratio, 4) if math.isfinite(j.ratio) else None,
            }
            for j in found
        ],
    }


@cache
def _where() -> str:
    import torch
    import triton

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "interpreter"
    return f"{name}, torch {torch.__version__}, triton {triton.__version__}"


def main() -> int:
    """Judge the cases; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--full", action="store_true", help="the larger cross product")
    parser.add_argument("--interpret", action="store_true", help="without a GPU")
    parser.add_argument("--dry-run", action="store_true", help="compile only")
    parser.add_argument("--only", default="", help="a part of a case's key")
    parser.add_argument("--backend", choices=BACKENDS, default=BACKENDS[0])
    parser.add_argument("--workers", type=int)
    parser.add_argument("--commit", default="", help="the commit that is checked")
    chosen = parser.parse_args()
    drawn = full(chosen.backend) if chosen.full else quick(chosen.backend)
    cases = [c for c in drawn if chosen.only in c.key]
    started = time.perf_counter()
    if not chosen.interpret:
        with CompilePool(chosen.workers) as pool:
            outcomes = pool.compile([c.plan for c in cases], _CAPABILITY)
        for case, outcome in zip(cases, outcomes, strict=True):
            if not outcome.compiled:
                print(f"{case.key} does not compile: {outcome.reason}")
        print(f"{len(cases)} kernels, {time.perf_counter() - started:.1f} s to compile", flush=True)
        if chosen.dry_run:
            return int(not all(o.compiled for o in outcomes))
    run = interpreted if chosen.interpret else on_gpu
    found = [judged for case in cases for judged in judge(case, run)]
    print(table(found))
    for judged in found:
        if not judged.passed:
            print(f"{judged.case.key} {judged.output}: {judged.fault}")
    wrong = sum(not j.passed for j in found)
    print(
        f"{len(found)} results of {len(cases)} kernels, {wrong} wrong, "
        f"{time.perf_counter() - started:.1f} s, {_where()}"
    )
    if chosen.out:
        text = json.dumps(document(found, _where(), commit(chosen.commit)), indent=1)
        chosen.out.write_text(text + "\n", encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
