"""Selections of NaN for what is NaN already: where(isnan(x), nan, y) is y if y is NaN with x.

torch writes x * log(x) so, for x = 0 and NaN (xlogy, the KL divergence, entropies). A finite field
has no NaN, so a program with the constant would not be searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.rebuild import Rule, rebuild

# Operators whose results are NaN where an operand is.
_ONE_OPERAND = ("neg", "exp", "log", "sqrt", "square", "abs")
_TWO_OPERANDS = ("add", "sub", "mul", "div")


def without_nan_guards(program: Program) -> Program:
    """The program with what is selected otherwise in the place of such selections."""
    nodes = program.nodes
    rules: dict[int, Rule] = {}
    for position, node in enumerate(nodes):
        if node.op != "where" or nodes[node.args[0]].op != "isnan":
            continue
        (watched,), chosen = nodes[node.args[0]].args, nodes[node.args[1]].attr
        if (
            isinstance(chosen, float)
            and isnan(chosen)
            and _is_nan_with(nodes, node.args[2], watched)
        ):
            rules[position] = _otherwise
    return rebuild(program, rules) if rules else program


def _otherwise(builder: ProgramBuilder, args: Sequence[int]) -> int:
    del builder
    return args[2]


def _is_nan_with(nodes: Sequence[Node], number: int, watched: int) -> bool:
    """Whether a value is NaN wherever the one that is watched is, whatever laws make of it.

    They hold of numbers: what is subtracted from itself is gone, and so is a factor of zero or of
    a mask. So what is watched has to stand in one operand, beside what is surely no such factor.
    """
    if number == watched:
        return _is_plain(nodes, watched)
    node = nodes[number]
    if node.op == "where":
        condition = nodes[node.args[0]]
        # NaN equals nothing.
        is_never = condition.op == "eq" and watched in condition.args
        chosen = node.args[2:] if is_never else node.args[1:]
        return all(_is_nan_with(nodes, a, watched) for a in chosen)
    if _is_float_cast(node) or node.op in _ONE_OPERAND:
        return _is_nan_with(nodes, node.args[0], watched)
    if node.op not in _TWO_OPERANDS:
        return False
    if node.op == "mul" and _is_with_own_logarithm(nodes, node.args, watched):
        return _is_plain(nodes, watched)
    reads = [_reads(nodes, a, watched) for a in node.args]
    if sum(reads) != 1:
        return False
    beside = node.args[reads.index(False)]
    is_kept = node.op in ("add", "sub") or _is_plain(nodes, beside)
    return is_kept and _is_nan_with(nodes, node.args[reads.index(True)], watched)


def _is_plain(nodes: Sequence[Node], number: int) -> bool:
    """Whether a value is a function of one element of one input, or a constant but zero."""
    node = nodes[number]
    if _is_float_cast(node) or node.op in _ONE_OPERAND:
        return _is_plain(nodes, node.args[0])
    return node.op == "load" or (node.op == "const" and node.attr != 0)


def _is_with_own_logarithm(nodes: Sequence[Node], args: Sequence[int], watched: int) -> bool:
    """Whether a product is x * log(x), in any order."""
    return any(
        one == watched and nodes[other].op == "log" and nodes[other].args == (watched,)
        for one, other in (args, args[::-1])
    )


def _reads(nodes: Sequence[Node], number: int, watched: int) -> bool:
    seen, waiting = set[int](), [number]
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            waiting += nodes[number].args
    # What is watched is found by its inputs too: another function of them cancels it as well.
    return bool(seen & _inputs(nodes, watched))


def _inputs(nodes: Sequence[Node], number: int) -> set[int]:
    """A plain value's node, and those that it is a function of."""
    found = {number}
    while nodes[number].args:
        number = nodes[number].args[0]
        found.add(number)
    return found


def _is_float_cast(node: Node) -> bool:
    return node.op == "cast" and isinstance(node.attr, DType) and node.attr.is_float
