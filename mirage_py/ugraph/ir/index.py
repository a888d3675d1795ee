"""Index expressions: which element of a tensor a point of the named dimensions reads or writes.

Reshape, transpose, slice, repeat and concat all become index expressions on a load, so that a view
costs address arithmetic and never a copy. An element of an integer input is a position too, that of
a look-up; it may be any number, so it is taken modulo the extent of what it points into.

    expr := dim | integer | expr + expr | expr * integer | expr // integer | expr % integer
          | tensor[expr, ...]
    pred := expr (< <= > >= == !=) expr | pred & pred | pred '|' pred | ~pred
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import permutations
from math import gcd
from typing import Any

# What an expression evaluates over: Python ints or NumPy integer arrays alike.
Value = Any

_ANY_INTEGER = 1 << 63


@dataclass(frozen=True, slots=True)
class IndexExpr:
    """A node of an index expression; ``op`` is dim, const, add, mul, floordiv, mod or data (an
    element of the tensor ``name`` at the indices ``args``).
    """

    op: str
    name: str = ""
    value: int = 0
    args: tuple[IndexExpr, ...] = ()
    # Expressions are keys of many tables and share their parts: each is hashed once, when asked.
    _hash: int = field(init=False, compare=False, repr=False, default=0)

    def __hash__(self) -> int:
        known = self._hash
        if not known:
            known = hash((self.op, self.name, self.value, self.args))
            object.__setattr__(self, "_hash", known)
        return known

    def __reduce__(self) -> tuple[object, ...]:
        return IndexExpr, (self.op, self.name, self.value, self.args)  # hashes differ by process

    def __add__(self, other: IndexExpr | int) -> IndexExpr:
        return add(self, _lift(other))

    def __sub__(self, other: IndexExpr | int) -> IndexExpr:
        return add(self, mul(_lift(other), -1))

    def __mul__(self, factor: int) -> IndexExpr:
        return mul(self, factor)

    def __floordiv__(self, divisor: int) -> IndexExpr:
        return floordiv(self, divisor)

    def __mod__(self, divisor: int) -> IndexExpr:
        return mod(self, divisor)

    @property
    def is_dim(self) -> bool:
        """Whether it is a bare dimension."""
        return self.op == "dim"

    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions it depends on, in order of first use."""
        if self.op == "dim":
            return (self.name,)
        return tuple(dict.fromkeys(d for a in self.args for d in a.dims()))

    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors whose elements it depends on."""
        found = self.elements()
        return tuple(dict.fromkeys(e.name for e in found)) if found else ()

    def elements(self) -> tuple[IndexExpr, ...]:
        """The elements of tensors that it depends on."""
        found: tuple[IndexExpr, ...] = (self,) if self.op == "data" else ()
        for part in self.args:
            found += part.elements()
        return tuple(dict.fromkeys(found)) if found else ()

    def evaluate(self, env: Mapping[str, Value]) -> Value:
        """Its value with each dimension taken from ``env`` (ints or broadcastable int arrays), and
        the integers of a tensor x from ``env["x[]"]``.
        """
        if self.op == "dim":
            return env[self.name]
        if self.op == "const":
            return self.value
        if self.op == "data":
            return env[f"{self.name}[]"][tuple(a.evaluate(env) for a in self.args)]
        if self.op == "add":
            return self.args[0].evaluate(env) + self.args[1].evaluate(env)
        left = self.args[0].evaluate(env)
        if self.op == "mul":
            return left * self.value
        return left // self.value if self.op == "floordiv" else left % self.value

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Smallest and largest value over all points of the dimensions (inclusive)."""
        if self.op == "dim":
            return 0, sizes[self.name] - 1
        if self.op == "const":
            return self.value, self.value
        if self.op == "data":
            return -_ANY_INTEGER, _ANY_INTEGER - 1
        low, high = self.args[0].bounds(sizes)
        if self.op == "add":
            low2, high2 = self.args[1].bounds(sizes)
            return low + low2, high + high2
        if self.op == "mul":
            ends = (low * self.value, high * self.value)
            return min(ends), max(ends)
        if self.op == "floordiv":
            return low // self.value, high // self.value
        if 0 <= low and high < self.value:
            return low, high
        return 0, self.value - 1

    def substitute(self, mapping: Mapping[str, IndexExpr]) -> IndexExpr:
        """Replace dimensions by expressions."""
        if self.op == "dim":
            return mapping.get(self.name, self)
        if self.op == "const":
            return self
        args = [a.substitute(mapping) for a in self.args]
        if self.op == "data":
            return data(self.name, args)
        if self.op == "add":
            return add(*args)
        rebuild: Callable[[IndexExpr, int], IndexExpr]
        rebuild = {"mul": mul, "floordiv": floordiv, "mod": mod}[self.op]
        return rebuild(args[0], self.value)

    def render(self, names: Mapping[str, str] | None = None) -> str:
        """Python text; ``names`` renames dimensions (for generated code), and elements of tensors
        and their remainders and quotients, each by its own text.
        """
        if names and self.op in ("data", "mod", "floordiv") and (known := names.get(str(self))):
            return known
        if self.op == "dim":
            return names.get(self.name, self.name) if names else self.name
        if self.op == "const":
            return str(self.value)
        if self.op == "add":
            left, right = self.args
            if right.op == "const" and right.value < 0:
                return f"{left.render(names)} - {-right.value}"
            # A sum on the right keeps its parentheses, so that text parses back to the same tree.
            text = right.render(names)
            return f"{left.render(names)} + {f'({text})' if right.op == 'add' else text}"
        if self.op == "data":
            return f"{self.name}[{', '.join(a.render(names) for a in self.args)}]"
        inner = self.args[0].render(names)
        if self.args[0].op not in ("dim", "data"):
            inner = f"({inner})"
        symbol = {"mul": "*", "floordiv": "//", "mod": "%"}[self.op]
        return f"{inner} {symbol} {self.value}"

    def __str__(self) -> str:
        return self.render()


