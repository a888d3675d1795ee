"""The float gate of the tuner: candidates run in a worker of their own before they are timed."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

from mirage_py.errors import CompileError
from mirage_py.runtime.gate_store import GateStore
from mirage_py.runtime.worker_pool import Reply, WorkerPool
from mirage_py.ugraph.json_form import dump_text
from mirage_py.ugraph.plan import Plan
from mirage_py.ugraph.program import Program
from mirage_py.verify.float_gate import FloatEvidence

# Inputs and references of a large program take minutes on a slow machine; a kernel does not.
_PREPARE_TIMEOUT_S = 900.0
_GATE_TIMEOUT_S = 60.0
# CUDA maps address space far beyond what it uses.
_MEMORY_BYTES = 64 << 30
# The sets that every candidate must pass before any is timed; finalists pass all.
FIRST_SETS = 2


class FloatGate:
    """Judges plans of one program on the GPU ``device``, in a worker process.

    Preparing starts at once, beside whatever the caller does next. Use as a context manager: the
    inputs and references lie in a temporary folder.
    """

    def __init__(self, program: Program, *, seed: int, device: int) -> None:
        self._folder = tempfile.mkdtemp(prefix="mirage_py_gate_")
        self.store = GateStore(Path(self._folder), program)
        self._common = {
            "folder": self._folder,
            "program": dump_text(program),
            "device": f"cuda:{device}",
        }
        self._pool = WorkerPool(1, timeout_s=_GATE_TIMEOUT_S, memory_bytes=_MEMORY_BYTES)
        self._prepared: list[Reply | Exception] = []
        self._thread = threading.Thread(target=self._prepare, args=(seed,), daemon=True)
        self._thread.start()

    def first(
        self, plans: Sequence[Plan], stop: Callable[[], bool] = lambda: False
    ) -> list[FloatEvidence]:
        """Judge on the first input sets, random ones among them; what has not begun when ``stop``
        says so does not pass. Raises CompileError when the gate itself cannot be set up.
        """
        return self._judge(plans, self._names()[:FIRST_SETS], stop)

    def rest(self, plans: Sequence[Plan]) -> list[FloatEvidence]:
        """Judge on the other input sets: zeros, tiny values, one huge row."""
        return self._judge(plans, self._names()[FIRST_SETS:], lambda: False)

    def close(self) -> None:
        """Stop the worker and remove the folder."""
        # The worker may be just about to start: it is stopped until nobody waits for it any more.
        while self._thread.is_alive():
            self._pool.close()
            self._thread.join(timeout=0.1)
        self._pool.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> FloatGate:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare(self, seed: int) -> None:
        task = {**self._common, "service": "prepare_gate", "seed": seed}
        try:
            self._prepared += self._pool.map([task], timeout_s=_PREPARE_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001
            # Raised where the result is asked for.
            self._prepared.append(error)

    def _names(self) -> tuple[str, ...]:
        self._thread.join()
        (reply,) = self._prepared
        if isinstance(reply, Exception):
            raise reply
        if not reply.done:
            raise CompileError("the float gate cannot be set up", why=reply.reason)
        return tuple(reply.value)

    def _judge(
        self, plans: Sequence[Plan], sets: Sequence[str], stop: Callable[[], bool]
    ) -> list[FloatEvidence]:
        tasks: list[dict[str, Any]] = [
            {**self._common, "service": "gate", "plan": dump_text(p), "sets": list(sets)}
            for p in plans
        ]
        return [_evidence(reply) for reply in self._pool.map(tasks, stop=stop)]


def _evidence(reply: Reply) -> FloatEvidence:
    if reply.done:
        return FloatEvidence(**reply.value)
    return FloatEvidence(inf, 0.0, None, False, f"it did not run: {reply.reason}")
