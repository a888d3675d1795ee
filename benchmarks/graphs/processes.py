"""Rows in processes of their own: compiled side by side, in turns on the GPU.

Whoever times something holds a lock: the search that measures operators, each measurement of
Inductor's autotuning, and the benchmark itself. So compilation uses all cores and no time is taken
beside other work of ours.
"""

from __future__ import annotations

import fcntl
import functools
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    # Inductor's own compile workers share the cores.
    threads = max(1, (os.cpu_count() or 1) // workers)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)
    end = time.monotonic() + seconds
    waiting = list(keys)
    running: dict[tuple[str, int], tuple[Any, Path]] = {}
    with TemporaryDirectory() as folder:
        lock = Path(folder) / "gpu.lock"
        lock.touch()
        while waiting or running:
            is_late = time.monotonic() > end
            while waiting and len(running) < workers and not is_late:
                key = waiting.pop(0)
                path = Path(folder) / f"{key[0]}-{key[1]}.json"
                process = spawn.Process(target=_measure, args=(key, lock, path, options))
                process.start()
                running[key] = (process, path)
            for key, (process, path) in list(running.items()):
                if process.is_alive() and not is_late:
                    continue
                process.kill()
                process.join()
                why = "out of time" if is_late else f"ended with {process.exitcode}"
                failure = {"model": key[0], "batch": key[1], "failure": why}
                done(json.loads(path.read_text("utf-8")) if path.exists() else failure)
                del running[key]
            if is_late:
                for name, batch in waiting:
                    done({"model": name, "batch": batch, "failure": "out of time"})
                return
            time.sleep(_POLL_S)


def _measure(key: tuple[str, int], lock: Path, path: Path, options: Json) -> None:
    from benchmarks.graphs.measured_row import measured_row
    from mirage_py.runtime.base.atomic import write_text

    turns = functools.partial(turn, lock)
    take_turns_in_autotuning(turns)
    try:
        row = measured_row(*key, turn=turns, **options)
    # One model of many: the others go on, and the table says what happened.
    except Exception as error:  # noqa: BLE001
        words = (str(error).splitlines() or [""])[0]
        row = {"model": key[0], "batch": key[1], "failure": f"{type(error).__name__}: {words}"}
    write_text(path, json.dumps(row))


@contextmanager
def turn(lock: Path) -> Iterator[None]:
    """The GPU for oneself, as far as the other processes ask for it."""
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def take_turns_in_autotuning(turns: Callable[[], Any]) -> None:
    """Let Inductor measure each candidate in a turn."""
    from torch._inductor.runtime.benchmarking import benchmarker

    kind: Any = type(benchmarker)
    for name in ("benchmark_gpu", "benchmark_many_gpu"):
        plain = getattr(kind, name, None)
        if plain is not None:
            setattr(kind, name, _in_turn(plain, turns))


def _in_turn(plain: Callable[..., Any], turns: Callable[[], Any]) -> Callable[..., Any]:
    depth = 0

    @functools.wraps(plain)
    def measured(*args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        if depth:  # one of these may call another
            return plain(*args, **kwargs)
        depth += 1
        try:
            with turns():
                return plain(*args, **kwargs)
        finally:
            depth -= 1

    return measured
