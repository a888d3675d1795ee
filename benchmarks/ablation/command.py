"""The ablation: the fastest CUDA plan against the same plan with one decision switched off.

    python -m benchmarks.suite.families PLANS KEYS --backend cuda       # where egglog is
    python -m benchmarks.ablation PLANS -o OUT --commit SHA       # where GPUs are

For each of the eight example programs the first plans of PLANS are timed, or the fastest of a run
(``--winners``), and the fastest one is measured beside itself without thread graphs, with naive
layouts, without schedule, without a plan of shared memory. Each variant passes the numerical check;
all are timed side by side with a cold L2. OUT/NAME-cuda-ablation.json is written after each
program. Without a GPU nothing is timed: barriers, shared memory and, where there is a compiler,
registers.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ablation.ablation_row import Compile, ablation_row, emitted_only
from benchmarks.ablation.ablation_table import text
from benchmarks.ablation.ablation_worker import read_plans
from benchmarks.farm import gpus
from benchmarks.farm.farm import Farm, Job, Outcome
from benchmarks.report.provenance import commit
from benchmarks.report.record import SCHEMA
from benchmarks.workloads.suites import ALL, named
from mirage_py.errors import CompileError, MirageError
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.compile.compile_pool import CompilePool
from mirage_py.runtime.compile.cuda_compiler import cuda_compiler
from mirage_py.targets import target as target_named

# The examples that the CUDA back end is shown with; those that take long come first.
KEYS = (
    "qknorm-b1", "gqa-b1", "gatedmlp-b1", "rmsnorm-b1", "layernorm_linear-b1", "lora-b1",
    "softmax-b1", "ntrans-b1",
)  # fmt: skip
_PLANS = 12
_ROW_S = 240.0


@dataclass(slots=True)
class Ablation:
    """The result file as it grows; ``failed`` and ``not_run`` are keys with reasons."""

    folder: Path
    commit: str
    keys: Sequence[str]
    name: str = "none"
    machine: Mapping[str, Any] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The whole file, its rows in the order of ``keys``."""
        return {
            "schema": SCHEMA,
            "machine": dict(self.machine),
            "command": "python -m benchmarks.ablation " + " ".join(sys.argv[1:]),
            "commit": self.commit,
            "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d"),
            "rows": [self.rows[key] for key in self.keys if key in self.rows],
            "failed": self.failed,
            "not_run": self.not_run,
        }

    def write(self) -> None:
        """Write it whole: ``h200-cuda-ablation.json``, or ``none-...`` without a GPU."""
        path = self.folder / f"{self.name}-cuda-ablation.json"
        write_text(path, json.dumps(self.document(), indent=1) + "\n")

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        self.rows[row["key"]] = row
        self.write()
        print(f"{row['key']}: {len(row['variants'])} variants", flush=True)

    def fail(self, key: str, reason: str) -> None:
        """Keep why there is no row."""
        self.failed[key] = reason
        self.write()
        print(f"{key} failed: {reason}", flush=True)


def measure_all(ablation: Ablation, chosen: argparse.Namespace, visible: Sequence[str]) -> None:
    """Every row on the GPUs, one worker each, within ``--seconds``."""
    deadline = None if chosen.seconds is None else time.monotonic() + chosen.seconds
    workers = max(1, len(os.sched_getaffinity(0)) // len(visible))

    def ready(gpu: str, found: dict[str, Any]) -> None:
        print(f"GPU {gpu}: {found['machine']['gpu']}", flush=True)
        ablation.name = gpus.short_name(found["machine"]["gpu"])
        ablation.machine = {**found["machine"], **gpus.driver_facts(), "gpus": len(visible)}

    def finished(outcome: Outcome) -> None:
        if outcome.value is None:
            ablation.fail(outcome.job.key, outcome.reason)
        else:
            seconds = round(outcome.seconds, 1)
            ablation.add({**outcome.value, "gpu": outcome.gpu, "row_s": seconds})

    task = {
        "service": "benchmarks.ablation.ablation_worker:measure",
        "plans": str(chosen.plans.resolve()),
        "limit": chosen.most_plans,
        "winners": str(chosen.winners.resolve()) if chosen.winners else None,
        "compile_workers": max(1, workers - 1),
    }
    environment = {"MIRAGE_PY_WORKERS": str(workers)}
    farm = Farm(
        visible,
        "benchmarks.suite.row_worker:prepare",
        chosen.row_seconds,
        environment,
        ready,
        finished,
    )
    with farm:
        left = farm.run([Job(k, {**task, "key": k}) for k in ablation.keys], deadline=deadline)
    why = "; ".join(farm.faults) or "out of time"
    ablation.not_run = {job.key: why for job in left}


def describe_all(ablation: Ablation, chosen: argparse.Namespace, compile_plans: Compile) -> None:
    """Every row without a GPU: what kernels are made of."""
    target = target_named(chosen.target)
    for workload in named(ALL, ablation.keys):
        try:
            _, plans = read_plans(chosen.plans, workload.key, chosen.most_plans, chosen.winners)
            ablation.add(ablation_row(workload, plans, target, compile_plans, None))
        except (MirageError, OSError) as error:
            ablation.fail(workload.key, str(error).splitlines()[0])


def main(arguments: Sequence[str]) -> int:
    """Measure or describe; 1 where a program has no row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plans", type=Path, metavar="PLANS")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for the result")
    parser.add_argument("--only", default=",".join(KEYS), help="workloads, separated by commas")
    parser.add_argument("--plans", dest="most_plans", type=int, default=_PLANS, metavar="N")
    parser.add_argument("--winners", type=Path, help="folder of a run: its fastest CUDA plans")
    parser.add_argument("--gpus", type=int, help="use no more than so many")
    parser.add_argument("--seconds", type=float, help="no program begins or goes on after these")
    parser.add_argument("--row-seconds", type=float, default=_ROW_S)
    parser.add_argument("--target", default="h200", help="what to compile for without a GPU")
    parser.add_argument("--commit", default="")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    keys = [k for k in chosen.only.split(",") if k]
    ablation = Ablation(chosen.out, commit(chosen.commit), keys)
    visible = gpus.visible()[: chosen.gpus]
    if visible:
        measure_all(ablation, chosen, visible)
    else:
        try:
            cuda_compiler()
        except CompileError as error:
            print(f"no registers: {error.what}")
            describe_all(ablation, chosen, emitted_only)
        else:
            capability = target_named(chosen.target).capability
            with CompilePool() as pool:
                describe_all(ablation, chosen, lambda of: pool.compile(of, capability))
    ablation.write()
    print(text(ablation.document()))
    return int(len(ablation.rows) < len(keys))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
