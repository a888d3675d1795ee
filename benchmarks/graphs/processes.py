"""Rows in processes of their own: compiled side by side, in turns on the GPU.

Whoever times something holds the lock of mirage_py/runtime/timing/turns.py: operators that are
measured, each candidate of Inductor's autotuning, and the benchmark itself. So searches and
compilers use all cores, and no time is taken beside other work of ours. A process beside each row
compiles the peers, whose choices the row finds in Inductor's caches.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Json = dict[str, Any]
_POLL_S = 0.2


def rows_in_processes(
    keys: Sequence[tuple[str, int]],
    workers: int,
    seconds: float,
    done: Callable[[Json], None],
    **options: Any,
) -> None:
    """Measure models at batch sizes, in the order given; ``done`` gets each row.

    After ``seconds`` what is unfinished is ended, and its row says so. ``options`` are those of
    ``measured_row``.
    """
    spawn = multiprocessing.get_context("spawn")
    # Compile workers, Inductor's and ours, share the cores.
    threads = max(1, (os.cpu_count() or 1) // workers)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)
    os.environ["MIRAGE_PY_WORKERS"] = str(threads)
    end = time.monotonic() + seconds
    waiting = list(keys)
    running: dict[tuple[str, int], tuple[Any, Any, Path]] = {}
    with TemporaryDirectory() as folder:
        while waiting or running:
            is_late = time.monotonic() > end
            while waiting and len(running) < workers and not is_late:
                key = waiting.pop(0)
                path = Path(folder) / f"{key[0]}-{key[1]}.json"
                caches = str(Path(folder) / f"{key[0]}-{key[1]}")
                warm = spawn.Process(target=_tune_peers, args=(key, caches, options["mode"]))
                warm.start()
                given = (key, path, caches, warm.pid, options)
                process = spawn.Process(target=_measure, args=given)
                process.start()
                running[key] = (process, warm, path)
            for key, (process, warm, path) in list(running.items()):
                warm.join(0)  # whoever waits for it sees that it has ended
                if process.is_alive() and not is_late:
                    continue
                for ended in (process, warm):
                    ended.kill()
                    ended.join()
                why = "out of time" if is_late else f"ended with {process.exitcode}"
                row = {"model": key[0], "batch": key[1], "failure": why}
                if path.exists():
                    row |= json.loads(path.read_text("utf-8"))
                # A row that is whole has times, and no failure.
                done({k: v for k, v in row.items() if k != "failure" or "times_us" not in row})
                del running[key]
            if is_late:
                for name, batch in waiting:
                    done({"model": name, "batch": batch, "failure": "out of time"})
                return
            time.sleep(_POLL_S)


def _tune_peers(key: tuple[str, int], caches: str, mode: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches
    from benchmarks.graphs.measured_row import tune_peers
    from benchmarks.peers.autotuning_turns import tune_in_turns

    tune_in_turns()
    tune_peers(*key, mode)


def _measure(key: tuple[str, int], path: Path, caches: str, warm: int, options: Json) -> None:
    # Inductor writes a whole file for each choice: processes of other rows would undo it.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches
    from benchmarks.graphs.measured_row import measured_row
    from benchmarks.peers.autotuning_turns import tune_in_turns
    from mirage_py.runtime.base.atomic import write_text

    def stage(row: Json) -> None:
        write_text(path, json.dumps(row))

    def wait() -> None:
        while _is_running(warm):
            time.sleep(_POLL_S)

    tune_in_turns()
    try:
        row = measured_row(*key, stage=stage, before_peers=wait, **options)
    # One model of many: the others go on, and the table says what happened.
    except Exception as error:  # noqa: BLE001
        words = (str(error).splitlines() or [""])[0]
        row = {"model": key[0], "batch": key[1], "failure": f"{type(error).__name__}: {words}"}
    write_text(path, json.dumps(row))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
