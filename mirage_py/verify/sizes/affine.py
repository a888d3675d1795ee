"""Affine index expressions: sums of multiples of dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr


@dataclass(frozen=True, slots=True)
class Affine:
    """The sum of ``factor * dim`` over ``terms``, plus ``constant``. No factor is 0."""

    terms: tuple[tuple[str, int], ...]
    constant: int


def affine(expr: IndexExpr) -> Affine | None:
    """The expression as a sum, or None where it divides."""
    factors: dict[str, int] = {}
    constant = 0
    todo = [(expr, 1)]
    while todo:
        part, factor = todo.pop()
        if part.op == "dim":
            factors[part.name] = factors.get(part.name, 0) + factor
        elif part.op == "const":
            constant += factor * part.value
        elif part.op == "mul":
            todo.append((part.args[0], factor * part.value))
        elif part.op == "add":
            todo.extend((a, factor) for a in part.args)
        else:
            return None
    return Affine(tuple((d, f) for d, f in factors.items() if f), constant)


def is_mixed_radix(expr: IndexExpr, sizes: Mapping[str, int]) -> bool:
    """Whether it numbers the points of its dimensions without gap: h * 64 + d with 64 values of
    d.
    """
    form = affine(expr)
    if form is None or form.constant:
        return False
    step = 1
    for d, factor in _minor_to_major(form, sizes):
        if factor != step:
            return False
        step *= sizes[d]
    return bool(form.terms)


def rescaled_radix(expr: IndexExpr, old: Mapping[str, int], new: Mapping[str, int]) -> IndexExpr:
    """A mixed-radix number at other sizes: h * 64 + d becomes h * 5 + d with 5 values of d."""
    form = affine(expr)
    assert form is not None
    result = ix.const(0)
    step = 1
    for d, _ in _minor_to_major(form, old):
        result = ix.add(ix.mul(ix.dim(d), step), result)
        step *= new[d]
    return result


def _minor_to_major(form: Affine, sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    # A dimension of size 1 has the factor of the next one: it goes first.
    return sorted(form.terms, key=lambda term: (term[1], sizes[term[0]]))


def radix_dims(expr: IndexExpr, extent: int, sizes: Mapping[str, int]) -> tuple[str, ...] | None:
    """The dimensions of a mixed radix that covers an axis, minor first and without those of size
    1; None for any other index.
    """
    form = affine(expr)
    if form is None or not is_mixed_radix(expr, sizes) or expr.bounds(sizes)[1] + 1 != extent:
        return None
    return tuple(d for d, _ in _minor_to_major(form, sizes) if sizes[d] > 1)
