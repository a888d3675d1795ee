"""Families of a single kernel: configurations are closed, extracted, checked and lowered."""

from __future__ import annotations

from collections.abc import Iterator

from mirage_py.reasons import Code, reason
from mirage_py.search.closure.derivation import Derivation
from mirage_py.search.closure.hits import hits, holds
from mirage_py.search.closure.pool import Pool
from mirage_py.search.clusters.cluster_rows import shared_rows
from mirage_py.search.enumerate.draws import Draw
from mirage_py.search.extract.extract import extract, stages_worth_a_search
from mirage_py.search.extract.family import ONE_KERNEL, Family, Origin
from mirage_py.search.extract.loops import arrangement_us, arrangements
from mirage_py.search.extract.lower import lower, output_stores
from mirage_py.search.extract.task import SearchLimits
from mirage_py.search.extract.work import BlockWork
from mirage_py.search.space.spaces import Configuration, configurations
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph


class OneKernel:
    """The search for µGraphs of one kernel, on one draw of the inputs."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.task = draw.task
        self.work = BlockWork(draw.task.program)

    def explore(self, configuration: Configuration) -> None:
        """Every family of one configuration goes to the outcome."""
        outcome = self.draw.outcome
        pool = self.draw.close(configuration)
        for derivation in self._derivations(configuration, pool):
            if self.draw.stopped():
                return
            if all(holds(derivation, *check) for check in self.draw.checks):
                self._add_families(configuration, derivation)
            else:
                outcome.refuted += 1
                outcome.reasons.append(reason(Code.REFUTED, configuration, derivation))

    @staticmethod
    def configurations(program: Program, limits: SearchLimits) -> Iterator[Configuration]:
        """Every choice of dimensions to loop over; none is on the grid, as all are reduced here."""
        return configurations(program, limits.max_loop_dims)

    def _derivations(self, configuration: Configuration, pool: Pool) -> Iterator[Derivation]:
        task, outcome, found = self.task, self.draw.outcome, False
        for roots in hits(task.program, pool, self.draw.targets):
            found = True
            for stages in stages_worth_a_search(pool, roots):
                extraction = extract(pool, roots, self.work, task.limits.extraction, stages)
                if extraction.cut:
                    where = f"{configuration}, {stages} stages"
                    outcome.reasons.append(reason(Code.EXTRACTION_CUT, where))
                yield from (derivation for _, derivation in extraction.derivations)
        outcome.counter.hits += found

    def _add_families(self, configuration: Configuration, derivation: Derivation) -> None:
        program = self.task.program
        for arrangement in arrangements(derivation):
            block = lower(program, derivation, arrangement, output_stores(program))
            cost_us = arrangement_us(derivation, arrangement, self.work)
            origin = Origin(configuration, arrangement.name, derivation)
            family = Family(UGraph(program, (block,)), cost_us, ONE_KERNEL, (origin,))
            self.draw.outcome.add(family)
            if self.task.limits.max_cluster_blocks > 1:
                for shared in shared_rows(family):
                    self.draw.outcome.add(shared)
