"""The exponential of a value that a mask sets to minus infinity.

exp(where(keep, x, -inf)) is exp(x) times the 0/1 mask. Written so, no infinity is left: a finite
field has none, and a search can move the factor through products and sums. Additive masks (scores
plus 0 or -inf) and masks that were scaled or combined on the way come to the same form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import BOOL, DType
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.predicates import TRUE, conjunction, disjunction, negation

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
    return factored(builder, builder.apply("exp", masked.finite), masked)


def factored(builder: ProgramBuilder, value: int, masked: Masked) -> int:
    """``value`` where nothing is masked, 0 elsewhere."""
    if masked.predicate != TRUE:
        value = builder.apply("mul", value, builder.mask(masked.predicate))
    for factor in masked.factors:
        value = builder.apply("mul", value, factor)
    return value


def split(builder: ProgramBuilder, x: int) -> Masked:
    """The value without its minus infinities, and where they are."""
    return MaskSplitter(builder).split(x)


class MaskSplitter:
    """Splits the values of one builder, each once: programs are graphs whose paths are many."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self.builder = builder
        self._known: dict[int, Masked] = {}

    def split(self, x: int) -> Masked:
        """The value without its minus infinities, and where they are."""
        if x not in self._known:
            self._known[x] = self._split(x)
        return self._known[x]

    def _split(self, x: int) -> Masked:
        node = self.builder.nodes[x]
        if node.op == "where":
            return self._where(*node.args) or Masked(x)
        if node.op == "add":
            left, right = self.split(node.args[0]), self.split(node.args[1])
            if left.is_masked or right.is_masked:
                return _both(self.builder.apply("add", left.finite, right.finite), left, right)
        elif node.op == "cast":
            inner = self.split(node.args[0])
            if inner.is_masked:
                return replace(inner, finite=self.builder.cast(inner.finite, _target(node)))
        elif node.op == "sub":
            # Only on the left: minus minus infinity is another story.
            return self._one_side(x, 0)
        elif node.op in ("mul", "div"):
            for side in (0, 1) if node.op == "mul" else (0,):
                if _is_positive(self.builder, node.args[1 - side]):
                    return self._one_side(x, side)
        return Masked(x)

    def _one_side(self, x: int, side: int) -> Masked:
        """A binary operator that keeps minus infinity where its operand at ``side`` has it."""
        node = self.builder.nodes[x]
        inner = self.split(node.args[side])
        if not inner.is_masked:
            return Masked(x)
        args = list(node.args)
        args[side] = inner.finite
        return replace(inner, finite=self.builder.apply(node.op, *args))

    def _where(self, condition: int, x: int, y: int) -> Masked | None:
        if _is_minus_infinity(self.builder, y):
            kept, negated = self.split(x), False
        elif _is_minus_infinity(self.builder, x):
            kept, negated = self.split(y), True
        else:
            return self._choice(condition, x, y)
        predicate = self.builder.nodes[condition].attr
        if isinstance(predicate, Predicate):
            keep = negation(predicate) if negated else predicate
            return replace(kept, predicate=conjunction(kept.predicate, keep))
        factors = _factors(self.builder, condition, holds=not negated)
        return replace(kept, factors=(*kept.factors, *factors))

    def _choice(self, condition: int, x: int, y: int) -> Masked | None:
        """One of two values, each with its own mask; only for conditions on indices."""
        left, right = self.split(x), self.split(y)
        choice = self.builder.nodes[condition].attr
        if not isinstance(choice, Predicate) or left.factors or right.factors:
            return None
        if not left.is_masked and not right.is_masked:
            return None
        keep = disjunction(
            conjunction(choice, left.predicate), conjunction(negation(choice), right.predicate)
        )
        return Masked(self.builder.apply("where", condition, left.finite, right.finite), keep)


def _target(node: Node) -> DType:
    assert isinstance(node.attr, DType)
    return node.attr


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


def _factors(builder: ProgramBuilder, condition: int, *, holds: bool) -> tuple[int, ...]:
    """Factors that are 1 where a condition holds, or where it does not. Each is a truth value, by
    which kernels select: what is masked may be infinite, and 0 times that is no number.
    """
    if not _is_truth(builder, condition):
        return (builder.apply("ne" if holds else "eq", condition, builder.const(0.0)),)
    node = builder.nodes[condition]
    if node.op == "sub":  # 1 less a condition
        return _factors(builder, node.args[1], holds=not holds)
    if not holds:
        return (builder.apply("eq", condition, builder.const(0.0)),)
    if node.op == "mul":
        return tuple(f for a in node.args for f in _factors(builder, a, holds=True))
    return (condition,)


def _is_truth(builder: ProgramBuilder, x: int) -> bool:
    node = builder.nodes[x]
    if node.op == "load":
        return builder.inputs[node.access.tensor].dtype == BOOL
    # A product of conditions is a condition, and so is what 1 leaves of one.
    if node.op == "mul":
        return all(_is_truth(builder, a) for a in node.args)
    if node.op == "sub":
        first = builder.nodes[node.args[0]]
        return first.op == "const" and first.attr == 1.0 and _is_truth(builder, node.args[1])
    return node.op in _TRUTH
