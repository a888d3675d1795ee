"""Expressions over indices: their translation, and the inverse of the index list of a left side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirage_py.frontend.spec.source import Source
from mirage_py.frontend.spec.tree import Binary, Expr, Name, Number, Ref, Unary
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr


def as_index(expr: Expr, sizes: Mapping[str, int], letters: Mapping[str, int]) -> IndexExpr | None:
    """``expr`` as an index expression, or None where it is none: a product of two indices, a float.

    ``sizes`` stand for their numbers; ``letters`` are the indices.
    """
    match expr:
        case Number(is_integer=True, text=text):
            return ix.const(int(text))
        case Name(name=name) if name in sizes:
            return ix.const(sizes[name])
        case Name(name=name) if name in letters:
            return ix.dim(name)
        case Unary(op="-", operand=operand):
            inner = as_index(operand, sizes, letters)
            return None if inner is None else ix.mul(inner, -1)
        case Binary(op=op, left=left, right=right) if op in ("+", "-", "*", "/", "//", "%"):
            a, b = as_index(left, sizes, letters), as_index(right, sizes, letters)
            return None if a is None or b is None else _combine(op, a, b)
    return None


def _combine(op: str, a: IndexExpr, b: IndexExpr) -> IndexExpr | None:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*" and a.op == "const":
        a, b = b, a
    if b.op != "const":
        return None
    if op == "*":
        return a * b.value
    if b.value <= 0:
        return None
    if op == "/":
        # Only numbers divide to an index: i / 2 is a fraction.
        exact = a.op == "const" and a.value % b.value == 0
        return ix.const(a.value // b.value) if exact else None
    return a // b.value if op == "//" else a % b.value


@dataclass(frozen=True, slots=True)
class Digit:
    """A letter's part in an axis of a left side: ``(position // stride) % extent`` is its value."""

    letter: str
    axis: int
    stride: int
    extent: int

    def of(self, position: IndexExpr, is_top: bool) -> IndexExpr:
        """The letter's value at a position of the axis; the top digit needs no modulo."""
        quotient = position // self.stride
        return quotient if is_top else quotient % self.extent


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each point of a left side is stored. Every element is written exactly once."""

    extents: tuple[int, ...]
    digits: tuple[Digit, ...]

    def letters_at(self, positions: tuple[IndexExpr, ...]) -> dict[str, IndexExpr]:
        """The value of each letter at a position of each axis."""
        mapping: dict[str, IndexExpr] = {}
        for digit in self.digits:
            is_top = digit.stride * digit.extent == self.extents[digit.axis]
            mapping[digit.letter] = digit.of(positions[digit.axis], is_top)
        return mapping


def layout(
    source: Source, target: Ref, sizes: Mapping[str, int], letters: Mapping[str, int]
) -> Layout:
    """The layout of ``target``, the left side of a definition, whose letters all have extents.

    Raises:
        SpecError: an element would be written twice or never.
    """
    digits: list[Digit] = []
    extents: list[int] = []
    for axis, expr in enumerate(target.indices):
        index = as_index(expr, sizes, letters)
        terms = None if index is None else _terms(index)
        if terms is None:
            raise source.error(
                expr.span,
                "the left side must give every element one place",
                why="its indices are letters, or sums of letters times numbers, as in h * 64 + d",
                repair="give the parts letters of their own and combine them on the right: "
                "instead of Y[d // 64, d % 64] = X[d] write Y[h, e] = X[h * 64 + e]",
            )
        stride = 1
        for coefficient, letter in sorted((c, n) for n, c in terms.items() if n):
            if coefficient != stride:
                raise source.error(
                    expr.span,
                    f"'{letter}' is multiplied by {coefficient}, which leaves gaps or overlaps",
                    why=f"the letters before it take {stride} places",
                    repair=f"multiply '{letter}' by {stride}",
                )
            digits.append(Digit(letter, axis, stride, letters[letter]))
            stride *= letters[letter]
        if terms.get("", 0):
            raise source.error(
                expr.span,
                f"the elements below {terms['']} would never be written",
                repair="begin at 0, and shift the indices on the right",
            )
        extents.append(stride)
    return Layout(tuple(extents), tuple(digits))


def _terms(index: IndexExpr) -> dict[str, int] | None:
    """Letter -> coefficient, with the constant under ""; None where the index is not linear."""
    if index.op == "const":
        return {"": index.value}
    if index.op == "dim":
        return {index.name: 1}
    if index.op not in ("add", "mul"):
        return None
    total: dict[str, int] = {}
    for arg in index.args:
        terms = _terms(arg)
        if terms is None:
            return None
        for name, coefficient in terms.items():
            factor = index.value if index.op == "mul" else 1
            total[name] = total.get(name, 0) + coefficient * factor
    return total
