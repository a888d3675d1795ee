"""The tuner: compile, check, hill climbing, final benchmark with the baselines, check again.

Compilation, checking and a first timing happen in workers, so a candidate that crashes or hangs
costs only itself. Hill climbing starts from the fastest of a first timing: plans one step from them
are compiled and timed too, as long as something gets faster. The fastest quarter goes on to the
later rounds (``final_benchmark.py``), which are in this process.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from mirage_py.collector import rarely_collecting
from mirage_py.errors import CompileError, InputError, VerificationError
from mirage_py.progress import Told
from mirage_py.reasons import Code, Reason, reason
from mirage_py.runtime.base.gpu_memory import MOST_IDLE_BYTES, give_back, is_out_of_memory
from mirage_py.runtime.compile.ahead_of_time import memory_fault
from mirage_py.runtime.compile.compile_pool import CompileOutcome, CompilePool
from mirage_py.runtime.eager.compiled import EAGER, MODES
from mirage_py.runtime.launch.quarantine import why_not
from mirage_py.runtime.numerical_check.check_pool import NumericalCheck
from mirage_py.runtime.numerical_check.input_store import rotated_inputs
from mirage_py.runtime.tune.baselines import WarmUp
from mirage_py.runtime.tune.final_benchmark import FinalBenchmark, Stages
from mirage_py.runtime.tune.measured import (
    MARGIN,
    Candidate,
    Measured,
    TuneReport,
    by_call,
    fastest,
    leading,
)
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.numerical_check.numerical_check import MAX_REFERENCE_WORK

if TYPE_CHECKING:
    import torch

Progress = Callable[[str], None]
# Raises VerificationError for a plan that does not compute the program.
Vouch = Callable[[Plan], object]
# The plans one step from a plan.
Neighbours = Callable[[Plan], Iterable[Plan]]

# Replays of a launch in the first round. With three, the winner of one plan in twelve was another
# one in the next run.
_REPS = 15
_TOP_K = 6
# Rounds of hill climbing at most, by effort.
CLIMBING_ROUNDS = {"quick": 2, "full": 8}
# Each round starts from so many of the fastest; it goes on while a step gains so much of the time.
_CLIMBED_FROM = 3
_GAIN = 0.005
# What torch.compile has not compiled so long after the beginning is not raced, where there is a
# budget: max-autotune of most programs takes 1 to 30 s.
_PATIENCE_S = 40.0
# What is held is not compiled where a plan takes so much less than the fastest baseline: of 54 rows
# of the suite max-autotune was at most 1.38 times as fast as torch.compile without it.
_FAR_AHEAD = 0.6
# The user's function has other results than its program if they are so many times as far apart as
# rounding explains, in more than this share of the elements: one that jumps may be, in a few.
_BEYOND_ROUNDING, _FEW_ELEMENTS = 10.0, 0.01
# While plans compile: from so many times on, and so many plans that differ from the fastest in one
# launch option. They come before plans that are predicted to be slower.
_STEPS_AFTER, _STEPS = 6, 9
# Trials that have begun while others compile: what compiles meanwhile and is likelier comes first.
_AHEAD = 4
# By when, in shares of a time budget, no plan begins to compile any more, those that still do are
# given up, and the first round is to be over.
_COMPILE_SHARE, _GIVE_UP_SHARE, _TRIAL_SHARE = 0.6, 0.75, 0.85


@contextlib.contextmanager
def _memory_given_back() -> Iterator[None]:
    """After the block the user's next call, and other processes, have the memory that it took."""
    try:
        yield
    finally:
        give_back(MOST_IDLE_BYTES)


