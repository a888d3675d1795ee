"""One program in one configuration: what brute force finds, and where the search has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from completeness.containment import Index, spelling
from completeness.derivations import derivations
from completeness.draws import drawn
from completeness.enumeration import Enumeration
from completeness.graphs import Graph, ugraph_of
from completeness.programs import CASES, Looped
from completeness.reasons import Judge
from completeness.search_pools import Searched, searched
from completeness.terms import Terms

from mirage_py.axioms.law import RINGS
from mirage_py.ugraph.program import Program
from mirage_py.verify.field_test import field_test

_SEED = 1
_TRIALS = 4


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

    name: str
    looped: Looped
    most: int
    met: int
    verified: int
    contained: int = 0
    expanded: int = 0
    beaten: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unmet: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        loops = ", ".join(self.looped) or "-"
        beaten = ", ".join(f"{n} {reason}" for reason, n in sorted(self.beaten.items())) or "-"
        return (
            f"{self.name:<16} {loops:<5} {self.most:>2} {self.met:>11,} {self.verified:>8} "
            f"{self.contained:>9} {self.expanded:>8} {len(self.lost):>4} {len(self.missing):>7}  "
            f"{beaten}"
        )


HEADER = (
    f"{'program':<16} {'loops':<5} {'N':>2} {'met':>11} {'verified':>8} {'contained':>9} "
    f"{'expanded':>8} {'lost':>4} {'missing':>7}  beaten"
)


def candidates(name: str, looped: Looped, most: int, *, both_ways: bool = False) -> Found:
    """Every graph of up to ``most`` operators that gives the outputs on one random input."""
    case = CASES[name]
    draw, outputs = drawn(case.make(), looped, _SEED, both_ways=both_ways)
    terms = Terms(draw, outputs, case.vocabulary(looped))
    enumeration = Enumeration(terms, len(draw.leaves), len(outputs), most)
    graphs = tuple(terms.graph(roots, draw.leaves) for roots in enumeration.run())
    return Found(graphs, enumeration.met)


@cache
def brute_force(name: str, looped: Looped, most: int, both_ways: bool = False) -> Found:
    """Those that pass the field test. Asks no search; ``both_ways`` keeps only what reads so."""
    program = CASES[name].make()
    found = candidates(name, looped, most, both_ways=both_ways)
    graphs = [g for g in found.graphs if _reads_both_ways(g) or not both_ways]
    return Found(tuple(g for g in graphs if _is_program(program, g)), found.met)


def audit(name: str, looped: Looped, most: int) -> Report:
    """Every graph that brute force finds, looked up in the search."""
    program = CASES[name].make()
    found = brute_force(name, looped, most)
    report = Report(name, looped, most, found.met, len(found.graphs))
    factored = searched(program, looped, "factored")
    index = Index(factored.pool)
    report.contained = sum(index.contains(g) for g in found.graphs)
    rivals = list(_derivations(factored, most))
    report.unmet = list(_unmet(name, looped, found.graphs, rivals))
    others = [g for g in found.graphs if not index.contains(g)]
    if others:
        _explain(report, others, Judge(program, looped, rivals))
    return report


def audit_both_ways(name: str, looped: Looped, most: int) -> Report:
    """Graphs that read a looped dimension whole as well, which no configuration does: derivations
    of the same configuration, or of the one without loops, must beat all of them.
    """
    program = CASES[name].make()
    found = brute_force(name, looped, most, both_ways=True)
    report = Report(name, looped, most, found.met, len(found.graphs))
    pools = [searched(program, loops, ring) for loops in (looped, ()) for ring in RINGS]
    judge = Judge(program, looped, [g for pool in pools for g in _derivations(pool, most)])
    for graph in found.graphs:
        if judge.is_beaten(graph):
            report.beaten["both ways"] = report.beaten.get("both ways", 0) + 1
        else:
            report.missing.append(str(graph))
    return report


def _explain(report: Report, graphs: Sequence[Graph], judge: Judge) -> None:
    """Enter what the pool of the factored ring does not contain."""
    expanded: Index | None = None
    for graph in graphs:
        reason = judge.reason(graph)
        if reason is not None:
            report.beaten[reason] = report.beaten.get(reason, 0) + 1
            continue
        if expanded is None:
            expanded = Index(searched(judge.program, report.looped, "expanded").pool)
        if expanded.contains(graph):
            report.expanded += 1
        else:
            lost = str(graph) in CASES[report.name].lost
            (report.lost if lost else report.missing).append(str(graph))


def _is_program(program: Program, graph: Graph) -> bool:
    return field_test(program, ugraph_of(program, graph), trials=_TRIALS, seed=_SEED).equal


def _reads_both_ways(graph: Graph) -> bool:
    loops = dict.fromkeys(s.kind.looped for s in graph.steps)
    return any(
        not s.args and s.kind.looped is None and any(d in loops for d in s.kind.dims)
        for s in graph.steps
    )


def _derivations(pool: Searched, most: int) -> Iterator[Graph]:
    for roots in pool.roots:
        yield from derivations(pool.pool, roots, most)


def _unmet(
    name: str, looped: Looped, graphs: Sequence[Graph], rivals: Sequence[Graph]
) -> Iterator[str]:
    """Derivations within the vocabulary that are not among the graphs."""
    spoken = {(o.op, o.attr) for o in CASES[name].vocabulary(looped)}
    known = {spelling(g) for g in graphs}
    leaves = {n.attr for n in CASES[name].make().nodes if not n.args}
    for rival in rivals:
        said = all((s.op, s.attr) in spoken if s.args else s.attr in leaves for s in rival.steps)
        if said and spelling(rival) not in known:
            yield str(rival)
