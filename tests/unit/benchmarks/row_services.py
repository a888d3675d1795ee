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
