"""Extraction of the cheapest derivations of a pool, by best-first search.

The pool is an AND-OR graph: alternatives (or) with operands (and), possibly cyclic. A partial
derivation has chosen alternatives for some tensors and owes the operands that these need. Two
numbers rank it, and in both a shared tensor counts once:

  expected  the cost if the owed tensors are computed as greedy choices would: the search order
  bound     the cheapest operator of every tensor that each completion needs: never above the cost

A partial derivation whose bound cannot beat the derivations found is dropped. When the queue is
empty, the derivations found are the cheapest; if the allowance of expansions is used up first, they
are the best seen. There is one extraction for each number of loops, because the costs of steps
alone do not show that another loop reads its operands again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mirage_py.search.closure.derivation import Derivation, derivation_from
from mirage_py.search.closure.pool import Pool
from mirage_py.search.extract.bounds import Bounds
from mirage_py.search.extract.choices import Choice, Choices
from mirage_py.search.extract.loops import arrangement_us, arrangements
from mirage_py.search.extract.work import WorkModel

# Derivations with the same landmarks that are looked at, in multiples of those wanted.
_TRIED = 3
_TRIED_PLAIN = 12


@dataclass(frozen=True, slots=True)
class ExtractionLimits:
    """How many derivations are wanted.

    ``derivations``  in all
    ``alike``        that make the same contractions in the same way, from the same intermediates,
                     in as many loops: they differ in where a scalar is applied, and the cheapest
                     few say it all
    ``slack``        what costs more than the cheapest times this is not wanted
    ``expansions``   partial derivations that may be extended by a choice before the search gives up
    """

    derivations: int = 16
    alike: int = 2
    slack: float = 2.0
    expansions: int = 1_000


@dataclass(frozen=True, slots=True)
class Extraction:
    """Derivations with their costs, cheapest first; ``cut`` if the expansions ran out."""

    derivations: tuple[tuple[float, Derivation], ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class _Partial:
    """``chosen`` and ``owed`` are sets of tensors, as bits; owed are such with several ways.

    ``choices`` has the number of the choice for each of those. ``landmarks`` are the ways that
    distinguish derivations, as bits.
    """

    cost_us: float
    chosen: int
    owed: int
    choices: dict[int, int]
    landmarks: int
    reads: bool


def extract(
    pool: Pool,
    roots: Sequence[int],
    work: WorkModel,
    limits: ExtractionLimits,
    max_stage: int,
    given: Sequence[str] = (),
    choices: Choices | None = None,
) -> Extraction:
    """The cheapest derivations of all roots together, of at most ``max_stage`` stages.

    With ``given``, names of tensors in memory, only derivations that read one of them. ``choices``
    are those of the same pool, costs and stages, if there are some already.
    """
    choices = choices or Choices(Bounds(pool, work, max_stage, given))
    return _Extractor(choices, tuple(roots), limits, must_read=bool(given)).run()


def stages_worth_a_search(pool: Pool, roots: Sequence[int]) -> range:
    """Numbers of stages that give different derivations: only the least where nothing that the
    roots are made of can be made at a later stage than its first.
    """
    least = max(pool[r].stage for r in roots)
    seen = dict.fromkeys(roots)
    todo = list(seen)
    while todo:
        tensor = pool[todo.pop()]
        for way in tensor.alternatives:
            if pool.earliest_stage(tensor.looped, way) > tensor.stage:
                return range(least, max(t.stage for t in pool.tensors) + 1)
            todo += [a for a in way.args if a not in seen]
            seen.update(dict.fromkeys(way.args))
    return range(least, least + 1)


class _Alike:
    """Counts derivations by their landmarks, so that not all wanted ones are of one kind."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._tried: dict[int, int] = {}
        self._admitted: dict[tuple[int, int], int] = {}

    def is_full(self, landmarks: int) -> bool:
        """Whether enough derivations with these landmarks have been looked at."""
        # Without landmarks, derivations differ only in where they reduce.
        most = _TRIED * self.limit if landmarks else _TRIED_PLAIN * self.limit
        return self._tried.get(landmarks, 0) >= most

    def admits(self, landmarks: int, stages: int) -> bool:
        """Count one more; False if there are enough of the same number of stages."""
        self._tried[landmarks] = self._tried.get(landmarks, 0) + 1
        known = self._admitted.get((landmarks, stages), 0)
        if known >= self.limit:
            return False
        self._admitted[landmarks, stages] = known + 1
        return True


