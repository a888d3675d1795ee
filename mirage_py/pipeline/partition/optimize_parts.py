"""The result for a program in parts: each goes through every stage, then all are one plan."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from mirage_py.errors import UnsupportedError, VerificationError
from mirage_py.pipeline.partition.compose import compose, own_dims
from mirage_py.pipeline.partition.joint import joint_evidence, joint_summary
from mirage_py.pipeline.partition.library_parts import library_result
from mirage_py.pipeline.partition.limits import PartitionLimits, operator_count
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.pipeline.selection.record import race_record
from mirage_py.pipeline.selection.request import AUTO, Request
from mirage_py.pipeline.selection.selection import Ranking
from mirage_py.pipeline.selection.time_budget import TimeBudget
from mirage_py.reasons import Code, reason
from mirage_py.result import Candidate, Evidence, Result, Timing
from mirage_py.runtime.base.emission import BACKENDS
from mirage_py.search.model import baseline_model
from mirage_py.search.model.cost_model import lower_bound_us
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.convolutions import library_convolution
from mirage_py.verify.numerical_check.check_strength import plain
from mirage_py.verify.samples.sampled_test import sampled_test

# A part and the target it is for, to its ranked plans.
RankPart = Callable[[Program, Target, Request], Ranking]


@dataclass(frozen=True, slots=True)
class PartJob:
    """How the parts of a program are optimised: as a whole program would be.

    With ``measure`` there is a GPU, which times each part's plans and the composite beside the
    baselines of the whole program. The budget is for all parts and the composite.
    """

    target: Target
    measure: bool
    request: Request

    def of_part(self, whole: Partition, number: int) -> Request:
        """The request for one part, with its share of the budget and a journal of its own."""
        request, part = self.request, whole.parts[number]
        # Kernels of one plan are of one back end; without times Triton is taken for all parts.
        one = "triton" if request.backend == AUTO and not self.measure else request.backend
        name = f"{request.journal.name}.part{number}" if request.journal else ""
        return replace(
            request.named(part.name),
            backend=one,
            budget=None if request.budget is None else request.budget * _share(whole, number),
            baselines=None,
            counts_host=False,
            journal=request.journal and request.journal.with_name(name),
        )


def _share(whole: Partition, number: int) -> float:
    """A part's share of the budget: half of it as any other has, half by its operators."""
    # Neither a library's part nor a copy is searched; the composite is measured.
    counts = [0 if library_convolution(p) else operator_count(p) for p in whole.parts]
    searched = [c for c in counts if c]
    mean = sum(searched) / max(1, len(searched))
    own = counts[number] / mean if counts[number] else 1.0
    return (1.0 + own) / 2.0 / (len(searched) + 1)


@dataclass(frozen=True, slots=True)
class _Picked:
    """A part's plan."""

    plan: Plan
    time_us: float
    evidence: Evidence | None


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What came of one part: its fastest plan of each back end, or ``why`` there is none."""

    result: Result | None
    picked: Mapping[str, _Picked] = field(default_factory=dict)
    why: str = ""


def optimize_parts(program: Program, whole: Partition, rank: RankPart, job: PartJob) -> Result:
    """The parts' best plans in sequence, or the original program where some part has none.

    ``whole`` is a partition of the normal form of ``program``. Without a GPU a part's plan is the
    cost model's, run on the CPU; with one it is the fastest measured of each back end. Then the
    composites, one for each, pass the numerical check and are timed as plans of the whole program:
    one is returned only where it is faster. ``notes`` say where the program was cut and why, and
    which part had no plan. A composite that a sample finds to be another program is left out.
    """
    started = time.monotonic()
    chosen: list[_Chosen] = []
    notes, why_not = [whole.reason], reason(Code.PARTS_SLOWER)
    for number, part in enumerate(whole.parts):
        chosen.append(_choose(part, rank, job.of_part(whole, number), job))
        if not chosen[-1].picked:
            why_not = reason(Code.NO_PLAN_OF_A_PART, part.name)
            notes.append(f"the original program is the result: {why_not}")
            notes += [f"{part.name}: {chosen[-1].why}"] if chosen[-1].why else []
            break
    composites = []
    for composite in _composites(whole, chosen):
        # Mixed up names would show here, where the program is small enough to sample.
        try:
            seed = job.request.seed
            sampled_test(whole.program, composite.ugraph, samples=1, seed=seed).require()
        except VerificationError as error:
            what = str(error).splitlines()[0]
            notes.append(f"the parts together ({composite.backend}) were refused: {what}")
        else:
            composites.append(composite)
    if composites:
        words = "each part was compared with its own program; together they are the program by"
        notes.append(f"verified part by part: {words} the way it was cut")
    if any(own_dims(whole, composite) for composite in composites):
        notes.append("parts split dimensions: the composite is not testable at other sizes")
    deadline = TimeBudget(job.request.budget, started).end
    finish = _measured if job.measure and not job.request.should_stop() else _modelled
    result = finish(program, whole, chosen, composites, tuple(notes), job, deadline)
    return result if result.why_not.code is Code.HOST_BOUND else replace(result, why_not=why_not)


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


def _composites(whole: Partition, chosen: Sequence[_Chosen]) -> tuple[Plan, ...]:
    """The parts in sequence, once for each back end that has a plan of every part."""
    if len(chosen) < len(whole.parts):
        return ()
    common = [b for b in BACKENDS if all(b in c.picked for c in chosen)]
    return tuple(compose(whole, [c.picked[b].plan for c in chosen]) for b in common)


def _choose(part: Program, rank: RankPart, request: Request, job: PartJob) -> _Chosen:
    """The plans of one part."""
    deadline = TimeBudget(request.budget).end
    try:
        called = library_result(
            part, job.target, seed=request.seed, backend=_backends(request.backend)[0]
        )
        if called is not None:
            return _library_chosen(called, request.backend)
        ranking = rank(part, job.target, request)
        if job.measure and not operator_count(part):
            return _unmeasured(ranking)
        if not job.measure or request.should_stop():
            found = ranking.modelled(deadline)
            why = "; ".join(found.notes)
            if found.plan is None:
                return _Chosen(found, why=why)
            picked = _Picked(found.plan, found.best.time_us, found.evidence)
            return _Chosen(found, {found.plan.backend: picked}, why)
        # No baseline but eager: whether kernels pay off is decided for the whole program.
        eager = replace(ranking, request=replace(request, effort="none"))
        return _fastest(ranking, eager.measured(deadline))
    except (UnsupportedError, VerificationError) as error:
        return _Chosen(None, why=str(error))


def _unmeasured(ranking: Ranking) -> _Chosen:
    """The likeliest plans of a copy, which are alike: they are checked and timed with the rest."""
    picked: dict[str, _Picked] = {}
    for instance in ranking.instances:
        plan = instance.plan
        if plan.backend not in picked:
            with contextlib.suppress(VerificationError):
                evidence = ranking.evidence(plan, 0.0, 0.0, "")
                picked[plan.backend] = _Picked(plan, instance.estimate.time_us, evidence)
        if len(picked) == len(BACKENDS):
            break
    return _Chosen(ranking.predicted(), picked, "" if picked else "no plan of a copy")


def _backends(asked: str) -> tuple[str, ...]:
    return BACKENDS if asked == AUTO else (asked,)


def _library_chosen(called: Result, asked: str) -> _Chosen:
    """A library's part is the same beside kernels of either back end."""
    plan = called.plan
    assert plan is not None
    picked = _Picked(plan, called.best.time_us, called.evidence)
    backends = _backends(asked)
    return _Chosen(called, {b: replace(picked, plan=replace(plan, backend=b)) for b in backends})


