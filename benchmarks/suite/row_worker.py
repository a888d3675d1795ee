"""The worker process of the suite: one GPU is all that it sees."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.suite import families
from benchmarks.workloads.suites import ALL, named
from benchmarks.workloads.workload import Workload
from mirage_py.runtime.base import stages
from mirage_py.targets import Target

Task = Mapping[str, Any]


def prepare(task: Task) -> dict[str, Any]:
    """Take the GPU: what it is, and how long an empty kernel takes on it."""
    del task
    import torch
    import triton

    return {
        "target": _target().name,
        "launch_us": _launch_us(),
        "machine": {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "python": sys.version.split()[0],
        },
    }


def measure(task: Task) -> dict[str, Any]:
    """Measure the workload ``key`` with the task's settings: ``row`` and ``measurements``."""
    from benchmarks.peers.peers import peers
    from benchmarks.suite.row import Setting, measure_row

    started = time.perf_counter()
    stages.enter("reading")
    (workload,) = named(ALL, [task["key"]])
    searched = _searched(workload, task)
    wanted = task["peers"]
    rivals = peers(workload, ("eager", *wanted) if wanted else None)
    setting = Setting(_target(), task["effort"], task["compile_workers"], _launch_us())
    row, measurements = measure_row(workload, searched, rivals, setting, stages.enter)
    row["row_s"] = round(time.perf_counter() - started, 1)
    return {"row": row, "measurements": measurements}


def _searched(workload: Workload, task: Task) -> families.Searched:
    """From the folder of those found before, or found now."""
    if task["families"]:
        path = Path(task["families"]) / f"{workload.key}.json"
        return families.read(path, task["plans"], task["backend"])
    found = families.search_workload(workload, _target(), task["effort"], task["backend"])
    return families.Searched(
        found.program, found.candidates[: task["plans"]], found.search_s, found.verify_s
    )


@cache
def _target() -> Target:
    from mirage_py.errors import InputError
    from mirage_py.runtime.env.environment import detect_target

    found = detect_target()
    if found is None:
        raise InputError("there is no NVIDIA GPU to measure on")
    return found


@cache
def _launch_us() -> float:
    from benchmarks.peers.launch_floor import launch_us

    return launch_us()
