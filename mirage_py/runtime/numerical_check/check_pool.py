"""The numerical check of the tuner: candidates run, are compared and first timed in a worker
process.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage_py.errors import CompileError
from mirage_py.runtime.base.gpu_memory import is_out_of_memory, make_room
from mirage_py.runtime.base.private_folder import scratch_folder
from mirage_py.runtime.base.stages import LAUNCH
from mirage_py.runtime.numerical_check import judge as device_judge
from mirage_py.runtime.numerical_check.input_store import InputStore
from mirage_py.runtime.numerical_check.references import Known, References
from mirage_py.runtime.process.executor import Executor, WorkerKind, reply_of, settled
from mirage_py.runtime.process.warm_workers import WARM_CHECK
from mirage_py.runtime.process.worker_pool import WorkerPool
from mirage_py.runtime.process.worker_process import Reply, Task
from mirage_py.runtime.timing.timing import Timed
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.text.json_form import dump_text
from mirage_py.verify.numerical_check.check_strength import (
    evidence_of,
    failed,
    is_strong,
    joined,
    of_set,
    required,
    unknown_outputs,
)
from mirage_py.verify.numerical_check.float_case import EAGER_FACTOR, allowed_by_eager
from mirage_py.verify.numerical_check.input_sets import set_names
from mirage_py.verify.numerical_check.numerical_check import (
    MAX_REFERENCE_WORK,
    FloatEvidence,
    tolerance,
)

if TYPE_CHECKING:
    import torch

# Of the driver, which other processes may keep busy.
_READY_TIMEOUT_S = 900.0
# Some trials take place however late it is, if not so many did before: what was compiled would have
# been for nothing.
_LEAST_TRIALS_S, _LEAST_TRIALS = 1.5, 16
_FORGET: Task = {"service": "forget_check"}
_FORGET_S = 10.0
# Of inputs and outputs, from which on a worker holds too much of the GPU's memory between stages.
_LARGE_BYTES = 1 << 30
# Without a check, after which its memory on the GPU is given back.
_IDLE_S = 30.0
# CUDA maps address space far beyond what it uses.
_CHECK = WorkerKind("GPU", timeout_s=60.0, memory_bytes=64 << 30)
# Of the sets that every candidate must pass before any is timed; finalists pass all.
_FIRST = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one candidate: neither evidence nor time where it was ``skipped``, as where
    there was no time for the comparison; no time where it did not pass.
    """

    evidence: FloatEvidence | None = None
    time: Timed | None = None
    skipped: bool = False