def _fastest(ranking: Ranking, found: Result) -> _Chosen:
    """The fastest plans that passed, even where PyTorch is faster on this part alone."""
    picked: dict[str, _Picked] = {}
    if found.plan is not None:
        picked[found.plan.backend] = _Picked(found.plan, found.best.time_us, found.evidence)
    for timed in sorted(found.candidates, key=lambda c: c.timing.time_us):
        plan, time_us = timed.plan, timed.timing.time_us
        if not timed.passed or plan is None or plan.backend in picked or time_us == inf:
            continue
        try:
            evidence = ranking.evidence(plan, 0.0, 0.0, "")
        except VerificationError:
            continue  # the next fastest of its back end is asked about
        picked[plan.backend] = _Picked(plan, time_us, evidence)
    return _Chosen(found, picked, "" if picked else "; ".join(found.notes))


def _modelled(
    program: Program,
    whole: Partition,
    chosen: Sequence[_Chosen],
    composites: Sequence[Plan],
    notes: tuple[str, ...],
    job: PartJob,
    deadline: float | None,
) -> Result:
    del deadline  # nothing is left to do
    baseline_us = baseline_model.fused_model_us(whole.program, job.target)
    best = baseline = Timing(baseline_model.NAME, baseline_us, "model")
    composite = composites[0] if composites else None
    if composite is not None:
        time_us = sum(c.picked[composite.backend].time_us for c in chosen)
        best = Timing(_name(composite), time_us, "model")
        notes = (*notes, "no GPU was used: times are predictions of the cost model")
    result = _result(program, whole, chosen, composite, job, baseline, best)
    return replace(result, notes=notes, interrupted=job.request.should_stop())


def _measured(
    program: Program,
    whole: Partition,
    chosen: Sequence[_Chosen],
    composites: Sequence[Plan],
    notes: tuple[str, ...],
    job: PartJob,
    deadline: float | None,
) -> Result:
    from mirage_py.runtime.tune.baselines import compiling
    from mirage_py.runtime.tune.measured import float_source
    from mirage_py.runtime.tune.tuner import tune

    report = tune(
        program,
        composites,
        compiling(program, job.request.baselines, job.request.effort),
        target=job.target,
        seed=job.request.seed,
        budget_s=None if deadline is None else max(0.0, deadline - time.monotonic()),
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
        report.best.plan,
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
    chosen: Sequence[_Chosen],
    plan: Plan | None,
    job: PartJob,
    baseline: Timing,
    best: Timing,
) -> Result:
    kept = [c.result for c in chosen if c.result is not None]
    floor_us = lower_bound_us(whole.program, job.target)
    return Result(
        program=program,
        target=job.target.name,
        backend=_backend(plan, chosen),
        baseline=baseline,
        best=best,
        plan=plan,
        evidence=joint_evidence(_evidence(chosen, plan.backend)) if plan else None,
        search=joint_summary([(r.program.name, r.search) for r in kept], floor_us, best.time_us),
        families=tuple(family for r in kept for family in r.families),
        candidates=(Candidate(plan, best, kind=describe(plan.ugraph)),) if plan else (),
    )


def _evidence(chosen: Sequence[_Chosen], backend: str) -> list[Evidence]:
    """That of each part's plan for a back end."""
    return [e for c in chosen if (e := c.picked[backend].evidence) is not None]


def _backend(plan: Plan | None, chosen: Sequence[_Chosen]) -> str:
    """That of the plan, or of what was tried."""
    if plan is not None:
        return plan.backend
    return next((c.result.backend for c in chosen if c.result is not None), "triton")


def _name(plan: Plan) -> str:
    return " + ".join(kernel.name for kernel in plan.ugraph.kernels)
