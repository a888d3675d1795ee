"""Terms of the checker, hash-consed: equal terms have equal numbers.

A point has a place d in each dimension. Axis "d" is all of it. "d.lX" are the iterations of loop X
over it and "d.tX" the tile that one of them sees; the last tile may be shorter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

# What the checker takes for true: operators with their numbers of operands, laws, rules of shifts.
TRUSTED = json.loads((Path(__file__).parent / "trusted.json").read_text(encoding="utf-8"))
REDUCTIONS = ("sum", "max")
_NAMED = {"sum": 1, "max": 1, "leaf": 0, "const": 0, "size": 0}


class RefusedError(Exception):
    """What the checker does not accept, or does not understand."""


def demand(holds: object, what: str) -> None:
    """Refuses what does not hold."""
    if not holds:
        raise RefusedError(what)


class Row(NamedTuple):
    """An operator, the name or axis that it carries, and the numbers of its operands."""

    op: str
    attr: str
    args: tuple[int, ...]


class Terms:
    """All terms of one check. ``leaf_axes`` has the axes on which a leaf may depend."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.leaf_axes: dict[str, Iterable[str]] = {}
        self._numbers: dict[Row, int] = {}
        self._axes: dict[int, frozenset[str]] = {}
        self.zero = self.const("0")

    def make(self, op: str, args: Sequence[int] = (), attr: str = "") -> int:
        """The number of a term."""
        arity = (_NAMED if attr else TRUSTED["operators"]).get(op)
        demand(arity == len(args), f"'{op}' of {len(args)} operands is no term")
        row = Row(op, attr, tuple(args))
        if row not in self._numbers:
            self._numbers[row] = len(self.rows)
            self.rows.append(row)
        return self._numbers[row]

    def const(self, text: str) -> int:
        """A number by its decimal text; of exponents beyond float64's it has too many digits."""
        number = Decimal(text)
        demand(number.is_finite() and abs(number.adjusted()) <= 400, f"{text} is no number")
        return self.make("const", (), str(Fraction(number)))

    def reduce(self, op: str, axes: Sequence[str], term: int) -> int:
        """A reduction over several axes, the first one outermost."""
        for axis in reversed(axes):
            term = self.make(op, (term,), axis)
        return term

    def below(self, *roots: int) -> list[int]:
        """The roots and all of their subterms, operands first: they have smaller numbers."""
        found, todo = {*roots}, [*roots]
        while todo:
            todo += (new := {*self.rows[todo.pop()].args} - found)
            found |= new
        return sorted(found)

    def axes(self, term: int) -> frozenset[str]:
        """The axes on which a term may depend: a tile's sum, and its length, on the iteration."""
        for n in [] if term in self._axes else self.below(term):
            op, attr, args = self.rows[n]
            axes = frozenset(self.leaf_axes[attr] if op == "leaf" else ())
            axes = axes.union(*(self._axes[a] for a in args))
            iterations, tile = parts(attr)
            if op in REDUCTIONS:
                gone = {a for a in axes if dim(a) == dim(attr)}
                axes -= {attr} if attr == iterations else gone
            if op in (*REDUCTIONS, "size") and attr == tile:
                axes |= {iterations}
            self._axes[n] = axes
        return self._axes[term]

    def is_free(self, term: int, axis: str) -> bool:
        """Whether a term is the same all along an axis; a tile lies within one iteration."""
        iterations, tile = parts(axis)
        here = {a for a in self.axes(term) if dim(a) == dim(axis)}
        return here <= ({iterations} if axis == tile else set())

    def is_size(self, term: int) -> bool:
        """Whether it is a product of sizes, which are at least 1."""
        return all(self.rows[n].op in ("size", "mul") for n in self.below(term))

    def instance(self, side: Sequence[Any], found: Mapping[str, Any]) -> int:
        """A side of a law, with what was found for its variables and axes."""
        op, attr, *args = side
        if op in ("var", "const"):
            return int(found[attr]) if op == "var" else self.const(attr)
        return self.make(op, [self.instance(a, found) for a in args], attr and found[attr])


def dim(axis: str) -> str:
    """The dimension of an axis."""
    return axis.partition(".")[0]


def parts(axis: str) -> list[str]:
    """The iterations and the tile that an axis is one of."""
    d, _, loop = axis.partition(".")
    return [f"{d}.l{loop[1:]}", f"{d}.t{loop[1:]}"]
