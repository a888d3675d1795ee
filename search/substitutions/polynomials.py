"""Sums and products of one shape in a normal form: as polynomials over everything else.

That sums and products commute, associate and distribute makes more equal graphs than all else. Once
rules say so, what follows from them alone is seen here and needs no e-graph.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

from mirage_py.axioms.substitutions.expression import Expr

# Monomials with how often they occur; a monomial is the sorted texts of its factors.
Polynomial = Counter[tuple[str, ...]]


def polynomial(x: Expr, known: dict[Expr, Polynomial] | None = None) -> Polynomial:
    """The normal form of an expression; products with scalars are no products here."""
    known = {} if known is None else known
    if x not in known:
        known[x] = _polynomial(x, known)
    return known[x]


def _polynomial(x: Expr, known: dict[Expr, Polynomial]) -> Polynomial:
    of = [polynomial(a, known) for a in x.args]
    if x.op == "add":
        return of[0] + of[1]
    if x.op == "mul" and x.args[0].type == x.args[1].type:
        found: Polynomial = Counter()
        for (a, m), (b, n) in product(of[0].items(), of[1].items()):
            found[tuple(sorted((*a, *b)))] += m * n
        return found
    texts = [repr(sorted(p.items())) for p in of]
    return Counter({(repr((x.op, x.attrs, texts)),): 1})


def _input(name: str) -> Expr:
    return Expr("input", (name, (("m",),)))


def _laws() -> tuple[tuple[Expr, Expr], ...]:
    x, y, z = map(_input, "xyz")

    def of(op: str, a: Expr, b: Expr) -> Expr:
        return Expr(op, (), (a, b))

    return (
        (of("add", x, y), of("add", y, x)),
        (of("mul", x, y), of("mul", y, x)),
        (of("add", x, of("add", y, z)), of("add", of("add", x, y), z)),
        (of("mul", x, of("mul", y, z)), of("mul", of("mul", x, y), z)),
        (of("mul", x, of("add", y, z)), of("add", of("mul", x, y), of("mul", x, z))),
    )


LAWS = _laws()
