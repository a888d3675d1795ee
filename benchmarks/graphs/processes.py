"""Candidates in processes of their own: compiled side by side, in turns on the GPU.

Whoever times something holds the lock of mirage_py/runtime/timing/turns.py: operators that are
measured, each candidate of Inductor's autotuning, and the benchmark itself. So searches and
compilers use all cores, and no time is taken beside other work of ours. Candidates of a row share
Inductor's caches; one that would tune what another one is tuning starts when that one has ended.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.graphs.measured_row import OURS

Json = dict[str, Any]
Key = tuple[str, int]
_POLL_S = 0.2
# Whose operators were measured, or whose kernels were tuned, are in the caches.
_AFTER = {
    "ours": "ours_branches",
    "ours_freezing": "ours",
    "max_autotune": "max_autotune_freezing",
}
# Where packages and this project lie on a machine.
_PREFIX = re.compile(rf'"(?:{re.escape(str(Path.cwd()))}/|/\S*/(?:site-packages|python3\.\d+)/)')


@dataclass
class _Row:
    """The processes of a row, and who waits for one of them; ``parts`` are what its candidates have
    measured.
    """

    key: Key
    folder: Path
    options: Json
    parts: dict[str, Json]
    waiting: list[str]
    processes: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        """Start who waits for nobody any more."""
        spawn = multiprocessing.get_context("spawn")
        for name in list(self.waiting):
            before = _AFTER.get(name)
            if before not in self.waiting and before not in self.processes:
                self.waiting.remove(name)
                given = (self.key, name, self.folder, self.options)
                process = spawn.Process(target=_measure, args=given)
                process.start()
                self.processes[name] = process


def rows_in_processes(
    keys: Sequence[Key],
    workers: int,
    seconds: float,
    done: Callable[[Key, Mapping[str, Json]], None],
    known: Mapping[Key, Mapping[str, Json]],
    candidates: Sequence[str],
    **options: Any,
) -> None:
    """Measure ``candidates`` for models at batch sizes, ``workers`` models at a time, in the order
    given; ``done`` gets the parts of a row whenever one of its candidates has ended.

    Candidates that ``known`` has times of are not measured again. After ``seconds`` what is
    unfinished is ended, and its part says where it was. ``options`` are those of
    ``measured_candidate``.
    """
    # Compile workers, Inductor's and ours, share the cores that this process may use.
    threads = max(2, 2 * len(os.sched_getaffinity(0)) // workers)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)
    os.environ["MIRAGE_PY_WORKERS"] = str(threads)
    # Checks in float64 beside compilers: threads that wait for each other take a core each.
    os.environ["OMP_NUM_THREADS"] = "1"
    end = time.monotonic() + seconds
    waiting = list(keys)
    running: dict[Key, _Row] = {}
    with TemporaryDirectory() as place:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < workers:
                key = waiting.pop(0)
                folder = Path(place) / f"{key[0]}-{key[1]}"
                running[key] = _begun(key, folder, known.get(key, {}), candidates, options)
            for key, row in list(running.items()):
                ended = [name for name in list(row.processes) if _has_ended(row, name)]
                if ended:
                    done(key, row.parts)
                    row.start()
                if not row.processes:
                    del running[key]
            time.sleep(_POLL_S)
        for row in running.values():
            for process in row.processes.values():
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(_POLL_S)
        for key, row in running.items():
            for name in list(row.processes):
                _end(row, name, "out of time")
            done(key, row.parts)
        for key in waiting:
            done(key, known.get(key, {}))


def _begun(
    key: Key, folder: Path, known: Mapping[str, Json], candidates: Sequence[str], options: Json
) -> _Row:
    """A row whose candidates run, but for those that have been measured."""
    folder.mkdir()
    parts = {name: part for name, part in known.items() if is_whole(part)}
    row = _Row(key, folder, options, parts, [name for name in candidates if name not in parts])
    row.start()
    return row


def is_whole(part: Json) -> bool:
    """Whether a candidate was measured, or is the model as it was and not for want of time."""
    return "failure" not in part and "were not tested" not in part.get("verdict", "")


def _has_ended(row: _Row, name: str) -> bool:
    process = row.processes[name]
    if process.is_alive():
        return False
    _end(row, name, f"ended with {process.exitcode}")
    return True


def _end(row: _Row, name: str, why: str) -> None:
    process = row.processes.pop(name)
    process.kill()
    process.join()
    path = row.folder / f"{name}.json"
    part: Json = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if not part.pop("is_whole", False):
        frames = row.folder / f"{name}.frames"
        lines = frames.read_text("utf-8").splitlines() if frames.exists() else []
        part = {"failure": why, **part, "where": [_PREFIX.sub('"', line.strip()) for line in lines]}
    row.parts[name] = part


def _measure(key: Key, name: str, folder: Path, options: Json) -> None:
    with (folder / f"{name}.frames").open("w", encoding="utf-8") as frames:
        # Where it is when it is ended, or what breaks it.
        faulthandler.enable(frames, all_threads=False)
        faulthandler.register(signal.SIGUSR1, frames, all_threads=False)
        _measure_here(key, name, folder, options)


def _measure_here(key: Key, name: str, folder: Path, options: Json) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    from benchmarks.graphs.measured_row import measured_candidate
    from benchmarks.peers.tuning_ahead import compile_ahead, wait_for_pool
    from mirage_py.runtime.base.atomic import write_text
    from mirage_py.runtime.timing.autotuning_turns import tune_in_turns

    path = folder / f"{name}.json"

    def stage(part: Json) -> None:
        write_text(path, json.dumps(part))

    def wait() -> None:
        if options["device"] == "cuda" and name != OURS[0]:
            wait_for_pool()

    if options["device"] == "cuda":
        tune_in_turns()
        compile_ahead()
    try:
        part = measured_candidate(*key, name, stage=stage, before_compiling=wait, **options)
        part["is_whole"] = True
    # One candidate of many: the others go on, and the table says what happened.
    except Exception as error:  # noqa: BLE001
        part = json.loads(path.read_text("utf-8")) if path.exists() else {}
        words = (str(error).splitlines() or [""])[0]
        part["failure"] = f"{type(error).__name__}: {words}"
    write_text(path, json.dumps(part))
