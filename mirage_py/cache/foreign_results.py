"""Verification of a foreign result, which trusts none of its claims.

The µGraph is tested over finite fields, at small and at real sizes, the derivation that it brings
is replayed, and its kernels run on the CPU against float64. The report is made anew from that. Its
search and its measured times cannot be checked: they are left out, and times are predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

from mirage_py.axioms.certificate.checker import fault_of
from mirage_py.axioms.proof.steps import read_proof
from mirage_py.errors import FormatError, UnsupportedError, VerificationError
from mirage_py.result import Evidence, Result, SearchSummary, Timing
from mirage_py.runtime.cpu.cpu_run import check_on_cpu
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.search.model import baseline_model
from mirage_py.search.model.cost_model import lower_bound_us
from mirage_py.search.rank.plan_model import PlanModel
from mirage_py.targets import Target
from mirage_py.targets import target as target_named
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.ugraph.text.json_form import to_json
from mirage_py.verify.field_test.field_test import field_test
from mirage_py.verify.samples.sampled_test import sampled_test

NOTE = "from elsewhere and verified here; times are predictions of the cost model"
_SEED = 0


def verified_here(found: Artifact, target: str) -> Artifact:
    """The same result with a report of what was checked now.

    Raises VerificationError, or another MirageError that says why it cannot be verified.
    """
    program, chosen = found.program, target_named(target)
    baseline = Timing(baseline_model.NAME, baseline_model.fused_model_us(program, chosen), "model")
    best, evidence = baseline, None
    notes: tuple[str, ...] = (NOTE,)
    if found.plan is not None:
        evidence, more = _evidence(program, found.plan, found.report, chosen)
        name = " + ".join(kernel.name for kernel in found.plan.ugraph.kernels)
        time_us = PlanModel(found.plan, chosen).predicted().time_us
        if not isfinite(time_us):
            raise VerificationError(f"it does not fit {target}", where=program.name)
        best, notes = Timing(name, time_us, "model"), (*more, NOTE)
    bound_us = lower_bound_us(program, chosen)
    gap = best.time_us / bound_us - 1 if bound_us else 0.0
    result = Result(
        program=program,
        target=target,
        backend=found.plan.backend if found.plan is not None else "triton",
        baseline=baseline,
        best=best,
        plan=found.plan,
        evidence=evidence,
        search=SearchSummary(0.0, 0, 0, False, {}, gap, bound_us),
        families=(),
        candidates=(),
        notes=notes,
    )
    return Artifact(program, found.plan, result.document(), found.folder)


def _evidence(
    program: Program, plan: Plan, report: Mapping[str, Any], target: Target
) -> tuple[Evidence, tuple[str, ...]]:
    """What is known of a plan now, and notes of what could not be done here."""
    ugraph = plan.ugraph
    normal = lower_masks(program)
    field = field_test(normal, ugraph, seed=_SEED).require()
    sampled = sampled_test(normal, ugraph, seed=_SEED).require()
    proof = _replayed(program, plan, report)
    done = check_on_cpu(program, plan, target, seed=_SEED)
    if done.fault:
        raise VerificationError(
            "its kernels do not compute the program", where=program.name, why=str(done.fault)
        )
    evidence = Evidence(
        trials=field.trials,
        primes=field.primes,
        error_bound=field.error_bound,
        bound_reason=field.bound_reason,
        proved=proof is not None,
        max_rel_error=done.evidence.max_rel_error,
        float_bound=done.evidence.bound,
        float_source=done.source,
        samples=sampled.samples,
        proof=dict(proof) if proof is not None else None,
        functions=field.functions.document() if field.functions else None,
    )
    return evidence, done.notes


def _replayed(program: Program, plan: Plan, report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The derivation that the report brings, if it does.

    Raises VerificationError for one that does not hold.
    """
    said = report.get("verification")
    document = said.get("proof") if isinstance(said, Mapping) else None
    if document is None:
        return None
    if not isinstance(document, Mapping):
        raise FormatError("its derivation is none", where=program.name)
    starts = [program, plan.ugraph.program]
    with suppress(UnsupportedError):
        starts.insert(1, lower_masks(program))
    read_proof(document)
    last = to_json(plan.ugraph)
    faults = [fault_of(to_json(start), last, document) for start in starts]
    if all(faults):
        raise VerificationError(
            "the derivation that it brings does not hold", where=program.name, why=faults[0]
        )
    return document
