"""The class table: a frozen e-graph with rows ``operator, child classes -> class``.

Its classes are the abstract expressions of the Mirage paper (OSDI'25, section 4.2), each with all
terms that the laws make equal. The paper prunes a partial µGraph if an SMT solver finds that its
abstract expression is no subexpression of the program's. The search asks the same question, "can
this tensor still become part of an output?", and here a dictionary lookup answers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

from mirage_py.axioms.terms.law import Ring
from mirage_py.axioms.terms.term import Term, canonical_number, subterms

Bound = Literal["none", "rounds", "nodes"]


class Row(NamedTuple):
    """``op`` with attribute ``attr`` applied to the classes ``args`` is the class ``result``."""

    op: str
    attr: str
    args: tuple[int, ...]
    result: int


@dataclass(frozen=True)
class ClassTable:
    """Classes are numbered 0, 1, ... by structure alone, so that equal programs give equal tables.

    ``rows``     all facts, ordered by result, operator, attribute and operands
    ``roots``    classes of the program's outputs, in their order
    ``depends``  see the method; ``dependence[c]`` is the same as a tuple per class
    ``ring``     the laws that were in force
    ``rounds``   how often they were applied
    ``bound``    "none": the laws had nothing to add (the table is complete); else the bound hit
    """

    rows: tuple[Row, ...]
    roots: tuple[int, ...]
    dependence: tuple[tuple[str, ...], ...]
    ring: Ring
    rounds: int
    bound: Bound

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.dependence)

    @property
    def saturated(self) -> bool:
        """Whether no law has anything to add."""
        return self.bound == "none"

    @cached_property
    def index(self) -> Mapping[tuple[str, str, tuple[int, ...]], int]:
        """The rows as a dictionary from (op, attr, args) to the class."""
        return MappingProxyType({row[:3]: row.result for row in self.rows})

    @cached_property
    def by_argument(self) -> Mapping[int, tuple[Row, ...]]:
        """For each class, the rows in which it is an operand: what it can still become."""
        users: dict[int, list[Row]] = {c: [] for c in range(self.classes)}
        for row in self.rows:
            for c in dict.fromkeys(row.args):
                users[c].append(row)
        return MappingProxyType({c: tuple(rows) for c, rows in users.items()})

    def lookup(self, op: str, attr: str, args: tuple[int, ...]) -> int | None:
        """Class of an operator applied to classes, or None where that is no part of the program."""
        found = self.index.get((op, attr, args))
        if found is None and op == "const":
            found = self.index.get((op, canonical_number(attr), args))
        return found

    def class_of(self, term: Term) -> int | None:
        """Class of a term, or None where the term is no part of the program."""
        done: dict[Term, int] = {}
        for t in subterms(term):
            args = tuple(done[a] for a in t.args if a in done)
            found = self.lookup(t.op, t.attr, args) if len(args) == len(t.args) else None
            if found is None:
                return None
            done[t] = found
        return done[term]

    def depends(self, class_: int) -> tuple[str, ...]:
        """Axes that a class may depend on, in the program's order (an upper bound)."""
        return self.dependence[class_]


def renumber(rows: Iterable[tuple[str, str, tuple[int, ...], int]]) -> dict[int, int]:
    """New class numbers that depend on the structure only, whatever the old ones were.

    Bottom-up: in each pass the rows whose operands have numbers are sorted, and number their
    results in that order. Every class has a finite term, so every class is reached.
    """
    waiting = list(rows)
    number: dict[int, int] = {}
    while waiting:
        ready: list[tuple[str, str, tuple[int, ...], int]] = []
        blocked: list[tuple[str, str, tuple[int, ...], int]] = []
        for row in waiting:
            if row[3] in number:
                continue
            if all(a in number for a in row[2]):
                ready.append((row[0], row[1], tuple(number[a] for a in row[2]), row[3]))
            else:
                blocked.append(row)
        assert ready or not blocked, "a class without a finite term"
        for _, _, _, old in sorted(ready, key=lambda r: r[:3]):
            number.setdefault(old, len(number))
        waiting = blocked
    return number


def build(
    rows: Sequence[tuple[str, str, tuple[int, ...], int]],
    dependence: Mapping[int, tuple[str, ...]],
    roots: Sequence[Term],
    *,
    ring: Ring,
    rounds: int,
    bound: Bound,
) -> ClassTable:
    """A table from rows with arbitrary class numbers."""
    number = renumber(rows)
    renamed = [
        Row(op, attr, tuple(number[a] for a in args), number[result])
        for op, attr, args, result in rows
    ]
    renamed.sort(key=lambda r: (r.result, r.op, r.attr, r.args))
    axes = {number[old]: axes for old, axes in dependence.items()}
    by_class = tuple(axes[c] for c in range(len(number)))
    table = ClassTable(tuple(renamed), (), by_class, ring, rounds, bound)
    found = [table.class_of(root) for root in roots]
    assert None not in found, "the e-graph lost a root"
    outputs = tuple(c for c in found if c is not None)
    return ClassTable(table.rows, outputs, table.dependence, ring, rounds, bound)
