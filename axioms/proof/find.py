"""The proof search: laws are applied to both sides of a goal until they meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mirage_py.axioms.laws.registry import laws_in_force
from mirage_py.axioms.proof.goal import Claim, Goal
from mirage_py.axioms.proof.match import apply_match, matches
from mirage_py.axioms.proof.proof_graph import Edge, ProofGraph, Reason
from mirage_py.axioms.proof.proof_laws import CANCELLATIONS, SELECTIONS
from mirage_py.axioms.proof.steps import EXTENTS, Derivation, Proof, Step, with_term_at
from mirage_py.axioms.terms.law import Law
from mirage_py.axioms.terms.term import Term, subterms

# Bounds are counts, so that a result does not depend on the machine.
ROUNDS = 10
MAX_ENTRIES = 2_000
MAX_STEPS = 2_000
MAX_TERMS = 400
MAX_DEPTH = 100


def find_proof(goal: Goal, *, rounds: int = ROUNDS, max_entries: int = MAX_ENTRIES) -> Proof | None:
    """A derivation for every output, or None where none was found within the bounds.

    The laws of the factored ring are tried alone, then with those of the expanded one, then with
    those that cancel; each time anew, for at most ``rounds`` applications of all of them. None
    begins with more than ``max_entries`` terms.
    """
    if _is_too_large(goal):
        return None
    laws: tuple[Law, ...] = SELECTIONS
    for more in (laws_in_force("factored"), laws_in_force("expanded"), CANCELLATIONS):
        laws = (*more, *laws)
        finder = Finder(goal)
        for _ in range(rounds):
            if finder.is_done or finder.graph.size > max_entries or not finder.step(laws):
                break
        if finder.is_done:
            return finder.proof()
    return None


class Finder:
    """Both sides of a goal in one proof graph, to which laws are applied."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.graph = ProofGraph(goal.axes, goal.leaf_axes)
        self.ends = [
            (self.graph.add_term(c.program), self.graph.add_term(c.ugraph)) for c in goal.claims
        ]
        for left, right in goal.facts:
            axes = (("i", left.attr), ("j", f"{left.attr}.l"), ("k", f"{left.attr}.t"))
            ends = self.graph.add_term(left), self.graph.add_term(right)
            self.graph.merge(*ends, Reason(EXTENTS, (), axes))
        self.graph.rebuild()

    @property
    def is_done(self) -> bool:
        """Whether they have met."""
        return all(self.graph.find(a) == self.graph.find(b) for a, b in self.ends)

    def step(self, laws: tuple[Law, ...]) -> bool:
        """Every law everywhere once; False if nothing new came out."""
        changed = False
        for match in matches(self.graph, laws):
            changed |= apply_match(self.graph, match)
        self.graph.rebuild()
        return changed

    def proof(self) -> Proof | None:
        """The derivations of a goal whose sides have met, or None if one is too long."""
        derivations = []
        for claim, (start, end) in zip(self.goal.claims, self.ends, strict=True):
            found = Explanation(self.graph).derivation(claim, start, end)
            if found is None:
                return None
            derivations.append(found)
        return Proof(tuple(derivations))


class Explanation:
    """The way through the forest as steps on one expression."""

    def __init__(self, graph: ProofGraph) -> None:
        self.graph = graph
        self.terms: dict[int, Term] = {}

    def derivation(self, claim: Claim, start: int, end: int) -> Derivation | None:
        """The steps of a claim, or None for too many."""
        steps: list[Step] = []
        now = claim.program
        for at, edge in self._laws(start, end, ()):
            if len(steps) > MAX_STEPS:
                return None
            after = with_term_at(now, at, self._term(edge.end))
            bound = {v: self._term(n) for v, n in edge.reason.terms}
            axes = dict(edge.reason.axes)
            steps.append(Step(edge.reason.law, edge.forward, at, bound, axes, now, after))
            now = after
        return Derivation(claim.output, claim.program, claim.ugraph, without_detours(steps))

    def _laws(
        self, start: int, end: int, at: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], Edge]]:
        """The applications of laws, in order. Equal operands are proved one after the other."""
        for edge in self.graph.path(start, end):
            if edge.reason.law:
                yield at, edge
                continue
            pairs = zip(
                self.graph.entries[edge.start].args, self.graph.entries[edge.end].args, strict=True
            )
            for argument, (a, b) in enumerate(pairs):
                if a != b:
                    yield from self._laws(a, b, (*at, argument))

    def _term(self, number: int) -> Term:
        if number not in self.terms:
            self.terms[number] = self.graph.term(number)
        return self.terms[number]


def without_detours(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The same steps: what comes back to an expression that was there before is left out."""
    kept: list[Step] = []
    place: dict[Term, int] = {}
    for step in steps:
        place.setdefault(step.before, len(kept))
        kept.append(step)
        if step.after in place:
            del kept[place[step.after] :]
            place = {t: n for t, n in place.items() if n <= len(kept)}
    return tuple(kept)


def _is_too_large(goal: Goal) -> bool:
    roots = [t for c in goal.claims for t in (c.program, c.ugraph)]
    depth: dict[Term, int] = {}
    for t in subterms(*roots):
        depth[t] = 1 + max((depth[a] for a in t.args), default=0)
    return len(depth) > MAX_TERMS or max(depth.values()) > MAX_DEPTH
