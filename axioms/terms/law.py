"""A law: two patterns that are equal for all values of their variables, with its conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mirage_py.axioms.terms.term import REDUCTIONS, Term, subterms

Ring = Literal["factored", "expanded"]
RINGS: tuple[Ring, ...] = ("factored", "expanded")


@dataclass(frozen=True, slots=True)
class Independent:
    """Side condition: what ``var`` stands for does not depend on ``axis``."""

    var: str
    axis: str


@dataclass(frozen=True, slots=True)
class Narrower:
    """Guard: the product of what ``vars`` stand for lacks an axis that ``than`` depends on."""

    vars: tuple[str, ...]
    than: str

    def __str__(self) -> str:
        return f"{' * '.join(self.vars)} lacks an axis of {self.than}"


@dataclass(frozen=True, slots=True)
class Within:
    """Guard: ``var`` has no axis that ``of`` lacks: joined, they are no larger than it."""

    var: str
    of: str

    def __str__(self) -> str:
        return f"{self.var} has the axes of {self.of} at most"


@dataclass(frozen=True, slots=True)
class Uneven:
    """Guard: what ``vars`` stand for do not all have the same axes."""

    vars: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.vars)} differ in their axes"


@dataclass(frozen=True, slots=True)
class NotSize:
    """Guard: ``var`` does not stand for a size or a product of sizes."""

    var: str

    def __str__(self) -> str:
        return f"{self.var} is no size"


Guard = Narrower | Within | Uneven | NotSize


@dataclass(frozen=True, slots=True)
class Law:
    """``left`` may be rewritten to ``right``, and back if ``both_ways``.

    ``name``      family and what it says, "sums.commute"
    ``when``      all of these must hold, else the sides may differ
    ``sizes``     these stand for sizes or products of sizes, which are at least 1
    ``only``      all of these must hold, else the law is true but not worth its rows
    ``ring``      "factored": always in force; "expanded": in force only in the expanded ring. The
                  factored ring is searched first, so a law that makes expressions grow is expanded
    ``cites``     where it comes from
    ``why``       what it is good for, or why it has this direction
    ``disabled``  the reason why the law is not in force, empty for the others
    """

    name: str
    left: Term
    right: Term
    both_ways: bool = False
    when: tuple[Independent, ...] = ()
    sizes: tuple[str, ...] = ()
    only: tuple[Guard, ...] = ()
    ring: Ring = "factored"
    cites: str = "algebra"
    why: str = ""
    disabled: str = ""

    def __post_init__(self) -> None:
        left, right = names_bound(self.left), names_bound(self.right)
        missing = [n for n in right if n not in left]
        if self.both_ways:
            missing += [n for n in left if n not in right]
        missing += [n for c in self.when for n in (c.var, c.axis) if n not in left]
        missing += [n for n in self.sizes if n not in left]
        missing += [n for guard in self.only for n in guarded(guard) if n not in left]
        if missing:
            raise ValueError(f"law '{self.name}' uses {missing} where nothing binds it")

    def __str__(self) -> str:
        arrow = "=" if self.both_ways else "->"
        when = "".join(f", {c.var} free of {c.axis}" for c in self.when)
        when += "".join(f", {name} a size" for name in self.sizes)
        only = "".join(f", only if {guard}" for guard in self.only)
        return f"{self.name}: {self.left} {arrow} {self.right}{when}{only}"


def guarded(guard: Guard) -> tuple[str, ...]:
    """The variables that a guard speaks of."""
    if isinstance(guard, Narrower):
        return (*guard.vars, guard.than)
    if isinstance(guard, Uneven):
        return guard.vars
    return (guard.var, guard.of) if isinstance(guard, Within) else (guard.var,)


def names_bound(pattern: Term) -> tuple[str, ...]:
    """Variables and axis variables that a match of the pattern gives a meaning."""
    terms = tuple(subterms(pattern))
    return tuple(
        dict.fromkeys(t.attr for t in terms if t.op in ("var", "size") or t.op in REDUCTIONS)
    )


def axis_variables(law: Law) -> tuple[str, ...]:
    """Names of the variables that stand for axes, in the order of the text."""
    return tuple(
        dict.fromkeys(
            t.attr for t in subterms(law.left, law.right) if t.op in REDUCTIONS or t.op == "size"
        )
    )
