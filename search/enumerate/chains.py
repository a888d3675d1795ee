"""µGraphs of two kernels, with library calls between them.

The second kernel is closed over the inputs and all candidates that a first kernel could store for
it (candidates.py). Its derivations say which candidates they read; then the first kernel is
extracted for exactly these. In a split variant the second kernel combines the partial results, and
reads nothing that is split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product

from mirage_py.reasons import Code, reason
from mirage_py.search.closure.derivation import Derivation, derivation_from
from mirage_py.search.closure.hits import hits, holds
from mirage_py.search.closure.pool import Pool
from mirage_py.search.clusters.clusters import clustered
from mirage_py.search.enumerate.assemble import Assembler, First, Second, made_values
from mirage_py.search.enumerate.candidates import Candidates, Producer, given_value, library_us
from mirage_py.search.enumerate.draws import Draw
from mirage_py.search.enumerate.libraries import lies_as
from mirage_py.search.extract.extract import extract, stages_worth_a_search
from mirage_py.search.extract.family import Family, Origin
from mirage_py.search.extract.loops import arrangement_us, arrangements, loops_in_vain, shared_out
from mirage_py.search.extract.lower import output_stores
from mirage_py.search.extract.task import SearchLimits
from mirage_py.search.extract.work import BlockWork, waves
from mirage_py.search.space.spaces import Configuration, configurations
from mirage_py.search.space.variants import Variant
from mirage_py.ugraph.field import DivisionByZero
from mirage_py.ugraph.ir.node import Access

# First kernels per set of intermediates: with other loops, or other derivations.
_MAX_FIRSTS = 4
# Of more candidates than this the cost of each is that of greedy choices, without an extraction.
_EXTRACTED = 128


class TwoKernels:
    """The search for µGraphs of two kernels, on one draw of the inputs."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.task = draw.task
        self.candidates = Candidates(draw)
        self.assembler = Assembler(self.task.variant, self.candidates)
        self._firsts: dict[tuple[int, ...], list[First]] = {}
        self._made: dict[tuple[First, int], dict[int, int]] = {}
        self._families_of: dict[Derivation, tuple[Family, ...]] = {}
        readable = self.candidates.readable()
        firsts_for = self._firsts_for if len(readable) <= _EXTRACTED else self._greedy_firsts
        self._made_us = {c.name: self._making_us(c.name, firsts_for) for c in readable}

    @staticmethod
    def configurations(variant: Variant, limits: SearchLimits) -> Iterator[Configuration]:
        """Those of the second kernel.

        In a split variant it reads nothing that is split, so there is nothing to loop over.
        """
        unsplit = (variant.split, *variant.splits) if variant.split else ()
        return configurations(variant.program, limits.max_loop_dims, unsplit=unsplit)

    def explore(self, configuration: Configuration) -> None:
        """Every family with this second kernel goes to the outcome."""
        readable = self.candidates.readable()
        if not readable:
            return
        given = [c.given for c in readable]
        pool = self.draw.close(configuration, given, self.task.variant.splits)
        for derivation in self._derivations(configuration, pool):
            if self.draw.stopped():
                return
            if loops_in_vain(derivation):
                continue
            for family in self._families(configuration, derivation):
                self.draw.outcome.add(family)

    def explore_library_ends(self) -> None:
        """µGraphs whose last kernel is a library call that gives the one output."""
        program, outcome = self.task.program, self.draw.outcome
        if len(self.draw.targets) > 1:
            return
        (end,) = output_stores(program)
        for candidate in self.candidates.by_name.values():
            if candidate.call is None or candidate.value != self.draw.targets[0]:
                continue
            if not lies_as(program.tensors[end.tensor], end, candidate.dims):
                continue
            names = (candidate.name,)
            for first in self._firsts_for(self.candidates.to_make(names)):
                if self.draw.stopped():
                    return
                if not self._holds(first, names, None):
                    outcome.refuted += 1
                    made = first.origin.derivation if first else "inputs"
                    outcome.reasons.append(reason(Code.REFUTED, "library call at the end", made))
                    continue
                for family in self.assembler.families(first, names, None):
                    outcome.add(family)

    # -- second kernels ---------------------------------------------------------------------------

    def _derivations(self, configuration: Configuration, pool: Pool) -> Iterator[Derivation]:
        task, outcome, found = self.task, self.draw.outcome, False
        names = [c.name for c in self.candidates.readable()]
        work = BlockWork(task.program, given_us=self._made_us)
        for roots in hits(task.program, pool, self.draw.targets):
            found = True
            for stages in stages_worth_a_search(pool, roots):
                extraction = extract(pool, roots, work, task.limits.epilogue, stages, names)
                if extraction.cut:
                    where = f"second kernel, {configuration}, {stages} stages"
                    outcome.reasons.append(reason(Code.EXTRACTION_CUT, where))
                for _, derivation in extraction.derivations:
                    if any(derivation.steps[o].args for o in derivation.outputs):
                        yield derivation
        outcome.counter.hits += found

    def _read(self, derivation: Derivation) -> tuple[str, ...]:
        """The candidates that a second kernel reads."""
        read = (s.attr.tensor for s in derivation.steps if isinstance(s.attr, Access))
        return tuple(dict.fromkeys(t for t in read if t in self.candidates.by_name))

    # -- first kernels ----------------------------------------------------------------------------

    def _firsts_for(self, values: tuple[int, ...]) -> list[First | None]:
        """The cheapest first kernels that store all of these values, in a few configurations.

        None is the first kernel where there is nothing to store.
        """
        if not values:
            return [None]
        if values not in self._firsts:
            able = islice(self._groups_of_firsts(values), self.task.limits.makers)
            self._firsts[values] = _cheapest_of_each(list(able))[:_MAX_FIRSTS]
        return [*self._firsts[values]]

    def _groups_of_firsts(self, values: tuple[int, ...]) -> Iterator[list[First]]:
        """The kernels of each producer that earlier ones lack: a kernel that loops over one
        dimension is found again where loops over another one are allowed as well.
        """
        known: dict[tuple[Derivation, str], None] = {}
        for producer in self.candidates.producers_of(values):
            fresh: list[First] = []
            for first in self._extract(producer, values):
                key = (first.origin.derivation, first.arrangement.name)
                if key not in known:
                    known[key] = None
                    fresh.append(first)
            if fresh:
                yield fresh

    def _making_us(
        self, name: str, firsts_for: Callable[[tuple[int, ...]], Sequence[First | None]]
    ) -> float:
        """The cost of computing only a candidate, for each block of the reader.

        A first kernel has its own number of blocks, so what one of them costs says little.
        """
        program = self.task.program
        candidate = self.candidates.by_name[name]
        firsts = firsts_for(self.candidates.to_make([name]))
        costs = [f.cost_us * self._waves(shared_out(f.origin.derivation)) for f in firsts if f]
        made_us = min(costs, default=0.0)
        if candidate.call is not None:
            made_us += library_us(program, candidate.call) * self._waves(candidate.dims)
        outputs = dict.fromkeys(d for o in program.outputs for d in program.nodes[o.node].dims)
        return made_us / max(1.0, waves(program, tuple(outputs)))

    def _waves(self, gridded: Sequence[str]) -> float:
        """At least one, but for splits: there can be as many of them as fill the target."""
        per_sm = waves(self.task.program, gridded)
        return per_sm if self.task.variant.splits else max(1.0, per_sm)

    def _extract(self, producer: Producer, values: tuple[int, ...]) -> Iterator[First]:
        limits = self.task.limits.prologue
        roots = next(product(*(producer.stores[v] for v in values)))
        for stages in stages_worth_a_search(producer.pool, roots):
            choices = producer.choices_at(stages)
            extraction = extract(
                producer.pool, roots, producer.work, limits, stages, choices=choices
            )
            for _, derivation in extraction.derivations:
                if not loops_in_vain(derivation):
                    yield from self._arranged(producer, values, roots, derivation)

    def _greedy_firsts(self, values: tuple[int, ...]) -> list[First]:
        """For each of the first few producers the kernel that greedy choices make."""
        found: list[First] = []
        for producer in self.candidates.producers_of(values)[: self.task.limits.makers]:
            roots = next(product(*(producer.stores[v] for v in values)))
            ways = producer.choices_at(producer.max_stage).bounds.greedy_ways(roots)
            derivation = derivation_from(producer.pool, ways, roots)
            found += self._arranged(producer, values, roots, derivation)
        return found

    def _arranged(
        self,
        producer: Producer,
        values: tuple[int, ...],
        roots: Sequence[int],
        derivation: Derivation,
    ) -> Iterator[First]:
        work = BlockWork(self.task.program, gridded=shared_out(derivation))
        for arrangement in arrangements(derivation):
            cost_us = arrangement_us(derivation, arrangement, work)
            cost_us += sum(work.store_us(producer.pool[r].dims) for r in roots)
            origin = Origin(producer.configuration, arrangement.name, derivation)
            yield First(values, arrangement, origin, cost_us)

    # -- both -------------------------------------------------------------------------------------

    def _holds(self, first: First | None, names: Sequence[str], last: Derivation | None) -> bool:
        """Whether first and second kernel give the outputs in the other field as well.

        Without a second kernel, whether the one candidate is the output there.
        """
        for number, (values, targets) in enumerate(self.draw.checks):
            try:
                made = self._made_by(first, number)
                given = {n: given_value(self.candidates.by_name[n], made, values) for n in names}
            except DivisionByZero:
                return False
            if last is None:
                if tuple(given.values()) != targets:
                    return False
            elif not holds(last, values, targets, given):
                return False
        return True

    def _made_by(self, first: First | None, check: int) -> dict[int, int]:
        """What a first kernel stores over the inputs of one check."""
        if first is None:
            return {}
        if (first, check) not in self._made:
            self._made[first, check] = made_values(first, self.draw.checks[check][0])
        return self._made[first, check]

    def _families(self, configuration: Configuration, last: Derivation) -> tuple[Family, ...]:
        """All families with this second kernel.

        A configuration with one more loop finds those again that do not use it.
        """
        if last in self._families_of:
            return self._families_of[last]
        outcome, names = self.draw.outcome, self._read(last)
        found: list[Family] = []
        refuted = outcome.refuted
        seconds = self._seconds(configuration, last)
        for first in self._firsts_for(self.candidates.to_make(names)):
            if not self._holds(first, names, last):
                outcome.refuted += 1
                where = f"two kernels, {configuration}"
                outcome.reasons.append(reason(Code.REFUTED, where, last))
                continue
            for second in seconds:
                families = list(self.assembler.families(first, names, second))
                found += families
                if self.task.limits.max_cluster_blocks > 1:
                    found += (c for f in families if (c := clustered(f)) is not None)
        if outcome.refuted == refuted:
            self._families_of[last] = tuple(found)
        return tuple(found)

    def _seconds(self, configuration: Configuration, last: Derivation) -> list[Second]:
        work = BlockWork(self.task.program, gridded=shared_out(last))
        return [
            Second(a, Origin(configuration, a.name, last), arrangement_us(last, a, work))
            for a in arrangements(last)
        ]


def _cheapest_of_each(groups: Sequence[Sequence[First]]) -> list[First]:
    """The cheapest of every group, then the second ones, and so on: one kind of loop alone must
    not take all the places.
    """
    ranked = [sorted(group, key=lambda f: f.cost_us) for group in groups]
    ranks = [(rank, f.cost_us, f) for group in ranked for rank, f in enumerate(group)]
    return [f for _, _, f in sorted(ranks, key=lambda entry: entry[:2])]
