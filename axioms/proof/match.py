"""Matching of laws in a proof graph, and the terms that a match adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mirage_py.axioms.proof.goal import is_bound_by
from mirage_py.axioms.proof.proof_graph import Entry, ProofGraph, Reason
from mirage_py.axioms.terms.law import Guard, Law, NotSize, Uneven, Within
from mirage_py.axioms.terms.term import REDUCTIONS, Term

ByOperator = dict[int, dict[str, list[int]]]


@dataclass(frozen=True, slots=True)
class Match:
    """A law that fits; ``terms`` and ``axes`` are what its variables stand for."""

    law: Law
    forward: bool
    terms: dict[str, int]
    axes: dict[str, str]


def matches(graph: ProofGraph, laws: Sequence[Law]) -> list[Match]:
    """Every place where a law may be applied, before any is."""
    table = graph.by_operator()
    return [match for law in laws for match in _of_law(graph, table, law)]


def _of_law(graph: ProofGraph, table: ByOperator, law: Law) -> Iterator[Match]:
    matcher = _Matcher(graph, table)
    # What is known to be 0 need not be written in other ways: there are too many.
    zero = graph.lookup(Entry("const", "0", ()))
    for forward in (True, False) if law.both_ways else (True,):
        pattern = law.left if forward else law.right
        for root in table:
            if root == zero:
                continue
            for terms, axes in matcher.fits(pattern, root, {}, {}):
                if _holds(graph, law, terms, axes):
                    yield Match(law, forward, terms, axes)


def _holds(graph: ProofGraph, law: Law, terms: dict[str, int], axes: dict[str, str]) -> bool:
    return (
        not is_bound_by(axes.values())
        and all(_pays(graph, guard, terms) for guard in law.only)
        and all(not graph.mask(terms[c.var]) & graph.bits[axes[c.axis]] for c in law.when)
        and not any(graph.mask(terms[name]) for name in law.sizes)
    )


def apply_match(graph: ProofGraph, match: Match) -> bool:
    """Add what the law gives and merge it; False if that was known."""
    law, terms, axes = match.law, dict(match.terms), match.axes
    old, new = (law.left, law.right) if match.forward else (law.right, law.left)
    known = _known(graph, new, terms, axes)
    if known is not None and known == _known(graph, old, terms, axes):
        return False
    for condition in law.when:
        free = graph.free_of(terms[condition.var], graph.bits[axes[condition.axis]])
        if free is None:
            return False
        terms[condition.var] = free
    for name in law.sizes:
        size = graph.as_size(terms[name])
        if size is None:
            return False
        terms[name] = size
    start, end = _entered(graph, old, terms, axes), _entered(graph, new, terms, axes)
    reason = Reason(law.name, tuple(terms.items()), tuple(axes.items()))
    if match.forward:
        return graph.merge(start, end, reason)
    return graph.merge(end, start, reason)


class _Matcher:
    def __init__(self, graph: ProofGraph, table: ByOperator) -> None:
        self._graph = graph
        self._table = table

    def fits(
        self, pattern: Term, number: int, terms: dict[str, int], axes: dict[str, str]
    ) -> Iterator[tuple[dict[str, int], dict[str, str]]]:
        """What the variables may stand for if the pattern is some term of a class."""
        graph = self._graph
        if pattern.op == "var":
            bound = terms.get(pattern.attr)
            if bound is None:
                yield {**terms, pattern.attr: number}, axes
            elif graph.find(bound) == graph.find(number):
                yield terms, axes
            return
        for candidate in self._table.get(graph.find(number), {}).get(pattern.op, ()):
            entry = graph.entries[candidate]
            own = axes
            if pattern.op in REDUCTIONS or pattern.op == "size":
                if axes.get(pattern.attr, entry.attr) != entry.attr or entry.attr not in graph.bits:
                    continue
                own = {**axes, pattern.attr: entry.attr}
            elif pattern.attr != entry.attr:
                continue
            yield from self._fit_all(pattern.args, entry.args, terms, own)

    def _fit_all(
        self,
        patterns: tuple[Term, ...],
        numbers: tuple[int, ...],
        terms: dict[str, int],
        axes: dict[str, str],
    ) -> Iterator[tuple[dict[str, int], dict[str, str]]]:
        if not patterns:
            yield terms, axes
            return
        for found, own in self.fits(patterns[0], numbers[0], terms, axes):
            yield from self._fit_all(patterns[1:], numbers[1:], found, own)


def _attribute(pattern: Term, axes: dict[str, str]) -> str:
    named = pattern.op in REDUCTIONS or pattern.op == "size"
    return axes[pattern.attr] if named else pattern.attr


def _known(
    graph: ProofGraph, pattern: Term, terms: dict[str, int], axes: dict[str, str]
) -> int | None:
    """The class of a pattern with its variables replaced, if it has been entered."""
    if pattern.op == "var":
        return graph.find(terms[pattern.attr])
    args: list[int] = []
    for argument in pattern.args:
        found = _known(graph, argument, terms, axes)
        if found is None:
            return None
        args.append(found)
    return graph.lookup(Entry(pattern.op, _attribute(pattern, axes), tuple(args)))


def _entered(graph: ProofGraph, pattern: Term, terms: dict[str, int], axes: dict[str, str]) -> int:
    if pattern.op == "var":
        return terms[pattern.attr]
    args = tuple(_entered(graph, argument, terms, axes) for argument in pattern.args)
    return graph.add(Entry(pattern.op, _attribute(pattern, axes), args))


def _pays(graph: ProofGraph, guard: Guard, terms: dict[str, int]) -> bool:
    def axes_of(names: Iterable[str]) -> list[int]:
        return [graph.mask(terms[name]) & ~graph.no_size for name in names]

    if isinstance(guard, NotSize):
        return bool(graph.mask(terms[guard.var]) & graph.no_size)
    if isinstance(guard, Within):
        inner, outer = axes_of((guard.var, guard.of))
        return not inner & ~outer
    if isinstance(guard, Uneven):
        return len(dict.fromkeys(axes_of(guard.vars))) > 1
    product = 0
    for mask in axes_of(guard.vars):
        product |= mask
    (than,) = axes_of((guard.than,))
    return bool(than & ~product)
