"""All block graphs of a vocabulary up to a number of operators, and those that give the outputs.

A graph is a set of terms that is closed under operands. Its operators are written in the one order
in which their ranks rise: the rank of an operator is the positions of its operands, the later one
first, then the operator itself. (Taking the least available rank first gives such an order, and an
operator that becomes available later has a later operand, hence a higher rank: there is exactly
one.) So each graph is met once. Source of the idea: Mirage (OSDI'25), section 4.1.

What is cut is cut by counting alone: operators that are left over must all be used, and each value
must be able to reach the kind of an output, in the number of operators that remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from completeness.kinds import HAND
from completeness.terms import NONE, Bools, Ints, Terms

_BATCH = 1 << 19


@dataclass(frozen=True)
class States:
    """Graphs with equally many operators, one in each row.

    ``terms``  the operators in their order, and ``kinds`` of these
    ``rank``   of the last one
    ``unused`` bits of the operators that no other one uses
    """

    terms: Ints
    kinds: Ints
    rank: Ints
    unused: Ints

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def size(self) -> int:
        """Operators of each graph."""
        return self.terms.shape[1]

    def taken(self, rows: Ints | Bools) -> States:
        """Some of the rows."""
        return States(self.terms[rows], self.kinds[rows], self.rank[rows], self.unused[rows])

    @classmethod
    def joined(cls, parts: Sequence[States]) -> States:
        """All rows of all parts."""
        columns = zip(*((p.terms, p.kinds, p.rank, p.unused) for p in parts), strict=True)
        return cls(*map(np.concatenate, columns))


@dataclass(frozen=True)
class Extensions:
    """One more operator for some rows of states. ``used`` has the bits of its operands."""

    rows: Ints
    op: Ints
    left: Ints
    right: Ints
    rank: Ints
    used: Ints
    kind: Ints

    @property
    def columns(self) -> tuple[Ints, ...]:
        """All of it."""
        return (self.rows, self.op, self.left, self.right, self.rank, self.used, self.kind)

    def taken(self, some: Ints | Bools) -> Extensions:
        """Some of them."""
        return Extensions(*(column[some] for column in self.columns))

    @classmethod
    def joined(cls, parts: Sequence[Extensions]) -> Extensions:
        """All of all parts."""
        return cls(*map(np.concatenate, zip(*(p.columns for p in parts), strict=True)))


class Enumeration:
    """Every graph of up to ``most`` operators over the leaves 0 .. ``leaves`` - 1 of ``terms``."""

    def __init__(self, terms: Terms, leaves: int, outputs: int, most: int) -> None:
        self.terms = terms
        self.leaves = leaves
        self.outputs = outputs
        self.most = most
        # Graphs, complete or not, that were looked at.
        self.met = 0
        self._results = terms.results()
        self._distances = terms.distances()
        self._joint = terms.joint_distances()

    def run(self) -> Iterator[tuple[int, ...]]:
        """The term of each output, for every graph of which all operators are used."""
        none = np.zeros(1, np.int64)
        empty = np.zeros((1, 0), np.int64)
        states = States(empty, empty, none, none)
        for _ in range(self.most - 2):
            grown = [*self._grown(states)]
            if not grown:
                return
            states = States.joined(grown)
            yield from self._complete(states)
        if self.most == 1:
            yield from self._finished(states)
            return
        # The last but one operators are many: their terms are not kept.
        mark = self.terms.mark()
        for last in self._grown(states):
            yield from self._complete(last)
            yield from self._finished(last)
            self.terms.forget_since(mark)

    # -- growing ---------------------------------------------------------------------------------

    def _grown(self, states: States) -> Iterator[States]:
        """All states with one more operator that can still become complete graphs, in batches."""
        remaining = self.most - states.size - 1
        mine = 1 << states.size
        for e in self._extensions(states):
            kinds = np.column_stack([states.kinds[e.rows], e.kind])
            unused = (states.unused[e.rows] & ~e.used) | mine
            done = self._done(states)[e.rows] | np.where(self._distances[e.kind] == 0, mine, 0)
            keep = self._is_hopeful(kinds, unused & ~done, remaining)
            e, kinds, unused = e.taken(keep), kinds[keep], unused[keep]
            term = self.terms.make(e.op, e.left, e.right)
            terms = np.column_stack([states.terms[e.rows], term])
            grown = States(terms, kinds, e.rank, unused).taken(term != NONE)
            open_ = grown.unused & ~self._done(grown)
            grown = grown.taken(self._is_hopeful(grown.kinds, open_, remaining))
            self.met += len(grown)
            yield grown

    def _extensions(self, states: States) -> Iterator[Extensions]:
        """Rows of states with an operator of a higher rank, in batches."""
        batch: list[Extensions] = []
        for part in self._candidates(states):
            batch.append(part)
            if sum(len(p.rows) for p in batch) > _BATCH:
                yield Extensions.joined(batch)
                batch = []
        if batch:
            yield Extensions.joined(batch)

    def _candidates(self, states: States) -> Iterator[Extensions]:
        positions = self.leaves + states.size
        remaining = self.most - states.size - 1
        table = np.where(self._distances[self._results] <= remaining, self._results, NONE)
        open_ = states.unused & ~self._done(states)
        count = len(self.terms.kinds)
        for i in range(positions):
            term_i, kind_i, bit_i = self._operand(states, i)
            for j in (NONE, *range(i + 1)):
                term_j, kind_j, bit_j = self._operand(states, j)
                code = kind_i * count + kind_j
                fits = np.ones(len(states), bool)
                if remaining == 0:
                    fits = open_ & ~(bit_i | bit_j) == 0
                    if not fits.any():
                        continue
                for o, operation in enumerate(self.terms.operations):
                    if (operation.arity == 2) != (j != NONE) or (i == j and operation.alone):
                        continue
                    if operation.op == HAND and i < self.leaves:
                        continue  # nothing is gained by copying an input
                    rank = ((i + 1) * 64 + j + 1) * 64 + o
                    kind = table[o].reshape(-1)[code]
                    rows = np.flatnonzero((states.rank < rank) & fits & (kind != NONE))
                    if not len(rows):
                        continue
                    full = np.ones(len(rows), np.int64)
                    yield Extensions(
                        rows, full * o, _at(term_i, rows), _at(term_j, rows), full * rank,
                        full * (bit_i | bit_j), _at(kind, rows),
                    )  # fmt: skip

    def _operand(self, states: States, position: int) -> tuple[Ints, Ints, int]:
        """Terms and kinds at a position, and its bit among the operators."""
        if position == NONE:
            return np.array(NONE), np.array(0), 0
        if position < self.leaves:
            return np.array(position), self.terms.kind[position], 0
        n = position - self.leaves
        return states.terms[:, n], states.kinds[:, n], 1 << n

    def _done(self, states: States) -> Ints:
        """Bits of the operators that have the value of an output: nobody needs to use them."""
        done = np.zeros(len(states), np.int64)
        for n in range(states.size):
            done |= np.where(self.terms.hits[states.terms[:, n]] != 0, 1 << n, 0)
        return done

    def _is_hopeful(self, kinds: Ints, open_: Ints, remaining: int) -> Bools:
        """Whether the open operators can all be used by those that remain."""
        size = kinds.shape[1]
        bits = sum(open_ >> n & 1 for n in range(size))
        # Each open operator, and each later one that is no output, takes one of the operand slots.
        keep = bits <= min(2 * remaining, remaining + self.outputs)
        for n in range(size):
            far = self._distances[kinds[:, n]] > remaining
            keep &= ~(far & (open_ >> n & 1 == 1))
        for n, m in combinations(range(size), 2):
            both = (open_ >> n & open_ >> m & 1) == 1
            keep &= ~(both & (self._joint[kinds[:, n], kinds[:, m]] > remaining))
        return keep

    # -- results ---------------------------------------------------------------------------------

    def _complete(self, states: States) -> Iterator[tuple[int, ...]]:
        """The states that are whole graphs. The last operator, which none uses, is an output."""
        open_ = states.unused & ~self._done(states)
        ready = (self.terms.hits[states.terms[:, -1]] != 0) & (open_ == 0)
        for row in np.flatnonzero(ready):
            yield from self._choices([int(t) for t in states.terms[row]], int(states.unused[row]))

    def _finished(self, states: States) -> Iterator[tuple[int, ...]]:
        """The graphs that one more operator completes."""
        for e in self._extensions(states):
            self.met += len(e.rows)
            hit = np.flatnonzero(self.terms.hits_of(e.op, e.left, e.right))
            if not len(hit):
                continue
            e = e.taken(hit)
            terms = self.terms.make(e.op, e.left, e.right)
            for row, used, term in zip(e.rows, e.used, terms, strict=True):
                mine = [int(t) for t in states.terms[row]]
                unused = int(states.unused[row] & ~used) | 1 << len(mine)
                yield from self._choices([*mine, int(term)], unused)

    def _choices(self, terms: list[int], unused: int) -> Iterator[tuple[int, ...]]:
        """Every choice of an operator for each output that leaves none unused."""
        wanted = [t for n, t in enumerate(terms) if unused >> n & 1]
        options = [
            [t for t in terms if int(self.terms.hits[t]) >> output & 1]
            for output in range(self.outputs)
        ]
        for choice in product(*options):
            if all(t in choice for t in wanted):
                yield choice


def _at(column: Ints, rows: Ints) -> Ints:
    """A column's rows; what is one number for all of them is repeated."""
    return np.full(len(rows), column) if column.ndim == 0 else column[rows]
