"""One row: a model at a batch, in two processes one after the other that share caches made anew.

``measure`` is a service of ``benchmarks/farm/farm.py``. It gives a row whatever happens: a process
that fails becomes the row's fault, and is not tried again, which would take minutes.
``measure_here`` is the same for rows side by side on a GPU: one start in the worker itself, with
the caches that rows before it left.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.whole_models.phase import EAGER, OURS, measured_start
from mirage_py.errors import LostGpuError
from mirage_py.runtime.base import stages

Json = dict[str, Any]
Task = Mapping[str, Any]

CACHES = ("MIRAGE_PY_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
_TAIL = 1500
WHOLE = "whole graph: "
# An error may be so many times that of eager from float32 (that of Inductor from eager, where
# nothing was computed in float32), or so large by itself: logits in bfloat16 that are summed in
# another order differ by some roundings.
_TIMES, _ALONE = 2.0, 0.03


def measure(task: Task) -> Json:
    """The row of a task: ``{"row": ...}``."""
    begin = time.perf_counter()
    answers: dict[str, Json] = {}
    fault = ""
    # The farm removes it even where this process is killed.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = Path(task["logs"] or folder)
        for phase in ("first_start", "second_start"):
            stages.enter(phase)
            try:
                answers[phase] = _process(phase, task, folder, logs)
            except RuntimeError as error:
                fault = f"{phase}: {error}"
                break
    row = row_of(task, answers, fault)
    row["row_s"] = round(time.perf_counter() - begin, 1)
    return {"row": row}


def prepare(task: Task) -> Json:
    """What a worker for rows side by side runs on; Inductor tunes in turns in it from now on."""
    del task
    import torch
    import triton

    from mirage_py.runtime.timing.autotuning_turns import tune_in_turns

    tune_in_turns()
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    return {"machine": {"gpu": torch.cuda.get_device_name(), **versions}}


def measure_here(task: Task) -> Json:
    """The row of a task, by one start in this process."""
    import torch

    begin = time.perf_counter()
    answers: dict[str, Json] = {}
    fault = ""
    stages.enter("start")
    log = log_of(task) or Path(os.devnull)
    try:
        with torch.no_grad(), log.open("w") as said, contextlib.redirect_stdout(said):
            answers["first_start"] = measured_start(task)
    # Then this process can measure nothing any more.
    except LostGpuError:
        raise
    except Exception as error:  # noqa: BLE001  of this row alone
        fault = f"{type(error).__name__}: {error}"[:_TAIL]
    row = row_of(task, answers, fault)
    row["row_s"] = round(time.perf_counter() - begin, 1)
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
    return {"row": row}


def log_of(task: Task) -> Path | None:
    """Where a row of one start is told about."""
    name = f"{task['model']}-b{task['batch']}.log"
    return Path(task["logs"]) / name if task["logs"] else None


def row_of(task: Task, answers: Mapping[str, Json], fault: str) -> Json:
    """The row from what the processes answered; ``faults`` say why it does not count."""
    first, second = answers.get("first_start", {}), answers.get("second_start", {})
    # Which of them measured.
    last = second or first
    times, errors = dict(last.get("times", {})), dict(last.get("errors", {}))
    peers = {name: time["us"] for name, time in times.items() if name != OURS}
    ours = times.get(OURS, {}).get("us")
    log = first.get("log", [])
    exact = {n: float(f"{e:.3g}") for n, e in last.get("float32_errors", {}).items()}
    return {
        "workload": task["model"],
        "batch": task["batch"],
        "layers": task["layers"],
        "context": task["context"],
        "budget": task["budget"],
        "ours_us": ours,
        "peers_us": peers,
        "times": times,
        "errors": {name: float(f"{error:.3g}") for name, error in errors.items()},
        # From logits in float32: eager's are off, too.
        "float32_errors": exact,
        "regions": sum(_times_of(line) for line in log if _is_region(line)),
        "regions_served": sum(_times_of(line) for line in log if "; served by " in line),
        "first_start_s": first.get("seconds"),
        "second_start_s": second.get("seconds"),
        "peers_start_s": last.get("peers_start_s", {}),
        "peers_failed": last.get("peers_failed", {}),
        "read_bytes": last.get("read_bytes"),
        "first_start": first.get("counts", {}),
        "second_start": second.get("counts", {}),
        "inductor": {name: found.get("inductor", {}) for name, found in answers.items()},
        # The verdict between the whole graph with regions and Inductor's.
        "whole": next((line for line in log if line.startswith(WHOLE)), "").removeprefix(WHOLE),
        "log": log,
        "faults": [text for text in (fault, *_faults(second, errors, exact)) if text],
    }


def _faults(second: Json, errors: Mapping[str, float], exact: Mapping[str, float]) -> list[str]:
    again = [f"{count} {kind}" for kind, count in second.get("counts", {}).items() if count]
    faults = [f"the second start did {', '.join(again)}"] if again else []
    if exact:
        off, rivals, words = exact.get(OURS, 0.0), [exact.get(EAGER, 0.0)], " in float32"
    else:
        off, words = errors.get(OURS, 0.0), ""
        rivals = [error for name, error in errors.items() if name not in (OURS, EAGER)]
    # So that a NaN is a fault.
    if not off <= max(_ALONE, _TIMES * max(rivals, default=0.0)):
        faults.append(f"logits are off by {off:.2g} of the largest{words}")
    return faults


def _is_region(line: str) -> bool:
    return "; served by " in line or "; left to " in line


def _times_of(line: str) -> int:
    """How often a region occurs: ``region x31 [...]``."""
    found = re.search(r"\bregion x(\d+) ", line)
    return int(found.group(1)) if found else 1


def _process(phase: str, task: Task, folder: Path, logs: Path) -> Json:
    """Raises RuntimeError with the last words of a process that gives no answer."""
    asked, answer = folder / "task.json", folder / f"{phase}.json"
    log = logs / f"{task['model']}-b{task['batch']}-{phase}.log"
    asked.write_text(json.dumps(dict(task)), encoding="utf-8")
    caches = {name: str(folder / name.lower()) for name in CACHES}
    paths = os.pathsep.join(path for path in sys.path if path)
    module = "benchmarks.whole_models.phase"
    command = [sys.executable, "-m", module, phase, str(asked), str(answer)]
    with log.open("w", encoding="utf-8") as said:
        done = subprocess.run(
            command,
            env={**os.environ, **caches, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode or not answer.exists():
        tail = log.read_text(encoding="utf-8", errors="replace")[-_TAIL:]
        raise RuntimeError(f"exit status {done.returncode}: {tail.strip()}")
    found: Json = json.loads(answer.read_text(encoding="utf-8"))
    return found