def dim(name: str) -> IndexExpr:
    """The dimension itself."""
    return IndexExpr("dim", name=name)


def const(value: int) -> IndexExpr:
    """A constant position."""
    return IndexExpr("const", value=value)


def data(tensor: str, index: Sequence[IndexExpr]) -> IndexExpr:
    """An element of a tensor of integers."""
    return IndexExpr("data", name=tensor, args=tuple(index))


def _lift(value: IndexExpr | int) -> IndexExpr:
    return const(value) if isinstance(value, int) else value


def add(left: IndexExpr, right: IndexExpr) -> IndexExpr:
    """left + right, constants folded and kept to the right."""
    if left.op == "const":
        left, right = right, left
    if right.op == "const":
        if right.value == 0:
            return left
        if left.op == "const":
            return const(left.value + right.value)
        if left.op == "add" and left.args[1].op == "const":
            return add(left.args[0], const(left.args[1].value + right.value))
    elif left.op == "add" and left.args[1].op == "const":
        return add(add(left.args[0], right), left.args[1])
    return IndexExpr("add", args=(left, right))


def mul(expr: IndexExpr, factor: int) -> IndexExpr:
    """expr * factor."""
    if factor == 1:
        return expr
    if factor == 0 or expr.op == "const":
        return const(expr.value * factor if expr.op == "const" else 0)
    if expr.op == "mul":
        return mul(expr.args[0], expr.value * factor)
    return IndexExpr("mul", value=factor, args=(expr,))


