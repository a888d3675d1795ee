"""The checker of certificates on the objects of the tests: goals, programs, µGraphs."""

from __future__ import annotations

from mirage_py.axioms.certificate import checker
from mirage_py.axioms.certificate.steps import Replay
from mirage_py.axioms.certificate.terms import RefusedError, Terms, parts
from mirage_py.axioms.certificate.terms import Term as Checked
from mirage_py.axioms.proof.goal import Goal
from mirage_py.axioms.proof.steps import Proof
from mirage_py.axioms.terms.term import Term, subterms
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.json_form import to_json


def fault_of(program: Program, ugraph: UGraph, proof: Proof) -> str:
    """Why the checker refuses a certificate, or ""."""
    return checker.fault_of(to_json(program), to_json(ugraph), proof.document())


def goal_fault(goal: Goal, proof: Proof) -> str:
    """The same for the steps alone, between any two terms."""
    terms = Terms()
    numbers: dict[Term, Checked] = {}

    def number(term: Term) -> Checked:
        for t in subterms(term):
            of = [numbers[a] for a in t.args]
            known = {"leaf": leaf, "const": terms.const}.get(t.op)
            numbers[t] = known(t.attr) if known else terms.make(t.op, of, t.attr)
        return numbers[term]

    def leaf(name: str) -> Checked:
        return terms.make("leaf", (), name, goal.leaf_axes.get(name, goal.axes))

    claims = [(c.output, number(c.program), number(c.ugraph)) for c in goal.claims]
    try:
        Replay(terms, {parts(a)[0] for a in goal.axes}, leaf).check(claims, proof.document())
    except (RefusedError, LookupError, TypeError, ValueError) as error:
        return checker.told(error)
    return ""
