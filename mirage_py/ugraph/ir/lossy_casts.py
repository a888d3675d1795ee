"""Lossy casts: casts whose rounding error a program computes with, as in `x - cast(x, bf16)`.

In exact arithmetic a cast between floating-point types is the value itself, and on the way of data
that is what is meant. It is not where a value meets itself with the cast and without it so that the
rest cancels: in a difference, a quotient, a comparison. There the result is the rounding error, and
a cast has to be taken for a function of which nothing is known.

A value is written as a sum of products, with casts left out but remembered: which types each
product went through. A cast shows where

* one product, through other types, has coefficients of both signs in one sum,
* one product, through other types, is in the numerator and in the divisor,
* or in both operands of a comparison, or in what maxima and selections there choose from,
* or in an operand of what jumps: `round` of 2.4999 is 2, and of that in a half type 3 or 2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache

from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import named

# Factors in a fixed order, what is summed over included; and the types that these went through.
_Product = tuple[str, ...]
_Types = frozenset[str]
_Form = Mapping[tuple[_Product, _Types], float]

# A sum of more products is one factor.
_MOST = 64
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_JUMPS = named(lambda o: o.jumps)
_CHOICES = ("max", "maximum", "minimum", "where", "relu", "abs")


@lru_cache(maxsize=256)
def observed_casts(program: Program) -> tuple[str, ...]:
    """The types of casts whose rounding shows, by name."""
    if not any(n.op == "cast" for n in program.nodes):
        return ()
    reader = _Reader(program)
    for node in program.nodes:
        reader.read(node)
    return tuple(sorted(reader.seen))


class _Reader:
    def __init__(self, program: Program) -> None:
        self.seen: set[str] = set()
        self._types = {t.name: t.dtype for t in program.inputs}
        self._forms: list[_Form] = []
        # What a comparison of the value may come down to.
        self._chosen: list[_Form] = []
        # The type in which each value is held.
        self._held: list[DType] = []
        self._names: dict[Hashable, str] = {}

    def read(self, node: Node) -> None:
        args = [self._forms[a] for a in node.args]
        form = self._form(node, args)
        if node.op in _COMPARISONS or (node.op == "div" and len(args) == 2):
            sides = [self._chosen[a] if node.op != "div" else self._forms[a] for a in node.args]
            self._meet(*sides)
        if node.op in _JUMPS:
            self.seen.update(t for arg in args for _, types in arg for t in types)
        self._forms.append(form)
        choices = [self._chosen[a] for a in node.args]
        self._chosen.append(_union(choices) if node.op in _CHOICES else form)
        self._held.append(self._type(node))

    def _form(self, node: Node, args: Sequence[_Form]) -> _Form:
        if node.op in ("const", "size"):
            if isinstance(node.attr, float):
                return {((), frozenset()): node.attr}
            return {((str(node.attr),), frozenset()): 1.0}
        if node.op == "neg":
            return _scaled(args[0], -1.0)
        if node.op in ("add", "sub"):
            return self._sum(args[0], args[1] if node.op == "add" else _scaled(args[1], -1.0), node)
        if node.op == "cast":
            return self._cast(node, args[0])
        if node.op in ("mul", "square", "matmul"):
            return self._product(args[0], args[-1], node)
        if node.op == "sum":
            return self._over(args[0], node)
        if node.op == "div" and len(args[1]) == 1:
            ((product, types), factor) = next(iter(args[1].items()))
            if not product and factor:
                return _scaled(args[0], 1.0 / factor)
            inverse = self._factor(("inverse", product), [])
            return self._product(args[0], {((inverse,), types): 1.0}, node)
        return self._atom(node, args)

    def _sum(self, a: _Form, b: _Form, node: Node) -> _Form:
        found = dict(a)
        for key, factor in b.items():
            found[key] = found.get(key, 0.0) + factor
        signs: dict[_Product, dict[_Types, float]] = {}
        for (product, types), factor in found.items():
            if factor:
                signs.setdefault(product, {})[types] = factor
        for by_types in signs.values():
            if min(by_types.values()) < 0 < max(by_types.values()):
                self._differ(by_types)
        found = {key: factor for key, factor in found.items() if factor}
        return found if len(found) <= _MOST else self._atom(node, [a, b])

    def _product(self, a: _Form, b: _Form, node: Node) -> _Form:
        if len(a) * len(b) > _MOST:
            return self._atom(node, [a, b])
        found: dict[tuple[_Product, _Types], float] = {}
        for (left, through), x in a.items():
            for (right, also), y in b.items():
                key = (tuple(sorted((*left, *right))), through | also)
                found[key] = found.get(key, 0.0) + x * y
        return self._over(found, node) if node.op == "matmul" else found

    def _over(self, of: _Form, node: Node) -> _Form:
        """A sum over dimensions: these are one more factor of what is summed."""
        return {
            ((self._factor(("sum", node.reduced, product), []),), types): factor
            for (product, types), factor in of.items()
        }

    def _cast(self, node: Node, of: _Form) -> _Form:
        assert isinstance(node.attr, DType)
        held = self._held[node.args[0]]
        if not node.attr.is_float or node.attr.unit_roundoff <= held.unit_roundoff:
            return of
        return {
            (product, types | {str(node.attr)}): factor for (product, types), factor in of.items()
        }

    def _atom(self, node: Node, args: Sequence[_Form]) -> _Form:
        """One factor: what is computed from the same values by the same operator is the same."""
        types = frozenset(t for form in args for _, through in form for t in through)
        return {((self._factor((node.op, node.attr), args),), types): 1.0}

    def _factor(self, what: Hashable, args: Sequence[_Form]) -> str:
        plain = []
        for form in args:
            total: dict[_Product, float] = {}
            for (product, _), factor in form.items():
                total[product] = total.get(product, 0.0) + factor
            plain.append(tuple(sorted(total.items())))
        key = (what, tuple(plain))
        return self._names.setdefault(key, f"%{len(self._names)}")

    def _type(self, node: Node) -> DType:
        if isinstance(node.attr, Access):
            return self._types.get(node.attr.tensor, F32)
        if isinstance(node.attr, DType):
            return node.attr
        return F32

    def _meet(self, a: _Form, b: _Form) -> None:
        for product, types in a:
            self._differ([types, *(other for same, other in b if same == product and product)])

    def _differ(self, through: Iterable[_Types]) -> None:
        """The types that some went through and others not."""
        sets = list(through)
        self.seen.update(t for types in sets for t in types if not all(t in o for o in sets))


def _scaled(form: _Form, factor: float) -> _Form:
    return {key: own * factor for key, own in form.items()}


def _union(forms: Iterable[_Form]) -> _Form:
    return {key: 1.0 for form in forms for key in form}