@_memory_given_back()
def tune(
    program: Program,
    plans: Sequence[Plan],
    baselines: Mapping[str, Callable[..., Any]],
    *,
    target: Target,
    seed: int = 0,
    budget_s: float | None = None,
    compile_workers: int | None = None,
    check_workers: int = 1,
    scheduler: str = "",
    neighbours: Neighbours = lambda _: (),
    climbing_rounds: int = CLIMBING_ROUNDS["quick"],
    max_work: float = MAX_REFERENCE_WORK,
    vouch: Vouch = lambda _: None,
    progress: Progress = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    counts_host: bool = False,
    baselines_serve: bool = True,
    is_part: bool = False,
) -> TuneReport:
    """Find the fastest right plan, or the fastest baseline where no plan is 1 % faster and
    ``baselines_serve``.

    ``plans`` are plans of ``program``; ``baselines`` are functions of its inputs in order.
    ``budget_s`` bounds compiling and timing: what has not begun by then is left out, and the best
    so far is returned, as it is when ``should_stop`` says so and after Ctrl-C. Baselines compile
    beside the plans; how long they are waited for afterwards does not count. ``neighbours`` says
    what to try beside the fastest, at most ``climbing_rounds`` times over. Of the reference of an
    input set no more is evaluated than ``max_work`` element operations, and than there is time for.
    A plan that ``vouch`` refuses does not win: the next one is asked about. It is asked again, and
    on another thread, about the same plan. With ``counts_host`` a
    call is as fast as a loop without CUDA graphs makes it, which waits for the host where the GPU
    is done sooner. The farm of a ``scheduler`` compiles. A program that ``is_part`` of one that is
    checked as a whole is checked on the input sets that there is time for.

    Raises InputError without a GPU, and CompileError when no baseline runs.
    """
    import torch

    if not torch.cuda.is_available():
        raise InputError(
            "there is no NVIDIA GPU to measure on", repair="rank by the cost model: --effort none"
        )
    if not baselines:
        raise InputError("there is no baseline to compare with", repair="pass the eager program")
    start = time.monotonic()
    deadline = None if budget_s is None else start + budget_s
    compiled_by = None if budget_s is None else start + _COMPILE_SHARE * budget_s
    given_up_at = None if budget_s is None else start + _GIVE_UP_SHARE * budget_s
    tried_by = None if budget_s is None else start + _TRIAL_SHARE * budget_s
    with NumericalCheck(
        program,
        seed=seed,
        device=torch.cuda.current_device(),
        max_work=max_work,
        first_by=compiled_by,
        others_by=tried_by,
        workers=check_workers,
        is_part=is_part,
    ) as check:
        warm_up = baselines
        if not isinstance(warm_up, WarmUp):
            warm_up = WarmUp(program, baselines)
        warm_up.begin()
        tuner = _Tuner(
            program,
            plans,
            baselines,
            check,
            deadline,
            progress,
            should_stop,
            vouch,
            counts_host=counts_host,
        )
        with CompilePool(compile_workers, scheduler=scheduler) as pool:
            tuner.compile(
                tuner.candidates, pool, target, compiled_by, warm_up, given_up_at, neighbours
            )
            tried_by = tuner.wait_for_baselines(warm_up, tried_by)
            tuner.try_all(target.l2_bytes, tried_by)
            tuner.hill_climb(neighbours, climbing_rounds, pool, target, tried_by)
        with torch.no_grad():
            tuner.run_final_benchmark(target.l2_bytes, _TOP_K, held=warm_up.held)
            tuner.race_with_held(warm_up, _TOP_K)
            return tuner.report(baselines_serve=baselines_serve)


