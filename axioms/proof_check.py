"""The checker of derivations: replays every step, and takes nothing from whoever found it.

It knows the laws as data, terms, and the goal, which it reads off program and µGraph itself. For
each step it puts what the law's variables stand for into the law's left side, compares that with
the subterm at the stated place, looks at the side conditions, puts the right side there and
compares with what the step says comes out. Guards of laws are not looked at: they say when a law
pays, not when it is true.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirage_py.axioms.law import Law, names_bound, term_variables
from mirage_py.axioms.proof_goal import Goal, is_bound_by, range_of
from mirage_py.axioms.proof_kernels import goal_of
from mirage_py.axioms.proof_laws import ONE_WAY, UNGUARDED, laws_of_proofs
from mirage_py.axioms.proof_steps import EXTENTS, Derivation, Proof, Step, term_at, with_term_at
from mirage_py.axioms.term import REDUCTIONS, Term, const, subterms
from mirage_py.errors import MirageError
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import UGraph

# Operators that have no value for some numbers.
PARTIAL = ("div", "log", "log1p", "pow", "rsqrt", "sqrt")
ONE = const("1")


def fault_of(program: Program, ugraph: UGraph, proof: Proof) -> str:
    """What is wrong with a proof that the µGraph computes the program; "" if it holds."""
    try:
        goal = goal_of(program, ugraph)
    except MirageError as error:
        return f"there is nothing to prove: {error.what}"
    return goal_fault(goal, proof)


def goal_fault(goal: Goal, proof: Proof) -> str:
    """The same for a goal that is known."""
    stated = [d.output for d in proof.derivations]
    if stated != [c.output for c in goal.claims]:
        return f"it is about the outputs {_shown(', '.join(stated)) or 'of nothing'}"
    replay = _Replay(goal)
    for claim, derivation in zip(goal.claims, proof.derivations, strict=True):
        fault = replay.fault(derivation, claim.program, claim.ugraph)
        if fault:
            return f"output {claim.output}: {fault}"
    return ""


class _Replay:
    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._laws: Mapping[str, Law] = {law.name: law for law in laws_of_proofs()}
        self._axes_of: dict[Term, frozenset[str]] = {}

    def fault(self, derivation: Derivation, first: Term, last: Term) -> str:
        """Why the steps do not lead from ``first`` to ``last``."""
        if derivation.first != first:
            return "it does not begin with the program's expression"
        if derivation.last != last:
            return "it does not end with the µGraph's expression"
        now = first
        for number, step in enumerate(derivation.steps, 1):
            fault = "it begins elsewhere" if step.before != now else self._step_fault(step)
            if fault:
                return f"step {number}, {_shown(step.law)}: {fault}"
            now = step.after
        return "" if now == last else "the last step does not lead to the µGraph's expression"

    def _step_fault(self, step: Step) -> str:
        try:
            here = term_at(step.before, step.at)
        except IndexError:
            return "there is no such place"
        if step.law == EXTENTS:
            return self._rewritten(step, here, self._goal.facts)
        law = self._laws.get(step.law)
        if law is None:
            return "there is no such law"
        strange = [axis for axis in step.axes.values() if axis not in self._goal.axes]
        if strange:
            return f"there is no axis {_shown(strange[0])}"
        if is_bound_by(step.axes.values()):
            return "how long a tile is depends on the iteration"
        for condition in law.when:
            of, axis = step.terms.get(condition.var), step.axes.get(condition.axis)
            if of is None or axis is None:
                return f"it does not say what {condition.var} and {condition.axis} are"
            if axis in self._depends(of):
                return f"{condition.var}, which is a {of.op}, depends on {axis}"
        for name in law.sizes:
            of = step.terms.get(name)
            if of is None or any(t.op not in ("size", "mul") for t in subterms(of)):
                return f"{name} is no product of sizes"
        try:
            pair = _instance(law.left, step), _instance(law.right, step)
        except KeyError as unbound:
            return f"it does not say what {unbound.args[0]} is"
        return self._undefined(law, step) or self._rewritten(step, here, (pair,))

    def _rewritten(self, step: Step, here: Term, pairs: tuple[tuple[Term, Term], ...]) -> str:
        """Why no pair, read in the step's direction, turns ``before`` into ``after``."""
        for left, right in pairs:
            old, new = (left, right) if step.forward else (right, left)
            if old == here:
                right_result = with_term_at(step.before, step.at, new) == step.after
                return "" if right_result else "something else comes out"
        return "the law does not fit what stands there"

    def _depends(self, term: Term) -> frozenset[str]:
        """The axes on which a term may depend, as it is written."""
        for t in subterms(term):
            if t in self._axes_of:
                continue
            below = frozenset[str]().union(*(self._axes_of[a] for a in t.args))
            if t.op == "leaf":
                below = frozenset(self._goal.leaf_axes.get(t.attr, self._goal.axes))
            if t.op in REDUCTIONS:
                below -= {t.attr}
            if (t.op in REDUCTIONS or t.op == "size") and range_of(t.attr):
                below |= {range_of(t.attr)}
            self._axes_of[t] = below
        return self._axes_of[term]

    def _undefined(self, law: Law, step: Step) -> str:
        """Where the step has no value for numbers for which the expression before it has one."""
        if law.name in ONE_WAY and not step.forward:
            return "read backwards it has no value where what it comes from has one"
        new = list(UNGUARDED.get((law.name, step.forward), ()))
        if not step.forward:
            kept = names_bound(law.right)
            new += [n for n in term_variables(law) if n not in kept]
        known = _always_computed(step.before) if new else {}
        partial = [t for n in new for t in subterms(step.terms[n]) if t.op in PARTIAL]
        if law.name == "masks.divide" and not step.forward:
            partial.append(ONE / step.terms["z"])
            known |= {ONE / t.args[1]: None for t in known if t.op == "div"}
        for t in partial:
            if t not in known and not _is_by_size(t):
                return f"it brings in a {t.op}, which may have no value"
        return ""


def _always_computed(term: Term) -> dict[Term, None]:
    """The subterms that are in no branch of a selection."""
    found: dict[Term, None] = {}
    todo = [term]
    while todo:
        t = todo.pop()
        if t not in found:
            found[t] = None
            todo += t.args[:1] if t.op == "where" else t.args
    return found


def _is_by_size(term: Term) -> bool:
    """Whether it divides by a product of sizes."""
    return term.op == "div" and all(t.op in ("size", "mul") for t in subterms(term.args[1]))


def _shown(text: str) -> str:
    """A name from outside, short enough for a message and fit to be printed."""
    return ascii(text)[1:-1][:60]


def _instance(pattern: Term, step: Step) -> Term:
    if pattern.op == "var":
        return step.terms[pattern.attr]
    named = pattern.op in REDUCTIONS or pattern.op == "size"
    attr = step.axes[pattern.attr] if named else pattern.attr
    return Term(pattern.op, attr, tuple(_instance(a, step) for a in pattern.args))