class _Extractor:
    def __init__(
        self, choices: Choices, roots: tuple[int, ...], limits: ExtractionLimits, *, must_read: bool
    ) -> None:
        self.choices = choices
        self.bounds = choices.bounds
        self.pool = self.bounds.pool
        self.work = self.bounds.work
        self.roots = roots
        self.limits = limits
        self.must_read = must_read

    def run(self) -> Extraction:
        found: list[tuple[float, int, Derivation]] = []
        alike = _Alike(self.limits.alike)
        queue = [(0.0, 0, 0, self._first())] if self.bounds.can_be_made(self.roots) else []
        pushed = expansions = 0
        while queue and expansions < self.limits.expansions:
            partial = heapq.heappop(queue)[-1]
            if self._is_settled(partial.owed) and alike.is_full(partial.landmarks):
                continue
            least_us = partial.cost_us + self.bounds.bound_us(partial.chosen, partial.owed)
            if least_us >= self._enough_us(found):
                continue
            if not partial.owed:
                self._finish(partial, found, alike)
                continue
            expansions += 1
            for child in self._children(partial):
                if not child.reads and not child.owed & self.bounds.reading_set:
                    continue
                pushed += 1
                # Of equal ones the one with more choices made: it is nearer to its end.
                order = (self._expected_us(child), -child.chosen.bit_count(), pushed)
                heapq.heappush(queue, (*order, child))
        return Extraction(tuple((cost, d) for cost, _, d in found), bool(queue))

    def _first(self) -> _Partial:
        owed, chosen, landmarks, reads = self.choices.start(self.roots)
        cost_us = self.choices.made_us(chosen)
        return _Partial(cost_us, chosen, owed, {}, landmarks, reads or not self.must_read)

    def _expected_us(self, partial: _Partial) -> float:
        return partial.cost_us + self.bounds.expected_us(partial.chosen, partial.owed)

    def _enough_us(self, found: Sequence[tuple[float, int, Derivation]]) -> float:
        """The cost from which on a derivation is not wanted."""
        if not found:
            return float("inf")
        most_us = found[0][0] * self.limits.slack
        full = len(found) == self.limits.derivations
        return min(most_us, found[-1][0]) if full else most_us

    def _finish(
        self,
        partial: _Partial,
        found: list[tuple[float, int, Derivation]],
        alike: _Alike,
    ) -> None:
        """Enter a derivation at its real cost, which counts what several loops compute again."""
        ways = self.choices.ways(partial.chosen, partial.choices)
        derivation = derivation_from(self.pool, ways, self.roots)
        stages = max(derivation.stages, default=0)
        if stages > self.bounds.max_stage or not alike.admits(partial.landmarks, stages):
            return
        cost_us = min(arrangement_us(derivation, a, self.work) for a in arrangements(derivation))
        found.append((cost_us, len(found), derivation))
        found.sort(key=lambda entry: entry[:2])
        del found[self.limits.derivations :]

    def _children(self, partial: _Partial) -> Iterator[_Partial]:
        """The derivation with one more tensor chosen, in every way that closes no cycle."""
        number = self._next(partial.owed)
        for position, choice in enumerate(self.choices.of[number]):
            if self._closes_cycle(number, choice, partial.choices):
                continue
            made_us = self.choices.made_us(choice.makes & ~partial.chosen)
            chosen = partial.chosen | choice.makes
            yield _Partial(
                partial.cost_us + choice.cost_us + made_us,
                chosen,
                (partial.owed | choice.needs) & ~chosen,
                {**partial.choices, number: position},
                partial.landmarks | choice.landmarks,
                partial.reads or choice.reads,
            )

    def _closes_cycle(self, number: int, choice: Choice, choices: Mapping[int, int]) -> bool:
        """Whether the tensor is among those its operands are made from, as far as is chosen."""
        seen = choice.needs
        todo = seen
        while todo and not seen >> number & 1:
            lowest = todo & -todo
            tensor = lowest.bit_length() - 1
            todo ^= lowest
            if tensor in choices:
                more = self.choices.of[tensor][choices[tensor]].needs & ~seen
                seen |= more
                todo |= more
        return bool(seen >> number & 1)

    def _next(self, owed: int) -> int:
        """Which tensor to choose for: the latest that settles landmarks, or the latest of all."""
        return (owed & self.bounds.landmark_set or owed).bit_length() - 1

    # -- variety ----------------------------------------------------------------------------------

    def _is_settled(self, owed: int) -> bool:
        """Whether every landmark of the completions is known."""
        return not owed & self.bounds.landmark_set
