"""The audit of one subject: brute-force results, and their place in the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from completeness.containment import spelling
from completeness.draws import drawn
from completeness.enumeration import Enumeration
from completeness.graphs import Graph
from completeness.kernels import ugraph_of
from completeness.kinds import HAND
from completeness.programs import CASES, Subject
from completeness.reasons import Judge
from completeness.search_pools import OneKernel, TwoKernels, searched
from completeness.terms import Terms

from mirage_py.axioms.terms.law import RINGS
from mirage_py.verify.field_test.field_test import field_test

_SEED = 1
# Each pair of primes once.
_TRIALS = 2


@dataclass(frozen=True)
class Found:
    """Graphs that compute the program; ``met`` counts all that were looked at."""

    graphs: tuple[Graph, ...]
    met: int


@dataclass
class Report:
    """Where the verified graphs are.

    ``contained`` in the pool of the factored ring, ``expanded`` only in that of the expanded one,
    ``beaten`` by a derivation, by reason; ``lost`` as documented; ``missing`` are all others.
    ``unmet`` are derivations of the pool that brute force should have found.
    """

    subject: Subject
    met: int
    verified: int
    contained: int = 0
    expanded: int = 0
    beaten: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unmet: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        beaten = ", ".join(f"{n} {reason}" for reason, n in sorted(self.beaten.items())) or "-"
        return (
            f"{self.subject!s:<26} {self.subject.most:>2} {self.met:>11,} {self.verified:>8} "
            f"{self.contained:>9} {self.expanded:>8} {len(self.lost):>4} {len(self.missing):>7}  "
            f"{beaten}"
        )


HEADER = (
    f"{'program, looped dimensions':<26} {'N':>2} {'met':>11} {'verified':>8} {'contained':>9} "
    f"{'expanded':>8} {'lost':>4} {'missing':>7}  beaten"
)


def candidates(subject: Subject, *, both_ways: bool = False) -> Found:
    """Every graph of the configuration that gives the outputs on one random input; ``both_ways``
    keeps those that read a dimension both ways.
    """
    draw, outputs = drawn(subject.program, subject.configuration, _SEED, both_ways=both_ways)
    terms = Terms(draw, outputs, subject.vocabulary)
    enumeration = Enumeration(terms, len(draw.leaves), len(outputs), subject.most)
    graphs = (terms.graph(roots, draw.leaves) for roots in enumeration.run())
    kept = (g for g in graphs if belongs(subject, g) and (not both_ways or _reads_both_ways(g)))
    return Found(tuple(kept), enumeration.met)


def belongs(subject: Subject, graph: Graph) -> bool:
    """Whether it is a graph of the configuration and of no smaller one.

    Of two kernels both compute something, the last one does not only copy, and none loops over what
    it does not reduce: its blocks can share that out instead.
    """
    if len(subject.looped) == 1:
        return True
    hands = any(s.op == HAND for s in graph.steps)
    copies = any(graph.steps[o].op == HAND for o in graph.outputs)
    looped = {(s.kind.kernel, s.kind.looped) for s in graph.steps if s.kind.looped is not None}
    sums = [s for s in graph.steps if s.args and isinstance(s.attr, tuple)]
    return hands and not copies and looped <= {(s.kind.kernel, d) for s in sums for d in s.attr}


@cache
def brute_force(subject: Subject, *, both_ways: bool = False) -> Found:
    """Those that pass the field test. Asks no search."""
    found = candidates(subject, both_ways=both_ways)
    verified = [g for g in found.graphs if _is_program(subject, g)]
    return Found(tuple(verified), found.met)


def audit(subject: Subject) -> Report:
    """Every graph that brute force finds, looked up in the search."""
    found = brute_force(subject)
    report = Report(subject, found.met, len(found.graphs))
    factored = searched(subject, "factored")
    others = [g for g in found.graphs if not factored.contains(g)]
    report.contained = len(found.graphs) - len(others)
    rivals = list(factored.derivations())
    report.unmet = list(_unmet(subject, found.graphs, rivals))
    if others:
        _explain(report, others, rivals)
    return report


def audit_both_ways(subject: Subject) -> Report:
    """Graphs that read a looped dimension whole as well, which no configuration does: derivations
    of the same configuration, or of the one without loops, must beat all of them.
    """
    found = brute_force(subject, both_ways=True)
    report = Report(subject, found.met, len(found.graphs))
    pools = [searched(s, r) for s in (subject, replace(subject, looped=((),))) for r in RINGS]
    judge = Judge(subject, [g for pool in pools for g in pool.derivations()])
    for graph in found.graphs:
        if judge.is_beaten(graph):
            report.beaten["both ways"] = report.beaten.get("both ways", 0) + 1
        else:
            report.missing.append(str(graph))
    return report


def _explain(report: Report, graphs: Sequence[Graph], rivals: Sequence[Graph]) -> None:
    """Enter what the pool of the factored ring does not contain."""
    judge = Judge(report.subject, rivals)
    expanded: OneKernel | TwoKernels | None = None
    for graph in graphs:
        reason = judge.reason(graph)
        if reason is not None:
            report.beaten[reason] = report.beaten.get(reason, 0) + 1
            continue
        expanded = expanded or searched(report.subject, "expanded")
        if expanded.contains(graph):
            report.expanded += 1
        else:
            lost = str(graph) in CASES[report.subject.name].lost
            (report.lost if lost else report.missing).append(str(graph))


def _is_program(subject: Subject, graph: Graph) -> bool:
    ugraph = ugraph_of(subject.program, graph)
    return field_test(subject.program, ugraph, trials=_TRIALS, seed=_SEED).equal


def _reads_both_ways(graph: Graph) -> bool:
    loops = dict.fromkeys(s.kind.looped for s in graph.steps)
    return any(
        not s.args and s.kind.looped is None and any(d in loops for d in s.kind.dims)
        for s in graph.steps
    )


def _unmet(subject: Subject, graphs: Sequence[Graph], rivals: Sequence[Graph]) -> Iterator[str]:
    """Derivations within the vocabulary that are not among the graphs."""
    spoken = {(o.op, o.attr) for o in subject.vocabulary}
    known = {spelling(g) for g in graphs}
    leaves = {n.attr for n in subject.program.nodes if not n.args}
    for rival in rivals:
        said = all((s.op, s.attr) in spoken if s.args else s.attr in leaves for s in rival.steps)
        if said and belongs(subject, rival) and spelling(rival) not in known:
            yield str(rival)
