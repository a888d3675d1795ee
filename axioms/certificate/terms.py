"""Terms of the checker, hash-consed: equal terms are one object.

A point has a place d in each dimension. Axis "d" is all of it. "d.lX" are the iterations of loop X
over it and "d.tX" the tile that one of them sees; the last tile may be shorter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]
# What the checker takes for true: operators with their numbers of operands, and laws.
TRUSTED = json.loads((Path(__file__).parent / "trusted.json").read_text(encoding="utf-8"))
LAWS: Mapping[str, Json] = {law["name"]: law for law in TRUSTED["laws"]}
REDUCTIONS = ("sum", "max")
_NAMED = {"sum": 1, "max": 1, "leaf": 0, "const": 0, "size": 0}


class RefusedError(Exception):
    """What the checker does not accept, or does not understand."""


def demand(holds: object, what: str) -> None:
    """Refuses what does not hold."""
    if not holds:
        raise RefusedError(what)


class Term:
    """An operator, the name or axis that it carries, its operands; it may depend on ``axes``."""

    def __init__(self, op: str, attr: str, args: tuple[Term, ...], axes: Iterable[str]) -> None:
        self.op, self.attr, self.args = op, attr, args
        # A product of sizes, which are at least 1.
        self.is_size: bool = op == "size" or (op == "mul" and all(a.is_size for a in args))
        self.axes: frozenset[str] = frozenset(axes).union(*(a.axes for a in args))
        d, iterations, tile = parts(attr)
        if op in REDUCTIONS:
            whole = attr != iterations
            self.axes -= {a for a in self.axes if a == attr or (whole and d in parts(a))}
        # A tile's sum, and its length, depend on the iteration.
        if op in (*REDUCTIONS, "size") and attr == tile:
            self.axes |= {iterations}

    @property
    def dims(self) -> set[str]:
        """The dimensions of its axes."""
        return {parts(axis)[0] for axis in self.axes}

    def is_free(self, axis: str) -> bool:
        """Whether it is the same all along an axis; a tile lies within one iteration."""
        d, iterations, tile = parts(axis)
        return all(d not in parts(a) or (axis == tile and a == iterations) for a in self.axes)

    def partial(self, *, branches: bool) -> set[Term]:
        """The terms in it that have no value for some numbers, in branches of selections or not."""
        found, todo = {self}, [self]
        while todo:
            term = todo.pop()
            taken = term.args if branches or term.op != "where" else term.args[:1]
            todo += (new := {*taken} - found)
            found |= new
        some = {t for t in found if t.op in TRUSTED["partial"]}
        return {t for t in some if t.op != "div" or not t.args[1].is_size}


class Terms:
    """All terms of one check."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Term] = {}

    def make(
        self, op: str, args: Sequence[Term] = (), attr: str = "", axes: Iterable[str] = ()
    ) -> Term:
        """A term; ``axes`` are those of a leaf."""
        arity = (_NAMED if attr else TRUSTED["operators"]).get(op)
        demand(arity == len(args), f"'{op}' of {len(args)} operands is no term")
        key = (op, attr, *args)
        if key not in self._known:
            self._known[key] = Term(op, attr, tuple(args), axes)
        return self._known[key]

    def const(self, text: str) -> Term:
        """A number by its decimal text; of exponents beyond float64's it has too many digits."""
        number = Decimal(text)
        demand(number.is_finite() and abs(number.adjusted()) <= 400, f"{text} is no number")
        return self.make("const", (), str(Fraction(number)))

    def reduce(self, op: str, axes: Sequence[str], term: Term) -> Term:
        """A reduction over several axes, the first one outermost."""
        for axis in reversed(axes):
            term = self.make(op, (term,), axis)
        return term

    def instance(self, side: Sequence[Any], found: Mapping[str, Any]) -> Term:
        """A side of a law, with what was found for its variables and axes."""
        op, attr, *args = side
        if op in ("var", "const"):
            return found[attr] if op == "var" else self.const(attr)
        return self.make(op, [self.instance(a, found) for a in args], attr and found[attr])


def parts(axis: str) -> tuple[str, str, str]:
    """The dimension of an axis, and the iterations and the tile that it is one of."""
    d, _, loop = axis.partition(".")
    return d, f"{d}.l{loop[1:]}", f"{d}.t{loop[1:]}"
