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
_PASS_ON = ("add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "square", "abs")


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
    """Whether a value is NaN wherever the one that is watched is, as far as one can see."""
    if number == watched:
        return True
    node = nodes[number]
    if node.op == "where":
        condition = nodes[node.args[0]]
        # NaN equals nothing.
        is_never = condition.op == "eq" and watched in condition.args
        chosen = node.args[2:] if is_never else node.args[1:]
        return all(_is_nan_with(nodes, a, watched) for a in chosen)
    is_cast = node.op == "cast" and isinstance(node.attr, DType) and node.attr.is_float
    # A product with a mask is 0 where the mask is, whatever the other factor is.
    passes = node.op in _PASS_ON and all(nodes[a].op != "mask" for a in node.args)
    return (is_cast or passes) and any(_is_nan_with(nodes, a, watched) for a in node.args)
