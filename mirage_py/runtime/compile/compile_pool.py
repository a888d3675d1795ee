"""Parallel compilation of many plans, each in a worker process that it may crash."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from mirage_py.codegen.triton.module import TritonKernel
from mirage_py.errors import MirageError
from mirage_py.reasons import Code, Reason, reason
from mirage_py.runtime.base.emission import EmittedKernel, emit_kernels
from mirage_py.runtime.compile.cache_files import taken_here, there
from mirage_py.runtime.compile.compile import KernelSource
from mirage_py.runtime.compile.compile_cuda import CudaSource
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.runtime.farm.dask_executor import executor_of
from mirage_py.runtime.process.executor import COMPILE, INTERRUPTED, OUT_OF_TIME
from mirage_py.runtime.process.warm_workers import FEW_PLACES, WARM
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply, Task
from mirage_py.settings import Settings
from mirage_py.ugraph.ir.plan import Plan

Source = KernelSource | CudaSource

# Plans that have to be there before those that still compile are given up.
_ENOUGH = 6
# Kernels of plans that compile ahead, until a pool is asked for them.
_AHEAD: dict[Plan, tuple[Source, ...]] = {}


@dataclass(frozen=True, slots=True)
class CompileOutcome:
    """Facts of each kernel of a plan in order, or the reason why there are none."""

    facts: tuple[CompiledFacts, ...] = ()
    reason: Reason | None = None

    @property
    def compiled(self) -> bool:
        """Whether every kernel compiled."""
        return self.reason is None


class CompilePool:
    """Compiles through worker processes that share triton's cache and that of CUDA kernels with us.

    A plan that fails, hangs (longer than ``timeout_s``, by default MIRAGE_PY_COMPILE_TIMEOUT) or
    kills its worker costs only itself. What compiled here is a cache hit for a later launch in this
    process. With a ``scheduler`` the workers are a farm's, and what they compiled is put where it
    would lie.
    """

    def __init__(
        self, workers: int | None = None, *, timeout_s: float | None = None, scheduler: str = ""
    ) -> None:
        settings = Settings.from_env()
        self._count = workers or settings.workers
        self._timeout_s = timeout_s or settings.compile_timeout_s
        self.executor = (
            executor_of(COMPILE, self._count, scheduler)
            if scheduler
            else WARM.take(self._count) or _workers(self._count)
        )

    def compile(
        self,
        plans: Sequence[Plan],
        capability: int,
        *,
        on_outcome: Callable[[int, CompileOutcome], None] = lambda _number, _outcome: None,
        deadline: float | None = None,
        ended_by: float | None = None,
        stop: Callable[[], bool] = lambda: False,
        more: Callable[[], Sequence[Plan]] = tuple,
    ) -> list[CompileOutcome]:
        """Compile every plan for sm_``capability``; outcomes in the order of the plans. There may
        be ``more`` each time that a worker is free: they come after the plans by number, and are
        compiled before those that wait.

        Kernels that several plans have in common are compiled once. A plan is emitted when a worker
        is free for it, the first plans first: emitting hundreds takes longer than a small budget.
        Plans that have not begun at ``deadline`` (of ``time.monotonic``) are given up, but for as
        many as there are workers; all are when ``stop`` says so. At ``ended_by`` what still
        compiles is given up, too, once a few plans have compiled. Raises CompileError when worker
        processes cannot start.
        """
        work = _Work(on_outcome)
        plans = list(plans)
        waiting = deque(range(len(plans)))

        def emitted() -> Iterator[Task]:
            while waiting:
                late = deadline is not None and time.monotonic() > deadline
                begun = len(plans) - len(waiting)
                if stop() or (begun >= self._count and late):
                    why = reason(Code.NOT_BEGUN, INTERRUPTED if stop() else OUT_OF_TIME)
                    work.give_up(sorted(waiting), why)
                    return
                known = len(plans)
                plans.extend(more())
                waiting.extendleft(reversed(range(known, len(plans))))
                number = waiting.popleft()
                for kernel in work.emit(plans, number):
                    task = _task(work.kernels[kernel], capability)
                    yield task if self.executor.is_here else there(task)

        def reply_of(kernel: int, reply: Reply) -> None:
            work.compiled(kernel, _outcome(reply if self.executor.is_here else taken_here(reply)))

        def is_over() -> bool:
            return ended_by is not None and time.monotonic() > ended_by and work.has_enough

        self.executor.map(
            emitted(), on_reply=reply_of, stop=stop, is_over=is_over, timeout_s=self._timeout_s
        )
        # Of a plan that was given up in the middle, kernels were not asked for.
        left = [n for n in range(len(plans)) if n not in work.outcomes]
        work.give_up(left, reason(Code.NOT_BEGUN, OUT_OF_TIME))
        return [work.outcomes[number] for number in range(len(plans))]

    def compile_sources(
        self,
        sources: Sequence[Source],
        capability: int,
    ) -> list[CompileOutcome]:
        """``compile`` of kernels that are of no plan, on this machine."""
        tasks = (_task(source, capability) for source in sources)
        replies = self.executor.map(tasks, timeout_s=self._timeout_s)
        return [_outcome(reply) for reply in replies]

    def close(self) -> None:
        """Stop the workers, or leave them warm for the next pool."""
        if self.executor.is_here:
            self.executor.end_ahead()
            _AHEAD.clear()
            WARM.give(self._count, self.executor)
        else:
            self.executor.close()

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Work:
    """The distinct kernels of some plans, and what became of the plans whose kernels are done."""

    def __init__(self, on_outcome: Callable[[int, CompileOutcome], None]) -> None:
        self.outcomes: dict[int, CompileOutcome] = {}
        # Each once, in the order of the plans.
        self.kernels: list[Source] = []
        self._on_outcome = on_outcome
        self._numbers: dict[Source, int] = {}
        self._kernels_of: dict[int, tuple[int, ...]] = {}
        self._done: dict[int, CompileOutcome] = {}

    def emit(self, plans: Sequence[Plan], number: int) -> range:
        """Emit one of the plans; its kernels that none had before."""
        known = len(self.kernels)
        try:
            sources = _sources(plans[number])
        except MirageError as error:
            self._settle(number, CompileOutcome(reason=reason(Code.NO_SCHEDULE, error)))
            return range(0)
        except Exception as error:  # noqa: BLE001
            # A fault of the emitter costs the plan, and not all that is measured beside it.
            why = reason(Code.NOT_EMITTED, f"{type(error).__name__}: {error}")
            self._settle(number, CompileOutcome(reason=why))
            return range(0)
        for source in sources:
            if source not in self._numbers:
                self._numbers[source] = len(self.kernels)
                self.kernels.append(source)
        self._kernels_of[number] = tuple(self._numbers[s] for s in sources)
        self._settle_if_done(number)
        return range(known, len(self.kernels))

    @property
    def has_enough(self) -> bool:
        """Whether enough plans have compiled to choose from."""
        return sum(outcome.compiled for outcome in self.outcomes.values()) >= _ENOUGH

    def give_up(self, numbers: Iterable[int], why: Reason) -> None:
        """These plans are not begun."""
        for number in numbers:
            self._settle(number, CompileOutcome(reason=why))

    def compiled(self, kernel: int, outcome: CompileOutcome) -> None:
        """Take in what became of one kernel."""
        self._done[kernel] = outcome
        for number, kernels in self._kernels_of.items():
            if kernel in kernels:
                self._settle_if_done(number)

    def _settle_if_done(self, number: int) -> None:
        kernels = self._kernels_of[number]
        if all(k in self._done for k in kernels):
            found = [self._done[k] for k in kernels]
            why = next((o.reason for o in found if o.reason), None)
            facts = () if why else tuple(f for o in found for f in o.facts)
            self._settle(number, CompileOutcome(facts, why))

    def _settle(self, number: int, outcome: CompileOutcome) -> None:
        self.outcomes[number] = outcome
        self._on_outcome(number, outcome)


def keep_compile_workers() -> None:
    """Start as many workers as a pool has, and keep those of every pool for the next one, until
    none has been made for a minute.
    """
    count = Settings.from_env().workers
    WARM.keep(count, lambda: _workers(count))


class AheadCompiler:
    """Compiles plans that a ``CompilePool`` is soon asked for, by at most a ``share`` of the
    workers that are kept, while nobody else uses them.
    """

    def __init__(self, capability: int, share: float = 1.0) -> None:
        self._capability = capability
        self._share = share
        self._left: deque[Plan] = deque()

    def begin(self, plans: Sequence[Plan], share: float = 1.0) -> None:
        """These plans come next, the first ones first: one for each of ``share`` of its workers
        begins, unless these are busy. More would be emitted here while the caller waits.
        """
        self._left = deque(plans)
        for _ in range(int(share * self._share * Settings.from_env().workers)):
            if not self.go_on(share):
                break

    def go_on(self, share: float = 1.0) -> bool:
        """Begin with the next plan, unless ``share`` of its workers are busy; whether it did."""
        if not self._left:
            return False
        settings = Settings.from_env()
        with WARM.lent(settings.workers) as pool:
            if pool is None:
                return False
            few = share < 1.0 and pool.places <= FEW_PLACES
            if few or pool.ahead >= share * self._share * pool.places:
                return False
            plan = self._left.popleft()
            # What cannot be emitted is for the pool to say.
            with contextlib.suppress(Exception):
                if plan not in _AHEAD:
                    _AHEAD[plan] = _sources(plan)
                    for source in _AHEAD[plan]:
                        task = _task(source, self._capability)
                        pool.submit_ahead(task, settings.compile_timeout_s)
            return True


def _workers(count: int) -> WorkerPool:
    return WorkerPool(count, COMPILE)


def _sources(plan: Plan) -> tuple[Source, ...]:
    return _AHEAD.pop(plan, None) or tuple(map(_source, emit_kernels(plan)))


def _source(kernel: EmittedKernel) -> Source:
    return KernelSource.of(kernel) if isinstance(kernel, TritonKernel) else CudaSource.of(kernel)


def _task(kernel: Source, capability: int) -> Task:
    service = "compile" if isinstance(kernel, KernelSource) else "compile_cuda"
    return {"service": service, "capability": capability, "kernels": [asdict(kernel)]}


def _outcome(reply: Reply) -> CompileOutcome:
    if not reply.done:
        return CompileOutcome(reason=reply.why)
    return CompileOutcome(tuple(CompiledFacts(**facts) for facts in reply.value))