class NumericalCheck:
    """Judges plans of one program on the GPU ``device`` in so many processes, and times them there,
    one at a time.

    Preparing starts at once, beside whatever the caller does next: of each reference as much as
    ``max_work`` element operations, and what can be had by ``first_by`` and ``others_by`` (of
    ``time.monotonic``). Of a ``is_part`` of a program, which all sets are for, ``remaining`` judges
    on those that are ready. A candidate that breaks the worker finds the next one waiting. Use as a
    context manager: the inputs and references lie in a temporary folder.
    """

    def __init__(
        self,
        program: Program,
        *,
        seed: int,
        device: int,
        max_work: float = MAX_REFERENCE_WORK,
        first_by: float | None = None,
        others_by: float | None = None,
        workers: int = 1,
        is_part: bool = False,
    ) -> None:
        self._is_part = is_part
        self._folder = tempfile.mkdtemp(dir=scratch_folder())
        self.store = InputStore(Path(self._folder), program)
        # Seconds of waiting for references, and how much of the outputs those cover.
        self.waited_s = 0.0
        self.known = Known()
        self._common = {
            "folder": self._folder,
            "program": dump_text(program),
            "device": f"cuda:{device}",
        }
        tensors = (*program.inputs, *(o.tensor for o in program.outputs))
        self._is_large = sum(t.bytes for t in tensors) > _LARGE_BYTES
        self._kind = device, workers
        self._pool = WARM_CHECK.take(self._kind) or _pool(*self._kind)
        self._ready = self._pool.submit(_ready(device), _READY_TIMEOUT_S)
        self._begun: dict[Plan, Future[Reply]] = {}
        names = set_names(program)
        self._first, self._others = names[:_FIRST], names[_FIRST:]
        deadlines = {n: t for n in self._first if (t := first_by) is not None}
        deadlines |= {n: t for n in self._others if (t := others_by) is not None}
        prepare = {**self._common, "service": "prepare_check", "seed": seed, "max_work": max_work}
        self._references = References(program, prepare, names, deadlines)

    @property
    def is_ready(self) -> bool:
        """Whether a plan can be judged on the first input sets now."""
        return self._ready.done() and self._references.are_ready(self._first)

    def begin(self, plan: Plan, *, l2_bytes: int, reps: int) -> None:
        """Do beside other work what ``first`` is going to be asked for."""
        (task,) = self._tasks([plan], self._first, {"l2_bytes": l2_bytes, "reps": reps})
        self._begun[plan] = self._pool.submit(task)

    @property
    def waiting(self) -> int:
        """How many plans have begun and are not done."""
        return sum(not f.done() for f in self._begun.values())

    @property
    def timed(self) -> dict[Plan, float]:
        """The microseconds of those that have begun, are done, and are right."""
        done = {p: reply_of(f) for p, f in self._begun.items() if f.done() and not f.cancelled()}
        trials = {p: _trial(reply) for p, reply in done.items()}
        return {p: t.time.median_us for p, t in trials.items() if t.time is not None}

    def first(
        self,
        plans: Sequence[Plan],
        *,
        l2_bytes: int,
        reps: int,
        deadline: float | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Trial]:
        """Judge on the first input sets, random ones among them, and time what passes with a cold
        L2 and ``reps`` replays.

        What has not begun at ``deadline`` (of ``time.monotonic``), but a moment after there was
        something to compare with where few have begun and are done, or when ``stop`` says so is
        skipped. Raises CompileError when the
        check itself cannot be set up.
        """
        self._wait(self._first)
        if deadline is not None and len(self.timed) < _LEAST_TRIALS:
            deadline = max(deadline, time.monotonic() + _LEAST_TRIALS_S)
        begun = {p: self._begun.pop(p) for p in plans if p in self._begun}
        fresh = [p for p in plans if p not in begun]
        known = dict(zip(begun, settled([*begun.values()], deadline, stop), strict=True))
        timing = {"l2_bytes": l2_bytes, "reps": reps}
        tasks = dict(zip(plans, self._tasks(plans, self._first, timing), strict=True))
        ask = functools.partial(self._pool.map, deadline=deadline, stop=stop)
        known |= zip(fresh, ask([tasks[p] for p in fresh]), strict=True)
        replies = self._with_room([tasks[p] for p in plans], [known[p] for p in plans], ask)
        return [_trial(reply) for reply in replies]

    def remaining(self, plans: Sequence[Plan]) -> list[FloatEvidence]:
        """Judge on the other input sets: zeros, tiny values, one huge row. Of a large part all of
        their references would take longer than its search.
        """
        others: Sequence[str] = self._others
        if self._is_part:
            others = [n for n in others if self._references.are_ready([n])] or others[:1]
        self._wait(others)
        tasks = self._tasks(plans, others, {})
        replies = self._with_room(tasks, self._pool.map(tasks), self._pool.map)
        return [_evidence(reply) for reply in replies]

    def make_room(self) -> None:
        """Give back all GPU memory that this process and the workers can do without; inputs and
        references are read again when they are needed.
        """
        device_judge.forget()
        make_room()
        self._forget_there()

    def _forget_there(self) -> None:
        wait([self._pool.submit(_FORGET) for _ in range(self._pool.places)], _FORGET_S)

    def _with_room(
        self,
        tasks: Sequence[Task],
        replies: Sequence[Reply],
        ask: Callable[[Sequence[Task]], list[Reply]],
    ) -> list[Reply]:
        """The replies, after those that found too little GPU memory were asked for once more with
        all that there is. Between two stages workers keep nothing of a large program: this process
        times next.
        """
        found = list(replies)
        short = [n for n, r in enumerate(found) if not r.done and is_out_of_memory(r.reason)]
        if short:
            self.make_room()
            for number, reply in zip(short, ask([tasks[n] for n in short]), strict=True):
                found[number] = reply
        if self._is_large and tasks:
            self._forget_there()
        return found

    def judge(self, name: str, outputs: tuple[torch.Tensor, ...]) -> FloatEvidence:
        """Judge what this process computed on a set that is ready, on the device."""
        return device_judge.judge_there(self.store, name, outputs)

    def of_function(
        self, function: Callable[..., Any], eager: Callable[..., Any] | None, device: torch.device
    ) -> FloatEvidence:
        """Judge a form of the user's function on every set, in this process: it may be as far off
        as ``eager`` is, if that is there. Where float64 says too little of all sets, it has to give
        what ``eager`` gives; or, where it says something of other outputs, what is no farther from
        that, in the norm, than eager may be from float64.
        """
        names = (*self._first, *self._others)
        self._wait(names)
        found = []
        for name in names:
            inputs = self.store.inputs(name, device)
            evidence = self._judged(name, function(*inputs))
            if eager is not None and not evidence.passed:
                evidence = allowed_by_eager(evidence, self._judged(name, eager(*inputs)))
            found.append(of_set(name, evidence))
        evidence = joined(found)
        if eager is None or required(evidence).passed or not evidence.passed:
            return evidence
        sets = (self.store.inputs(name, device) for name in names)
        allowed = tolerance(self.store.program)
        if all(device_judge.agree(function(*s), eager(*s), allowed) for s in sets):
            return replace(evidence, sets=())
        if any(map(is_strong, evidence.sets)):
            weak = unknown_outputs(evidence.sets)
            if all(self._is_near(function, eager, name, weak, device) for name in names):
                return replace(evidence, sets=())
        return evidence

    def _is_near(
        self,
        function: Callable[..., Any],
        eager: Callable[..., Any],
        name: str,
        weak: Sequence[str],
        device: torch.device,
    ) -> bool:
        """Whether the ``weak`` outputs of both are no farther apart, on a set, than those of eager
        may be from float64.
        """
        inputs = self.store.inputs(name, device)
        one, other = (
            f if isinstance(f, tuple) else (f,) for f in (function(*inputs), eager(*inputs))
        )
        found = self._judged(name, other)
        errors = [e.max_rel_error for e in found.outputs or (found,)]
        outputs = zip(self.store.program.outputs, one, other, errors, strict=True)
        return all(
            device_judge.apart(a, b) <= EAGER_FACTOR * error
            for output, a, b, error in outputs
            if output.tensor.name in weak
        )

    def _judged(self, name: str, outputs: Any) -> FloatEvidence:
        return self.judge(name, outputs if isinstance(outputs, tuple) else (outputs,))

    def close(self) -> None:
        """Stop the workers and remove the folder."""
        self._references.close()
        running = [f for f in (self._ready, *self._begun.values()) if not f.done()]
        if running:
            self._pool.cancel(running)
        last = None if running else _FORGET
        WARM_CHECK.give(self._kind, self._pool, last, waits=self._is_large)
        device_judge.forget()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> NumericalCheck:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _wait(self, names: Sequence[str]) -> None:
        start = time.monotonic()
        ready = self._ready.result()
        if not ready.done:
            raise CompileError("the numerical check cannot be set up", why=ready.reason)
        self.known = self.known.with_more(self._references.wait(names))
        self.waited_s += time.monotonic() - start

    def _tasks(
        self, plans: Sequence[Plan], sets: Sequence[str], timing: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        common = {**self._common, "service": "numerical_check", "sets": list(sets), **timing}
        return [{**common, "plan": dump_text(plan)} for plan in plans]


def keep_check_workers(workers: int = 1) -> None:
    """Start what checks kernels on the current GPU, and keep those of every check for the next one,
    until there has been none for a while.
    """
    import torch

    kind = torch.cuda.current_device(), workers
    WARM_CHECK.keep(kind, lambda: _pool(*kind), _IDLE_S, _ready(kind[0]))


def _pool(device: int, workers: int) -> Executor:
    return WorkerPool(workers, _CHECK, standby=_ready(device))


def _ready(device: int) -> Task:
    return {"service": "ready_check", "device": f"cuda:{device}"}


def _trial(reply: Reply) -> Trial:
    # A launch that does not end is a fault; what takes long besides is the machine's.
    if reply.kind == "skipped" or (reply.kind == "timeout" and reply.stage != LAUNCH):
        return Trial(skipped=True)
    time = reply.value.get("time") if reply.done else None
    return Trial(_evidence(reply), Timed(**time) if time else None)


def _evidence(reply: Reply) -> FloatEvidence:
    if reply.done:
        return evidence_of(reply.value["evidence"])
    return failed(reply.why.at("it did not run"))
