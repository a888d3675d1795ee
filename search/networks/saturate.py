"""Equality saturation of a whole operator graph: bounded, and stopped at any time.

Every round looks for all substitutions everywhere and applies what is new, least classes first. A
substitution with too many new matches gets some of them, twice as many the next time, so that one
law (commutativity, association) does not take all the room of the others. What is computed once is
left as it is, whatever computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mirage_py.errors import InputError
from mirage_py.search.networks.egraph import EGraph, ENode, Match
from mirage_py.search.networks.substitution import Place, Substitution

Bound = Literal["none", "rounds", "nodes", "time"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of saturation and extraction: ``matches`` is what a substitution may apply in its
    first round, ``solver`` the deterministic seconds of the exact extraction.
    """

    rounds: int = 4
    nodes: int = 10_000
    matches: int = 500
    solver: float = 10.0


@dataclass(frozen=True, slots=True)
class Application:
    """A substitution applied at a place; ``made`` are the numbers of members that it brought up."""

    substitution: Substitution
    match: Match
    made: tuple[int, ...]


class Saturation:
    """An e-graph that substitutions are applied to; ``bound`` says what stopped it last."""

    def __init__(
        self,
        graph: EGraph,
        substitutions: Sequence[Substitution],
        limits: Limits,
        should_stop: Callable[[], bool] = lambda: False,
        constant: Callable[[EGraph], Mapping[int, None]] = lambda _: {},
    ) -> None:
        self.graph, self.limits = graph, limits
        self._constant = constant
        self.applications: list[Application] = []
        self.rounds = 0
        self.bound: Bound = "none"
        self._should_stop = should_stop
        self._rules = tuple(substitutions)
        self._seen: list[dict[object, None]] = [{} for _ in self._rules]
        self._allowed = [limits.matches] * len(self._rules)
        for rule in self._rules:
            graph.watch(rule.pattern)
        self._matches = graph.rebuild()

    def run(self, wanted: Callable[[Substitution], bool] = lambda _: True) -> None:
        """Apply the wanted substitutions until they add nothing, or a bound is hit."""
        for _ in range(self.limits.rounds):
            self.rounds += 1
            changed = False
            once = self._constant(self.graph)
            for number, rule in enumerate(self._rules):
                if wanted(rule):
                    changed |= self._apply_new(number, rule, once)
            self._matches = self.graph.rebuild()
            if self._is_full():
                return
            if not changed:
                self.bound = "none"
                return
        self.bound = "rounds"

    def apply_to(self, places: Iterable[tuple[Substitution, Match]]) -> None:
        """Apply substitutions where somebody else found that they fit."""
        for rule, match in places:
            if not self._is_full():
                self._apply(rule, match)
        self._matches = self.graph.rebuild()

    def _apply_new(self, number: int, rule: Substitution, once: Mapping[int, None]) -> bool:
        seen = self._seen[number]
        new = [
            m
            for m in self._matches[number]
            if m.key not in seen and not all(m.classes[root] in once for root in rule.roots)
        ]
        changed = len(new) > self._allowed[number]
        if changed:
            new = new[: self._allowed[number]]
            self._allowed[number] *= 2
        for match in new:
            if self._is_full():
                break
            seen[match.key] = None
            changed |= self._apply(rule, match)
        return changed

    def _is_full(self) -> bool:
        if self.graph.nodes > self.limits.nodes:
            self.bound = "nodes"
        elif self._should_stop():
            self.bound = "time"
        else:
            return False
        return True

    def _apply(self, rule: Substitution, match: Match) -> bool:
        """Whether the e-graph has learned something."""
        graph = self.graph
        before = graph.newest
        try:
            made = rule.make(Place(graph, match, rule.pattern))
        # A shape rule refuses what the substitution would make here.
        except InputError:
            return False
        if made is None:
            return False
        roots = [match.classes[root] for root in rule.roots]
        if any(graph.type(a) != graph.type(b) for a, b in zip(roots, made, strict=True)):
            return False
        changed = [graph.union(a, b) for a, b in zip(roots, made, strict=True)]
        added = tuple(range(before, graph.newest))
        if any(changed) or added:
            self.applications.append(Application(rule, match, added))
        return any(changed) or bool(added)


def applied(found: Saturation, used: Iterable[ENode]) -> list[Application]:
    """The applications that brought up the used members, and those that these build on."""
    born = found.graph.born()
    maker = {number: a for a in found.applications for number in a.made}
    needed: dict[int, Application] = {}
    todo = list(used)
    while todo:
        application = maker.get(born[todo.pop()])
        if application is None or id(application) in needed:
            continue
        needed[id(application)] = application
        todo += _matched(found.graph, application)
    return [a for a in found.applications if id(a) in needed]


def _matched(graph: EGraph, application: Application) -> list[ENode]:
    """The members that a substitution was applied to."""
    match = application.match
    nodes = []
    for node, attributes in zip(application.substitution.pattern, match.attributes, strict=True):
        operands = tuple(graph.find(match.classes[x]) for x in node.operands)
        nodes.append(ENode(node.operator, tuple(attributes.items()), operands))
    return nodes
