"""Inside a Dask worker: each task runs in a worker process of its kind.

So what crashes, hangs or eats memory costs its task, and the Dask worker lives on. Tasks and
replies are JSON.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mirage_py.runtime.process.worker_process import Reply, WorkerProcess

# Drivers use workers alone that have the same versions.
_VERSIONED = ("numpy", "torch", "triton", "egglog")

_LOCAL = threading.local()
_LOCK = threading.Lock()
# The processes that are at the tasks of a driver.
_RUNNING: dict[str, list[WorkerProcess]] = {}


def serve(driver: str, kind: str, task: str, timeout_s: float) -> str:
    """The reply to a task of a driver, by a process that belongs to this thread."""
    process = _process(kind)
    with _running(driver, process):
        try:
            reply = process.ask(json.loads(task), timeout_s)
        except Exception as error:  # noqa: BLE001
            # A process that does not start is an answer, too.
            reply = Reply("crash", reason=f"{type(error).__name__}: {error}")
    return json.dumps({**asdict(reply), "code": reply.code.name if reply.code else None})


def interrupt(driver: str) -> None:
    """Tell the tasks of a driver to end soon."""
    _each(driver, WorkerProcess.interrupt)


def stop(driver: str) -> None:
    """End the processes that are at tasks of a driver."""
    _each(driver, WorkerProcess.kill)


def resource(kind: str, gpu: str = "") -> str:
    """The name of a Dask resource that workers with the versions of this process have: for a core,
    a GPU, a model of GPUs (``h200``), or one of them (``h200:NAME``).
    """
    return ":".join(["mirage", _versions(), *(part for part in (kind, gpu) if part)])


@functools.cache
def _versions() -> str:
    """A digest of what results here may depend on, our own sources among it."""
    found = ".".join(map(str, sys.version_info[:2]))
    for name in _VERSIONED:
        with contextlib.suppress(PackageNotFoundError):
            found += f" {name} {version(name)}"
    digest = hashlib.sha256(found.encode())
    for path in _sources(Path(__file__).parents[2]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _sources(package: Path) -> list[Path]:
    """All of a package, folders that are links included."""
    found = [Path(at) / f for at, _, files in os.walk(package, followlinks=True) for f in files]
    return sorted(path for path in found if path.suffix == ".py")


def _each(driver: str, what: Callable[[WorkerProcess], None]) -> None:
    with _LOCK:
        running = list(_RUNNING.get(driver, ()))
    for process in running:
        what(process)


@contextlib.contextmanager
def _running(driver: str, process: WorkerProcess) -> Iterator[None]:
    with _LOCK:
        _RUNNING.setdefault(driver, []).append(process)
    try:
        yield
    finally:
        with _LOCK:
            _RUNNING[driver].remove(process)
            if not _RUNNING[driver]:
                del _RUNNING[driver]


def _process(kind: str) -> WorkerProcess:
    held: dict[str, WorkerProcess] = _LOCAL.__dict__.setdefault("processes", {})
    if kind not in held:
        made = json.loads(kind)
        held[kind] = WorkerProcess(made["environment"], made["memory_bytes"], made["imports"])
    return held[kind]
