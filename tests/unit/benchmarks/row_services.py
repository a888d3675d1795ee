"""Stand-ins for what a worker of the suite does: rows that fail in every way a row may."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirage_py.runtime.base import stages

Task = Mapping[str, Any]


def prepare(task: Task) -> dict[str, Any]:
    return {"launch_us": 1.5, "machine": {"gpu": "NVIDIA H200"}}


def refuse(task: Task) -> None:
    """A GPU that is of no use."""
    if os.environ["CUDA_VISIBLE_DEVICES"] == "broken":
        raise RuntimeError("no kernel image is available")


def row(task: Task) -> dict[str, Any]:
    stages.enter("timing 4 candidates")
    if task.get("crash_once") and not Path(task["crash_once"]).exists():
        Path(task["crash_once"]).touch()
        os.abort()
    if task.get("crash"):
        os.abort()
    time.sleep(task.get("seconds", 0.0))
    return {
        "row": {**task.get("row", {}), "visible": os.environ["CUDA_VISIBLE_DEVICES"]},
        "measurements": [{"key": task["key"], "us": 1.0}],
    }


def kernelbench_prepare(task: Task) -> dict[str, Any]:
    return {"machine": {"gpu": "a stand-in"}}


def kernelbench_row(task: Task) -> dict[str, Any]:
    """The row of a problem of KernelBench; one hangs."""
    path = Path(task["path"])
    if "Median" in path.stem:
        stages_of = Path(os.environ["KERNELBENCH_FOLDER"]) / f"L2-10-{task['dtype']}.stages"
        stages_of.write_text("0.0 searching\n", encoding="utf-8")
        time.sleep(600.0)
    times = {"ours": 2.0, "eager": 8.0, "compile": 4.0}
    found = {"status": "taken", "correct": True, "us": times, "served": "ours"}
    return {"problem": path.stem, **found}


def kernelbench_short_row(task: Task) -> dict[str, Any]:
    """A row in which torch.compile found no memory, unless it was alone."""
    if not task.get("alone"):
        times = {"ours": 8.0, "eager": 8.0}
        found = {"status": "taken", "correct": True, "us": times, "served": "eager"}
        return {"problem": Path(task["path"]).stem, "short_of_memory": True, **found}
    if "Zero" in task["path"]:
        raise RuntimeError("CUDA out of memory")
    return kernelbench_row(task)
