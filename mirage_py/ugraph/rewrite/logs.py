"""Logarithms of products with exponentials: log(exp(x) / y) becomes x - log(y).

exp(x) is never 0, so both sides are defined for the same inputs, over the real numbers. In floats
it underflows, and the logarithm of a softmax is minus infinity, where x - log(sum(exp(x))) has a
value that the stabiliser knows how to compute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.dtypes import DType
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.rebuild import Rule, rebuild

# Logarithms, and what that of e is: the stabiliser knows the natural one.
_LOGS = {"log": 1.0, "log2": 1.0 / math.log(2.0), "log10": 1.0 / math.log(10.0)}
# A product that is squared again and again has as many factors as a power of two.
_MOST_FACTORS = 64


def logs_apart(program: Program) -> Program:
    """The same program with the exponentials among the factors of each logarithm taken out."""
    rules: dict[int, Rule] = {}
    for position, node in enumerate(program.nodes):
        if node.op in _LOGS:
            factors = [f for side in _factors(program.nodes, node.args[0]) for f in side]
            if any(program.nodes[f].op == "exp" for f in factors):
                rules[position] = partial(_sum, node.op)
    return rebuild(program, rules) if rules else program


def _factors(nodes: Sequence[Node], product: int) -> tuple[list[int], list[int]]:
    """Factors and divisors, seen through casts between floating-point types."""
    found: tuple[list[int], list[int]] = [], []
    todo = [(product, 0)]
    while todo:
        current, side = todo.pop()
        node = nodes[current]
        if len(todo) + len(found[0]) + len(found[1]) >= _MOST_FACTORS:
            found[side].append(current)
        elif node.op in ("mul", "div"):
            first, second = node.args
            todo += [(second, side ^ (node.op == "div")), (first, side)]
        elif node.op == "cast" and isinstance(node.attr, DType) and node.attr.is_float:
            todo.append((node.args[0], side))
        else:
            found[side].append(current)
    return found


def _sum(op: str, builder: ProgramBuilder, args: Sequence[int]) -> int:
    """The logarithm of a product, which the builder has."""
    nodes, apply = builder.nodes, builder.apply
    terms: list[list[int]] = []
    rests: list[int | None] = []
    for factors in _factors(nodes, args[0]):
        rest = [f for f in factors if nodes[f].op != "exp"]
        rests.append(reduce(partial(apply, "mul"), rest) if rest else None)
        terms.append([nodes[f].args[0] for f in factors if nodes[f].op == "exp"])
    (above, below), (added, taken) = rests, terms
    if above is not None:
        added.append(apply("log", above if below is None else apply("div", above, below)))
    elif below is not None:
        taken.append(apply("log", below))
    start = reduce(partial(apply, "add"), added) if added else builder.const(0.0)
    result = reduce(partial(apply, "sub"), taken, start)
    return result if op == "log" else apply("mul", result, builder.const(_LOGS[op]))
