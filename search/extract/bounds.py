"""Bounds for partial derivations: a lower bound on the remaining cost, and a greedy estimate.

Sets of tensors are integers with a bit for each member: unions and differences are one operation,
and a shared tensor counts once.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from mirage_py.search.closure.pool import Alternative, Pool
from mirage_py.search.extract.work import WorkModel
from mirage_py.ugraph.ir.node import Access

_ORDER = 1 if sys.byteorder == "little" else -1
_BLOCK = (1 << 256) - 1


@dataclass(frozen=True, slots=True)
class _Greedy:
    """For each tensor the members of one derivation, and its own step there: which of its ways, and
    what that costs.
    """

    members: list[int]
    step_us: list[float]
    way: list[int]


class _Sums(dict[int, float]):
    """The sum of the weights of each set of sixteen members that was asked for."""

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__()
        self._weights = weights

    def __missing__(self, bits: int) -> float:
        self[bits] = total = sum(self._weights[n] for n in members_of(bits))
        return total


class Weights:
    """Adds up a weight for each member of a set, sixteen members at a time, and passes over 256 at
    once of which there are none.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._sums = [_Sums(weights[n : n + 16]) for n in range(0, len(weights), 16)]

    def total(self, bits: int) -> float:
        """The sum over a set."""
        total = 0.0
        place = 0
        while bits:
            if block := bits & _BLOCK:
                # The most significant sixteen come first where bytes do.
                chunks = memoryview(block.to_bytes(32, sys.byteorder)).cast("H")[::_ORDER]
                for number, chunk in enumerate(chunks, place):
                    if chunk:
                        total += self._sums[number][chunk]
            bits >>= 256
            place += 16
        return total


class Bounds:
    """The alternatives of a pool that fit in ``max_stage`` stages, with their costs."""

    def __init__(
        self, pool: Pool, work: WorkModel, max_stage: int, given: Sequence[str] = ()
    ) -> None:
        self.pool = pool
        self.given = dict.fromkeys(given)
        self.work = work
        self.max_stage = max_stage
        self.ways = [
            [w for w in t.alternatives if pool.earliest_stage(t.looped, w) <= max_stage]
            for t in pool.tensors
        ]
        self.costs = [[self._step_us(n, w) for w in ways] for n, ways in enumerate(self.ways)]
        self._least = Weights([min(costs, default=0.0) for costs in self.costs])

    def bound_us(self, chosen: int, owed: int) -> float:
        """The cheapest operator of every tensor that no completion can do without."""
        return self._least.total(union(self._needed, members_of(owed)) & ~chosen)

    def expected_us(self, chosen: int, owed: int) -> float:
        """What the owed tensors cost if each is made as it would be alone."""
        rest = union(self._greedy.members, members_of(owed)) & ~chosen
        return self._greedy_us.total(rest)

    def greedy_ways(self, tensors: Sequence[int]) -> dict[int, Alternative]:
        """How greedy choices make all of these, which have a derivation."""
        made = members_of(union(self._greedy.members, tensors))
        return {n: self.ways[n][self._greedy.way[n]] for n in made}

    @cached_property
    def _greedy_us(self) -> Weights:
        return Weights(self._greedy.step_us)

    def reads_given(self, way: Alternative) -> bool:
        """Whether it reads a tensor that an earlier kernel stores."""
        return isinstance(way.attr, Access) and way.attr.tensor in self.given

    def is_landmark(self, way: Alternative) -> bool:
        """Whether it is one of the choices by which derivations are distinguished."""
        return way.op == "matmul" or self.reads_given(way)

    @cached_property
    def landmark_set(self) -> int:
        """The tensors of which a derivation may choose between landmarks."""
        return bits_of(n for n, holds in enumerate(self._reaching(self.is_landmark)) if holds)

    @cached_property
    def reading_set(self) -> int:
        """The tensors of which some derivation may read a given tensor."""
        return bits_of(n for n, holds in enumerate(self._reaching(self.reads_given)) if holds)

    def can_be_made(self, tensors: Sequence[int]) -> bool:
        """Whether all of them have a derivation in so many stages."""
        return all(self._greedy.members[n] for n in tensors)

    def _reaching(self, holds: Callable[[Alternative], bool]) -> list[bool]:
        """For each tensor whether some derivation of it has an alternative for which it holds."""
        possible = [any(holds(w) for w in ways) for ways in self.ways]
        changed = True
        while changed:
            changed = False
            for number, ways in enumerate(self.ways):
                if not possible[number] and any(possible[a] for w in ways for a in w.args):
                    possible[number] = changed = True
        return possible

    def _step_us(self, number: int, way: Alternative) -> float:
        tensor = self.pool[number]
        dims = dict.fromkeys([*tensor.dims, *(d for a in way.args for d in self.pool[a].dims)])
        loop = tensor.looped
        if way.op.startswith("accum_"):
            assert isinstance(way.attr, tuple)
            loop = str(way.attr[0])
        return self.work.step_us(way.op, way.attr, tuple(dims), loop)

    @cached_property
    def _needed(self) -> list[int]:
        """For each tensor the set that is in every derivation of it: a greatest fixpoint."""
        everything = (1 << len(self.pool)) - 1
        needed = [everything] * len(self.pool)
        changed = True
        while changed:
            changed = False
            for number, ways in enumerate(self.ways):
                common = everything
                for way in ways:
                    common &= union(needed, way.args)
                common |= 1 << number
                changed |= common != needed[number]
                needed[number] = common
        return needed

    @cached_property
    def _greedy(self) -> _Greedy:
        """A derivation of every tensor, cheapest first, each from settled ones (Knuth 1977)."""
        users: list[list[tuple[int, int]]] = [[] for _ in self.costs]
        missing: dict[tuple[int, int], int] = {}
        queue: list[tuple[float, int, int, int]] = []
        for number, ways in enumerate(self.ways):
            for position, way in enumerate(ways):
                args = dict.fromkeys(way.args)
                missing[number, position] = len(args)
                for a in args:
                    users[a].append((number, position))
                if not args:
                    queue.append((self.costs[number][position], number, position, 1 << number))
        heapq.heapify(queue)
        greedy = _Greedy([0] * len(self.pool), [0.0] * len(self.pool), [0] * len(self.pool))
        while queue:
            _, number, position, members = heapq.heappop(queue)
            if greedy.members[number]:
                continue
            greedy.members[number] = members
            greedy.step_us[number] = self.costs[number][position]
            greedy.way[number] = position
            for user, choice in users[number]:
                missing[user, choice] -= 1
                if missing[user, choice] or greedy.members[user]:
                    continue
                below = union(greedy.members, self.ways[user][choice].args)
                below_us = sum(greedy.step_us[n] for n in members_of(below))
                total_us = self.costs[user][choice] + below_us
                heapq.heappush(queue, (total_us, user, choice, below | 1 << user))
        return greedy


def members_of(bits: int) -> Iterator[int]:
    """The members of a set, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def bits_of(members: Iterable[int]) -> int:
    """The set with these members."""
    bits = 0
    for n in members:
        bits |= 1 << n
    return bits


def union(sets: Sequence[int], numbers: Iterable[int]) -> int:
    """The union of the sets with these numbers."""
    bits = 0
    for n in numbers:
        bits |= sets[n]
    return bits
