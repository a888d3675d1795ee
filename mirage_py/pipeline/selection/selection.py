"""The last stages: from ranked plans to the one that is returned, measured or modelled."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from mirage_py.axioms.proof.prove import prove
from mirage_py.axioms.proof.steps import Proof
from mirage_py.errors import UnsupportedError, VerificationError
from mirage_py.pipeline.selection.code_reports import CodeReports
from mirage_py.pipeline.selection.record import kernel_resources, race_record, ranked_plans
from mirage_py.pipeline.selection.request import Request
from mirage_py.progress import Told
from mirage_py.reasons import WRONG_RESULTS, Code, Reason, reason
from mirage_py.result import Candidate, Evidence, Result, SearchSummary, Timing
from mirage_py.search.enumerate.search import RingReport, SearchLimits, SearchResult
from mirage_py.search.model import baseline_model
from mirage_py.search.model.cost_model import lower_bound_us
from mirage_py.search.rank.instantiate import Instance
from mirage_py.search.rank.neighbours import neighbours
from mirage_py.search.rank.ranker import ranked_by_measurements
from mirage_py.search.rank.streaming import is_streaming
from mirage_py.search.space.counters import named
from mirage_py.search.space.splits import at_splits, split_dims
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import Target
from mirage_py.ugraph.checks.row_invariance import why_rows_meet
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.split_dim import splits_of
from mirage_py.verify.field_test.families import FamilyTests
from mirage_py.verify.field_test.field_test import FieldEvidence
from mirage_py.verify.numerical_check.check_strength import plain
from mirage_py.verify.numerical_check.numerical_check import MAX_REFERENCE_WORK
from mirage_py.verify.samples.sampled_test import SampleEvidence, sampled_test

if TYPE_CHECKING:
    from mirage_py.runtime.cpu.cpu_run import CpuCheck
    from mirage_py.runtime.tune.measured import TuneReport

_SAMPLES = 3
# Of each input set's reference in float64, for efforts with more than the usual few seconds.
_REFERENCE_WORK = {"full": 10 * MAX_REFERENCE_WORK}
# Plans after the best that a result without measurements still lists.
_NEXT_BEST = 8


@dataclass(frozen=True, slots=True)
class Verified:
    """A stabilised family that passed the field test."""

    family: UGraph
    evidence: FieldEvidence


@dataclass(frozen=True)
class Ranking:
    """Everything known before anything is compiled.

    ``normal`` is the program as it was searched; ``verified`` holds stabilised families by their
    digests; ``faults`` say of each family that was dropped because it may overflow, or is less
    accurate than the program, why; ``ranked`` are the plans that fit the target, best first, and
    ``tried`` the same in the order of trials, where that was asked for; ``notes`` go into every
    result.
    """

    program: Program
    normal: Program
    target: Target
    found: SearchResult
    verified: Mapping[str, Verified]
    faults: Sequence[str]
    ranked: Sequence[Instance]
    request: Request
    limits: SearchLimits = field(default_factory=SearchLimits)
    notes: tuple[str, ...] = ()
    tried: Sequence[Instance] = ()

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """The plans of verified families, best first."""
        return self._of_verified(self.ranked)

    def _of_verified(self, plans: Sequence[Instance]) -> tuple[Instance, ...]:
        kept = (i for i in plans if i.family.digest in self.verified)
        return tuple(i for i in kept if not why_rows_meet(i.plan, self.request.rows))

    def predicted(self) -> Result:
        """The plan the cost model likes best, and all others; nothing was run, and nothing but the
        families was verified.
        """
        model_us = baseline_model.fused_model_us(self.normal, self.target)
        baseline = Timing(baseline_model.NAME, model_us, "model")
        if not self.instances:
            return self._result(baseline, baseline, None, None, ())
        best = self.instances[0]
        timing = Timing(_name(best), best.estimate.time_us, "model")
        return self._result(
            baseline, timing, best.plan, None, list(map(_predicted, self.instances))
        )

    def modelled(self, deadline: float | None = None) -> Result:
        """The plan the cost model likes best among those that agree with float64.

        Each is run on the CPU at a reduced size and compiled for the target, best first, until one
        passes, the sampled test of its real tiles too. After ``deadline`` (of time.monotonic), or
        when the request says to stop, none is begun but the first.
        """
        return replace(self._modelled(deadline), interrupted=self.request.should_stop())

    def _modelled(self, deadline: float | None) -> Result:
        from mirage_py.runtime.cpu.cpu_run import check_on_cpu

        model_us = baseline_model.fused_model_us(self.normal, self.target)
        baseline = Timing(baseline_model.NAME, model_us, "model")
        dropped: list[Candidate] = []
        for instance in self.instances:
            late = deadline is not None and time.monotonic() > deadline
            if dropped and (late or self.request.should_stop()):
                break
            name = _name(instance)
            timing = Timing(name, instance.estimate.time_us, "model")
            told = Told(self.request.named(name).progress, deadline)
            told.found(self.found.counters.candidates, timing.time_us)
            done = check_on_cpu(
                self.program,
                instance.plan,
                self.target,
                seed=self.request.seed,
                progress=told,
            )
            evidence, fault = self._checked_on_cpu(instance.plan, done)
            if evidence is not None:
                note = "no GPU was used: times are predictions of the cost model"
                if timing.time_us > baseline.time_us:
                    note += "; it predicts the original program to be faster: measure before use"
                candidates = [*dropped, *self._next_best(len(dropped))]
                notes = (*done.notes, note)
                result = self._result(baseline, timing, instance.plan, evidence, candidates, notes)
                record = {**result.record, "resources": kernel_resources(done.facts)}
                return replace(result, record=record)
            dropped.append(Candidate(instance.plan, timing, False, fault, instance.name))
        return self._result(baseline, baseline, None, None, dropped)

    def _checked_on_cpu(self, plan: Plan, done: CpuCheck) -> tuple[Evidence | None, Reason | None]:
        """The evidence for a plan that ran on the CPU, or what is wrong with it."""
        if done.fault:
            return None, done.fault
        judged = done.evidence
        try:
            found = self.evidence(plan, judged.max_rel_error, judged.bound, done.source)
            return replace(found, float_sets=plain(judged.sets)), None
        except VerificationError as error:
            return None, reason(Code.NOT_EQUAL, error)

    def _next_best(self, rank: int) -> list[Candidate]:
        """The plan at a place of the ranking, and the predictions for those after it."""
        return list(map(_predicted, self.instances[rank : rank + 1 + _NEXT_BEST]))

    def measured(self, deadline: float | None = None) -> Result:
        """Compile, check and time the candidates beside the baselines; the fastest wins of which
        there is evidence, its real tiles at the real sizes.

        ``deadline`` is of time.monotonic. Where the request says to stop before anything was timed,
        the result is what the cost model likes best. The baselines are eager PyTorch, torch.compile
        of it, and those that are given; a given ``eager`` is the user's own function.
        """
        from mirage_py.runtime.tune import measurements
        from mirage_py.runtime.tune.measured import float_source

        climbing = _HillClimbing(self.target, self.request.rows)
        found = _Found(self, climbing)
        report = self._tuned(climbing, found, deadline)
        measurements.note(self.program, self.target.name, report.measured)
        if report.interrupted and not any(m.timed for m in report.measured if m.plan is not None):
            return self.modelled(deadline)
        baseline = Timing(report.baseline.name, report.baseline.time_us, "measured")
        best = Timing(report.best.name, report.best.time_us, "measured")
        candidates = [
            Candidate(
                m.plan,
                Timing(m.name, m.time_us, "measured"),
                m.passed,
                m.reason,
                describe(m.plan.ugraph),
            )
            for m in report.measured
            if m.plan is not None
        ]
        plan = report.best.plan
        evidence = None
        if plan is not None:
            evidence = replace(
                found.evidence(plan),
                max_rel_error=report.best.max_rel_error,
                float_bound=report.best.bound,
                float_source=float_source(report.best, self.target.name),
                float_sets=plain(report.best.sets),
            )
        result = self._result(baseline, best, plan, evidence, candidates)
        return replace(
            result,
            record={
                **result.record,
                **race_record(report),
                "resources": kernel_resources(report.best.facts),
            },
            notes=(*result.notes, *report.notes),
            interrupted=report.interrupted,
            original=report.original,
            why_not=report.why_not or result.why_not,
            link=self._link(candidates, found) if self.request.streaming else None,
        )

    def _tuned(self, climbing: _HillClimbing, found: _Found, deadline: float | None) -> TuneReport:
        from mirage_py.runtime.tune.baselines import compiling
        from mirage_py.runtime.tune.tuner import CLIMBING_ROUNDS, tune

        request, effort = self.request, self.request.effort
        # Where the budget ends early, the likely ones were tried.
        first = self._of_verified(
            self.tried or in_order_of_trial(self.ranked, self.target, request)
        )
        return tune(
            self.program,
            [i.plan for i in first],
            compiling(self.program, request.baselines, effort),
            target=self.target,
            neighbours=climbing,
            climbing_rounds=CLIMBING_ROUNDS.get(effort, 0),
            seed=request.seed,
            max_work=_REFERENCE_WORK.get(effort, MAX_REFERENCE_WORK),
            vouch=found.evidence,
            budget_s=None if deadline is None else max(0.0, deadline - time.monotonic()),
            progress=request.progress,
            should_stop=request.should_stop,
            counts_host=request.counts_host,
            baselines_serve=not request.rows,
            scheduler=request.scheduler,
            is_part=bool(request.part),
        )

    def _link(self, candidates: Sequence[Candidate], found: _Found) -> Plan | None:
        """The fastest plan for a chain of those that passed and of which there is evidence."""
        passed = [c for c in candidates if c.passed and c.timing.time_us < math.inf]
        for candidate in sorted(passed, key=lambda c: c.timing.time_us):
            plan = candidate.plan
            if plan is not None and is_streaming(plan, self.target):
                try:
                    found.evidence(plan)
                except VerificationError:
                    continue
                return plan
        return None

    def summary(self, best_us: float, limited_by: str = "") -> SearchSummary:
        """The search in numbers; ``best_us`` is the time that the roofline bound is held against,
        ``limited_by`` what the cost model says of it.
        """
        counters = self.found.counters
        floor_us = lower_bound_us(self.program, self.target)
        kinds = Counter(family.kind for family in self.found.families)
        reasons = (*self.found.reasons, *_dropped(self.faults))
        return SearchSummary(
            seconds=self.found.seconds,
            candidates=counters.candidates,
            valid=len(self.verified),
            exhausted=self.found.exhausted,
            pruned=named(counters.pruned),
            gap=best_us / floor_us - 1.0,
            lower_bound_us=floor_us,
            examples=named(counters.examples),
            reasons=tuple(map(str, reasons)),
            limits=_numbers(self.limits),
            rings=tuple(map(_ring, self.found.rings)),
            evaluations=counters.evaluations,
            merged=counters.merged,
            tensors=counters.tensors,
            configurations=counters.configurations,
            hits=counters.hits,
            kinds=dict(sorted(kinds.items())),
            unsafe=len(self.faults),
            tested=len({i.family.digest for i in self.ranked}),
            ranked=len(self.instances),
            limited_by=limited_by,
            codes={str(r): r.name for r in (*counters.pruned, *reasons)},
        )

    def evidence(
        self, plan: Plan, error: float, bound: float, source: str, *, origin: Plan | None = None
    ) -> Evidence:
        """That for one of the plans; the rest is what the numerical check found, and where.

        A plan that is none of ours is of the family of its ``origin``, which is. Raises
        VerificationError when the real tiles at the real sizes differ on a sample, or the family
        does at the plan's own number of parts.
        """
        instance = next(i for i in self.instances if i.plan == (origin or plan))
        field = self._field_evidence(instance.family.digest, plan)
        sampled, proof = self._sampled(plan.ugraph)
        sampled.require()
        return Evidence(
            trials=field.trials,
            primes=field.primes,
            error_bound=field.error_bound,
            bound_reason=field.bound_reason,
            proved=proof is not None,
            max_rel_error=error,
            float_bound=bound,
            float_source=source,
            samples=sampled.samples,
            proof=proof.document() if proof else None,
            functions=field.functions.document() if field.functions else None,
            code=CodeReports(partial(_code_of, plan, self.target)),
        )

    def _sampled(self, ugraph: UGraph) -> tuple[SampleEvidence, Proof | None]:
        """The test of real tiles, and the proof: plans that differ in launch options share them."""
        if ugraph.digest not in self._of_ugraphs:
            seed = self.request.seed
            sampled = sampled_test(self.normal, ugraph, samples=_SAMPLES, seed=seed)
            self._of_ugraphs[ugraph.digest] = sampled, prove(self.normal, ugraph)
        return self._of_ugraphs[ugraph.digest]

    @cached_property
    def _of_ugraphs(self) -> dict[str, tuple[SampleEvidence, Proof | None]]:
        """What that found, by digest."""
        return {}

    @cached_property
    def _tests(self) -> FamilyTests:
        trials = max(v.evidence.trials for v in self.verified.values())
        return FamilyTests(self.normal, trials=trials, seed=self.request.seed)

    def _field_evidence(self, family: str, plan: Plan) -> FieldEvidence:
        """That of the family of a plan; with another number of parts it is tested once more.

        Where a field cannot judge those parts, the sampled test of the plan has to do. Raises
        VerificationError.
        """
        item = self.verified[family]
        own = plan.ugraph.program
        if own == item.family.program:
            self._tests.require_program(own)
            return item.evidence
        key = family, tuple((d, splits_of(own, d)) for d in split_dims(own))
        if key not in self._at_parts:
            self._at_parts[key] = self._tested_at(item, dict(key[1]))
        return self._at_parts[key]

    @cached_property
    def _at_parts(self) -> dict[tuple[str, tuple[tuple[str, int], ...]], FieldEvidence]:
        """What was tested once more, by family and parts: plans differ in tiles besides."""
        return {}

    def _tested_at(self, item: Verified, parts: Mapping[str, int]) -> FieldEvidence:
        try:
            return self._tests.run(at_splits(item.family, parts)).require()
        except UnsupportedError as error:
            why = reason(Code.OTHER_PARTS, item.evidence.bound_reason, error.what)
            return replace(item.evidence, bound_reason=why)

    def _why_nothing(self, candidates: Sequence[Candidate]) -> Reason:
        if candidates and not any(c.passed for c in candidates):
            return _why_none_passed(candidates)
        if not self.found.families:
            return reason(Code.NO_UGRAPH, "; ".join(map(str, self.found.reasons)))
        if not self.verified and self.request.should_stop():
            return reason(Code.NOT_BEGUN, "it was interrupted before a family was verified")
        if not self.ranked:
            return reason(Code.NONE_FITS, self.target.name)
        return reason(Code.ORIGINAL_FASTER if self.verified else Code.NONE_VERIFIED)

    def _result(
        self,
        baseline: Timing,
        best: Timing,
        plan: Plan | None,
        evidence: Evidence | None,
        candidates: Sequence[Candidate],
        notes: tuple[str, ...] = (),
    ) -> Result:
        why_not = self._why_nothing(candidates)
        first = self.instances[0].plan.backend if self.instances else "triton"
        instance = next((i for i in self.instances if i.plan == plan), None)
        return Result(
            program=self.program,
            target=self.target.name,
            backend=plan.backend if plan is not None else first,
            baseline=baseline,
            best=best,
            plan=plan,
            evidence=evidence,
            search=self.summary(best.time_us, instance.estimate.bound if instance else ""),
            families=tuple(v.family for v in self.verified.values()),
            candidates=tuple(candidates),
            notes=(*self.notes, *notes, *([str(why_not)] if plan is None else ())),
            why_not=why_not,
            record={"ranking": ranked_plans(self.instances)},
        )


def _why_none_passed(candidates: Sequence[Candidate]) -> Reason:
    """That none did, and what is wrong with the results of the fastest that has any: of those that
    were not timed it is the first of the ranking.
    """
    refused = [c for c in candidates if c.reason is not None and c.reason.code in WRONG_RESULTS]
    if not refused:
        return reason(Code.NO_CANDIDATE_PASSED)
    fastest = min(refused, key=lambda c: c.timing.time_us)
    timing = fastest.timing
    told = timing if isfinite(timing.time_us) else f"not timed ({timing.name})"
    return reason(Code.FASTEST_WAS_REFUSED, told, fastest.reason)


def _code_of(plan: Plan, target: Target) -> tuple[Mapping[str, Any], ...]:
    """What the checker of emitted code says of the kernels of a plan."""
    from mirage_py.runtime.code_check.check import check_winner

    return tuple(report.document() for report in check_winner(plan, target.capability))


class _HillClimbing:
    """Neighbours of plans, with the plan of the ranking that each goes back to."""

    def __init__(self, target: Target, rows: tuple[str, ...] = ()) -> None:
        self._target = target
        self._rows = rows
        self._origins: dict[Plan, Plan] = {}

    def __call__(self, plan: Plan) -> Iterator[Plan]:
        for step in neighbours(plan, self._target):
            if why_rows_meet(step, self._rows):
                continue
            self._origins.setdefault(step, self.origin(plan))
            yield step

    def origin(self, plan: Plan) -> Plan:
        """The plan itself where it is of the ranking."""
        return self._origins.get(plan, plan)


def in_order_of_trial(
    instances: Sequence[Instance], target: Target, request: Request
) -> list[Instance]:
    """Those first that are likely the fastest, by what was measured of others, too."""
    from mirage_py.runtime.tune import measurements

    found = ranked_by_measurements(instances, target, measurements.ranker_of(target.name))
    if request.streaming:
        found.sort(key=lambda i: not is_streaming(i.plan, target))
    return found


class _Found:
    """The evidence for plans that a tuner asked about, without what the numerical check found."""

    def __init__(self, ranking: Ranking, climbing: _HillClimbing) -> None:
        self._ranking = ranking
        self._climbing = climbing
        self._known: dict[Plan, Evidence] = {}

    def evidence(self, plan: Plan) -> Evidence:
        """As ``Ranking.evidence``."""
        if plan not in self._known:
            origin = self._climbing.origin(plan)
            self._known[plan] = self._ranking.evidence(plan, 0.0, 0.0, "", origin=origin)
        return self._known[plan]


def _numbers(limits: SearchLimits) -> dict[str, int]:
    """The bounds of a search that are numbers."""
    values = {f.name: getattr(limits, f.name) for f in fields(limits)}
    return {name: value for name, value in values.items() if isinstance(value, int)}


def _dropped(faults: Sequence[str]) -> Iterator[Reason]:
    """How many families were dropped for each reason."""
    for fault, count in sorted(Counter(faults).items()):
        families = f"{count} {'family' if count == 1 else 'families'}"
        yield reason(Code.UNSAFE_FAMILIES, families, fault)


def _ring(report: RingReport) -> str:
    """A ring that was begun, with how it ended."""
    if report.exhausted:
        return f"{report.ring}: exhausted"
    bounds = f" by {', '.join(report.cut_by)}" if report.cut_by else ""
    return f"{report.ring}: cut{bounds}"


def _predicted(instance: Instance) -> Candidate:
    timing = Timing(_name(instance), instance.estimate.time_us, "model")
    return Candidate(instance.plan, timing, kind=instance.name)


def _name(instance: Instance) -> str:
    return " + ".join(kernel.name for kernel in instance.plan.ugraph.kernels)
