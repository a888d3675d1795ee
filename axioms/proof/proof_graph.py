"""The proof graph: an e-graph that can say why two terms are equal.

Every term that is entered keeps a number of its own, however many are merged with it. Each merge
joins two trees of a forest by one edge with its reason: a law, or equal operands. Two numbers are
in one class if and only if they are in one tree, and the path between them is the proof
(Nieuwenhuis and Oliveras, 2007; Flatt and others, 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mirage_py.axioms.proof.goal import range_of
from mirage_py.axioms.terms.term import REDUCTIONS, Term, subterms


class Entry(NamedTuple):
    """A term: an operator over terms with these numbers."""

    op: str
    attr: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """The law that makes the left end of an edge its right end, and what its variables were.

    Two entries with equal operands have no reason but that: ``law`` is empty.
    """

    law: str = ""
    terms: tuple[tuple[str, int], ...] = ()
    axes: tuple[tuple[str, str], ...] = ()


class Edge(NamedTuple):
    """One step along the forest; backwards if ``forward`` is False."""

    start: int
    end: int
    reason: Reason
    forward: bool


EQUAL_OPERANDS = Reason()


class ProofGraph:
    """Terms, the classes they are in, and why."""

    def __init__(self, axes: Sequence[str], leaf_axes: Mapping[str, Sequence[str]]) -> None:
        self.bits = {axis: 1 << n for n, axis in enumerate(axes)}
        # One more bit: not known to be a size or a product of sizes.
        self.no_size = 1 << len(axes)
        # Each iteration sees a tile of its own length.
        self._ranges = {axis: self.bits.get(range_of(axis), 0) for axis in axes}
        self._leaf_masks = {
            name: sum(self.bits[a] for a in own) | self.no_size for name, own in leaf_axes.items()
        }
        self.entries: list[Entry] = []
        self._numbers: dict[Entry, int] = {}
        self._parent: list[int] = []
        # Of each class, by its root: its entries, the entries over it, and the axes on which its
        # value may depend. Each of its terms gives an upper bound; all of them hold.
        self.members: dict[int, list[int]] = {}
        self._users: dict[int, list[int]] = {}
        self._masks: dict[int, int] = {}
        self._written: list[int] = []
        self._canonical: dict[Entry, int] = {}
        self._stale: list[int] = []
        self._edges: list[list[Edge]] = []

    # -- terms ------------------------------------------------------------------------------------

    def add_term(self, term: Term) -> int:
        """The number of a term."""
        done: dict[Term, int] = {}
        for t in subterms(term):
            done[t] = self.add(Entry(t.op, t.attr, tuple(done[a] for a in t.args)))
        return done[term]

    def add(self, entry: Entry) -> int:
        """The number of an entry; it is put where equal operands put it."""
        known = self._numbers.get(entry)
        if known is not None:
            return known
        number = len(self.entries)
        self._numbers[entry] = number
        self.entries.append(entry)
        self._parent.append(number)
        self._edges.append([])
        self.members[number] = [number]
        self._users[number] = []
        self._masks[number] = self._mask(entry, [self._masks[self.find(a)] for a in entry.args])
        self._written.append(self._mask(entry, [self._written[a] for a in entry.args]))
        for a in dict.fromkeys(map(self.find, entry.args)):
            self._users[a].append(number)
        same = self._canonical.setdefault(self._key(number), number)
        if same != number:
            self.merge(same, number, EQUAL_OPERANDS)
        return number

    def lookup(self, entry: Entry) -> int | None:
        """The class of an entry over these classes, if there is one."""
        key = Entry(entry.op, entry.attr, tuple(map(self.find, entry.args)))
        found = self._canonical.get(key)
        return None if found is None else self.find(found)

    def term(self, number: int) -> Term:
        """The term that was entered under a number."""
        done: dict[int, Term] = {}
        stack = [number]
        while stack:
            entry = self.entries[stack[-1]]
            missing = [a for a in entry.args if a not in done]
            if missing:
                stack.extend(missing)
                continue
            done[stack.pop()] = Term(entry.op, entry.attr, tuple(done[a] for a in entry.args))
        return done[number]

    @property
    def size(self) -> int:
        """How many entries with different operands there are."""
        return len(self._canonical)

    # -- classes ----------------------------------------------------------------------------------

    def find(self, number: int) -> int:
        """The root of the class of an entry."""
        parent = self._parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def merge(self, left: int, right: int, reason: Reason) -> bool:
        """Put two entries in one class; ``reason`` leads from left to right."""
        a, b = self.find(left), self.find(right)
        if a == b:
            return False
        self._edges[left].append(Edge(left, right, reason, True))
        self._edges[right].append(Edge(right, left, reason, False))
        if len(self.members[a]) + len(self._users[a]) < len(self.members[b]) + len(self._users[b]):
            a, b = b, a
        self._parent[b] = a
        self.members[a] += self.members.pop(b)
        # Who stands over b may now have the operands of another, and over either fewer axes.
        both = self._masks[a] & self._masks.pop(b)
        self._stale += self._users[b]
        if both != self._masks[a]:
            self._stale += self._users[a]
            self._masks[a] = both
        self._users[a] += self._users.pop(b)
        return True

    def rebuild(self) -> None:
        """Merge what has equal operands by now, until nothing has."""
        while self._stale:
            todo, self._stale = list(dict.fromkeys(self._stale)), []
            for number in todo:
                same = self._canonical.setdefault(self._key(number), number)
                if same != number:
                    self.merge(same, number, EQUAL_OPERANDS)
                self._tighten(number)
        live: dict[Entry, int] = {}
        for number in self._canonical.values():
            live.setdefault(self._key(number), number)
        self._canonical = live

    def by_operator(self) -> dict[int, dict[str, list[int]]]:
        """For each class the entries with different operands, by operator."""
        found: dict[int, dict[str, list[int]]] = {}
        for number in self._canonical.values():
            of_class = found.setdefault(self.find(number), {})
            of_class.setdefault(self.entries[number].op, []).append(number)
        return found

    def _key(self, number: int) -> Entry:
        op, attr, args = self.entries[number]
        return Entry(op, attr, tuple(map(self.find, args)))

    def _tighten(self, number: int) -> None:
        root, entry = self.find(number), self.entries[number]
        mask = self._mask(entry, [self._masks[self.find(a)] for a in entry.args])
        if self._masks[root] & mask != self._masks[root]:
            self._masks[root] &= mask
            self._stale += self._users[root]

    # -- axes -------------------------------------------------------------------------------------

    def _mask(self, entry: Entry, below: Sequence[int]) -> int:
        if entry.op == "leaf":
            return self._leaf_masks[entry.attr]
        mask = 0
        for other in below:
            mask |= other
        if entry.op in REDUCTIONS:
            mask &= ~self.bits[entry.attr]
        if entry.op in REDUCTIONS or entry.op == "size":
            mask |= self._ranges.get(entry.attr, 0)
        return mask if entry.op in ("size", "mul") else mask | self.no_size

    def mask(self, number: int) -> int:
        """The axes on which the value of an entry may depend, by any term of its class."""
        return self._masks[self.find(number)]

    def free_of(self, number: int, bit: int) -> int | None:
        """An equal entry that is written without an axis, if one can be made."""
        return self._free(number, bit, ())

    def _free(self, number: int, bit: int, above: tuple[int, ...]) -> int | None:
        root = self.find(number)
        for candidate in (number, *self.members[root]):
            if not self._written[candidate] & bit:
                return candidate
        if self._masks[root] & bit or root in above:
            return None
        for candidate in tuple(self.members[root]):
            entry = self.entries[candidate]
            if self._mask(entry, [self.mask(a) for a in entry.args]) & bit:
                continue
            args = [self._free(a, bit, (*above, root)) for a in entry.args]
            if all(a is not None for a in args):
                return self.add(entry._replace(args=tuple(a for a in args if a is not None)))
        return None

    def as_size(self, number: int) -> int | None:
        """An equal entry that is written as a size or a product of sizes."""
        for candidate in (number, *self.members[self.find(number)]):
            if not self._written[candidate]:
                return candidate
        return None

    # -- proofs -----------------------------------------------------------------------------------

    def path(self, start: int, end: int) -> Iterator[Edge]:
        """The edges from one entry to another of its class."""
        came: dict[int, Edge | None] = {start: None}
        queue = [start]
        for here in queue:
            if here == end:
                break
            for edge in self._edges[here]:
                if edge.end not in came:
                    came[edge.end] = edge
                    queue.append(edge.end)
        way: list[Edge] = []
        edge_in = came[end]
        while edge_in is not None:
            way.append(edge_in)
            edge_in = came[edge_in.start]
        return reversed(way)
