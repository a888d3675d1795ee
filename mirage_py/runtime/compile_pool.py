"""Compiling many plans at once, each in a worker that may die of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from mirage_py.errors import MirageError
from mirage_py.runtime.compile import CompiledFacts, KernelSource
from mirage_py.runtime.emission import emit_kernels
from mirage_py.runtime.worker_pool import DEFAULT_MEMORY_BYTES, Reply, Task, WorkerPool
from mirage_py.settings import Settings
from mirage_py.ugraph.plan import Plan


@dataclass(frozen=True, slots=True)
class CompileOutcome:
    """Facts of each kernel of a plan in order, or the reason why there are none."""

    facts: tuple[CompiledFacts, ...] = ()
    reason: str = ""

    @property
    def compiled(self) -> bool:
        """Whether every kernel compiled."""
        return not self.reason


class CompilePool:
    """Compiles through worker processes that share triton's cache with this one.

    A plan that fails, hangs (longer than ``timeout_s``, by default MIRAGE_PY_COMPILE_TIMEOUT) or
    kills its worker costs only itself. What compiled here is a cache hit for a later launch in this
    process.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        timeout_s: float | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        settings = Settings.from_env()
        self._pool = WorkerPool(
            workers or settings.workers,
            timeout_s=timeout_s or settings.compile_timeout_s,
            # Compiling needs no GPU: no worker may take memory on one.
            environment={"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"},
            memory_bytes=memory_bytes,
        )

    def compile(
        self,
        plans: Sequence[Plan],
        capability: int,
        *,
        on_outcome: Callable[[int, CompileOutcome], None] = lambda _number, _outcome: None,
        deadline: float | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[CompileOutcome]:
        """Compile every plan for sm_``capability``; outcomes in the order of the plans.

        Plans that have not begun at ``deadline`` (of ``time.monotonic``), or when ``stop`` says so,
        are given up. Raises
        CompileError when worker processes cannot start.
        """
        outcomes: list[CompileOutcome | None] = [None] * len(plans)
        tasks: list[Task] = []
        places: list[int] = []
        for number, plan in enumerate(plans):
            try:
                tasks.append(_task(plan, capability))
                places.append(number)
            except MirageError as error:
                outcomes[number] = CompileOutcome(reason=str(error))
                on_outcome(number, CompileOutcome(reason=str(error)))

        def report(number: int, reply: Reply) -> None:
            outcomes[places[number]] = outcome = _outcome(reply)
            on_outcome(places[number], outcome)

        self._pool.map(tasks, on_reply=report, deadline=deadline, stop=stop)
        return [o for o in outcomes if o is not None]

    def close(self) -> None:
        """Stop the workers."""
        self._pool.close()

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _task(plan: Plan, capability: int) -> dict[str, Any]:
    kernels = [asdict(KernelSource.of(k)) for k in emit_kernels(plan)]
    return {"service": "compile", "capability": capability, "kernels": kernels}


def _outcome(reply: Reply) -> CompileOutcome:
    if not reply.done:
        return CompileOutcome(reason=reply.reason or reply.kind)
    return CompileOutcome(tuple(CompiledFacts(**facts) for facts in reply.value))
