"""Renamings of inputs: graphs that differ in the names of inputs of one shape alone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations, product

from mirage_py.search.substitutions.enumeration import COMMUTE, Enumeration

# A graph by its last operator, as a place in the universe, and its operands, as numbers.
Key = tuple[int, tuple[int, ...]]


class Renamings:
    """What becomes of graphs when inputs of one shape change places."""

    def __init__(self, enumeration: Enumeration) -> None:
        self._of = enumeration
        self._order = {o: n for n, o in enumerate(enumeration.universe.operators)}
        self._numbers: dict[Key, int] = {}
        sorts: dict[object, list[int]] = {}
        for number in enumeration.at(0):
            sorts.setdefault(enumeration.values[number].shape, []).append(number)
        self._maps: list[dict[int, int]] = []
        for chosen in product(*map(permutations, sorts.values())):
            pairs = zip(sorts.values(), chosen, strict=True)
            self._maps.append({a: b for old, new in pairs for a, b in zip(old, new, strict=True)})

    def extend(self, level: int) -> None:
        """Learn the graphs of a level; those of the levels before are known."""
        numbers = self._of.at(level)
        self._numbers |= {self.key(n): n for n in numbers}
        for n in numbers if level else ():
            for map_, image in zip(self._maps, self.images(self.key(n)), strict=True):
                if image in self._numbers:
                    map_[n] = self._numbers[image]

    def key(self, number: int) -> Key:
        """A graph by what it is made of."""
        value = self._of.values[number]
        return (self._order.get((value.op, value.attrs), -1), value.args)

    def images(self, key: Key) -> list[Key | None]:
        """A graph under each renaming; None where it is none of those enumerated."""
        commutes = self._of.universe.operators[key[0]][0] in COMMUTE
        values, found = self._of.values, list[Key | None]()
        for map_ in self._maps:
            args = tuple([map_.get(a, -1) for a in key[1]])
            if commutes and args[0] > args[1] and values[args[1]].shape:
                args = args[::-1]
            found.append(None if -1 in args else (key[0], args))
        return found

    def smallest(self, key: Key) -> Key:
        """The first of all images."""
        return min(image for image in self.images(key) if image)

    def pair(self, first: int, other: int, level: int) -> tuple[Key, Key]:
        """A pair of graphs, of which the second is of this level, under the best renaming."""
        ends: Iterable[Key | None] = (
            self.images(self.key(first))
            if self._of.level(first) == level
            else [(-1, (map_[first],)) if first in map_ else None for map_ in self._maps]
        )
        others = self.images(self.key(other))
        return min((b, a) for a, b in zip(ends, others, strict=True) if a and b)
