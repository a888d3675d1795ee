"""Choices of an extraction: the tensors that can be computed in several ways.

A tensor that can be made in one way is made with whatever needs it first. Between the choices that
remain there can be long chains of such tensors, and a search over choices passes them in one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mirage_py.search.closure.pool import Alternative
from mirage_py.search.extract.bounds import Bounds, Weights, bits_of, members_of


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to make a tensor, with all that is then settled. Sets of tensors are bits.

    ``way``        of this tensor
    ``needs``      tensors with several ways that it is made from, directly or through others
    ``makes``      this tensor, and those with one way that it is made from
    ``cost_us``    of its own step
    ``landmarks``  a bit for each way that is one, of all that it makes
    ``reads``      whether any of these reads a tensor that an earlier kernel stores
    """

    way: Alternative
    needs: int
    makes: int
    cost_us: float
    landmarks: int
    reads: bool


_NOTHING = (0, 0, 0, False)


class Choices:
    """The choices of a pool, by tensor. Tensors with one way have none of their own."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        ways = [
            [(w, cost) for w, cost in zip(ways, costs, strict=True) if bounds.can_be_made(w.args)]
            for ways, costs in zip(bounds.ways, bounds.costs, strict=True)
        ]
        self._only = [w[0] if len(w) == 1 else None for w in ways]
        self._settled: dict[int, tuple[int, int, int, bool]] = {}
        self._landmarks = 0
        self._step_us = Weights([w[1] if w is not None else 0.0 for w in self._only])
        self.of: list[tuple[Choice, ...]] = []
        for number, only in enumerate(self._only):
            here = [] if only is not None else [self._choice(number, *w) for w in ways[number]]
            self.of.append(tuple(c for c in here if not c.needs >> number & 1))

    def start(self, roots: Sequence[int]) -> tuple[int, int, int, bool]:
        """What the roots need and make before anything is chosen, their landmarks and ``reads``."""
        return self._all(roots)

    def made_us(self, made: int) -> float:
        """The cost of the tensors with one way among these."""
        return self._step_us.total(made)

    def ways(self, chosen: int, choices: dict[int, int]) -> dict[int, Alternative]:
        """How every chosen tensor is made."""
        ways: dict[int, Alternative] = {}
        for number in members_of(chosen):
            only = self._only[number]
            ways[number] = only[0] if only is not None else self.of[number][choices[number]].way
        return ways

    def _choice(self, number: int, way: Alternative, cost_us: float) -> Choice:
        needs, makes, landmarks, reads = self._all(way.args)
        landmarks |= self._landmark(way)
        reads |= self.bounds.reads_given(way)
        return Choice(way, needs, makes | 1 << number, cost_us, landmarks, reads)

    def _all(self, tensors: Iterable[int]) -> tuple[int, int, int, bool]:
        needs, makes, landmarks, reads = _NOTHING
        for number in tensors:
            more = self._settle(number)
            needs, makes = needs | more[0], makes | more[1]
            landmarks, reads = landmarks | more[2], reads or more[3]
        return needs, makes, landmarks, reads

    def _settle(self, number: int) -> tuple[int, int, int, bool]:
        """What making a tensor settles. Its ways are derivable, so this ends."""
        only = self._only[number]
        if only is None:
            return bits_of((number,)), 0, 0, False
        if number not in self._settled:
            choice = self._choice(number, *only)
            self._settled[number] = (choice.needs, choice.makes, choice.landmarks, choice.reads)
        return self._settled[number]

    def _landmark(self, way: Alternative) -> int:
        if not self.bounds.is_landmark(way):
            return 0
        self._landmarks += 1
        return 1 << self._landmarks - 1
