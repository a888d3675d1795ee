"""The cheapest derivations that a pool holds: best-first search over partial derivations.

The pool is a graph of alternatives (or) with operands (and), and may be cyclic. A partial
derivation has chosen how to make some tensors and owes the others that these need. Two numbers
judge it, and in both a shared tensor counts once:

  expected  what it costs if the owed tensors are made as greedy choices would: the order of the
            search
  bound     the cheapest operator of every tensor that no completion can do without: never above
            the cost

What cannot beat the derivations found is dropped by its bound, so when the queue runs dry they
are the cheapest; when the allowance of expansions runs out first, they are what the order
brought. One extraction is made for each number of loops: the costs of steps alone do not show that
another loop reads its operands again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mirage_py.search.bounds import Bounds, bits_of, members_of
from mirage_py.search.derivation import Derivation, derivation_from
from mirage_py.search.loops import arrangement_us, arrangements
from mirage_py.search.pool import Pool
from mirage_py.search.work import WorkModel


@dataclass(frozen=True, slots=True)
class ExtractionLimits:
    """How many derivations are wanted.

    ``derivations``  in all
    ``alike``        that make the same contractions in the same way in as many loops: they differ
                     in where a scalar is applied, and the cheapest few say it all
    ``slack``        what costs more than the cheapest times this is not wanted
    ``expansions``   partial derivations that may be extended before the search gives up
    """

    derivations: int = 16
    alike: int = 2
    slack: float = 2.0
    expansions: int = 2_000


@dataclass(frozen=True, slots=True)
class Extraction:
    """Derivations with their costs, cheapest first; ``cut`` if the expansions ran out."""

    derivations: tuple[tuple[float, Derivation], ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class _Partial:
    """``chosen`` and ``owed`` are sets of tensors, as bits; ``choice`` the last choice made."""

    cost_us: float
    chosen: int
    owed: int
    choice: tuple[int, int] | None
    parent: _Partial | None

    def choices(self) -> dict[int, int]:
        """Number of the alternative chosen for each tensor."""
        found: dict[int, int] = {}
        at: _Partial | None = self
        while at is not None and at.choice is not None:
            found[at.choice[0]] = at.choice[1]
            at = at.parent
        return found


def extract(
    pool: Pool, roots: Sequence[int], work: WorkModel, limits: ExtractionLimits, max_stage: int
) -> Extraction:
    """The cheapest derivations of all roots together, of at most ``max_stage`` stages."""
    return _Extractor(pool, tuple(roots), work, limits, max_stage).run()


def stages_worth_a_search(pool: Pool, roots: Sequence[int]) -> range:
    """Numbers of stages that give different derivations."""
    return range(max(pool[r].stage for r in roots), max(t.stage for t in pool.tensors) + 1)


class _Extractor:
    def __init__(
        self,
        pool: Pool,
        roots: tuple[int, ...],
        work: WorkModel,
        limits: ExtractionLimits,
        max_stage: int,
    ) -> None:
        self.pool = pool
        self.roots = roots
        self.work = work
        self.limits = limits
        self.max_stage = max_stage
        self.bounds = Bounds(pool, work, max_stage)
        self.ways = self.bounds.ways

    def run(self) -> Extraction:
        found: list[tuple[float, int, Derivation]] = []
        alike: dict[tuple[object, ...], int] = {}
        queue = [(0.0, 0, 0, _Partial(0.0, 0, bits_of(self.roots), None, None))]
        pushed = expansions = 0
        while queue and expansions < self.limits.expansions:
            partial = heapq.heappop(queue)[-1]
            choices = partial.choices()
            least_us = partial.cost_us + self.bounds.bound_us(partial.chosen, partial.owed)
            if least_us >= self._enough_us(found):
                continue
            if self._is_settled(partial.owed) and self._is_full(alike, choices):
                continue
            if self._stages(choices) > self.max_stage:
                continue
            if not partial.owed:
                self._finish(choices, found, alike)
                continue
            expansions += 1
            for child in self._children(partial, choices):
                pushed += 1
                # Of equal ones the one with more choices made: it is nearer to its end.
                order = (self._expected_us(child), -child.chosen.bit_count(), pushed)
                heapq.heappush(queue, (*order, child))
        return Extraction(tuple((cost, d) for cost, _, d in found), bool(queue))

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
        choices: Mapping[int, int],
        found: list[tuple[float, int, Derivation]],
        alike: dict[tuple[object, ...], int],
    ) -> None:
        """Enter a derivation at its real cost, which counts what several loops compute again."""
        ways = {n: self.ways[n][c] for n, c in choices.items()}
        derivation = derivation_from(self.pool, ways, self.roots)
        key = (*self._contractions(choices), max(derivation.stages, default=0))
        if alike.get(key, 0) >= self.limits.alike:
            return
        alike[key] = alike.get(key, 0) + 1
        cost_us = min(arrangement_us(derivation, a, self.work) for a in arrangements(derivation))
        found.append((cost_us, len(found), derivation))
        found.sort(key=lambda entry: entry[:2])
        del found[self.limits.derivations :]

    def _children(self, partial: _Partial, choices: Mapping[int, int]) -> Iterator[_Partial]:
        """The derivation with one more tensor chosen, in every way that closes no cycle."""
        number = self._next(partial.owed)
        users = self._users(number, choices)
        for position, way in enumerate(self.ways[number]):
            if any(users >> a & 1 for a in way.args):
                continue
            chosen = partial.chosen | 1 << number
            owed = (partial.owed | bits_of(way.args)) & ~chosen
            cost_us = partial.cost_us + self.bounds.costs[number][position]
            yield _Partial(cost_us, chosen, owed, (number, position), partial)

    def _next(self, owed: int) -> int:
        """Which tensor to choose for: one without a choice, else one that settles contractions."""

        def rank(number: int) -> tuple[bool, bool, int]:
            single = len(self.ways[number]) == 1
            return (not single, not self.bounds.contracted[number], -number)

        return min(members_of(owed), key=rank)

    def _users(self, number: int, choices: Mapping[int, int]) -> int:
        """The chosen tensors that are made from this one, near or far, and itself (bits)."""
        users = 1 << number
        growing = True
        while growing:
            growing = False
            for user, choice in choices.items():
                if users >> user & 1:
                    continue
                if any(users >> a & 1 for a in self.ways[user][choice].args):
                    users |= 1 << user
                    growing = True
        return users

    def _stages(self, choices: Mapping[int, int]) -> int:
        """The least number of stages that a completion of the choices has."""
        known: dict[int, int] = {}

        def stage(number: int) -> int:
            if number not in choices:
                return self.pool[number].stage
            if number not in known:
                looped = self.pool[number].looped
                way = self.ways[number][choices[number]]
                known[number] = max(
                    (stage(a) + self.pool.is_later(looped, a) for a in way.args),
                    default=self.pool[number].stage,
                )
            return known[number]

        return max(stage(root) for root in self.roots)

    # -- variety ----------------------------------------------------------------------------------

    def _contractions(self, choices: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        ops = {n: self.ways[n][c].op for n, c in choices.items()}
        return tuple(sorted((n, c) for n, c in choices.items() if ops[n] == "matmul"))

    def _is_settled(self, owed: int) -> bool:
        """Whether every contraction of the completions is known."""
        return not any(self.bounds.contracted[n] for n in members_of(owed))

    def _is_full(self, alike: Mapping[tuple[object, ...], int], choices: Mapping[int, int]) -> bool:
        """Whether enough derivations have these contractions, whatever their loops."""
        contractions = self._contractions(choices)
        known = sum(count for key, count in alike.items() if key[:-1] == contractions)
        return bool(contractions) and known >= 2 * self.limits.alike
