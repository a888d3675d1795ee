"""A term: what a tensor computes, over named axes, without index detail.

Terms are the abstract expressions of the Mirage paper, over named axes. An axis is one factor of a
dimension: "k.t" is what one tile covers of k, "k.l" counts the iterations of a loop over k, "k.g"
the blocks of a grid. A sum over all of k is the nested sum over its axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from mirage_py.errors import InputError
from mirage_py.ugraph.operators import named

# A leaf's attribute: leaf and var, a name; const, decimal text; size, a dimension or one of its
# axes. `var` stands for any term and occurs in laws only.
LEAVES = ("leaf", "const", "size", "var")
REDUCTIONS = ("sum", "max")
# Casts are transparent, and shifts are no part of programs.
UNARY = named(lambda o: o.arity == 1 and o.over_field is not None and o.name != "cast")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
BITWISE = named(lambda o: o.is_bitwise)
BINARY = ("add", "sub", "mul", "div", "pow", "fmod", *BITWISE, "maximum", "minimum", *COMPARISONS)
TERNARY = ("where", "clamp")

ARITY: dict[str, int] = {
    **dict.fromkeys(LEAVES, 0),
    **dict.fromkeys(REDUCTIONS, 1),
    **dict.fromkeys(UNARY, 1),
    **dict.fromkeys(BINARY, 2),
    **dict.fromkeys(TERNARY, 3),
}


@dataclass(frozen=True, slots=True, repr=False)
class Term:
    """An operator applied to terms. ``attr`` names a leaf, or the axis that a reduction removes.

    Raises InputError for an operator that is not in ``ARITY``, or one with the wrong operands.
    """

    op: str
    attr: str = ""
    args: tuple[Term, ...] = ()
    # Terms are keys of many tables and share their subterms: each is hashed once.
    _hash: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if ARITY.get(self.op) != len(self.args):
            raise InputError(
                f"'{self.op}' with {len(self.args)} operands is no term",
                why=f"known operators and their operands: {ARITY}",
            )
        if (self.op in LEAVES or self.op in REDUCTIONS) != bool(self.attr):
            raise InputError(
                f"a '{self.op}' term with attribute '{self.attr}'",
                why="leaves and reductions carry a name or an axis, no other term does",
            )
        if self.op == "const":
            object.__setattr__(self, "attr", canonical_number(self.attr))
        object.__setattr__(self, "_hash", hash((self.op, self.attr, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Each pair of subterms is compared once: the paths through shared ones are too many."""
        if not isinstance(other, Term):
            return NotImplemented
        seen: dict[tuple[int, int], None] = {}
        todo = [(self, other)]
        while todo:
            a, b = todo.pop()
            pair = (id(a), id(b))
            if a is b or pair in seen:
                continue
            if (a._hash, a.op, a.attr, len(a.args)) != (b._hash, b.op, b.attr, len(b.args)):
                return False
            seen[pair] = None
            todo.extend(zip(a.args, b.args, strict=True))
        return True

    def __str__(self) -> str:
        if self.op in LEAVES:
            return f"|{self.attr}|" if self.op == "size" else self.attr
        axis = f"[{self.attr}]" if self.attr else ""
        return f"{self.op}{axis}({', '.join(map(str, self.args))})"

    __repr__ = __str__

    def __add__(self, other: Term) -> Term:
        return Term("add", args=(self, other))

    def __sub__(self, other: Term) -> Term:
        return Term("sub", args=(self, other))

    def __mul__(self, other: Term) -> Term:
        return Term("mul", args=(self, other))

    def __truediv__(self, other: Term) -> Term:
        return Term("div", args=(self, other))

    def __neg__(self) -> Term:
        return Term("neg", args=(self,))


def canonical_number(text: str) -> str:
    """One spelling per value: "1" for "1.0", "1e-06" for "0.000001".

    The shortest text that reads back as the same float is used where that is exact. Raises
    InputError for what is no number.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise InputError(
            f"'{text}' is no decimal number", repair="write it as 0.125 or 1e-06"
        ) from None
    if value == value.to_integral_value() and abs(value) < 10**15:
        return str(int(value))
    short = repr(float(value))
    return short if Decimal(short) == value else str(value.normalize())


def leaf(name: str) -> Term:
    """An input of the program."""
    return Term("leaf", name)


def const(text: str) -> Term:
    """A scalar, by its decimal text."""
    return Term("const", text)


def size(name: str) -> Term:
    """The extent of a dimension, or of one axis of it, as a scalar."""
    return Term("size", name)


def var(name: str) -> Term:
    """Any term: the variables of laws."""
    return Term("var", name)


def apply(op: str, *args: Term) -> Term:
    """An elementwise operator applied to its operands."""
    return Term(op, args=args)


def reduce(op: str, axes: tuple[str, ...], x: Term) -> Term:
    """``op`` over several axes; the first is the outermost."""
    for axis in reversed(axes):
        x = Term(op, axis, (x,))
    return x


def subterms(*roots: Term) -> Iterator[Term]:
    """Every distinct subterm once, operands before the terms that use them."""
    seen: dict[Term, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        term, ready = stack.pop()
        if term in seen:
            continue
        if ready:
            seen[term] = None
            yield term
        else:
            stack.append((term, True))
            stack.extend((arg, False) for arg in reversed(term.args))
