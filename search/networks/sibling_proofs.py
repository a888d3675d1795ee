"""Proofs that several products of one operand are one product: found for the number at hand, by the
prover of rules, for all sizes.
"""

from __future__ import annotations

from functools import lru_cache, reduce

from mirage_py.axioms.substitutions.expression import ANY, SAME, Expr
from mirage_py.axioms.substitutions.proofs import certificate_of
from mirage_py.search.networks.substitution import BY_HAND

_FOUND = "proved for all sizes, by a certificate found for {} of them"


@lru_cache(maxsize=64)
def merging_proof(is_matmul: bool, count: int) -> str:
    """That so many products, or convolutions of equal kernels, are one."""
    left, right = merged_products(is_matmul, count)
    return BY_HAND if certificate_of(left, right) is None else _FOUND.format(count)


@lru_cache(maxsize=1)
def enlarging_proof() -> str:
    """That a convolution padded by half of its kernel is that of the enlarged kernel."""
    x, a = Expr("input", ("x", _type("n", "c", "h"))), Expr("input", ("a", _type("o", "c", "r")))
    wide = Expr("conv", (SAME, 1), (x, Expr("enlarge", ("e",), (a,))))
    found = certificate_of((Expr("conv", (SAME, 1), (x, a)),), (wide,))
    return BY_HAND if found is None else "their enlargement, too"


def merged_products(is_matmul: bool, count: int) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Products of one operand, and the parts of the product by all weights side by side."""
    sizes = [f"o{n}" for n in range(count)]
    if is_matmul:
        x, axis = Expr("input", ("x", _type("m", "k"))), 1
        weights = [Expr("input", (f"a{n}", _type("k", o))) for n, o in enumerate(sizes)]
    else:
        x, axis = Expr("input", ("x", _type("n", "c", "h"))), 0
        weights = [Expr("input", (f"a{n}", _type(o, "c", "r"))) for n, o in enumerate(sizes)]
    op, attrs = ("matmul", ()) if is_matmul else ("conv", (ANY, 1))
    weight = reduce(lambda a, b: Expr("concat", (axis,), (a, b)), weights)
    rest, parts = Expr(op, attrs, (x, weight)), list[Expr]()
    for n in range(count - 1, 0, -1):
        cut = (tuple(sizes[:n]), (sizes[n],))
        parts.append(Expr("split", (1, 1, cut), (rest,)))
        rest = Expr("split", (1, 0, cut), (rest,))
    left = tuple(Expr(op, attrs, (x, w)) for w in weights)
    return left, (rest, *reversed(parts))


def _type(*sizes: str) -> tuple[tuple[str, ...], ...]:
    return tuple((size,) for size in sizes)
