"""Terms of the checker, each kept once: equal terms have equal numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

# The operators with their numbers of operands, and the laws: what the checker takes for true.
TRUSTED = json.loads((Path(__file__).parent / "trusted.json").read_text(encoding="utf-8"))
ELEMENTWISE: Mapping[str, int] = TRUSTED["operators"]
REDUCTIONS = ("sum", "max")
_ARITY = {**ELEMENTWISE, "sum": 1, "max": 1, **dict.fromkeys(("leaf", "const", "size", "var"), 0)}


class RefusedError(Exception):
    """What the checker does not accept, or does not understand; in text that can be printed."""

    def __init__(self, what: str) -> None:
        super().__init__((what if what.isprintable() else ascii(what)[1:-1])[:150])


class Row(NamedTuple):
    """An operator, the name or axis that it carries, and the numbers of its operands."""

    op: str
    attr: str
    args: tuple[int, ...]


class Terms:
    """All terms of one check. ``axes_of_leaf`` says on which axes a leaf may depend."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.axes_of_leaf: Callable[[str], frozenset[str]]
        self._numbers: dict[Row, int] = {}
        self._axes: dict[int, frozenset[str]] = {}
        self.zero, self.one = self.const("0"), self.const("1")

    def make(self, op: str, args: Sequence[int] = (), attr: str = "") -> int:
        """The number of a term."""
        if _ARITY.get(op) != len(args) or bool(attr) == (op in ELEMENTWISE):
            raise RefusedError(f"'{op}' of {len(args)} operands is no term")
        row = Row(op, attr, tuple(args))
        if row not in self._numbers:
            self._numbers[row] = len(self.rows)
            self.rows.append(row)
        return self._numbers[row]

    def const(self, text: str) -> int:
        """A number by its decimal text; of exponents beyond float64's it would have millions of
        digits.
        """
        number = Decimal(text)
        if not number.is_finite() or abs(number.adjusted()) > 400:
            raise RefusedError(f"{text} is no number that may be used")
        return self.make("const", (), str(Fraction(number)))

    def reduce(self, op: str, axes: Sequence[str], of: int) -> int:
        """A reduction over several axes, the first one outermost."""
        for axis in reversed(axes):
            of = self.make(op, (of,), axis)
        return of

    def below(self, *roots: int) -> list[int]:
        """The roots and all that they are made of, operands first: they have smaller numbers."""
        found, todo = dict.fromkeys(roots), list(roots)
        while todo:
            new = [a for a in self.rows[todo.pop()].args if a not in found]
            found.update(dict.fromkeys(new))
            todo += new
        return sorted(found)

    def axes(self, term: int) -> frozenset[str]:
        """The axes on which a term may depend, as it is written: "d.t" is as long as "d.l" says."""
        for n in [] if term in self._axes else self.below(term):
            op, attr, args = self.rows[n]
            axes = self.axes_of_leaf(attr) if op == "leaf" else frozenset[str]()
            axes = axes.union(*(self._axes[a] for a in args)) - {attr if op in REDUCTIONS else ""}
            if op in (*REDUCTIONS, "size") and attr.endswith(".t"):
                axes |= {f"{attr[:-2]}.l"}
            self._axes[n] = axes
        return self._axes[term]

    def is_size(self, term: int) -> bool:
        """Whether it is a product of sizes, which are at least 1."""
        return all(self.rows[n].op in ("size", "mul") for n in self.below(term))

    def variables(self, *patterns: int) -> set[str]:
        """The variables of patterns, those for axes among them."""
        rows = [self.rows[n] for n in self.below(*patterns)]
        return {row.attr for row in rows if row.op in ("var", "size", *REDUCTIONS)}

    def pattern(self, side: Sequence[Any]) -> int:
        """The term of a side of a law: an operator, the name it carries, and its operands."""
        if side[0] == "const":
            return self.const(side[1])
        return self.make(side[0], [self.pattern(a) for a in side[2:]], side[1])

    def instance(self, pattern: int, terms: Mapping[str, int], axes: Mapping[str, str]) -> int:
        """A side of a law with its variables replaced. Raises KeyError for one without meaning."""
        op, attr, args = self.rows[pattern]
        if op == "var":
            return terms[attr]
        attr = axes[attr] if op in (*REDUCTIONS, "size") else attr
        return self.make(op, [self.instance(a, terms, axes) for a in args], attr)
