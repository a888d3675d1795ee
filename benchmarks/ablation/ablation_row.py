"""One program of the ablation: its fastest CUDA plan, and the same plan with decisions switched
off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.ablation.ablation_variants import Json, Variant, first_line, structure, variants
from benchmarks.suite.plan_format import described, digest
from benchmarks.workloads.workload import Workload
from mirage_py.errors import CompileError, MirageError
from mirage_py.reasons import Code, reason
from mirage_py.runtime.base.emission import emit_kernels
from mirage_py.runtime.compile.ahead_of_time import memory_fault
from mirage_py.runtime.compile.compile_pool import CompileOutcome
from mirage_py.runtime.numerical_check.check_pool import Trial
from mirage_py.runtime.timing.timing import Timed
from mirage_py.search.tilings.kinds import describe
from mirage_py.targets import Target
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.verify.numerical_check.numerical_check import FloatEvidence

# What a compile pool does with plans for one target.
Compile = Callable[[Sequence[Plan]], Sequence[CompileOutcome]]


@dataclass(frozen=True, slots=True)
class Bench:
    """What a GPU does with plans: ``first`` judges on random inputs and times roughly, ``rest``
    judges on the other input sets, ``race`` times plans beside one another.
    """

    first: Callable[[Sequence[Plan]], Sequence[Trial]]
    rest: Callable[[Sequence[Plan]], Sequence[FloatEvidence]]
    race: Callable[[Sequence[Plan]], Sequence[Timed]]


def emitted_only(plans: Sequence[Plan]) -> list[CompileOutcome]:
    """In place of a compiler where there is none: whether plans can be emitted, no facts."""
    outcomes = []
    for plan in plans:
        try:
            emit_kernels(plan)
        except MirageError as error:
            outcomes.append(CompileOutcome(reason=reason(Code.NO_SCHEDULE, error)))
        else:
            outcomes.append(CompileOutcome())
    return outcomes


def ablation_row(
    workload: Workload,
    plans: Sequence[Plan],
    target: Target,
    compile_plans: Compile,
    bench: Bench | None,
) -> Json:
    """The row of a program whose CUDA ``plans`` are given, likeliest first.

    Without a ``bench`` there are no times, and the first plan that compiles is taken. Raises
    CompileError where none runs.
    """
    plan = _chosen(plans, target, compile_plans, bench)
    found = variants(plan)
    lines = _lines(found, target, compile_plans)
    if bench is not None:
        _measure(found, lines, bench)
    return {
        "key": workload.key,
        "workload": workload.name,
        "batch": workload.batch,
        "kind": describe(plan.ugraph),
        "digest": digest(plan),
        "plan": described(plan),
        "tried": len(plans),
        "variants": lines,
    }


def _chosen(
    plans: Sequence[Plan], target: Target, compile_plans: Compile, bench: Bench | None
) -> Plan:
    """The fastest plan that is right on every input set."""
    reasons: list[str] = []
    if bench is None:
        for plan in plans:
            (outcome,) = compile_plans([plan])
            if not _fault(outcome, target):
                return plan
            reasons.append(_fault(outcome, target))
    else:
        faults = [_fault(o, target) for o in compile_plans(plans)]
        able = [p for p, fault in zip(plans, faults, strict=True) if not fault]
        reasons += [fault for fault in faults if fault]
        trials = bench.first(able)
        reasons += [_trial_fault(t) for t in trials if _trial_fault(t)]
        timed = [(t.time.median_us, n) for n, t in enumerate(trials) if t.time and t.time.ran]
        for _, n in sorted(timed):
            (evidence,) = bench.rest([able[n]])
            if evidence.passed:
                return able[n]
            reasons.append(first_line(str(evidence.reason)))
    raise CompileError(
        f"none of {len(plans)} CUDA plans runs", why="; ".join(reasons[:3]) or "there are none"
    )


def _lines(found: Sequence[Variant], target: Target, compile_plans: Compile) -> list[Json]:
    """What each variant is made of, and why it does not run where that is known by now."""
    able = [v for v in found if not v.fault]
    outcomes = dict(zip((v.name for v in able), compile_plans([v.plan for v in able]), strict=True))
    lines = []
    for variant in found:
        outcome = outcomes.get(variant.name, CompileOutcome())
        kernels = structure(variant, outcome.facts)
        fault = variant.fault or _fault(outcome, target)
        lines.append({"name": variant.name, "fault": fault, "kernels": kernels})
    return lines


def _measure(found: Sequence[Variant], lines: Sequence[Json], bench: Bench) -> None:
    """Add times and errors, ``slower`` than the full plan; a wrong variant has no time."""
    able = [n for n, line in enumerate(lines) if not line["fault"]]
    for n, trial in zip(able, bench.first([found[n].plan for n in able]), strict=True):
        lines[n]["fault"] = _trial_fault(trial)
    able = [n for n in able if not lines[n]["fault"]]
    for n, evidence in zip(able, bench.rest([found[n].plan for n in able]), strict=True):
        lines[n] |= {"error": _finite(evidence.max_rel_error), "bound": _finite(evidence.bound)}
        lines[n]["fault"] = "" if evidence.passed else first_line(str(evidence.reason))
    able = [n for n in able if not lines[n]["fault"]]
    times = bench.race([found[n].plan for n in able])
    for n, time in zip(able, times, strict=True):
        if not time.ran:
            lines[n]["fault"] = f"it does not run: {time.failure}"
            continue
        lines[n] |= {
            "us": round(time.median_us, 3),
            "p20_us": round(time.p20_us, 3),
            "p80_us": round(time.p80_us, 3),
        }
    full_us = lines[0].get("us")
    for line in lines:
        if full_us and "us" in line:
            line["slower"] = round(line["us"] / full_us, 3)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _trial_fault(trial: Trial) -> str:
    if trial.evidence is None:
        return "it was not tried"
    if not trial.evidence.passed:
        return first_line(str(trial.evidence.reason))
    if trial.time is not None and not trial.time.ran:
        return first_line(trial.time.failure)
    return ""


def _fault(outcome: CompileOutcome, target: Target) -> str:
    if not outcome.compiled:
        return first_line(str(outcome.reason))
    return next((str(f) for facts in outcome.facts if (f := memory_fault(facts, target))), "")
