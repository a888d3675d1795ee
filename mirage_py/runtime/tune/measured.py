"""Measurements of each candidate and baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from mirage_py.reasons import Code, Reason, reason
from mirage_py.runtime.compile.compiled_facts import CompiledFacts
from mirage_py.runtime.eager.compiled import EAGER
from mirage_py.runtime.timing.timing import Timed
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.verify.numerical_check.check_strength import joined, required
from mirage_py.verify.numerical_check.float_case import FloatEvidence, SetFinding

# A candidate wins only if it is clearly faster than what the user has.
MARGIN = 0.01
# Calls that take the host so little more than others take no longer: the GPU's time decides.
_HOST_NOISE = 0.05
# What torch.compile takes of an idle host is 20 to 26 us: beyond it a loop waits for the GPU, or
# the host was busy when it was timed.
_MOST_HOST_US = 30.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One candidate, or a baseline (``plan`` is None).

    Times are microseconds of a run with a cold L2: median, 20th and 80th percentile; infinite where
    it was not timed. ``reason`` says why it did not pass, ``note`` what else there is to know.
    Errors are those of the worst input set that was tried; ``spread`` is how far repeated launches
    are apart there, 0 where every bit is the same; ``sets`` says what each set has shown.
    """

    name: str
    plan: Plan | None = None
    time_us: float = inf
    p20_us: float = inf
    p80_us: float = inf
    passed: bool = True
    reason: Reason | None = None
    note: str = ""
    max_rel_error: float = 0.0
    bound: float = 0.0
    eager_rel_error: float | None = None
    spread: float = 0.0
    facts: tuple[CompiledFacts, ...] = ()
    sets: tuple[SetFinding, ...] = ()

    @property
    def timed(self) -> bool:
        """Whether it passed and has a time."""
        return self.passed and self.time_us < inf


def float_source(measured: Measured, target: str) -> str:
    """The source of a plan's error figures in the numerical check, and what else it saw."""
    source = f"{target}, full size"
    if measured.spread:
        source += f"; atomic additions: results of repeated runs are {measured.spread:.1g} apart"
    return source


@dataclass(frozen=True, slots=True)
class TuneReport:
    """``best`` is the winner, a baseline where no candidate is clearly faster; ``baseline`` is the
    fastest of the baselines that are right, ``original`` that of eager and torch.compile.
    ``measured`` holds everything, candidates in the order they came.
    ``interrupted`` by Ctrl-C: then it is the best so far.

    ``why_not`` says why a plan that the GPU is faster with does not serve. Baselines that were not
    timed since they were still compiling, or found too little memory, are ``late``.

    ``seconds`` says what took how long: ``compile``, ``baselines`` (their first calls, which go on
    beside it), ``references`` (waiting for them after that), ``first round``, ``race``, ``finals``;
    ``first_calls`` the first call of each baseline.
    """

    measured: tuple[Measured, ...]
    best: Measured
    baseline: Measured
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    first_calls: Mapping[str, float] = field(default_factory=dict)
    original: str = EAGER
    why_not: Reason | None = None
    late: tuple[str, ...] = ()


class Candidate:
    """A candidate or baseline on its way through the tuner."""

    def __init__(self, name: str, plan: Plan | None) -> None:
        self.name = name
        self.plan = plan
        self.facts: tuple[CompiledFacts, ...] = ()
        self.evidence: FloatEvidence | None = None
        self.spread = 0.0
        self.time: Timed | None = None
        # What a call takes of the host; 0 where that does not count.
        self.host_us = 0.0
        self.reason: Reason | None = None
        self.note = ""
        # Right on every input set, so that it may win.
        self.proven = False

    @property
    def alive(self) -> bool:
        """Whether it has not been dropped."""
        return self.reason is None

    @property
    def backend(self) -> str:
        """That of its plan; empty for a baseline."""
        return self.plan.backend if self.plan is not None else ""

    @property
    def time_us(self) -> float:
        """Its median, or infinity."""
        return self.time.median_us if self.time is not None and self.alive else inf

    @property
    def call_us(self) -> float:
        """What each call takes of many in a row: the time of the GPU, or of an idle host."""
        return max(self.time_us, min(self.host_us, _MOST_HOST_US))

    def beats(self, other: Candidate) -> bool:
        """Whether it is clearly faster: on the GPU, or in each call where these differ clearly."""
        if (1.0 + _HOST_NOISE) * self.call_us < other.call_us:
            return True
        as_quick = self.call_us <= (1.0 + _HOST_NOISE) * other.call_us
        return as_quick and self.time_us < (1.0 - MARGIN) * other.time_us

    def judged(self, evidence: FloatEvidence) -> None:
        """Take in what the numerical check says; of two findings the worse one stays."""
        self.evidence = evidence if self.evidence is None else joined([self.evidence, evidence])
        self.spread = max(self.spread, evidence.spread or 0.0)
        if not evidence.passed:
            self.reason = evidence.reason

    def prove(self, evidence: FloatEvidence) -> None:
        """Take in what the check says of the remaining input sets; the candidate may win if all of
        them together say something, and nothing against it.
        """
        self.judged(evidence)
        assert self.evidence is not None
        self.reason = self.reason or required(self.evidence).reason
        self.proven = self.alive

    def timed(self, time: Timed) -> None:
        """Take in a timing; a later one replaces an earlier one."""
        self.time = time
        self.note = time.note
        if time.failure:
            self.reason = reason(Code.NOT_TIMED, time.failure)

    def measured(self) -> Measured:
        """The finding."""
        time, evidence = self.time, self.evidence
        return Measured(
            name=self.name,
            plan=self.plan,
            time_us=time.median_us if time else inf,
            p20_us=time.p20_us if time else inf,
            p80_us=time.p80_us if time else inf,
            passed=self.alive,
            reason=self.reason,
            note=self.note,
            max_rel_error=evidence.max_rel_error if evidence else 0.0,
            bound=evidence.bound if evidence else 0.0,
            eager_rel_error=evidence.eager_rel_error if evidence else None,
            spread=self.spread,
            facts=self.facts,
            sets=evidence.sets if evidence else (),
        )


def fastest(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """The fastest ``count`` of those that have a time."""
    timed = [c for c in candidates if c.time_us < inf]
    return sorted(timed, key=lambda c: c.time_us)[:count]


def by_call(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that have a time, by what each call takes; by the GPU's time where that is the same."""
    timed = [c for c in candidates if c.time_us < inf]
    least = (1.0 + _HOST_NOISE) * min((c.call_us for c in timed), default=inf)
    return sorted(timed, key=lambda c: (max(c.call_us, least), c.time_us))


def leading(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """The fastest ``count``, and the fastest of each back end that has none among them: what the
    other one can do is worth knowing.
    """
    ordered = fastest(candidates, len(candidates))
    found = ordered[:count]
    for candidate in ordered[count:]:
        if candidate.backend not in {c.backend for c in found}:
            found.append(candidate)
    return found
