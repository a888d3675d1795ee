"""One draw of random inputs: every configuration closed, extracted, checked and lowered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mirage_py.axioms.class_table import ClassTable
from mirage_py.axioms.law import Ring
from mirage_py.axioms.saturate import MAX_NODES, ROUNDS
from mirage_py.search.abstraction import Abstraction
from mirage_py.search.closure import Closure, Ground
from mirage_py.search.counters import Counter
from mirage_py.search.derivation import Derivation
from mirage_py.search.extract import ExtractionLimits, extract, stages_worth_a_search
from mirage_py.search.hits import draw, hits, holds
from mirage_py.search.loops import arrangement_us, arrangements
from mirage_py.search.lower import lower
from mirage_py.search.pool import Pool
from mirage_py.search.spaces import (
    Configuration,
    configurations,
    has_pieces,
    representative_space,
    shortest_space,
)
from mirage_py.search.values import Values
from mirage_py.search.work import WorkModel
from mirage_py.ugraph.field import FIELDS
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import UGraph


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Bounds of a search; all are counts, so a result does not depend on the machine.

    ``ring``           which laws: "factored" (products are never multiplied out) or "expanded"
    ``rounds``         of saturation; ``max_nodes`` of the e-graph
    ``max_loop_dims``  dimensions that loops of one kernel may go over, one loop after the other
    ``max_loops``      loops that may need one another's results; a layer norm and a linear need 3
    ``max_tensors``    in the pool of one configuration
    ``extraction``     how many derivations of each configuration, and how long to look for them
    """

    ring: Ring = "factored"
    rounds: int = ROUNDS
    max_nodes: int = MAX_NODES
    max_loop_dims: int = 2
    max_loops: int = 3
    max_tensors: int = 3000
    extraction: ExtractionLimits = field(default_factory=ExtractionLimits)


@dataclass(frozen=True, slots=True)
class Family:
    """A kernel with open tiles, and where it comes from.

    ``cost_us`` ranks families of one program and means nothing else. ``arrangement`` is "fused"
    or "split".
    """

    ugraph: UGraph
    cost_us: float
    configuration: Configuration
    arrangement: str
    derivation: Derivation


@dataclass(frozen=True, slots=True)
class Task:
    """A program with its terms and their classes, and how to look at it."""

    program: Program
    form: Abstraction
    table: ClassTable
    limits: SearchLimits
    work: WorkModel


@dataclass(slots=True)
class Outcome:
    """What one draw found. ``families`` by digest: two configurations can arrive at one graph.

    ``refuted`` counts derivations that failed in the second field: two tensors of a pool agreed by
    coincidence.
    """

    families: dict[str, Family] = field(default_factory=dict)
    counter: Counter = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    refuted: int = 0
    exhausted: bool = True

    def give_up(self, reason: str) -> None:
        """Something was not gone through."""
        self.reasons.append(reason)
        self.exhausted = False


def explore(task: Task, seed: int, *, skip_divisions: bool) -> Outcome:
    """Search with one draw of inputs. Raises DivisionByZero where another one is needed."""
    return _Exploration(task, seed, skip_divisions).run()


def _checks(program: Program, seed: int) -> list[tuple[Values, tuple[int, ...]]]:
    """Another field, other extents, other inputs: what holds here as well is no coincidence."""
    spaces = [representative_space(program, 1)]
    if has_pieces(program):
        spaces.append(shortest_space(program))
    return [draw(program, space, FIELDS[1], seed) for space in spaces]


class _Exploration:
    def __init__(self, task: Task, seed: int, skip_divisions: bool) -> None:
        self.task = task
        self.outcome = Outcome()
        program, limits = task.program, task.limits
        self.values, self.targets = draw(program, representative_space(program), FIELDS[0], seed)
        self.checks = _checks(program, seed)
        self.ground = Ground(
            task.table,
            task.form.leaves,
            tuple(dict.fromkeys(frozenset(n.dims) for n in program.nodes)),
            limits.max_loops,
            limits.max_tensors,
            skip_divisions,
        )

    def run(self) -> Outcome:
        counter = self.outcome.counter
        for configuration in configurations(self.task.program, self.task.limits.max_loop_dims):
            pool = self._close(configuration)
            for derivation in self._derivations(configuration, pool):
                if all(holds(derivation, *check) for check in self.checks):
                    self._add_families(configuration, derivation)
                else:
                    self.outcome.refuted += 1
                    self.outcome.reasons.append(f"refuted ({configuration}): {derivation}")
        done = [self.values, *(values for values, _ in self.checks)]
        counter.evaluations = sum(values.evaluations for values in done)
        if not counter.hits:
            self.outcome.reasons.append("no configuration reaches all outputs")
        return self.outcome

    def _close(self, configuration: Configuration) -> Pool:
        counter = self.outcome.counter
        closure = Closure(self.ground, self.values, configuration, counter)
        if not closure.run():
            most = self.task.limits.max_tensors
            self.outcome.give_up(f"the pool outgrew {most} tensors ({configuration})")
        counter.configurations += 1
        counter.tensors += len(closure.pool)
        return closure.pool

    def _derivations(self, configuration: Configuration, pool: Pool) -> Iterator[Derivation]:
        task, found = self.task, False
        for roots in hits(task.program, pool, self.targets):
            found = True
            for stages in stages_worth_a_search(pool, roots):
                extraction = extract(pool, roots, task.work, task.limits.extraction, stages)
                if extraction.cut:
                    where = f"({configuration}, {stages} stages)"
                    self.outcome.reasons.append(f"extraction stopped at its bound {where}")
                yield from (derivation for _, derivation in extraction.derivations)
        self.outcome.counter.hits += found

    def _add_families(self, configuration: Configuration, derivation: Derivation) -> None:
        families = self.outcome.families
        for arrangement in arrangements(derivation):
            cost_us = arrangement_us(derivation, arrangement, self.task.work)
            ugraph = lower(self.task.program, derivation, arrangement)
            family = Family(ugraph, cost_us, configuration, arrangement.name, derivation)
            known = families.setdefault(ugraph.digest, family)
            if cost_us < known.cost_us:
                families[ugraph.digest] = family