class _Tuner:
    """One tuning: it drops candidates that cannot win any more."""

    def __init__(
        self,
        program: Program,
        plans: Sequence[Plan],
        baselines: Mapping[str, Callable[..., Any]],
        check: NumericalCheck,
        deadline: float | None,
        progress: Progress,
        should_stop: Callable[[], bool] = lambda: False,
        vouch: Vouch = lambda _: None,
        *,
        counts_host: bool = False,
    ) -> None:
        self.counts_host = counts_host
        self.program = program
        self.functions = dict(baselines)
        self.baselines = [Candidate(name, None) for name in baselines]
        self.candidates = [Candidate(_name(n, p), p) for n, p in enumerate(plans)]
        self.check = check
        self.deadline = deadline
        self.progress = Told(progress, deadline)
        self.should_stop = should_stop
        self.vouch = vouch
        self.notes: list[str] = []
        self.interrupted = False
        self.stages = Stages(check)
        self.first_calls: dict[str, float] = {}
        self.late: tuple[str, ...] = ()

    # -- before timing ---------------------------------------------------------------------------

    def compile(
        self,
        candidates: Sequence[Candidate],
        pool: CompilePool,
        target: Target,
        deadline: float | None,
        warm_up: WarmUp | None = None,
        ended_by: float | None = None,
        neighbours: Neighbours = lambda _: (),
    ) -> None:
        """Compile candidates; drop what does not compile or fit the target, and what has broken the
        GPU context of an earlier process.

        Those that have compiled are tried while others compile, the first of the candidates first,
        as soon as nothing of a ``warm_up`` measures on the GPU but in turns. Of those
        ``neighbours`` of the fastest that differ in launch options a few are candidates, too, and
        come first.
        """
        first = len(candidates)
        climbed: set[Plan] = set()
        plans = [c.plan for c in candidates if c.plan is not None]
        self.progress.found(len(self.candidates))
        done = 0
        # Whether it is of the plans that were given, and its number.
        waiting: list[tuple[bool, int]] = []

        def steps() -> list[Plan]:
            timed = self.check.timed
            leader = min(timed, key=timed.__getitem__, default=None)
            if leader is None or leader in climbed or len(timed) < _STEPS_AFTER:
                return []
            climbed.add(leader)
            known = {c.plan for c in self.candidates}
            near = (p for p in neighbours(leader) if p.ugraph == leader.ugraph and p not in known)
            found = list(islice(near, _STEPS))
            number = len(self.candidates)
            self.candidates += [Candidate(_name(number + n, p), p) for n, p in enumerate(found)]
            return found

        def begin(most: float) -> None:
            if not self.check.is_ready or not (warm_up is None or warm_up.takes_turns):
                return
            while waiting and self.check.waiting < most:
                plan = candidates[heapq.heappop(waiting)[1]].plan
                assert plan is not None
                self.check.begin(plan, l2_bytes=target.l2_bytes, reps=_REPS)

        def take(number: int, outcome: CompileOutcome) -> None:
            nonlocal done
            done += 1
            self.progress(f"compiled {done} of {len(candidates)}")
            candidate = candidates[number]
            candidate.reason = outcome.reason
            candidate.facts = outcome.facts
            for facts in outcome.facts:
                candidate.reason = memory_fault(facts, target) or candidate.reason
            if candidate.plan is None or not candidate.alive:
                return
            candidate.reason = why_not(candidate.plan)
            if candidate.alive:
                heapq.heappush(waiting, (number < first, number))
            begin(_AHEAD)

        with self.stages.timed("compile"), rarely_collecting():
            pool.compile(
                plans,
                target.capability,
                on_outcome=take,
                deadline=deadline,
                ended_by=ended_by,
                stop=self.should_stop,
                more=steps,
            )
        begin(inf)

    def wait_for_baselines(self, warm_up: WarmUp, tried_by: float | None) -> float | None:
        """Both deadlines are as much later as this takes: the plans' time is not the baselines'.

        Returns the new ``tried_by`` (of ``time.monotonic``).
        """
        self.progress("waiting for the baselines to compile")
        start = time.monotonic()
        patience_s = None if self.deadline in (None, inf) else _PATIENCE_S
        self.stages.seconds["baselines"] = warm_up.wait(patience_s)
        self.first_calls = dict(warm_up.seconds)
        self.late = warm_up.late
        for candidate in self.baselines:
            if candidate.name in self.late:
                words = f"{candidate.name} was still compiling after {_PATIENCE_S:.0f} s"
                candidate.reason = reason(Code.TIMED_OUT, words)
                self.notes.append(f"{words}: it was not timed")
        # Workers run next: what the compilers took beside is theirs.
        give_back(MOST_IDLE_BYTES)
        waited_s = time.monotonic() - start
        self.deadline = None if self.deadline is None else self.deadline + waited_s
        self.progress.ends = self.deadline
        return None if tried_by is None else tried_by + waited_s

    def try_all(self, l2_bytes: int, deadline: float | None) -> None:
        """Run every candidate on the first input sets, drop the wrong ones, time the others."""
        self._try(self.candidates, l2_bytes, deadline)
        nothing = self.candidates and not any(c.alive for c in self.candidates)
        if nothing and not self.should_stop():
            self.notes.append("no candidate compiled and gave the right result")

    def hill_climb(
        self,
        neighbours: Neighbours,
        climbing_rounds: int,
        pool: CompilePool,
        target: Target,
        deadline: float | None,
    ) -> None:
        """Compile, check and time plans one step from the fastest, until nothing gets faster."""
        known = {c.plan for c in self.candidates}
        for _ in range(climbing_rounds):
            top = leading([c for c in self.candidates if c.alive], _CLIMBED_FROM)
            late = deadline is not None and time.monotonic() > deadline
            if not top or late or self.should_stop():
                return
            steps = dict.fromkeys(p for c in top if c.plan for p in neighbours(c.plan))
            fresh = [p for p in steps if p not in known]
            if not fresh:
                return
            known.update(fresh)
            first = len(self.candidates)
            added = [Candidate(_name(first + n, p), p) for n, p in enumerate(fresh)]
            self.candidates += added
            self.compile(added, pool, target, deadline)
            self._try(added, target.l2_bytes, deadline)
            best = fastest([c for c in added if c.alive], 1)
            if not best or best[0].time_us > (1.0 - _GAIN) * top[0].time_us:
                return

    def _try(self, candidates: Sequence[Candidate], l2_bytes: int, deadline: float | None) -> None:
        alive = [c for c in candidates if c.alive]
        self.progress(f"checking {len(alive)} candidates against float64, {_REPS} replays")
        with self.stages.timed("first round"), self._vouching_ahead():
            trials = self.check.first(
                [c.plan for c in alive if c.plan is not None],
                l2_bytes=l2_bytes,
                reps=_REPS,
                deadline=deadline,
                stop=self.should_stop,
            )
        for candidate, trial in zip(alive, trials, strict=True):
            if trial.evidence is not None:
                candidate.judged(trial.evidence)
            if trial.time is not None:
                candidate.timed(trial.time)
        for best in fastest([c for c in self.candidates if c.alive], 1):
            self.progress.found(best_us=best.time_us, measured=True)

    @contextlib.contextmanager
    def _vouching_ahead(self) -> Iterator[None]:
        """While this process waits for many trials: that the plan which leads is the program for
        all inputs is asked of the winner, and takes a second.
        """
        timed = self.check.timed if self.check.waiting >= _AHEAD else {}
        if len(timed) < _TOP_K:
            yield
            return
        leader = min(timed, key=timed.__getitem__)
        asked = threading.Thread(target=self._vouch_ahead, args=(leader,), daemon=True)
        asked.start()
        try:
            yield
        finally:
            # What it takes of the interpreter would be in the times of the next round.
            asked.join()

    def _vouch_ahead(self, plan: Plan) -> None:
        # What is wrong with it is said where it wins.
        with contextlib.suppress(Exception):
            self.vouch(plan)

    # -- timing ----------------------------------------------------------------------------------

    def run_final_benchmark(self, l2_bytes: int, top_k: int, held: Collection[str] = ()) -> None:
        """Time the candidates that are left beside the baselines, but for what is ``held``."""
        device = _device()
        self.rounds = FinalBenchmark(
            [c for c in self.baselines if c.name not in held],
            self.functions,
            self.check,
            rotated_inputs(self.check.store, l2_bytes, device),
            device,
            deadline=self.deadline,
            should_stop=self.should_stop,
            progress=self.progress,
            stages=self.stages,
        )
        self.interrupted = self.rounds.run([c for c in self.candidates if c.alive], top_k)

    def race_with_held(self, warm_up: WarmUp, top_k: int) -> None:
        """Compile the baselines that are held, and time them beside the plans that passed; but not
        where they could not win.
        """
        held = [c for c in self.baselines if c.name in warm_up.held]
        if not held or self.interrupted:
            return
        proven = [c for c in self.candidates if c.proven]
        first, second = fastest(proven, 1), fastest(self.baselines, 1)
        if first and second and first[0].time_us < _FAR_AHEAD * second[0].time_us:
            for candidate in held:
                words = (
                    f"{candidate.name}: a plan takes less than {_FAR_AHEAD:g} of {second[0].name}"
                )
                candidate.reason = reason(Code.NOT_BEGUN, words)
            return
        warm_up.go_on()
        self.wait_for_baselines(warm_up, None)
        self.interrupted = self.rounds.run_with(held, proven, top_k, self.deadline)

    def _is_right(self, baseline: Candidate) -> bool:
        """Eager is what all are compared with; torch.compile of it has to pass, or be as close."""
        if baseline.name in MODES and not self.rounds.is_right(baseline):
            self.notes.append(f"{baseline.name} cannot serve: {baseline.reason}")
        return baseline.alive

    def _another_program(self) -> Reason | None:
        """Why no plan may serve, although it computes the program: the user's function does not.

        Plans are compared with the program, so a fault of the front end is seen only here.
        """
        found = self.rounds.of_traced()
        if found is None or found.passed or not isfinite(found.max_rel_error):
            return None
        explained = max(found.bound, found.eager_rel_error or 0.0)
        if found.outside <= _FEW_ELEMENTS or found.max_rel_error <= _BEYOND_ROUNDING * explained:
            return None
        errors = (f"{error:.2g}" for error in (found.max_rel_error, explained))
        return reason(Code.ANOTHER_PROGRAM, *errors)

    def _is_vouched_for(self, candidate: Candidate) -> bool:
        """The winner has to be the program for inputs other than the check's too."""
        assert candidate.plan is not None
        try:
            self.vouch(candidate.plan)
        except VerificationError as error:
            candidate.reason = reason(Code.NOT_EQUAL, error)
            what = str(error).splitlines()[0]
            self.notes.append(f"the fastest, {candidate.name}, was refused: {what}")
        return candidate.alive

    # -- result ----------------------------------------------------------------------------------

    def report(self, *, baselines_serve: bool = True) -> TuneReport:
        """The result."""
        self.interrupted |= self.should_stop()
        if self.interrupted:
            self.notes.append("interrupted: the best so far")
        standing = [c for c in fastest(self.baselines, len(self.baselines)) if self._is_right(c)]
        proven = fastest([c for c in self.candidates if c.proven], len(self.candidates))
        why_not = self._another_program() if proven else None
        if why_not is not None:
            self.notes.append(str(why_not))
            proven = []
        if self.counts_host and not self.interrupted:
            self._time_host([*standing, *proven[:_TOP_K]])
        standing = by_call(standing)
        if not standing:
            reasons = "; ".join(f"{c.name}: {c.reason}" for c in self.baselines)
            raise CompileError("the original program does not run", why=reasons)
        best = baseline = standing[0]
        for candidate in by_call(proven):
            if baselines_serve and not candidate.beats(baseline):
                continue
            if self.rounds.is_still_right(candidate) and self._is_vouched_for(candidate):
                best = candidate
                break
        lost = [c for c in proven if c.alive and c.time_us < (1.0 - MARGIN) * baseline.time_us]
        if best is baseline and lost:
            quick, slow = lost[0], baseline
            why_not = reason(
                Code.HOST_BOUND,
                *(f"{us:.1f}" for us in (quick.call_us, quick.time_us, slow.call_us, slow.time_us)),
            )
        # The next time there may be enough, and one of them may be the fastest.
        short = (c for c in self.baselines if c.reason and is_out_of_memory(c.reason))
        self.late += tuple(c.name for c in short if c.name not in self.late)
        originals = (c.name for c in standing if c.name == EAGER or c.name in MODES)
        late = sum(c.alive and c.time is None for c in self.candidates)
        if late and not self.interrupted:
            self.notes.append(f"{late} candidates were not timed within the budget")
        self.notes += self.check.known.notes()
        found = {c.name: c.measured() for c in (*self.candidates, *self.baselines)}
        return TuneReport(
            tuple(found.values()),
            found[best.name],
            found[baseline.name],
            tuple(self.notes),
            self.interrupted,
            dict(self.stages.seconds),
            self.first_calls,
            next(originals, EAGER),
            why_not,
            self.late,
        )

    def _time_host(self, candidates: Sequence[Candidate]) -> None:
        self.rounds.time_host(candidates)
        said = ", ".join(f"{c.name.split(':')[0]} {c.host_us:.1f} us" for c in candidates)
        self.notes.append(f"a call takes the host: {said}")


def _name(number: int, plan: Plan) -> str:
    kernels = " + ".join(k.name for k in plan.ugraph.kernels)
    return f"plan {number}: {kernels}" + (" (CUDA)" if plan.backend == "cuda" else "")


def _device() -> torch.device:
    import torch

    return torch.device("cuda", torch.cuda.current_device())


__all__ = ["CLIMBING_ROUNDS", "Measured", "TuneReport", "tune"]
