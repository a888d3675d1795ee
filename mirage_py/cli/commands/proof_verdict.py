"""The proof part of ``verify``: a stored derivation is replayed, else one is searched for."""

from __future__ import annotations

from dataclasses import dataclass

from mirage_py.axioms.proof.prove import prove
from mirage_py.axioms.proof.steps import read_proof
from mirage_py.cli.format.derivation_format import proof_summary, replayed, starting_points
from mirage_py.cli.format.reach_format import format_reach, is_certificate
from mirage_py.cli.input.subject import Subject
from mirage_py.ugraph.ir.ugraph import UGraph


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
    if subject.proof is not None and is_certificate(subject.proof):
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
