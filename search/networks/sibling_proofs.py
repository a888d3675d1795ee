"""Proofs that several products of one operand, or by one weight, are one product: found for the
number at hand, by the prover of rules, for all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
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


@lru_cache(maxsize=64)
def stacking_proof(count: int) -> str:
    """That so many products by one weight are one."""
    left, right = stacked_products(count)
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
    left = tuple(Expr(op, attrs, (x, w)) for w in weights)
    return left, _parts(Expr(op, attrs, (x, weight)), 1, sizes)


def stacked_products(count: int) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Products by one weight, and the parts of the product of all operands one above the other."""
    sizes = [f"m{n}" for n in range(count)]
    w = Expr("input", ("w", _type("k", "o")))
    operands = [Expr("input", (f"x{n}", _type(m, "k"))) for n, m in enumerate(sizes)]
    rows = reduce(lambda a, b: Expr("concat", (0,), (a, b)), operands)
    left = tuple(Expr("matmul", (), (x, w)) for x in operands)
    return left, _parts(Expr("matmul", (), (rows, w)), 0, sizes)


def _parts(whole: Expr, axis: int, sizes: Sequence[str]) -> tuple[Expr, ...]:
    """The parts of ``whole`` along an axis that is so many sizes long."""
    rest, parts = whole, list[Expr]()
    for n in range(len(sizes) - 1, 0, -1):
        cut = (tuple(sizes[:n]), (sizes[n],))
        parts.append(Expr("split", (axis, 1, cut), (rest,)))
        rest = Expr("split", (axis, 0, cut), (rest,))
    return (rest, *reversed(parts))


def _type(*sizes: str) -> tuple[tuple[str, ...], ...]:
    return tuple((size,) for size in sizes)
