"""The exponential of a value that a mask sets to minus infinity.

exp(where(keep, x, -inf)) is exp(x) times the 0/1 mask. Written so, no infinity is left: a finite
field has none, and a search can move the factor through products and sums. Additive masks (scores
plus 0 or -inf) and masks that were scaled or combined on the way come to the same form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mirage_py.ugraph.builder import ProgramBuilder
from mirage_py.ugraph.dtypes import BOOL
from mirage_py.ugraph.index import Predicate
from mirage_py.ugraph.predicates import TRUE, conjunction, disjunction, negation

# Their results are 0 or 1.
_TRUTH = ("mask", "lt", "le", "gt", "ge", "eq", "ne")


@dataclass(frozen=True, slots=True)
class Masked:
    """A value that is minus infinity except where a mask holds.

    It is ``finite`` where ``predicate`` and all ``factors`` (nodes that are 0 or 1) hold.
    """

    finite: int
    predicate: Predicate = TRUE
    factors: tuple[int, ...] = ()

    @property
    def is_masked(self) -> bool:
        """Whether anything is masked at all."""
        return self.predicate != TRUE or bool(self.factors)


def exponential(builder: ProgramBuilder, x: int) -> int:
    """exp(x), with every mask that sets x to minus infinity as a factor 0 or 1."""
    masked = split(builder, x)
    result = builder.apply("exp", masked.finite)
    if masked.predicate != TRUE:
        result = builder.apply("mul", result, builder.mask(masked.predicate))
    for factor in masked.factors:
        result = builder.apply("mul", result, factor)
    return result


def split(builder: ProgramBuilder, x: int) -> Masked:
    """The value without its minus infinities, and where they are."""
    node = builder.nodes[x]
    if node.op == "where":
        return _split_where(builder, *node.args) or Masked(x)
    if node.op in ("add", "sub"):
        left, right = split(builder, node.args[0]), split(builder, node.args[1])
        if node.op == "sub":
            right = Masked(node.args[1])  # minus minus infinity is another story
        if left.is_masked or right.is_masked:
            finite = builder.apply(node.op, left.finite, right.finite)
            return _both(finite, left, right)
    if node.op in ("mul", "div"):
        return _split_scaled(builder, x)
    if node.op == "cast":
        inner = split(builder, node.args[0])
        if inner.is_masked:
            finite = builder.apply("cast", inner.finite, attr=node.attr)
            return Masked(finite, inner.predicate, inner.factors)
    return Masked(x)


def _split_scaled(builder: ProgramBuilder, x: int) -> Masked:
    """A product with a positive number, on either side, or a quotient by one."""
    node = builder.nodes[x]
    for position in (0, 1) if node.op == "mul" else (0,):
        if _is_positive(builder, node.args[1 - position]):
            inner = split(builder, node.args[position])
            if inner.is_masked:
                args = list(node.args)
                args[position] = inner.finite
                finite = builder.apply(node.op, *args)
                return Masked(finite, inner.predicate, inner.factors)
    return Masked(x)


def _split_where(builder: ProgramBuilder, condition: int, x: int, y: int) -> Masked | None:
    if _is_minus_infinity(builder, y):
        kept, negated = split(builder, x), False
    elif _is_minus_infinity(builder, x):
        kept, negated = split(builder, y), True
    else:
        return _split_choice(builder, condition, x, y)
    node = builder.nodes[condition]
    if isinstance(node.attr, Predicate):
        keep = negation(node.attr) if negated else node.attr
        return Masked(kept.finite, conjunction(kept.predicate, keep), kept.factors)
    factor = condition if _is_truth(builder, condition) else _nonzero(builder, condition)
    if negated:
        factor = builder.apply("sub", builder.const(1.0), factor)
    return Masked(kept.finite, kept.predicate, (*kept.factors, factor))


def _split_choice(builder: ProgramBuilder, condition: int, x: int, y: int) -> Masked | None:
    """One of two values, each with its own mask; only for conditions on indices."""
    left, right = split(builder, x), split(builder, y)
    choice = builder.nodes[condition].attr
    if not isinstance(choice, Predicate) or left.factors or right.factors:
        return None
    if not left.is_masked and not right.is_masked:
        return None
    keep = disjunction(
        conjunction(choice, left.predicate), conjunction(negation(choice), right.predicate)
    )
    return Masked(builder.apply("where", condition, left.finite, right.finite), keep)


def _both(finite: int, left: Masked, right: Masked) -> Masked:
    factors = tuple(dict.fromkeys((*left.factors, *right.factors)))
    return Masked(finite, conjunction(left.predicate, right.predicate), factors)


def _is_minus_infinity(builder: ProgramBuilder, x: int) -> bool:
    return builder.nodes[x].op == "const" and builder.nodes[x].attr == -math.inf


def _is_positive(builder: ProgramBuilder, x: int) -> bool:
    attr = builder.nodes[x].attr
    if builder.nodes[x].op == "size":
        return True
    return builder.nodes[x].op == "const" and isinstance(attr, float) and 0 < attr < math.inf


def _is_truth(builder: ProgramBuilder, x: int) -> bool:
    node = builder.nodes[x]
    if node.op == "load":
        return builder.inputs[node.access.tensor].dtype is BOOL
    # A product of conditions is a condition, and so is what 1 leaves of one.
    if node.op == "mul":
        return all(_is_truth(builder, a) for a in node.args)
    if node.op == "sub":
        first = builder.nodes[node.args[0]]
        return first.op == "const" and first.attr == 1.0 and _is_truth(builder, node.args[1])
    return node.op in _TRUTH


def _nonzero(builder: ProgramBuilder, x: int) -> int:
    return builder.apply("ne", x, builder.const(0.0))
