"""The proof tier of verification: derives a µGraph from its program by the laws.

All kernels count, library calls and atomic sums among them, and the shifts of exponentials as they
are in the µGraph. The result is a certificate. The checker that replays it shares no code with the
proof search; here it says what it has to see proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from mirage_py.axioms.certificate.checker import ILL_FORMED, Check, fault_of
from mirage_py.axioms.certificate.terms import Term as CheckedTerm
from mirage_py.axioms.proof.find import find_proof, without_detours
from mirage_py.axioms.proof.goal import Claim, Goal, dims_made_of
from mirage_py.axioms.proof.kernel_terms import goal_of
from mirage_py.axioms.proof.steps import Derivation, Proof, Step, derivation_with_axes, with_axes
from mirage_py.axioms.proof.tidy import backwards, parted, tidied
from mirage_py.axioms.proof.tile_axes import loop_with_tiles
from mirage_py.axioms.proof.unshift import SHIFT, unshifted
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
        loops = [(d, part, loop_with_tiles(ugraph, d)) for d in goal.cut for part in "lt"]
    except MirageError:
        return None
    documents, dims = (to_json(program), to_json(ugraph)), dims_made_of(program, ugraph)
    about = Proof((), dims, goal.calls)
    try:
        check = Check(*documents, about.document())
    except ILL_FORMED:
        return None
    axes = {f"{d}.{part}{loop}": f"{d}.{part}" for d, part, loop in loops}
    try:
        derivations = _derivations(goal, check, axes)
    except (KeyError, MirageError):
        return None
    if derivations is None:
        return None
    proof = replace(about, derivations=derivations, needs=tuple(check.needs))
    return None if fault_of(*documents, proof.document()) else proof


def _derivations(
    goal: Goal, check: Check, axes: Mapping[str, str]
) -> tuple[Derivation, ...] | None:
    """From and to the terms that the checker reads. The proof search has no shifts, and for all
    loops over a dimension one pair of ``axes``, or none.

    Raises KeyError for a leaf, a number or an axis that the goal does not have.
    """
    known, ends, claims = _CheckedTerms(goal, check), list[tuple[Step, ...]](), list[Claim]()
    for claim, (name, _, end) in zip(goal.claims, check.claims, strict=True):
        last = known.term(end)
        free = unshifted(last, known.leaf_axes)
        tidy = tidied(free[-1].after if free else last) if free is not None else None
        if free is None or tidy is None:
            return None
        ends.append((*free, *tidy))
        last = ends[-1][-1].after if ends[-1] else last
        claims.append(Claim(name, claim.program, parted(with_axes(last, axes), goal.cut)))
    proof = find_proof(replace(goal, claims=tuple(claims)))
    # The goal is another reading of the same kernels.
    alike = tuple(claims) == goal.claims
    if proof is None or (not alike and find_proof(goal) is None):
        return None
    found = []
    back = {new: old for old, new in axes.items()}
    for searched, right, (name, start, end) in zip(
        proof.derivations, ends, check.claims, strict=True
    ):
        derivation = derivation_with_axes(searched, back)
        joined, left = tidied(derivation.first), tidied(derivation.last)
        if joined is None or left is None:
            return None
        steps = (*backwards(joined), *derivation.steps, *left, *backwards(right))
        first, last = known.term(start), known.term(end)
        found.append(Derivation(name, first, last, without_detours(steps)))
    return tuple(found)


class _CheckedTerms:
    """Terms of the checker as terms of ours: it has names of its own for leaves and numbers."""

    def __init__(self, goal: Goal, check: Check) -> None:
        self._leaves = {check.replay.leaf(name).attr: name for name in goal.leaf_axes}
        ends = [t for c in goal.claims for t in (c.program, c.ugraph)]
        numbers = [t.attr for t in subterms(*ends) if t.op == "const"]
        self._numbers = {check.memory.terms.const(text).attr: text for text in numbers}
        self._made: dict[CheckedTerm, Term] = {}
        self.leaf_axes: dict[str, tuple[str, ...]] = {}

    def term(self, checked: CheckedTerm) -> Term:
        """Raises KeyError for a leaf or a number that the goal does not have."""
        if checked not in self._made:
            attr = checked.attr
            if checked.op == "leaf":
                attr = attr if attr.startswith(SHIFT) else self._leaves[attr]
                self.leaf_axes[attr] = tuple(sorted(checked.axes))
            elif checked.op == "const" and Fraction(attr).denominator > 1:
                attr = self._numbers[attr]
            self._made[checked] = Term(checked.op, attr, tuple(map(self.term, checked.args)))
        return self._made[checked]
