"""Notation for laws: variables and operators that read as in a paper."""

from __future__ import annotations

from mirage_py.axioms.terms.term import Term, apply, const, var

w, x, y, z = var("w"), var("x"), var("y"), var("z")
zero, one, two = const("0"), const("1"), const("2")


def total(axis: str, term: Term) -> Term:
    """Sum over one axis."""
    return Term("sum", axis, (term,))


def largest(axis: str, term: Term) -> Term:
    """Maximum over one axis."""
    return Term("max", axis, (term,))


def maximum(left: Term, right: Term) -> Term:
    """The larger of two, element by element."""
    return apply("maximum", left, right)


def minimum(left: Term, right: Term) -> Term:
    """The smaller of two, element by element."""
    return apply("minimum", left, right)


def where(condition: Term, then: Term, otherwise: Term) -> Term:
    """``then`` where the condition is not zero."""
    return apply("where", condition, then, otherwise)


def exp(term: Term) -> Term:
    """Exponential."""
    return apply("exp", term)


def log(term: Term) -> Term:
    """Natural logarithm."""
    return apply("log", term)


def sqrt(term: Term) -> Term:
    """Square root."""
    return apply("sqrt", term)


def rsqrt(term: Term) -> Term:
    """One over the square root."""
    return apply("rsqrt", term)


def square(term: Term) -> Term:
    """A term times itself."""
    return apply("square", term)


def power(base: Term, exponent: str) -> Term:
    """A constant power, by the exponent's decimal text."""
    return apply("pow", base, const(exponent))
