"""The proof tier of verification: derives a µGraph from its program by the laws.

All kernels count, library calls and atomic sums among them, and the shifts of exponentials as they
are in the µGraph. The result is a certificate. The checker that replays it shares no code with the
proof search; here it says what it has to see proved.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from mirage_py.axioms.certificate.checker import ILL_FORMED, Check, fault_of
from mirage_py.axioms.proof.find import find_proof, without_detours
from mirage_py.axioms.proof.goal import Goal, dims_made_of
from mirage_py.axioms.proof.kernel_terms import goal_of
from mirage_py.axioms.proof.steps import Derivation, Proof
from mirage_py.axioms.proof.tidy import backwards, tidied
from mirage_py.axioms.proof.tile_axes import loops_with_tiles
from mirage_py.axioms.terms.term import Term, subterms
from mirage_py.errors import MirageError
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph
from mirage_py.ugraph.text.json_form import to_json


def prove(program: Program, ugraph: UGraph) -> Proof | None:
    """A certificate for every output that the checker accepts; None says only that none was found.

    ``ugraph`` may have open tiles, may be stabilised or not, and may be of a program whose
    dimensions are split.
    """
    try:
        goal = goal_of(program, ugraph)
        proof = find_proof(goal)
    except MirageError:
        return None
    if proof is None:
        return None
    documents, dims = (to_json(program), to_json(ugraph)), dims_made_of(program, ugraph)
    about = Proof((), dims, loops_with_tiles(ugraph, goal.cut), goal.calls)
    try:
        check = Check(*documents, about.document())
    except ILL_FORMED:
        return None
    derivations = _as_the_checker_reads(goal, proof, check)
    if derivations is None:
        return None
    proof = replace(about, derivations=derivations, needs=tuple(check.needs))
    return None if fault_of(*documents, proof.document()) else proof


def _as_the_checker_reads(goal: Goal, proof: Proof, check: Check) -> tuple[Derivation, ...] | None:
    """The derivations from and to the terms that the checker reads, or None if they do not lead
    there: those of the proof search have no shifts, and whole dimensions for iterations of tiles.
    """
    found = []
    known = _CheckedTerms(goal, check)
    for derivation, (name, start, end) in zip(proof.derivations, check.claims, strict=True):
        try:
            first, last = known.term(start), known.term(end)
        except (KeyError, MirageError):
            return None
        ends = (tidied(derivation.first, only_tiles=True), tidied(derivation.last), tidied(last))
        if None in ends:
            return None
        joined, left, right = (steps or () for steps in ends)
        steps = without_detours((*backwards(joined), *derivation.steps, *left, *backwards(right)))
        found.append(Derivation(name, first, last, steps))
    return tuple(found)


class _CheckedTerms:
    """Terms of the checker as terms of ours: it has names of its own for leaves and numbers."""

    def __init__(self, goal: Goal, check: Check) -> None:
        terms = check.memory.terms
        self._rows = terms.rows
        self._below = terms.below
        self._leaves = {terms.rows[check.replay.leaf(name)].attr: name for name in goal.leaf_axes}
        ends = [t for c in goal.claims for t in (c.program, c.ugraph)]
        numbers = [t.attr for t in subterms(*ends) if t.op == "const"]
        self._numbers = {terms.rows[terms.const(text)].attr: text for text in numbers}

    def term(self, number: int) -> Term:
        """Raises KeyError for a leaf or a number that the goal does not have."""
        made: dict[int, Term] = {}
        for n in self._below(number):
            op, attr, args = self._rows[n]
            if op == "leaf":
                attr = self._leaves[attr]
            elif op == "const" and Fraction(attr).denominator > 1:
                attr = self._numbers[attr]
            made[n] = Term(op, attr, tuple(made[a] for a in args))
        return made[number]
