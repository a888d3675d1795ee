"""The final benchmark of a tuning, in this process: rounds of ever fewer candidates with ever more
replays.

Successive halving (Jamieson and Talwalkar 2016), whose first round was in workers (``tuner.py``).
The baselines run between the candidates.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirage_py.errors import LostGpuError, MirageError
from mirage_py.runtime.base.gpu_context import require_gpu
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.runtime.launch.quarantine import put_away
from mirage_py.runtime.numerical_check.check_pool import FloatGate
from mirage_py.runtime.numerical_check.input_store import RANDOM
from mirage_py.runtime.numerical_check.rotation import InputSet
from mirage_py.runtime.timing.timing import Entry, time_interleaved
from mirage_py.runtime.tune.measured import Contender, fastest, leading
from mirage_py.runtime.tune.stages import Stages

if TYPE_CHECKING:
    import torch

# Replays of a launch in each round.
_REPS = (9, 31)
_SURVIVORS = 4  # one in four goes on after the first round, but not more than so many
_MOST_SURVIVORS = 20


class Race:
    """``functions`` are the baselines' by name, ``sets`` inputs on ``device``.

    What has not begun at ``deadline`` (of ``time.monotonic``), or when ``should_stop`` says so, is
    left out, but for a first timing of the baselines.
    """

    def __init__(
        self,
        baselines: Sequence[Contender],
        functions: Mapping[str, Callable[..., Any]],
        gate: FloatGate,
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
        self._gate = gate
        self._sets = sets
        self._device = device
        self._deadline = deadline
        self._should_stop = should_stop
        self._progress = progress
        self._stages = stages
        self._runners: dict[str, PlanRunner] = {}

    def run(self, tried: Sequence[Contender], top_k: int) -> bool:
        """Time those that a first timing has put in order; whether Ctrl-C came in between.

        Raises KeyboardInterrupt where no baseline has a time yet, and LostGpuError where somebody
        broke the GPU context; a candidate that did it is launched never again.
        """
        self._check_baselines()
        share = min(_MOST_SURVIVORS, len(tried) // _SURVIVORS)
        racing = leading(tried, max(top_k, share))
        try:
            with self._stages.timed("race"):
                self._round(racing, _REPS[0])
            with self._stages.timed("finals"):
                self._round(self._finalists(racing, top_k), _REPS[1])
        except KeyboardInterrupt:
            if not any(c.time_us < float("inf") for c in self._baselines):
                raise
            return True
        return False

    def is_still_right(self, contender: Contender) -> bool:
        """Whether a contender is, checked once more after it was timed, where it was timed. Raises
        LostGpuError.
        """
        inputs = self._gate.store.inputs(RANDOM, self._device)
        with self._named([contender]):
            try:
                outputs = self._runners[contender.name].run_poisoned(*inputs)
                contender.judged(self._gate.judge(RANDOM, outputs))
            except Exception as error:
                require_gpu(contender.name, error)
                raise
        if not contender.alive:
            contender.reason = f"after timing: {contender.reason}"
        return contender.alive

    def _finalists(self, racing: Sequence[Contender], count: int) -> list[Contender]:
        """The fastest ``count`` that are proven, and one of each back end that has none of them."""
        finalists = self._proven(racing, count)
        for backend in dict.fromkeys(c.backend for c in racing):
            if any(c.backend == backend for c in finalists) or self._is_late():
                continue
            finalists += self._proven([c for c in racing if c.backend == backend and c.alive], 1)
        return finalists

    def _proven(self, racing: Sequence[Contender], count: int) -> list[Contender]:
        """The fastest ``count`` that pass the other input sets too; wrong ones are replaced."""
        waiting = fastest(racing, len(racing))
        proven: list[Contender] = []
        while waiting and len(proven) < count and not (proven and self._is_late()):
            batch = waiting[: count - len(proven)]
            waiting = waiting[len(batch) :]
            self._progress(f"checking {len(batch)} finalists on ugly inputs")
            plans = [c.plan for c in batch if c.plan is not None]
            for contender, evidence in zip(batch, self._gate.rest(plans), strict=True):
                contender.prove(evidence)
            proven += [c for c in batch if c.proven]
        return proven

    def _round(self, racing: Sequence[Contender], reps: int) -> None:
        racing = [c for c in racing if c.alive]
        if self._is_late() and all(c.time is not None for c in self._baselines):
            return
        self._progress(f"timing {len(racing)} candidates, {reps} replays")
        entries: dict[str, Entry] = {}
        for contender in (*self._baselines, *racing):
            function = self._function(contender)
            if contender.alive and function is not None:
                entries[contender.name] = _on_sets(function, self._sets)
        with self._named(racing):
            times = time_interleaved(
                entries, len(self._sets), reps=reps, deadline=self._deadline, stop=self._should_stop
            )
        for contender in (*self._baselines, *racing):
            if contender.name in times:
                contender.timed(times[contender.name])

    @contextlib.contextmanager
    def _named(self, racing: Sequence[Contender]) -> Iterator[None]:
        """Who of these loses the GPU is not launched in any process to come."""
        try:
            yield
        except LostGpuError as error:
            for contender in racing:
                if contender.name == error.launched and contender.plan is not None:
                    put_away(contender.plan, f"{error.what}: {error.why}")
            raise

    def _function(self, contender: Contender) -> Callable[..., Any] | None:
        if contender.plan is None:
            return self._functions[contender.name]
        if contender.name not in self._runners:
            try:
                self._runners[contender.name] = PlanRunner(contender.plan)
            except MirageError as error:
                contender.reason = str(error)
                return None
        return self._runners[contender.name]

    def _is_late(self) -> bool:
        late = self._deadline is not None and time.monotonic() > self._deadline
        return late or self._should_stop()

    def _check_baselines(self) -> None:
        """How far what the user has is from float64: for the report, it is never dropped for it."""
        for contender in self._baselines:
            try:
                found = self._functions[contender.name](*self._sets[0])
                outputs = found if isinstance(found, tuple) else (found,)
                contender.evidence = self._gate.judge(RANDOM, outputs)
            except Exception as error:  # noqa: BLE001
                # A baseline is the user's code: whatever it raises is why it is not timed.
                require_gpu(contender.name, error)
                contender.reason = f"it does not run: {type(error).__name__}: {error}"


def _on_sets(function: Callable[..., Any], sets: Sequence[InputSet]) -> Entry:
    return lambda number: function(*sets[number])
