"""The result for a program in parts: each goes through every stage, then all are one plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from mirage_py.errors import VerificationError
from mirage_py.pipeline.partition.alike_parts import alike, renamed
from mirage_py.pipeline.partition.compose import own_dims
from mirage_py.pipeline.partition.composites import (
    Composite,
    composites_of,
    picked_in,
    predicted_us,
    with_other_types,
)
from mirage_py.pipeline.partition.joint import joint_evidence, joint_summary
from mirage_py.pipeline.partition.limits import PartitionLimits, operator_count
from mirage_py.pipeline.partition.part_choice import Chosen, RankPart, choose, not_searched
from mirage_py.pipeline.partition.part_clock import LEAST_S, PartClock
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.pipeline.selection.record import race_record
from mirage_py.pipeline.selection.request import AUTO, Request
from mirage_py.pipeline.selection.time_budget import TimeBudget
from mirage_py.reasons import Code, reason
from mirage_py.result import Candidate, Evidence, Result, Timing
from mirage_py.search.model import baseline_model
from mirage_py.search.model.cost_model import lower_bound_us
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.verify.numerical_check.check_strength import plain
from mirage_py.verify.samples.sampled_test import sampled_test

# Of the time that is left, what the search for convolutions as matmuls of ours may take, samples of
# composites, of which the first is always tested, and the race.
_OF_JOINED, _OF_SAMPLES, _OF_RACE = 0.3, 0.1, 1.0
# Shares of the whole budget that these get even if the parts took longer, whose plans would have
# been for nothing.
_LEAST_JOINED, _LEAST_SAMPLES, _LEAST_RACE = 0.04, 0.01, 0.05
# Composites with them that are predicted so many times slower than others are not raced.
_NEAR = 1.4


class MoreComposites(Protocol):
    """Composites of other parts than those of a partition, which have the plans ``chosen``."""

    def __call__(
        self,
        whole: Partition,
        chosen: Sequence[Chosen],
        rank: RankPart,
        request: Request,
        target: Target,
        *,
        measure: bool,
    ) -> list[Composite]: ...


@dataclass(frozen=True, slots=True)
class PartJob:
    """How the parts of a program are optimised: as a whole program would be.

    With ``measure`` there is a GPU, which times each part's plans and the composite beside the
    baselines of the whole program. The budget is for all parts and the composite. ``more`` gives
    composites of other parts, which are raced beside those of the partition.
    """

    target: Target
    measure: bool
    request: Request
    more: MoreComposites | None = None

    def of_part(self, whole: Partition, number: int, budget: float | None = None) -> Request:
        """The request for one part, with its share of the budget and a journal of its own."""
        request, part = self.request, whole.parts[number]
        # Kernels of one plan are of one back end; without times Triton is taken for all parts.
        one = "triton" if request.backend == AUTO and not self.measure else request.backend
        name = f"{request.journal.name}.part{number}" if request.journal else ""
        return replace(
            request.named(part.name),
            backend=one,
            budget=budget,
            baselines=None,
            counts_host=False,
            journal=request.journal and request.journal.with_name(name),
        )

    def seconds(self, deadline: float | None, share: float, least: float) -> float | None:
        """A share of what is left, or of the whole budget where that is more."""
        if deadline is None:
            return None
        left = deadline - time.monotonic()
        return max(share * left, least * (self.request.budget or 0.0))


def optimize_parts(program: Program, whole: Partition, rank: RankPart, job: PartJob) -> Result:
    """The parts' best plans in sequence, or the original program where some part has none.

    ``whole`` is a partition of the normal form of ``program``. Without a GPU a part's plan is the
    cost model's, run on the CPU; with one it is the fastest measured of each back end. A part
    without a plan is PyTorch's. Then the composites, for each back end, pass the numerical check
    and are timed as plans of the whole program: one is returned only where it is faster. ``notes``
    say where the program was cut and why, and which parts are PyTorch's. A composite that a sample
    finds to be another program is left out.
    """
    started = time.monotonic()
    deadline = TimeBudget(job.request.budget, started).end
    chosen = _chosen(whole, rank, job, deadline)
    notes, why_not = [whole.reason], reason(Code.PARTS_SLOWER)
    lacking = [n for n, c in enumerate(chosen) if not c.picked]
    if lacking:
        notes += _about_holes(whole, chosen, lacking)
    with_calls = composites_of(whole, chosen, measure=job.measure)
    found = [Composite(p, whole, chosen, predicted_us(whole, chosen, p)) for p in with_calls]
    found = _with_joined(found, whole, chosen, rank, job, deadline)
    if job.measure:
        found = with_other_types(found, job.target)
    if lacking and not found:
        why_not = reason(Code.NO_PLAN_OF_A_PART, whole.parts[lacking[0]].name)
        notes.insert(1, f"the original program is the result: {why_not}")
    seconds = job.seconds(deadline, _OF_SAMPLES, _LEAST_SAMPLES)
    composites, refused = _tested(found, whole, job.request.seed, seconds)
    notes += refused
    if composites:
        words = "each part was compared with its own program; together they are the program by"
        notes.append(f"verified part by part: {words} the way it was cut")
    if any(own_dims(whole, composite.plan) for composite in composites):
        notes.append("parts split dimensions: the composite is not testable at other sizes")
    finish = _measured if job.measure and not job.request.should_stop() else _modelled
    result = finish(program, whole, chosen, composites, tuple(notes), job, deadline)
    said = result.why_not.code in (Code.HOST_BOUND, Code.ANOTHER_PROGRAM)
    return result if said else replace(result, why_not=why_not)


def _with_joined(
    found: Sequence[Composite],
    whole: Partition,
    chosen: Sequence[Chosen],
    rank: RankPart,
    job: PartJob,
    deadline: float | None,
) -> list[Composite]:
    """The composites with those whose convolutions are matmuls of ours, the likeliest first. Of
    these none that the model finds much slower.
    """
    if job.more is None or job.request.should_stop():
        return list(found)
    budget = job.seconds(deadline, _OF_JOINED, _LEAST_JOINED)
    request = job.of_part(whole, 0, budget)
    joined = job.more(whole, chosen, rank, request, job.target, measure=job.measure)
    best_us = min((c.time_us for c in found), default=inf)
    near = [c for c in joined if c.time_us <= _NEAR * best_us]
    # What is measured part by part is surer than predictions: it is raced whatever the budget.
    first = list(found[:1]) if job.measure else []
    rest = [c for c in (*found, *near) if c not in first]
    return [*first, *sorted(rest, key=lambda c: c.time_us)]


def _tested(
    found: Sequence[Composite], whole: Partition, seed: int, seconds: float | None
) -> tuple[list[Composite], list[str]]:
    """The composites that a sample finds to be the program, and what is to be said of the others.

    A sample takes long where convolutions are in kernels: those that are not begun in so many
    seconds are left out, but for the first.
    """
    composites: list[Composite] = []
    notes: list[str] = []
    faults: dict[tuple[object, ...], str] = {}
    until = inf if seconds is None else time.monotonic() + seconds
    left_out = 0
    for composite in found:
        blocks = composite.plan.ugraph.in_blocks
        # To a sample all numbers are exact, whatever the types between kernels.
        sampled = blocks.program, blocks.kernels, tuple(t.shape for t in blocks.intermediates)
        if sampled not in faults:
            if composites and time.monotonic() > until:
                left_out += 1
                continue
            fault = faults[sampled] = _fault(whole, blocks, seed)
            if fault:
                refused = f"the parts together ({composite.plan.backend}) were refused"
                notes.append(f"{refused}: {fault}")
        composites += [] if faults[sampled] else [composite]
    if left_out:
        notes.append(f"{left_out} composites were left out: there was no time to test them")
    return composites, notes


def _fault(whole: Partition, ugraph: UGraph, seed: int) -> str:
    """Mixed up names would show here, where the program is small enough to sample."""
    try:
        sampled_test(whole.program, ugraph, samples=1, seed=seed).require()
    except VerificationError as error:
        return str(error).splitlines()[0]
    return ""


def least_parts(program: Program) -> int:
    """No partition has fewer parts."""
    return -(-operator_count(program) // PartitionLimits().operators)


def compared_only(program: Program, job: PartJob) -> Result:
    """The fastest of the baselines, where the time budget is too short for the parts there are."""
    count = operator_count(program)
    words = f"the time budget is too short for a program of {count} operators: nothing was searched"
    whole = Partition(program, (program,), (), 0, words)
    deadline = TimeBudget(job.request.budget).end
    found = _measured(program, whole, [], (), (words,), job, deadline)
    return replace(found, why_not=reason(Code.NO_TIME, count))


def _chosen(whole: Partition, rank: RankPart, job: PartJob, deadline: float | None) -> list[Chosen]:
    """The plans of all parts: of those that are alike one is searched, the most valuable first, as
    long as there is time.
    """
    first = alike(whole.parts)
    budget, measure = job.request.budget, job.measure
    clock = PartClock(whole, first, job.target, budget, deadline, measure=measure)
    found: dict[int, Chosen] = {}
    for number in clock.order:
        part, budget = whole.parts[number], clock.share(number)
        is_late = budget is not None and budget <= 0.0
        if is_late and clock.is_too_late():
            found[number] = not_searched(part, job.target, "there was no time to search it")
            continue
        request = job.of_part(whole, number, LEAST_S if is_late else budget)
        found[number] = choose(
            part, rank, request, job.target, measure=job.measure, is_late=is_late
        )
    return [
        found[n] if n == of else renamed(found[of], whole.parts[of], whole.parts[n], job.target)
        for n, of in enumerate(first)
    ]


def _about_holes(whole: Partition, chosen: Sequence[Chosen], lacking: Sequence[int]) -> list[str]:
    """Why parts have no plan, once each."""
    names: dict[str, list[str]] = {}
    for n in lacking:
        names.setdefault(chosen[n].why, []).append(whole.parts[n].name)
    said = [f"{', '.join(parts)}: {why}" for why, parts in names.items() if why]
    return [f"{len(lacking)} of {len(whole.parts)} parts have no plan", *said]


def _modelled(
    program: Program,
    whole: Partition,
    chosen: Sequence[Chosen],
    composites: Sequence[Composite],
    notes: tuple[str, ...],
    job: PartJob,
    deadline: float | None,
) -> Result:
    del deadline  # nothing is left to do
    baseline_us = baseline_model.fused_model_us(whole.program, job.target)
    best = baseline = Timing(baseline_model.NAME, baseline_us, "model")
    composite = composites[0] if composites else None
    if composite is not None:
        best = Timing(_name(composite.plan), composite.time_us, "model")
        notes = (*notes, "no GPU was used: times are predictions of the cost model")
    result = _result(program, whole, chosen, composite, job, baseline, best)
    return replace(result, notes=notes, interrupted=job.request.should_stop())


def _measured(
    program: Program,
    whole: Partition,
    chosen: Sequence[Chosen],
    composites: Sequence[Composite],
    notes: tuple[str, ...],
    job: PartJob,
    deadline: float | None,
) -> Result:
    from mirage_py.runtime.tune.baselines import compiling
    from mirage_py.runtime.tune.measured import float_source
    from mirage_py.runtime.tune.tuner import tune

    report = tune(
        program,
        [c.plan for c in composites],
        compiling(program, job.request.baselines, job.request.effort),
        target=job.target,
        seed=job.request.seed,
        budget_s=job.seconds(deadline, _OF_RACE, _LEAST_RACE),
        progress=job.request.progress,
        should_stop=job.request.should_stop,
        counts_host=job.request.counts_host,
        scheduler=job.request.scheduler,
    )
    if composites and report.best.plan is None:
        notes = (*notes, str(report.why_not or reason(Code.PARTS_SLOWER)))
    result = _result(
        program,
        whole,
        chosen,
        next((c for c in composites if c.plan == report.best.plan), None),
        job,
        Timing(report.baseline.name, report.baseline.time_us, "measured"),
        Timing(report.best.name, report.best.time_us, "measured"),
    )
    if result.evidence is not None:
        evidence = replace(
            result.evidence,
            max_rel_error=report.best.max_rel_error,
            float_bound=report.best.bound,
            float_source=float_source(report.best, job.target.name),
            float_sets=plain(report.best.sets),
        )
        result = replace(result, evidence=evidence)
    candidates = tuple(
        Candidate(
            m.plan,
            Timing(m.name, m.time_us, "measured"),
            m.passed,
            m.reason,
            describe(m.plan.ugraph),
        )
        for m in report.measured
        if m.plan is not None
    )
    return replace(
        result,
        candidates=candidates,
        notes=(*notes, *report.notes),
        interrupted=report.interrupted,
        original=report.original,
        why_not=report.why_not or result.why_not,
        record={**result.record, **race_record(report)},
    )


def _result(
    program: Program,
    whole: Partition,
    chosen: Sequence[Chosen],
    composite: Composite | None,
    job: PartJob,
    baseline: Timing,
    best: Timing,
) -> Result:
    plan = composite.plan if composite else None
    own = composite.chosen if composite else ()
    every = dict.fromkeys(id(c) for c in (*chosen, *own))
    kept = [c.result for c in (*chosen, *own) if every.pop(id(c), 0) is None and c.result]
    floor_us = lower_bound_us(whole.program, job.target)
    return Result(
        program=program,
        target=job.target.name,
        backend=_backend(plan, chosen),
        baseline=baseline,
        best=best,
        plan=plan,
        evidence=joint_evidence(_evidence(composite)) if composite else None,
        search=joint_summary([(r.program.name, r.search) for r in kept], floor_us, best.time_us),
        families=tuple(family for r in kept for family in r.families),
        candidates=(Candidate(plan, best, kind=describe(plan.ugraph)),) if plan else (),
    )


def _evidence(composite: Composite) -> list[Evidence]:
    """That of the plan of each part that is not PyTorch's."""
    picked = picked_in(composite.whole, composite.chosen, composite.plan)
    return [p.evidence for p in picked if p is not None and p.evidence is not None]


def _backend(plan: Plan | None, chosen: Sequence[Chosen]) -> str:
    """That of the plan, or of what was tried."""
    if plan is not None:
        return plan.backend
    return next((c.result.backend for c in chosen if c.result is not None), "triton")


def _name(plan: Plan) -> str:
    return " + ".join(kernel.name for kernel in plan.ugraph.kernels)
