"""Facts about verification: what was checked, with what bound, and what was not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mirage_py.axioms.proof.steps import read_proof
from mirage_py.formatting.derivation_format import proof_summary, replayed
from mirage_py.formatting.evidence_format import format_evidence, format_reach
from mirage_py.formatting.kernel_format import count_text
from mirage_py.reasons import Code
from mirage_py.runtime.store.artifact import Artifact
from mirage_py.verify.numerical_check.check_strength import is_strong, set_words
from mirage_py.verify.numerical_check.float_case import SetFinding

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of evidence: ``verdict`` is passed, weak or missing."""

    what: str
    verdict: str
    says: str


@dataclass(frozen=True, slots=True)
class InputSet:
    """What one set of inputs has shown. ``excess`` is the largest error as a share of what is
    allowed; ``verdict`` is checked or weak.
    """

    name: str
    compared: int
    elements: int
    excess: float
    verdict: str
    says: str


@dataclass(frozen=True, slots=True)
class Checks:
    """``proved`` says in a few words how far the proof goes, ``limits`` what may be wrong."""

    proved: str
    checks: tuple[Check, ...]
    sentences: tuple[str, ...]
    sets: tuple[InputSet, ...]
    limits: tuple[str, ...]


def checks(artifact: Artifact) -> Checks:
    """Of an artifact; a stored derivation is replayed by the checker now."""
    evidence: Json = artifact.report.get("verification", {})
    if artifact.plan is None:
        said = "Nothing was put in the program's place, so there is nothing to prove."
        return Checks("Nothing to prove", (), (said,), (), ())
    if not evidence.get("trials"):
        said = "The artifact has no report of its verification."
        limit = "Everything: `mirage-py verify` checks this plan now."
        return Checks("Not recorded", (), (said,), (), (limit,))
    proof = evidence.get("proof")
    proved, sentence = _proof(artifact, proof)
    sets = tuple(_set(SetFinding(**s)) for s in evidence.get("float_sets", ()))
    return Checks(
        proved,
        tuple(_checks(evidence, proved, sentence)),
        format_evidence(evidence, sentence),
        sets,
        tuple(_limits(artifact, evidence, proved, sets)),
    )


def _proof(artifact: Artifact, proof: Json | None) -> tuple[str, str]:
    """In a few words, and in a sentence."""
    plan = artifact.plan
    assert plan is not None
    if proof is None:
        if artifact.report["verification"].get("proved"):
            return "Proved part by part", "The laws proved it; the derivation is not kept."
        return "Not proved", "There is no proof by the laws: the trials speak alone."
    start, fault = replayed(artifact.program, plan.ugraph, proof)
    if fault:
        return "Not proved", f"The stored derivation does not hold: {fault}."
    says = (
        f"{proof_summary(read_proof(proof), start)}; an independent checker has just replayed it."
    )
    return f"Proved {format_reach(proof)}", f"The laws prove it {format_reach(proof)}: {says}"


def _checks(evidence: Json, proved: str, sentence: str) -> Iterator[Check]:
    bound = evidence["error_bound"]
    trials = count_text(evidence["trials"], "trial")
    says = f"{trials} over finite fields gave equal outputs; " + (
        f"a wrong µGraph passes with probability at most {bound:.2g}"
        if bound is not None
        else f"no bound is stated: {evidence['bound_reason']}"
    )
    yield Check("Equal over finite fields", "passed" if bound is not None else "weak", says)
    samples = count_text(evidence.get("samples", 0), "sample")
    says = f"{samples} of blocks with the real tiles at the real sizes agreed"
    yield Check("Real tiles, real sizes", "passed" if evidence.get("samples") else "missing", says)
    yield Check("Proof by laws", "missing" if proved == "Not proved" else "passed", sentence)
    error, allowed = evidence["max_rel_error"], evidence["float_bound"]
    says = f"relative error {error:.2g}, allowed {allowed:.2g}; {evidence['float_source']}"
    ran = evidence["float_source"] not in ("none", "not run", "")
    yield Check("Kernels against float64", "passed" if ran else "missing", says)
    for code in evidence.get("code", ()):
        good = code["checked"] and not code["faults"]
        says = (
            f"{code['kernel']}: {code['blocks']} blocks stay inside of their tensors, write each "
            f"output once, nothing races ({code['events']} events in order)"
            if good
            else f"{code['kernel']}: {(code['faults'] or [code['reason']])[0]}"
        )
        yield Check("Emitted code", "passed" if good else "missing", says)


def _set(found: SetFinding) -> InputSet:
    strong = is_strong(found)
    says = "" if strong and found.telling == found.elements else set_words(found)
    verdict = "checked" if strong else "weak"
    return InputSet(found.name, found.telling, found.elements, found.excess, verdict, says)


def _limits(
    artifact: Artifact, evidence: Json, proved: str, sets: tuple[InputSet, ...]
) -> Iterator[str]:
    """What may still be wrong, the weightiest first."""
    if proved == "Not proved":
        yield "There is no proof: equality rests on trials with random inputs."
    if evidence["error_bound"] is None:
        yield f"The trials have no bound on missing an error: {evidence['bound_reason']}."
    if "reduced size" in evidence["float_source"]:
        yield (
            "The kernels have not run on a GPU: they were run on the CPU at a reduced size "
            f"({evidence['float_source'].partition(',')[0]})."
        )
    elif evidence["float_source"] in ("not run", "none", ""):
        yield "The kernels have not been run at all."
    best = artifact.report.get("best") or {}
    if best.get("source") == "model":
        yield "The time is the cost model's: it may be wrong by more than the speedup."
    weak = [s.name for s in sets if s.verdict == "weak"]
    if weak:
        yield f"Sets of inputs that say little here: {', '.join(weak)}."
    bound = (evidence.get("bound") or {}).get("code", "")
    if bound == Code.SCHWARTZ_ZIPPEL.name.lower():
        yield "Rounding is bounded by the numerical check on these inputs, not by a proof for all."
    if not evidence.get("code"):
        yield "The emitted code was not checked for races and out-of-bounds accesses."
    yield "Compiler, driver and GPU are trusted; so is the text of the laws."
