"""A tuning whose every answer is given: numerical check, compilers, clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from plans import two_kernel_plan

from mirage_py.reasons import Code, reason
from mirage_py.runtime.compile.compile_pool import CompileOutcome
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.runtime.numerical_check.check_pool import Trial
from mirage_py.runtime.numerical_check.references import Known
from mirage_py.runtime.timing.timing import Timed
from mirage_py.runtime.tune import final_benchmark
from mirage_py.runtime.tune import tuner as tuner_module
from mirage_py.runtime.tune.measured import TuneReport
from mirage_py.runtime.tune.tuner import _Tuner
from mirage_py.targets import H200
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

PLAN = two_kernel_plan()
PROGRAM = PLAN.ugraph.program
RIGHT = FloatEvidence(1e-4, 1e-2, 2e-4, True)
WRONG = FloatEvidence(0.5, 1e-2, 2e-4, False, reason(Code.NOT_FINITE, "Y[0, 0]"))


class Store:
    """What is in memory is named by the plan that computed it."""

    def __init__(self, verdicts: Mapping[str, FloatEvidence]) -> None:
        self.verdicts = verdicts

    def inputs(self, name: str, device: torch.device) -> tuple[str, ...]:
        return ("x",)


class Check:
    def __init__(self, first: dict[int, FloatEvidence], rest: dict[int, FloatEvidence]) -> None:
        self.verdicts = {"first": first, "remaining": rest}
        self.asked: list[tuple[str, list[int]]] = []
        self.store = Store({})
        self.times: Mapping[str, float] = {}
        # A time, as so many replays show it.
        self.seen: Callable[[float, int], float] = lambda time_us, _reps: time_us
        # Plans that are not begun within the budget.
        self.skipped: tuple[int, ...] = ()
        self.waited_s = self.waits_s = 0.0
        self.known = Known()
        self.functions: dict[str, FloatEvidence] = {}
        self.before_function: Callable[[str], object] = lambda _: None
        self.is_ready = False
        self.rooms_made = 0
        self.begun: list[int] = []
        self.timed: dict[Plan, float] = {}
        # Plans that compile while one trial is done; 0 for trials that take no time.
        self.compiled = self.compiled_a_trial = 0

    @property
    def waiting(self) -> int:
        if not self.compiled_a_trial:
            return 0
        return max(0, len(self.begun) - self.compiled // self.compiled_a_trial)

    def make_room(self) -> None:
        self.rooms_made += 1

    def begin(self, plan: Plan, *, l2_bytes: int, reps: int) -> None:
        self.begun.append(number_of(plan))

    def first(self, plans: list[Plan], *, l2_bytes, reps, deadline, stop) -> list[Trial]:
        judged = self._judge("first", plans)
        return [
            Trial(skipped=True) if number in self.skipped else self._trial(number, evidence, reps)
            for number, evidence in zip(map(number_of, plans), judged, strict=True)
        ]

    def _trial(self, number: int, evidence: FloatEvidence, reps: int) -> Trial:
        if not evidence.passed:
            return Trial(evidence)
        return Trial(evidence, timed(self.seen(self.times[f"plan {number}"], reps), reps))

    def judge(self, name: str, got: tuple[str, ...]) -> FloatEvidence:
        return self.store.verdicts.get("".join(got), RIGHT)

    def of_function(self, function, eager, device: torch.device) -> FloatEvidence:
        assert eager is None or eager() == "eager"
        self.before_function(function())
        return self.functions.get(function(), RIGHT)

    def remaining(self, plans: list[Plan]) -> list[FloatEvidence]:
        self.waited_s += self.waits_s
        return self._judge("remaining", plans)

    def _judge(self, stage: str, plans: list[Plan]) -> list[FloatEvidence]:
        numbers = [number_of(p) for p in plans]
        self.asked.append((stage, numbers))
        return [self.verdicts[stage].get(n, RIGHT) for n in numbers]


def timed(time_us: float, reps: int) -> Timed:
    return Timed(time_us, time_us, time_us, reps, failure="" if time_us < 1e6 else "boom")


class Pool:
    def __init__(self, outcomes: dict[int, CompileOutcome], check: Check, order: list[int]) -> None:
        self.outcomes = outcomes
        self.check = check
        self.order = order

    def compile(
        self, plans, capability, *, on_outcome, deadline, ended_by, stop, more=tuple
    ) -> list[CompileOutcome]:
        facts = CompiledFacts("k", capability, 1000, 32, 0, 5000, 0.1)
        plans = list(plans)
        left = sorted(range(len(plans)), key=lambda n: [*self.order, n].index(n))
        found = {}
        while left:
            known = len(plans)
            plans += more()
            left = [*range(known, len(plans)), *left]
            number = left.pop(0)
            default = CompileOutcome((facts,))
            found[number] = self.outcomes.get(number_of(plans[number]), default)
            self.check.compiled += 1
            on_outcome(number, found[number])
        return [found[number] for number in range(len(plans))]


class Runner:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __call__(self, *inputs: str) -> str:
        return f"plan {number_of(self.plan)}"

    def run_poisoned(self, *inputs: str) -> str:
        return f"after {number_of(self.plan)}"


def numbered(number: int) -> Plan:
    """Plans that differ in one launch option."""
    first, second = PLAN.options
    return replace(PLAN, options=(replace(first, persistent_blocks=number), second))


def in_cuda(*numbers: int):
    """Some of the plans that ``numbered`` gives are for the CUDA back end."""
    return lambda n: replace(numbered(n), backend="cuda" if n in numbers else "triton")


def number_of(plan: Plan) -> int:
    return plan.options[0].persistent_blocks


def named(name: str):
    """A baseline whose result is its name."""
    return lambda *_: name


class Scene:
    """A tuning whose every answer is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: Mapping[str, float]) -> None:
        self.times = dict(times)
        self.rounds: list[tuple[int, list[str]]] = []
        self.interrupt_in_round = 0
        self.stop_in_round = 0
        self.check = Check({}, {})
        self.outcomes: dict[int, CompileOutcome] = {}
        self.compiled_in_order: list[int] = []
        monkeypatch.setattr(final_benchmark, "time_interleaved", self.clock)
        monkeypatch.setattr(final_benchmark, "PlanRunner", Runner)
        monkeypatch.setattr(final_benchmark, "host_us", lambda call, _: self.host[call()])
        monkeypatch.setattr(tuner_module, "rotated_inputs", lambda *_: [("x",), ("x",)])
        monkeypatch.setattr(tuner_module, "_device", lambda: torch.device("cpu"))

    def clock(self, entries, sets, *, reps, deadline, stop) -> dict[str, Timed]:
        self.rounds.append((reps, list(entries)))
        if len(self.rounds) == self.interrupt_in_round:
            raise KeyboardInterrupt
        return {
            name: timed(self.check.seen(self.times[name.split(":")[0]], reps), reps)
            for name in entries
        }

    def stop(self) -> bool:
        return bool(self.stop_in_round) and len(self.rounds) >= self.stop_in_round

    def run(
        self,
        count: int,
        baselines=("eager", "compile"),
        top_k: int = 2,
        neighbours=lambda _: (),
        beside=lambda _: (),
        climbing_rounds: int = 2,
        made=numbered,
        vouch=lambda _: None,
        host: Mapping[str, float] | None = None,
        deadline: float | None = None,
        warm_up: object | None = None,
    ) -> TuneReport:
        plans = [made(n) for n in range(count)]
        functions = {name: named(name) for name in baselines}
        quiet = lambda _: None  # noqa: E731
        tuner = _Tuner(
            PROGRAM, plans, functions, self.check, deadline, quiet, self.stop, vouch,
            counts_host=host is not None,
        )  # fmt: skip
        self.host = dict(host or {})
        pool = Pool(self.outcomes, self.check, self.compiled_in_order)
        tuner.compile(tuner.candidates, pool, H200, None, warm_up, None, beside)
        self.check.times = self.times
        if warm_up is not None:
            tuner.wait_for_baselines(warm_up, None)
        tuner.try_all(60 << 20, None)
        tuner.hill_climb(neighbours, climbing_rounds, pool, H200, None)
        held = getattr(warm_up, "held", ())
        tuner.run_final_benchmark(60 << 20, top_k, held)
        if held:
            tuner.race_with_held(warm_up, top_k)
        return tuner.report()


class Baselines:
    """Baselines that compile beside the plans."""

    seconds: ClassVar = {}
    late = ()
    takes_turns = False

    def wait(self, most_s: float | None) -> float:
        return 0.0


BASE = {"eager": 20.0, "compile": 15.0}


def winner(report: TuneReport) -> str:
    return report.best.name.split(":")[0]
