"""Searches one program for all of its kernels that are a single block graph."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from mirage_py.axioms.class_table import ClassTable
from mirage_py.axioms.law import Ring
from mirage_py.axioms.saturate import MAX_NODES, ROUNDS, saturate
from mirage_py.errors import MirageError
from mirage_py.search.abstraction import Abstraction, abstract
from mirage_py.search.closure import Closure, Ground
from mirage_py.search.counters import Counter, SearchCounters
from mirage_py.search.derivation import Derivation
from mirage_py.search.extract import ExtractionLimits, extract, stages_worth_a_search
from mirage_py.search.hits import draw, hits, holds
from mirage_py.search.loops import arrangement_us, arrangements
from mirage_py.search.lower import lower
from mirage_py.search.pool import Pool
from mirage_py.search.spaces import Configuration, configurations, representative_space
from mirage_py.search.values import Values
from mirage_py.search.work import BlockWork, WorkModel
from mirage_py.ugraph.field import FIELDS, DivisionByZero
from mirage_py.ugraph.program import Program
from mirage_py.ugraph.ugraph import UGraph

# Draws of the inputs before a closure leaves out what divides by zero.
_CLOSURE_DRAWS = 3


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
class SearchResult:
    """``families`` are sorted by cost, cheapest first.

    ``exhausted``  the space of the ring was gone through: saturation and every closure ended by
                   themselves
    ``classes``    of abstract expressions; ``saturated`` if the laws had nothing to add
    ``reasons``    why there is less than could be: bounds that were hit, hits that did not survive
                   the second field, what the search cannot take
    """

    families: tuple[Family, ...]
    counters: SearchCounters
    exhausted: bool
    classes: int
    saturated: bool
    reasons: tuple[str, ...]
    seconds: float


def search(
    program: Program,
    *,
    seed: int = 0,
    limits: SearchLimits | None = None,
    work: WorkModel | None = None,
) -> SearchResult:
    """All families found, none if there are none. The same seed gives the same result everywhere.

    Does not raise: a program that has no abstract form or no value in a field gives no family and
    a reason.
    """
    started = time.perf_counter()
    run = _Search(program, seed, limits or SearchLimits(), work or BlockWork(program))
    try:
        run.run()
    except (MirageError, DivisionByZero) as error:
        run.reasons.append(str(error))
        run.exhausted = False
    return SearchResult(
        families=tuple(sorted(run.families.values(), key=lambda f: f.cost_us)),
        counters=run.counter.freeze(),
        exhausted=run.exhausted,
        classes=run.table.classes if run.table else 0,
        saturated=run.table is not None and run.table.saturated,
        reasons=tuple(run.reasons),
        seconds=time.perf_counter() - started,
    )


class _Search:
    def __init__(self, program: Program, seed: int, limits: SearchLimits, work: WorkModel) -> None:
        self.program = program
        self.seed = seed
        self.limits = limits
        self.work = work
        self.counter = Counter()
        self.reasons: list[str] = []
        self.exhausted = True
        self.table: ClassTable | None = None
        # By digest: two configurations can arrive at one graph.
        self.families: dict[str, Family] = {}

    def run(self) -> None:
        abstraction = abstract(self.program)
        self.table = saturate(
            abstraction.roots,
            abstraction.leaf_axes,
            axes=abstraction.axes,
            ring=self.limits.ring,
            rounds=self.limits.rounds,
            max_nodes=self.limits.max_nodes,
        )
        if not self.table.saturated:
            self.exhausted = False
            self.reasons.append(f"saturation stopped at the bound on {self.table.bound}")
        checks, truths = draw(
            self.program, representative_space(self.program, 1), FIELDS[1], self.seed
        )
        for configuration, pool, targets in self._closures(self.table, abstraction):
            for cost_us, derivation in self._derivations(configuration, pool, targets):
                if not holds(derivation, checks, truths):
                    self.reasons.append(
                        f"refuted in the second field ({configuration}): {derivation}"
                    )
                    continue
                self._add_families(configuration, cost_us, derivation)
        self.counter.evaluations += checks.evaluations
        if not self.counter.hits:
            self.reasons.append("no configuration reaches all outputs")

    def _closures(
        self, table: ClassTable, abstraction: Abstraction
    ) -> Iterator[tuple[Configuration, Pool, tuple[int, ...]]]:
        """Every configuration's pool and the values of the outputs in it."""
        space = representative_space(self.program)
        every = tuple(configurations(self.program, self.limits.max_loop_dims))
        for attempt in range(_CLOSURE_DRAWS):
            values, targets = draw(self.program, space, FIELDS[0], self.seed + attempt)
            ground = Ground(
                table,
                abstraction.leaves,
                tuple(dict.fromkeys(frozenset(n.dims) for n in self.program.nodes)),
                self.limits.max_loops,
                self.limits.max_tensors,
                skip_divisions=attempt == _CLOSURE_DRAWS - 1,
            )
            counter = Counter()
            try:
                pools = [self._close(ground, values, c, counter) for c in every]
            except DivisionByZero:
                continue
            self.counter = counter
            self.counter.evaluations = values.evaluations
            return ((c, pool, targets) for c, pool in zip(every, pools, strict=True))
        raise AssertionError("the last draw skips divisions by zero")

    def _close(
        self, ground: Ground, values: Values, configuration: Configuration, counter: Counter
    ) -> Pool:
        closure = Closure(ground, values, configuration, counter)
        if not closure.run():
            self.exhausted = False
            self.reasons.append(
                f"the pool outgrew {self.limits.max_tensors} tensors ({configuration})"
            )
        counter.configurations += 1
        counter.tensors += len(closure.pool)
        return closure.pool

    def _derivations(
        self, configuration: Configuration, pool: Pool, targets: tuple[int, ...]
    ) -> Iterator[tuple[float, Derivation]]:
        found = False
        for roots in hits(self.program, pool, targets):
            found = True
            for stages in stages_worth_a_search(pool, roots):
                extraction = extract(pool, roots, self.work, self.limits.extraction, stages)
                if extraction.cut:
                    self.reasons.append(
                        f"extraction stopped at its bound ({configuration}, {stages} stages)"
                    )
                yield from extraction.derivations
        self.counter.hits += found

    def _add_families(
        self, configuration: Configuration, cost_us: float, derivation: Derivation
    ) -> None:
        for arrangement in arrangements(derivation):
            cost_us = arrangement_us(derivation, arrangement, self.work)
            ugraph = lower(self.program, derivation, arrangement)
            family = Family(ugraph, cost_us, configuration, arrangement.name, derivation)
            known = self.families.setdefault(ugraph.digest, family)
            if family.cost_us < known.cost_us:
                self.families[ugraph.digest] = family
