"""The final benchmark of a tuning, in this process: rounds of ever fewer candidates with ever more
replays.

Successive halving (Jamieson and Talwalkar 2016), whose first round was in workers (``tuner.py``).
The baselines run between the candidates.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirage_py.errors import LostGpuError, MirageError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.base.gpu_context import require_gpu
from mirage_py.runtime.base.gpu_memory import with_room
from mirage_py.runtime.base.layouts import laid_out
from mirage_py.runtime.cpu.type_screen import formula_of
from mirage_py.runtime.eager.compiled import EAGER
from mirage_py.runtime.eager.writing import WritingFunction, timed_form
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.launch.quarantine import put_away
from mirage_py.runtime.numerical_check.check_pool import NumericalCheck
from mirage_py.runtime.numerical_check.input_store import RANDOM, InputSet
from mirage_py.runtime.timing.host import host_us
from mirage_py.runtime.timing.timing import Entry, time_interleaved
from mirage_py.runtime.tune.measured import Candidate, fastest, leading
from mirage_py.verify.numerical_check.float_case import FloatEvidence

if TYPE_CHECKING:
    import torch

# Replays of a launch in each round.
_REPS = (9, 31)
_SURVIVORS = 4  # one in four goes on after the first round, but not more than so many
_MOST_SURVIVORS = 20
# Plans of one formula that are checked when it is late: rounding spoils all of them, or none.
_OF_A_FORMULA = 3


_FAR = Code.TOO_FAR, Code.WORSE_THAN_EAGER, Code.OFF_TOGETHER


class FinalBenchmark:
    """Rounds of timing. ``functions`` are the baselines by name, ``sets`` inputs on ``device``.

    What has not begun at ``deadline`` (of ``time.monotonic``), or when ``should_stop`` says so, is
    left out, but for what is needed to serve: a first timing of the baselines and of the few that
    lead, and checks of these, one by one, until one has passed.
    """

    def __init__(
        self,
        baselines: Sequence[Candidate],
        functions: Mapping[str, Callable[..., Any]],
        check: NumericalCheck,
        sets: Sequence[InputSet],
        device: torch.device,
        *,
        deadline: float | None,
        should_stop: Callable[[], bool],
        progress: Callable[[str], None],
        stages: Stages,
    ) -> None:
        self._baselines = baselines
        self._functions = functions
        self._check = check
        eager = functions.get(EAGER)
        self._finish = eager.finish if isinstance(eager, WritingFunction) else None
        # What is written to while it is timed is not what is checked.
        self._sets = sets if self._finish is None else [*_copied(check, sets[:1]), *sets[1:]]
        self._device = device
        self._deadline = deadline
        self._should_stop = should_stop
        self._progress = progress
        self._stages = stages
        self._runners: dict[str, PlanRunner] = {}
        # By formula, how many plans had results that are too far off.
        self._refused: Counter[Hashable] = Counter()

    def run(self, tried: Sequence[Candidate], top_k: int) -> bool:
        """Time those that a first timing has put in order; whether Ctrl-C came in between.

        Raises KeyboardInterrupt where no baseline has a time yet, and LostGpuError where the
        GPU context broke; the candidate that did it is never launched again.
        """
        self._check_baselines(self._baselines)
        share = 0 if self._is_late() else min(_MOST_SURVIVORS, len(tried) // _SURVIVORS)
        candidates = leading(tried, max(top_k, share))
        try:
            with self._stages.timed("race"):
                self._round(candidates, _REPS[0])
            with self._stages.timed("finals"):
                finalists = self._finalists(candidates, top_k)
                if not finalists:
                    # The fastest are often of one kind, and one rounding spoils them all.
                    chosen = {c.name for c in candidates}
                    finalists = self._finalists([c for c in tried if c.name not in chosen], top_k)
                self._round(finalists, _REPS[1])
        except KeyboardInterrupt:
            if not any(c.time_us < float("inf") for c in self._baselines):
                raise
            return True
        return False

    def run_with(
        self,
        more: Sequence[Candidate],
        proven: Sequence[Candidate],
        top_k: int,
        deadline: float | None,
    ) -> bool:
        """Time ``more`` baselines beside the fastest that are proven, by a new ``deadline``;
        whether Ctrl-C came.
        """
        self._deadline = deadline
        self._check_baselines(more)
        self._baselines = [*self._baselines, *more]
        try:
            with self._stages.timed("finals"):
                self._round(leading(proven, top_k), _REPS[1])
        except KeyboardInterrupt:
            return True
        return False

    def is_still_right(self, candidate: Candidate) -> bool:
        """Whether a candidate still passes the numerical check after it was timed, in this process.

        Raises LostGpuError.
        """
        inputs = self._check.store.inputs(RANDOM, self._device)
        # When it is late, what is left after others were refused was in no round.
        if self._function(candidate) is None:
            return False
        with self._named([candidate]):
            try:
                outputs = self._runners[candidate.name].run_poisoned(*inputs)
                candidate.judged(self._check.judge(RANDOM, outputs))
            except Exception as error:
                require_gpu(candidate.name, error)
                raise
        if candidate.reason is not None:
            candidate.reason = candidate.reason.at("after timing")
        return candidate.alive

    def is_right(self, baseline: Candidate) -> bool:
        """Whether a baseline passes the numerical check on every input set, as candidates have to,
        or is as close as eager.

        Raises LostGpuError.
        """
        self._progress(f"checking {baseline.name} on all input sets")
        try:
            forms = (self._functions[baseline.name], self._functions.get(EAGER))
            baseline.evidence = None  # that of random inputs, in which eager was not asked
            with self._stages.timed("baselines' check"):
                ask = functools.partial(self._check.of_function, *forms, self._device)
                baseline.prove(with_room(ask, self._check.make_room))
        except Exception as error:  # noqa: BLE001  as in _check_baselines
            require_gpu(baseline.name, error)
            baseline.reason = reason(Code.NOT_RUN, f"{type(error).__name__}: {error}")
        return baseline.alive

    def of_traced(self) -> FloatEvidence | None:
        """How far from its program the user's function is, on random inputs; None where that is not
        known: eager does not run, or what was traced draws random numbers.
        """
        eager = self._functions.get(EAGER)
        traced = getattr(eager, "traced", eager)
        if traced is None:
            return None
        try:
            return with_room(functools.partial(self._on_random, traced), self._check.make_room)
        except Exception as error:  # noqa: BLE001  as in _check_baselines
            require_gpu(EAGER, error)
            return None

    def time_host(self, candidates: Sequence[Candidate]) -> None:
        """What a call of each takes of the host, its inputs known from a call before.

        Raises LostGpuError.
        """
        with self._named(candidates), self._stages.timed("host"):
            for candidate in candidates:
                function: Any = self._function(candidate)
                if function is None or self._should_stop():
                    continue
                inputs = self._sets[0]
                # Who serves calls has a guard of his own, and asks a runner for no other one.
                again = getattr(function, "again", lambda _: None)(inputs)
                call = functools.partial(again, inputs) if again else None
                timed = self._timed(candidate, (lambda *_, c=call: c()) if call else function)
                try:
                    candidate.host_us = host_us(functools.partial(timed, *inputs), self._wait)
                except Exception as error:
                    require_gpu(candidate.name, error)
                    raise

    def _wait(self) -> None:
        import torch

        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _finalists(self, candidates: Sequence[Candidate], count: int) -> list[Candidate]:
        """The fastest ``count`` that are proven, and one of each back end that has none of them."""
        finalists = self._proven(candidates, count)
        for backend in dict.fromkeys(c.backend for c in candidates):
            if any(c.backend == backend for c in finalists) or self._is_late():
                continue
            own = [c for c in candidates if c.backend == backend and c.alive]
            finalists += self._proven(own, 1)
        return finalists

    def _proven(self, candidates: Sequence[Candidate], count: int) -> list[Candidate]:
        """The fastest ``count`` that pass the other input sets too; wrong ones are replaced, by
        plans of another formula where there are any.
        """
        waiting = fastest(candidates, len(candidates))
        proven: list[Candidate] = []
        while waiting and len(proven) < count and not (proven and self._is_late()):
            waiting.sort(key=self._times_refused)
            if self._is_late() and self._times_refused(waiting[0]) >= _OF_A_FORMULA:
                self._drop(waiting)
                break
            batch = waiting[: 1 if self._is_late() else count - len(proven)]
            waiting = waiting[len(batch) :]
            self._progress(f"checking {len(batch)} finalists on adversarial inputs")
            plans = [c.plan for c in batch if c.plan is not None]
            for candidate, evidence in zip(batch, self._check.remaining(plans), strict=True):
                candidate.prove(evidence)
                is_far = candidate.reason is not None and candidate.reason.code in _FAR
                if is_far and candidate.plan is not None:
                    self._refused[formula_of(candidate.plan)] += 1
            proven += [c for c in batch if c.proven]
        return proven

    def _times_refused(self, candidate: Candidate) -> int:
        """How many plans that differ from this one in tiles alone were too far off."""
        return self._refused[formula_of(candidate.plan)] if candidate.plan else 0

    def _drop(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            number = self._times_refused(candidate)
            words = f"it is late, and {number} plans of the same formula were too far off"
            candidate.reason = reason(Code.NOT_BEGUN, words)

    def _round(self, candidates: Sequence[Candidate], reps: int) -> None:
        candidates = [c for c in candidates if c.alive]
        if self._is_late() and all(c.time or not c.alive for c in self._baselines):
            return
        self._progress(f"timing {len(candidates)} candidates, {reps} replays")
        entries: dict[str, Entry] = {}
        for candidate in (*self._baselines, *candidates):
            function = self._function(candidate)
            if candidate.alive and function is not None:
                entries[candidate.name] = _on_sets(self._timed(candidate, function), self._sets)
        with self._named(candidates):
            times = time_interleaved(
                entries, len(self._sets), reps=reps, deadline=self._deadline, stop=self._should_stop
            )
        for candidate in (*self._baselines, *candidates):
            if candidate.name in times:
                candidate.timed(times[candidate.name])

    @contextlib.contextmanager
    def _named(self, candidates: Sequence[Candidate]) -> Iterator[None]:
        """A candidate that loses the GPU here is not launched again in any later process."""
        try:
            yield
        except LostGpuError as error:
            for candidate in candidates:
                if candidate.name == error.launched and candidate.plan is not None:
                    put_away(candidate.plan, f"{error.what}: {error.why}")
            raise

    def _function(self, candidate: Candidate) -> Callable[..., Any] | None:
        if candidate.plan is None:
            return self._functions[candidate.name]
        if candidate.name not in self._runners:
            try:
                self._runners[candidate.name] = PlanRunner(candidate.plan)
            except MirageError as error:
                candidate.reason = reason(Code.NOT_RUN, error)
                return None
        return self._runners[candidate.name]

    def _timed(self, candidate: Candidate, function: Callable[..., Any]) -> Callable[..., Any]:
        """What a user waits for: a kernel, and the writes that follow it."""
        finish = self._finish
        if candidate.plan is None or finish is None:
            return timed_form(function)
        return lambda *inputs: finish(inputs, function(*inputs))

    def _is_late(self) -> bool:
        late = self._deadline is not None and time.monotonic() > self._deadline
        return late or self._should_stop()

    def _check_baselines(self, baselines: Sequence[Candidate]) -> None:
        """The baselines' errors against float64, for the report: none is dropped for them."""
        for candidate in (c for c in baselines if c.alive):
            try:
                judged = functools.partial(self._on_random, self._functions[candidate.name])
                candidate.evidence = with_room(judged, self._check.make_room)
            except Exception as error:  # noqa: BLE001
                # A baseline is the user's code: whatever it raises is why it is not timed.
                require_gpu(candidate.name, error)
                candidate.reason = reason(Code.NOT_TIMED, f"{type(error).__name__}: {error}")

    def _on_random(self, function: Callable[..., Any]) -> FloatEvidence:
        found = function(*self._check.store.inputs(RANDOM, self._device))
        return self._check.judge(RANDOM, found if isinstance(found, tuple) else (found,))


def _copied(check: NumericalCheck, sets: Sequence[InputSet]) -> list[InputSet]:
    tensors = check.store.program.inputs
    return [tuple(laid_out(t, x) for t, x in zip(tensors, s, strict=True)) for s in sets]


def _on_sets(function: Callable[..., Any], sets: Sequence[InputSet]) -> Entry:
    return lambda number: function(*sets[number])


class Stages:
    """Seconds by the name of the stage; waiting for references is a stage of its own."""

    def __init__(self, check: NumericalCheck) -> None:
        self.seconds: dict[str, float] = {}
        self._check = check

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add what the block takes, without what it waits for references."""
        start, waited = time.monotonic(), self._check.waited_s
        try:
            yield
        finally:
            waited = self._check.waited_s - waited
            spent = time.monotonic() - start - waited
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            self.seconds["references"] = self.seconds.get("references", 0.0) + waited
