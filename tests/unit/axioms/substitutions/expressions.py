"""Short names of operators of rules, for tests."""

from __future__ import annotations

from mirage_py.axioms.substitutions.expression import Attr, Expr
from mirage_py.axioms.substitutions.inference import typed


def given(name: str) -> Expr:
    return Expr("input", (name, ""))


x, y, z, a, b, c = map(given, "xyzabc")
s = Expr("input", ("s", ()))


def op(name: str, *of: Expr, attrs: tuple[Attr, ...] = ()) -> Expr:
    return Expr(name, attrs, of)


def add(left: Expr, right: Expr) -> Expr:
    return op("add", left, right)


def mul(left: Expr, right: Expr) -> Expr:
    return op("mul", left, right)


def relu(of: Expr) -> Expr:
    return op("relu", of)


def matmul(left: Expr, right: Expr) -> Expr:
    return op("matmul", left, right)


def transpose(of: Expr) -> Expr:
    return op("transpose", of)


def concat(axis: int, left: Expr, right: Expr) -> Expr:
    return op("concat", left, right, attrs=(axis,))


def pieces(axis: int, of: Expr) -> list[Expr]:
    return [op("split", of, attrs=(axis, n, ())) for n in (0, 1)]


def conv(image: Expr, kernel: Expr, window: str = "any", groups: int = 0) -> Expr:
    return op("conv", image, kernel, attrs=(window, groups))


def enlarge(kernel: Expr) -> Expr:
    return op("enlarge", kernel, attrs=("",))


def pool(kind: str, image: Expr, window: str = "any") -> Expr:
    return op(f"{kind}_pool", image, attrs=(window, ""))


def sides(
    left: list[Expr], right: list[Expr], rank: int = 2
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Both sides over the most general shapes."""
    found = typed((*left, *right), rank)
    return found[: len(left)], found[len(left) :]
