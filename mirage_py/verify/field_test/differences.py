"""Comparisons of programs as signs of differences.

The random order of a field knows nothing of sums, and sums nothing of it: ``x - z > 0`` is not
``x > z`` there. The sign of a product is the product of the signs, so that a difference with 0 is
the same condition however its terms lie on the two sides, and whatever positive number scales it.
What is given up is that the order is transitive: of a > b and b > c a difference knows nothing of
a > c. So either form of two programs may be equal where the other one is not.

Of whole numbers, a <= b is a < b + 1.

``==`` and ``!=`` are of a difference without the power of two that all of its terms have: 2 a ==
2 b is a == b, also in floats, as nothing is rounded. 3 a == 3 b is not: two numbers that differ may
have one rounded multiple.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from math import isfinite

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.checks.whole_numbers import are_whole
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.rebuild import Rule, rebuild

_ORDERS = ("lt", "le", "gt", "ge")
_EQUALITIES = ("eq", "ne")


def by_difference(program: Program) -> Program:
    """The program with ``a - b`` compared with 0 for each comparison that depends on an input; the
    program itself where there is none. Conditions on indices alone are decided, and stay.
    """
    whole = are_whole(program)
    powers = _powers_of_two(program.nodes)
    rules: dict[int, Rule] = {}
    for position, node in enumerate(program.nodes):
        if node.op not in (*_ORDERS, *_EQUALITIES):
            continue
        if any(program.nodes[n].op == "load" for n in cone(program.nodes, [position])):
            is_whole = all(whole[a] for a in node.args)
            if node.op in _ORDERS:
                rules[position] = partial(_difference, node.op, is_whole)
            elif not is_whole:
                power = min((p for a in node.args if (p := powers[a]) is not None), default=0)
                rules[position] = partial(_scaled, node.op, 2.0**-power)
    return rebuild(program, rules) if rules else program


def _difference(op: str, is_whole: bool, builder: ProgramBuilder, args: list[int]) -> int:
    less, more = args if op in ("lt", "le") else args[::-1]
    if is_whole and op in ("le", "ge"):
        more, op = builder.apply("add", more, builder.const(1.0)), "lt"
    strict = "gt" if op in ("lt", "gt") else "ge"
    return builder.apply(strict, builder.apply("sub", more, less), builder.const(0.0))


def _scaled(op: str, scale: float, builder: ProgramBuilder, args: list[int]) -> int:
    difference = builder.apply("sub", *args)
    return builder.apply(
        op, builder.apply("mul", difference, builder.const(scale)), builder.const(0.0)
    )


def _powers_of_two(nodes: Sequence[Node]) -> list[int | None]:
    """For each value a power of two that its terms have, 0 where none is known; None for 0."""
    found: list[int | None] = []
    for node in nodes:
        args = [found[a] for a in node.args]
        power: int | None = 0
        if node.op == "const" and isinstance(node.attr, float) and isfinite(node.attr):
            power = _power_of_two(node.attr)
        elif node.op in ("neg", "cast", "abs", "relu", "sum", "max"):
            power = args[0]
        elif node.op in ("add", "sub", "maximum", "minimum"):
            power = min((p for p in args if p is not None), default=None)
        elif node.op in ("mul", "matmul", "div"):
            first, second = args
            if first is None or second is None:
                power = None
            else:
                power = first - second if node.op == "div" else first + second
        found.append(power)
    return found


def _power_of_two(number: float) -> int | None:
    """Of the number that the decimal text means: that of 0.1 is -1."""
    if number == 0.0:
        return None
    parts = Fraction(repr(number))
    return sum(
        sign * ((n & -n).bit_length() - 1)
        for sign, n in ((1, parts.numerator), (-1, parts.denominator))
    )
