"""The graph level: saturate an operator graph with substitutions, extract the cheapest one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mirage_py.networks.ir.graph import Graph
from mirage_py.search.networks.absorption import absorptions
from mirage_py.search.networks.compositions import compositions
from mirage_py.search.networks.costs import LibraryCall, NetworkCosts
from mirage_py.search.networks.egraph import EGraph
from mirage_py.search.networks.extraction.extract import extract
from mirage_py.search.networks.extraction.greedy import greedy
from mirage_py.search.networks.extraction.kernels import selection_us
from mirage_py.search.networks.extraction.problem import reachable
from mirage_py.search.networks.folding import folding
from mirage_py.search.networks.groups import fewer_groups
from mirage_py.search.networks.parts import ChangedPart, changed_parts
from mirage_py.search.networks.program_egraph import (
    add_program,
    constant_classes,
    library_calls,
    problem_of,
)
from mirage_py.search.networks.proved_rules import by_rules
from mirage_py.search.networks.saturate import Application, Limits, Saturation, applied
from mirage_py.search.networks.siblings import sibling_places, stacked_places
from mirage_py.search.networks.substitution import Substitution
from mirage_py.targets import Target

# Microseconds of operators of libraries, by their signatures.
Measure = Callable[[Sequence[LibraryCall]], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Step:
    """A substitution that the result is built on: how often, why it is right, and its proof."""

    rule: str
    times: int
    why: str
    proof: str

    def __str__(self) -> str:
        return f"{self.times} x {self.rule}: {self.why} [{self.proof}]"


@dataclass(frozen=True, slots=True)
class NetworkResult:
    """``graph`` computes what ``program`` does, in ``after_us`` where that takes ``before_us``.

    ``bound`` says what stopped saturation, ``extraction`` who extracted, ``parts`` what is new.
    """

    program: Graph
    graph: Graph
    before_us: float
    after_us: float
    steps: tuple[Step, ...]
    parts: tuple[ChangedPart, ...]
    rounds: int
    nodes: int
    bound: str
    extraction: str

    @property
    def speedup(self) -> float:
        """How many times faster, by the costs."""
        return self.before_us / self.after_us if self.after_us else 1.0


def optimize_network(
    program: Graph,
    target: Target,
    *,
    substitutions: Sequence[Substitution] | None = None,
    limits: Limits | None = None,
    measure: Measure | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> NetworkResult:
    """The cheapest graph that substitutions make of a program; never one that costs more.

    ``measure`` times operators of libraries, by their signatures, where the model does not do.
    ``should_stop`` ends saturation, and with it the search; what was found until then counts.
    """
    bounds, costs = limits or Limits(), NetworkCosts(target)
    folded = folding()
    given = by_rules(program) if substitutions is None else substitutions
    composed = compositions()
    proved = (rule for rule in given if not rule.merges)
    rules = (*folded, *composed, *fewer_groups(), *absorptions(), *proved)
    egraph = EGraph()
    add_program(egraph, program)
    found = Saturation(
        egraph, rules, bounds, should_stop, lambda graph: constant_classes(graph, program)
    )
    # Factors go into weights first: what is merged afterwards are products of these weights.
    # Siblings are of what comes out, and again of what compositions make of that: where these do
    # not pay, the others are there.
    for rules_of_stage in (folded, composed):
        found.run(lambda rule, stage=rules_of_stage: rule in stage)  # type: ignore[misc]
        network = problem_of(program, egraph, costs)
        chosen = greedy(network.problem, should_stop)
        found.apply_to(sibling_places(egraph, network.used(chosen), given))
    network = problem_of(program, egraph, costs)
    found.apply_to(stacked_places(egraph, network.used(greedy(network.problem, should_stop))))
    found.run()
    if measure is not None and not should_stop():
        costs = NetworkCosts(target, measure(library_calls(program, egraph, costs)))
    network = problem_of(program, egraph, costs)
    problem = network.problem
    own = reachable(problem, problem.start)
    assert own is not None, "a program has no circle"
    best = extract(problem, bounds.solver, should_stop)
    before_us = selection_us(problem, own)
    if best.time_us >= before_us:
        return NetworkResult(
            program, program, before_us, before_us, (), (),
            found.rounds, egraph.nodes, found.bound, best.how,
        )  # fmt: skip
    graph = network.graph_of(best.selection)
    parts = changed_parts(program, graph, egraph, network.constant)
    steps = _steps(applied(found, [node for _, node in network.used(best.selection)]))
    return NetworkResult(
        program, graph, before_us, best.time_us, steps, parts,
        found.rounds, egraph.nodes, found.bound, best.how,
    )  # fmt: skip


def _steps(applications: Sequence[Application]) -> tuple[Step, ...]:
    """Each substitution once."""
    counts: dict[str, list[Substitution]] = {}
    for application in applications:
        rule = application.substitution
        counts.setdefault(rule.name, []).append(rule)
    return tuple(Step(n, len(rules), rules[0].why, rules[0].proof) for n, rules in counts.items())
