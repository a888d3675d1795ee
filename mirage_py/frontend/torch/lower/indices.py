"""Arithmetic on positions: sums of arange stay index expressions, their comparisons predicates.

A mask that is known as a predicate costs no memory and moves through a search as a 0/1 factor; a
mask computed as numbers would be one more tensor. So integers that come from arange are followed as
far as index expressions go, and only then become numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.predicates import FALSE, TRUE, conjunction, disjunction, negation

_COMPARED: dict[str, Callable[[float, float], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
COMPARISONS = tuple(_COMPARED)


def index_result(builder: ProgramBuilder, op: str, nodes: Sequence[int]) -> int | None:
    """``op`` on nodes that are positions or masks, or None where it has to be done on numbers."""
    if all(builder.nodes[n].op == "const" for n in nodes):
        return None
    if op in COMPARISONS:
        compared = _compared(builder, op, nodes)
        return None if compared is None else mask(builder, compared)
    combined = _combined_masks(builder, op, nodes)
    if combined is not None:
        return mask(builder, combined)
    expression = _expression(builder, op, nodes)
    return None if expression is None else builder.index(expression)


def index_of(builder: ProgramBuilder, node: int) -> IndexExpr | None:
    """The node as a position; a whole number is one."""
    attr = builder.nodes[node].attr
    if isinstance(attr, IndexExpr):
        return attr
    if builder.nodes[node].op == "const" and isinstance(attr, float) and attr.is_integer():
        return ix.const(int(attr))
    return None


def mask_of(builder: ProgramBuilder, node: int) -> Predicate | None:
    """The node as a condition on positions; the numbers 0 and 1 are conditions."""
    attr = builder.nodes[node].attr
    if isinstance(attr, Predicate):
        return attr
    if builder.nodes[node].op == "const" and attr in (0.0, 1.0):
        return TRUE if attr else FALSE
    return None


def mask(builder: ProgramBuilder, predicate: Predicate) -> int:
    """The node of a condition; a condition without positions is the number 0 or 1."""
    if not predicate.dims():
        return builder.const(float(bool(predicate.evaluate({}))))
    return builder.mask(predicate)


def _expression(builder: ProgramBuilder, op: str, nodes: Sequence[int]) -> IndexExpr | None:
    rule = _INDEX_RULES.get(op)
    if rule is None:
        return None
    exprs = [index_of(builder, n) for n in nodes]
    found = [e for e in exprs if e is not None]
    return rule(builder, *found) if len(found) == len(nodes) else None


def _times(builder: ProgramBuilder, left: IndexExpr, right: IndexExpr) -> IndexExpr | None:
    del builder
    if right.op == "const":
        return left * right.value
    return right * left.value if left.op == "const" else None


def _divided(
    builder: ProgramBuilder, left: IndexExpr, right: IndexExpr, op: str
) -> IndexExpr | None:
    # Generated code divides as C does: floor and remainder agree with it for positions >= 0 only.
    if right.op != "const" or right.value < 1 or left.bounds(builder.sizes)[0] < 0:
        return None
    return left // right.value if op == "floordiv" else left % right.value


_INDEX_RULES: dict[str, Callable[..., IndexExpr | None]] = {
    "add": lambda b, x, y: x + y,
    "sub": lambda b, x, y: x - y,
    "neg": lambda b, x: x * -1,
    "mul": _times,
    "floordiv": lambda b, x, y: _divided(b, x, y, "floordiv"),
    "mod": lambda b, x, y: _divided(b, x, y, "mod"),
}


def _combined_masks(builder: ProgramBuilder, op: str, nodes: Sequence[int]) -> Predicate | None:
    masks = [mask_of(builder, n) for n in nodes]
    found = [m for m in masks if m is not None]
    if len(found) != len(nodes):
        return None
    if op == "not":
        return negation(found[0])
    if op in ("and", "mul"):
        return conjunction(found[0], found[1])
    if op == "or":
        return disjunction(found[0], found[1])
    if op == "sub" and found[0] == TRUE:
        return negation(found[1])
    return None


def _compared(builder: ProgramBuilder, op: str, nodes: Sequence[int]) -> Predicate | None:
    flag = _compared_with_number(builder, op, nodes)
    if flag is not None:
        return flag
    distance = _compared_distance(builder, op, nodes)
    if distance is not None:
        return distance
    left, right = (index_of(builder, n) for n in nodes)
    return None if left is None or right is None else ix.compare(op, left, right)


def _compared_with_number(
    builder: ProgramBuilder, op: str, nodes: Sequence[int]
) -> Predicate | None:
    """``mask == 0``, ``mask > 0.5`` and the like, as they follow a tril of ones."""
    left, right = (builder.nodes[n].attr for n in nodes)
    if isinstance(right, Predicate):
        left, right, op = right, left, _MIRRORED.get(op, op)
    if not isinstance(left, Predicate) or not isinstance(right, float):
        return None
    if_false, if_true = (_COMPARED[op](value, right) for value in (0.0, 1.0))
    if if_false == if_true:
        return TRUE if if_true else FALSE
    return left if if_true else negation(left)


def _compared_distance(builder: ProgramBuilder, op: str, nodes: Sequence[int]) -> Predicate | None:
    """``(i - j).abs() < w``: a sliding window is two comparisons of positions."""
    node = builder.nodes[nodes[0]]
    bound = index_of(builder, nodes[1])
    inner = index_of(builder, node.args[0]) if node.op == "abs" else None
    if inner is None or bound is None or op not in ("lt", "le", "gt", "ge"):
        return None
    above = ix.compare(op, inner, bound)
    below = ix.compare(op, inner * -1, bound)
    return conjunction(above, below) if op in ("lt", "le") else disjunction(above, below)
