"""The comparisons that make up one ``verify``: program with program, program with µGraph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mirage_py.axioms.proof.prove import prove
from mirage_py.axioms.proof.steps import read_proof
from mirage_py.cli.input.subject import Subject
from mirage_py.formatting.derivation_format import proof_summary, replayed, starting_points
from mirage_py.formatting.evidence_format import format_reach
from mirage_py.formatting.function_format import format_functions
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.verify.field_test.field_test import FieldEvidence, field_test
from mirage_py.verify.field_test.meanings import FunctionUse, function_use
from mirage_py.verify.field_test.programs import Comparison, compare_programs
from mirage_py.verify.samples.sampled_test import SampleEvidence, sampled_test
from mirage_py.verify.shifts.shift_free import without_infinities
from mirage_py.verify.sizes.small_sizes import instantiate_at_real_sizes


@dataclass(frozen=True, slots=True)
class Verdict:
    """``lines`` say it for people; ``difference`` is where the two differ first, as plain data.

    ``pieces`` counts pieces at the real sizes in which elements were compared; ``skipped`` says
    what was not tested there.
    """

    equal: bool
    trials: int
    samples: int
    primes: tuple[int, ...]
    reason: str
    difference: dict[str, Any] | None
    lines: tuple[str, ...]
    proofs: tuple[ProofVerdict, ...] = ()
    functions: tuple[tuple[str, FunctionUse], ...] = ()
    pieces: int = 0
    skipped: tuple[str, ...] = ()


def compare(
    a: Subject, b: Subject, *, trials: int, seed: int, progress: Callable[[str], None]
) -> Verdict:
    """A's µGraph with A's program, that with B's program, and that with B's µGraph; stops early."""
    verdicts: list[Verdict] = []
    proofs: list[ProofVerdict] = []
    for subject in (a, b):
        if subject.ugraph is not None:
            progress(f"{subject.name}: µGraph and program")
            program = lower_masks(subject.program)
            evidence = field_test(program, subject.ugraph, trials=trials, seed=seed)
            verdicts.append(_of_evidence(subject.name, evidence))
            if evidence.equal:
                progress(f"{subject.name}: µGraph and program at the real sizes")
                verdicts.append(_at_real_sizes(subject, subject.ugraph, evidence, seed))
            if verdicts[-1].equal:
                proofs.append(proof_verdict(subject, subject.ugraph))
                verdicts.append(_of_proof(proofs[-1], verdicts[-1]))
    progress("the two programs")
    verdicts.append(
        _of_comparison(compare_programs(a.program, b.program, trials=trials, seed=seed))
    )
    worst = next((v for v in verdicts if not v.equal), verdicts[-1])
    functions = tuple((s.name, _function_use(s, seed)) for s in (a, b))
    # Once, where the two use them alike.
    said = dict.fromkeys(line for _, use in functions for line in format_functions(use.document()))
    lines = [line for v in verdicts for line in v.lines]
    skipped = tuple(dict.fromkeys(s for v in verdicts for s in v.skipped))
    if worst.equal and skipped:
        lines.append("not verified in full; at the real sizes these were not tested:")
        lines += [f"  {words}" for words in skipped]
    return Verdict(
        worst.equal,
        worst.trials,
        worst.samples,
        worst.primes,
        worst.reason,
        worst.difference,
        tuple([*lines, *said] if worst.equal else lines),
        tuple(proofs),
        functions,
        sum(v.pieces for v in verdicts),
        skipped,
    )


def _function_use(subject: Subject, seed: int) -> FunctionUse:
    program = without_infinities(lower_masks(subject.program), seed=seed)
    return function_use(program, subject.ugraph)


def _of_evidence(name: str, evidence: FieldEvidence) -> Verdict:
    primes = evidence.primes
    if evidence.equal:
        bound = "none" if evidence.error_bound is None else f"{evidence.error_bound:.2g}"
        line = (
            f"the µGraph of {name} computes its program: equal in {evidence.trials} trials and in "
            f"{evidence.structured} elements on structured inputs, error bound {bound} "
            f"({evidence.bound_reason})"
        )
        return Verdict(True, evidence.trials, evidence.samples, primes, "", None, (line,))
    assert evidence.mismatch is not None
    trial = evidence.trials - 1
    reason = f"the µGraph of {name} does not compute its program: {evidence.mismatch}"
    difference = {
        "output": evidence.mismatch.output,
        "element": list(evidence.mismatch.index),
        "trial": trial,
        "sizes": _sizes(evidence),
    }
    lines = (reason, f"trial {trial}, at {_sizes(evidence)}")
    return Verdict(False, evidence.trials, evidence.samples, primes, reason, difference, lines)


def _at_real_sizes(subject: Subject, ugraph: UGraph, tested: FieldEvidence, seed: int) -> Verdict:
    """Blocks of the µGraph against the program; open tiles have some numbers."""
    instance = instantiate_at_real_sizes(ugraph)
    found = sampled_test(lower_masks(subject.program), instance, seed=seed)
    name = subject.name
    if found.equal:
        tiles = "its own tiles" if instance == ugraph else "some tiles"
        line = f"at its real sizes and {tiles}: equal in {_format_blocks(found)}"
        skipped = (f"{name}: {found.skipped}",) if found.skipped else ()
        return Verdict(
            True, tested.trials, found.samples, tested.primes, "", None, (line,),
            pieces=found.pieces, skipped=skipped,
        )  # fmt: skip
    assert found.mismatch is not None
    reason = f"the µGraph of {name} does not compute its program: {found.mismatch}"
    sizes = ", ".join(f"{d.name} = {d.size}" for d in ugraph.program.dims)
    difference = {
        "output": found.mismatch.output,
        "element": list(found.mismatch.index),
        "trial": 0,
        "sizes": sizes,
    }
    lines = (reason, f"trial 0, at {sizes}")
    return Verdict(False, tested.trials, found.samples, tested.primes, reason, difference, lines)


def _format_blocks(found: SampleEvidence) -> str:
    pieces = f", and in {found.pieces} pieces by conditions" if found.pieces else ""
    return f"{found.samples} samples of blocks{pieces}"


def _of_proof(found: ProofVerdict, tested: Verdict) -> Verdict:
    """A derivation that does not hold is a fault; that none was found is not."""
    reason = found.line if found.fault else ""
    return replace(tested, equal=not found.fault, reason=reason, lines=(found.line,))


def _sizes(evidence: FieldEvidence) -> str:
    return ", ".join(f"{d} = {size}" for d, size in evidence.small_extents[-1].items())


def _of_comparison(found: Comparison) -> Verdict:
    pieces = f" and {found.pieces} pieces" if found.pieces > 1 else ""
    counted = f"{found.trials} trials at small sizes, {found.samples} samples{pieces} at full size"
    difference = None
    if found.equal:
        lines = [f"the programs are equal in {counted}"]
        lines += [found.reason] if found.reason else []
    elif found.difference is None:
        lines = [f"the programs differ: {found.reason}"]
    else:
        at = found.difference
        element = f"{at.output}[{', '.join(map(str, at.element))}]"
        lines = [f"the programs differ: first in {element}", f"trial {at.trial}, at {at.sizes}"]
        difference = {
            "output": at.output,
            "element": list(at.element),
            "trial": at.trial,
            "sizes": at.sizes,
        }
    reason = found.reason or ("" if found.equal else lines[0])
    primes = found.primes
    return Verdict(
        found.equal, found.trials, found.samples, primes, reason, difference, tuple(lines),
        pieces=found.pieces, skipped=found.skipped,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProofVerdict:
    """``stored`` if the derivation came with the subject; ``fault`` says why it does not hold."""

    subject: str
    proved: bool
    stored: bool
    start: str
    steps: int
    laws: tuple[str, ...]
    fault: str
    line: str
    needs: tuple[str, ...] = ()


def proof_verdict(subject: Subject, ugraph: UGraph) -> ProofVerdict:
    """Whether the laws lead from a subject's program to its µGraph.

    Raises FormatError for a stored derivation that is none.
    """
    if subject.proof is not None:
        start, fault = replayed(subject.program, ugraph, subject.proof)
        proof = read_proof(subject.proof)
        line = f"the stored derivation of {subject.name} does not hold: {fault}"
        if not fault:
            reach = format_reach(subject.proof)
            summary = proof_summary(proof, start)
            line = f"the stored derivation of {subject.name} holds, {reach}: {summary}"
        return ProofVerdict(
            *(subject.name, not fault, True, start, proof.length),
            *(proof.laws, fault, line, proof.needs),
        )
    for start, program in starting_points(subject.program, ugraph):
        found = prove(program, ugraph)
        if found is not None:
            reach = format_reach(found.document())
            summary = proof_summary(found, start)
            line = f"the laws prove the µGraph of {subject.name} {reach}: {summary}"
            return ProofVerdict(
                *(subject.name, True, False, start, found.length),
                *(found.laws, "", line, found.needs),
            )
    line = f"no proof by the laws was found for the µGraph of {subject.name}"
    return ProofVerdict(subject.name, False, False, "", 0, (), "", line)
