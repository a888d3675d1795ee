"""Compiling many plans at once, each in a worker that may die of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType

from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import MirageError
from mirage_py.runtime.compile import KernelSource
from mirage_py.runtime.compile_cuda import CudaSource
from mirage_py.runtime.compiled_facts import CompiledFacts
from mirage_py.runtime.emission import EmittedKernel, emit_kernels
from mirage_py.runtime.kept_workers import KEPT
from mirage_py.runtime.worker_pool import DEFAULT_MEMORY_BYTES, Reply, Task, WorkerPool
from mirage_py.settings import DEFAULT_COMPILE_TIMEOUT_S, Settings
from mirage_py.ugraph.plan import Plan

Source = KernelSource | CudaSource


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
    """Compiles through worker processes that share triton's cache and that of CUDA kernels with us.

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
        self._count = workers or settings.workers
        self._timeout_s = timeout_s or settings.compile_timeout_s
        self._is_usual = memory_bytes == DEFAULT_MEMORY_BYTES
        kept = KEPT.take(self._count) if self._is_usual else None
        self._pool = kept or _workers(self._count, memory_bytes)

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

        Kernels that several plans have in common are compiled once. Plans whose kernels have not
        all begun at ``deadline`` (of ``time.monotonic``), or when ``stop`` says so, are given up.
        Raises CompileError when worker processes cannot start.
        """
        work = _Work(plans, on_outcome)
        tasks = [_task(kernel, capability) for kernel in work.kernels]
        self._pool.map(
            tasks,
            on_reply=lambda number, reply: work.compiled(number, _outcome(reply)),
            deadline=deadline,
            stop=stop,
            timeout_s=self._timeout_s,
        )
        return [work.outcomes[number] for number in range(len(plans))]

    def close(self) -> None:
        """Stop the workers, or leave them to the next pool if they are kept."""
        if self._is_usual:
            KEPT.give(self._count, self._pool)
        else:
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


class _Work:
    """The distinct kernels of some plans, and what became of the plans whose kernels are done."""

    def __init__(
        self, plans: Sequence[Plan], on_outcome: Callable[[int, CompileOutcome], None]
    ) -> None:
        self.outcomes: dict[int, CompileOutcome] = {}
        self._on_outcome = on_outcome
        self._numbers: dict[Source, int] = {}
        self._kernels_of: dict[int, tuple[int, ...]] = {}
        self._done: dict[int, CompileOutcome] = {}
        for number, plan in enumerate(plans):
            try:
                sources = [_source(k) for k in emit_kernels(plan)]
            except MirageError as error:
                self._settle(number, CompileOutcome(reason=str(error)))
                continue
            except Exception as error:  # noqa: BLE001
                # A fault of the emitter costs the plan, and not all that is measured beside it.
                reason = f"it cannot be emitted: {type(error).__name__}: {error}"
                self._settle(number, CompileOutcome(reason=reason))
                continue
            self._kernels_of[number] = tuple(
                self._numbers.setdefault(s, len(self._numbers)) for s in sources
            )
            if not sources:
                self._settle(number, CompileOutcome())

    @property
    def kernels(self) -> tuple[Source, ...]:
        """Each once, in the order of the plans."""
        return tuple(self._numbers)

    def compiled(self, kernel: int, outcome: CompileOutcome) -> None:
        """Take in what became of one kernel."""
        self._done[kernel] = outcome
        for number, kernels in self._kernels_of.items():
            if kernel in kernels and all(k in self._done for k in kernels):
                found = [self._done[k] for k in kernels]
                reason = next((o.reason for o in found if o.reason), "")
                facts = () if reason else tuple(f for o in found for f in o.facts)
                self._settle(number, CompileOutcome(facts, reason))

    def _settle(self, number: int, outcome: CompileOutcome) -> None:
        self.outcomes[number] = outcome
        self._on_outcome(number, outcome)


def keep_compile_workers() -> None:
    """Start as many workers as a pool has, and keep those of every pool for the next one, until
    none has been made for a minute.
    """
    count = Settings.from_env().workers
    KEPT.keep(count, lambda: _workers(count, DEFAULT_MEMORY_BYTES))


def _workers(count: int, memory_bytes: int) -> WorkerPool:
    return WorkerPool(
        count,
        timeout_s=DEFAULT_COMPILE_TIMEOUT_S,
        # Compiling needs no GPU: no worker may take memory on one.
        environment={"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"},
        memory_bytes=memory_bytes,
    )


def _source(kernel: EmittedKernel) -> Source:
    return KernelSource.of(kernel) if isinstance(kernel, TritonKernel) else CudaSource.of(kernel)


def _task(kernel: Source, capability: int) -> Task:
    service = "compile" if isinstance(kernel, KernelSource) else "compile_cuda"
    return {"service": service, "capability": capability, "kernels": [asdict(kernel)]}


def _outcome(reply: Reply) -> CompileOutcome:
    if not reply.done:
        return CompileOutcome(reason=reply.reason or reply.kind)
    return CompileOutcome(tuple(CompiledFacts(**facts) for facts in reply.value))