def floordiv(expr: IndexExpr, divisor: int) -> IndexExpr:
    """expr // divisor."""
    if divisor == 1:
        return expr
    if expr.op == "const":
        return const(expr.value // divisor)
    return IndexExpr("floordiv", value=divisor, args=(expr,))


def mod(expr: IndexExpr, divisor: int) -> IndexExpr:
    """expr % divisor."""
    if divisor == 1:
        return const(0)
    if expr.op == "const":
        return const(expr.value % divisor)
    return IndexExpr("mod", value=divisor, args=(expr,))


def simplify(expr: IndexExpr, sizes: Mapping[str, int]) -> IndexExpr:
    """Use the extents to drop divisions: (h * 64 + d) // 64 is h and % 64 is d when d < 64."""
    if expr.op in ("dim", "const"):
        return expr
    args = [simplify(a, sizes) for a in expr.args]
    if expr.op == "data":
        return data(expr.name, args)
    if expr.op == "add":
        return add(*args)
    if expr.op == "mul":
        return mul(args[0], expr.value)
    divide = _quotient if expr.op == "floordiv" else _remainder
    return divide(args[0], expr.value, sizes)


def recomposed(expr: IndexExpr) -> IndexExpr:
    """Digits of a number side by side are the number: (p // 14) * 14 + p % 14 is p, and
    (p // 2) * 24 + (p % 2) * 12 is p * 12.
    """
    terms = _multiples(expr)
    for i, j in permutations(range(len(terms)), 2):
        (outer, step), (inner, fine) = terms[i], terms[j]
        whole = joined(outer, inner) if step == fine * inner.value else None
        if whole is not None:
            terms[i] = whole, fine
            return recomposed(reduce(add, (mul(*t) for n, t in enumerate(terms) if n != j)))
    return expr


def _multiples(expr: IndexExpr) -> list[tuple[IndexExpr, int]]:
    """The terms of a sum, each with its factor."""
    if expr.op == "add":
        return [term for a in expr.args for term in _multiples(a)]
    return [(expr.args[0], expr.value)] if expr.op == "mul" else [(expr, 1)]


def joined(outer: IndexExpr, inner: IndexExpr) -> IndexExpr | None:
    """outer * n + inner, where inner is a remainder by n and outer the quotient or a remainder of
    that, or a sum with one of these; None where it is not. (a + p // 14) * 14 + p % 14 is
    a * 14 + p.
    """
    if inner.op != "mod" or inner.tensors():
        return None
    if outer.op == "add":
        for mine, other in (outer.args, outer.args[::-1]):
            whole = joined(mine, inner)
            if whole is not None:
                return add(mul(other, inner.value), whole)
        return None
    number = inner.args[0]
    quotients = [floordiv(number, inner.value)]
    if number.op == "floordiv":
        quotients.append(floordiv(number.args[0], number.value * inner.value))
    if outer in quotients:
        return number
    whole = joined(outer.args[0], inner) if outer.op == "mod" else None
    return None if whole is None else mod(whole, outer.value * inner.value)


def joint(row: IndexExpr, place: IndexExpr, extent: int, sizes: Mapping[str, int]) -> IndexExpr:
    """``row * extent + place``; of both halves of a number the number itself, also where ``place``
    has one of them among its terms: of p // 4 and p % 4 * 64 + s, with 256 places, p * 64 + s. The
    upper half may be one for these sizes alone: a // 2 of (a * 32 + b) % 64, with 32 of b.
    """
    terms = _terms(place)
    for number, term in enumerate(terms):
        digit, step = (term.args[0], term.value) if term.op == "mul" else (term, 1)
        if digit.op != "mod" or digit.value * step != extent:
            continue
        whole = joined(row, digit)
        if whole is None and simplify(floordiv(digit.args[0], digit.value), sizes) == row:
            whole = digit.args[0]
        if whole is not None:
            return reduce(add, (*terms[:number], *terms[number + 1 :]), mul(whole, step))
    return add(mul(row, extent), place)


def _terms(expr: IndexExpr) -> tuple[IndexExpr, ...]:
    return tuple(t for a in expr.args for t in _terms(a)) if expr.op == "add" else (expr,)


def divisions(expr: IndexExpr) -> int:
    """How many quotients and remainders an expression has."""
    return (expr.op in ("floordiv", "mod")) + sum(map(divisions, expr.args))


def are_apart(left: IndexExpr, right: IndexExpr, sizes: Mapping[str, int]) -> bool:
    """Whether no value of one is a value of the other: h * 64 + i and h * 64 + (i + 32) for i below
    32. False where that is not seen.
    """
    for divisor in (0, *_factors(left)):
        both = [mod(e, divisor) if divisor else e for e in (left, right)]
        (a, b), (c, d) = (simplify(e, sizes).bounds(sizes) for e in both)
        if b < c or d < a:
            return True
    return False


def _quotient(expr: IndexExpr, divisor: int, sizes: Mapping[str, int]) -> IndexExpr:
    multiple, rest = _split_multiple(expr, divisor)
    low, high = rest.bounds(sizes)
    if 0 <= low and high < divisor:
        return multiple
    if rest.op == "floordiv":
        return add(multiple, _quotient(rest.args[0], rest.value * divisor, sizes))
    step, coarse, _ = _coarsened(rest, divisor, sizes)
    if step > 1:
        return add(multiple, _quotient(coarse, divisor // step, sizes))
    return add(multiple, floordiv(rest, divisor))


def _remainder(expr: IndexExpr, divisor: int, sizes: Mapping[str, int]) -> IndexExpr:
    _, rest = _split_multiple(expr, divisor)
    low, high = rest.bounds(sizes)
    if 0 <= low and high < divisor:
        return rest
    if rest.op == "mod" and rest.value % divisor == 0:
        return _remainder(rest.args[0], divisor, sizes)
    step, coarse, fine = _coarsened(rest, divisor, sizes)
    if step > 1:
        return add(mul(_remainder(coarse, divisor // step, sizes), step), fine)
    return mod(rest, divisor)


def _coarsened(
    expr: IndexExpr, divisor: int, sizes: Mapping[str, int]
) -> tuple[int, IndexExpr, IndexExpr]:
    """expr = step * coarse + fine with step a divisor of ``divisor`` and 0 <= fine < step.

    The greatest such step among the factors of the terms: h * 64 + d by 256 is 64 * h + d.
    """
    steps = sorted({gcd(f, divisor) for f in _factors(expr)} - {1, divisor}, reverse=True)
    for step in steps:
        coarse, fine = _split_multiple(expr, step)
        low, high = fine.bounds(sizes)
        if 0 <= low and high < step:
            return step, coarse, fine
    return 1, expr, const(0)


def _factors(expr: IndexExpr) -> tuple[int, ...]:
    if expr.op == "add":
        return tuple(f for a in expr.args for f in _factors(a))
    return (expr.value,) if expr.op == "mul" else ()


def _split_multiple(expr: IndexExpr, divisor: int) -> tuple[IndexExpr, IndexExpr]:
    """expr = divisor * first + second, moving every term that is a clear multiple to the first."""
    if expr.op == "add":
        multiple, rest = _split_multiple(expr.args[0], divisor)
        multiple2, rest2 = _split_multiple(expr.args[1], divisor)
        return add(multiple, multiple2), add(rest, rest2)
    if expr.op == "const":
        return const(expr.value // divisor), const(expr.value % divisor)
    if expr.op == "mul" and expr.value % divisor == 0:
        return mul(expr.args[0], expr.value // divisor), const(0)
    return const(0), expr


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on indices; ``op`` is lt le gt ge eq ne (over ``exprs``) or and or not."""

    op: str
    exprs: tuple[IndexExpr, ...] = ()
    args: tuple[Predicate, ...] = ()
    _hash: int = field(init=False, compare=False, repr=False, default=0)  # as an expression's

    def __hash__(self) -> int:
        known = self._hash
        if not known:
            known = hash((self.op, self.exprs, self.args))
            object.__setattr__(self, "_hash", known)
        return known

    def __reduce__(self) -> tuple[object, ...]:
        return Predicate, (self.op, self.exprs, self.args)

    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions it depends on, in order of first use."""
        parts = [*(e.dims() for e in self.exprs), *(a.dims() for a in self.args)]
        return tuple(dict.fromkeys(d for part in parts for d in part))

    def evaluate(self, env: Mapping[str, Value]) -> Value:
        """Truth value(s); array operands broadcast."""
        if self.exprs:
            left, right = (e.evaluate(env) for e in self.exprs)
            return _COMPARE[self.op](left, right)
        values = [a.evaluate(env) for a in self.args]
        if self.op == "not":
            return values[0] ^ True
        return values[0] & values[1] if self.op == "and" else values[0] | values[1]

    def substitute(self, mapping: Mapping[str, IndexExpr]) -> Predicate:
        """Replace dimensions by expressions."""
        return Predicate(
            self.op,
            tuple(e.substitute(mapping) for e in self.exprs),
            tuple(a.substitute(mapping) for a in self.args),
        )

    def render(self, names: Mapping[str, str] | None = None) -> str:
        """Python text, fully parenthesised."""
        if self.exprs:
            left, right = (e.render(names) for e in self.exprs)
            return f"({left} {_SYMBOL[self.op]} {right})"
        parts = [a.render(names) for a in self.args]
        if self.op == "not":
            return f"(~{parts[0]})"
        return f"({parts[0]} {'&' if self.op == 'and' else '|'} {parts[1]})"

    def __str__(self) -> str:
        return self.render()


_SYMBOL = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_COMPARE: Mapping[str, Callable[[Value, Value], Value]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def compare(op: str, left: IndexExpr | int, right: IndexExpr | int) -> Predicate:
    """left op right, with op one of lt le gt ge eq ne."""
    return Predicate(op, exprs=(_lift(left), _lift(right)))
