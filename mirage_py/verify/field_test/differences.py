"""Comparisons of programs as signs of differences.

The random order of a field knows nothing of sums, and sums nothing of it: ``x - z > 0`` is not
``x > z`` there. The sign of a product is the product of the signs, so that a difference with 0 is
the same condition however its terms lie on the two sides, and whatever positive number scales it.
What is given up is that the order is transitive: of a > b and b > c a difference knows nothing of
a > c. So either form of two programs may be equal where the other one is not.

Of whole numbers, a <= b is a < b + 1.
"""

from __future__ import annotations

from functools import partial

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.rebuild import Rule, rebuild
from mirage_py.verify.field_test.whole_numbers import are_whole

_ORDERS = ("lt", "le", "gt", "ge")


def by_difference(program: Program) -> Program:
    """The program with ``a - b > 0`` for each comparison that depends on an input; the program
    itself where there is none. Conditions on indices alone are decided, and stay.
    """
    whole = are_whole(program)
    rules: dict[int, Rule] = {}
    for position, node in enumerate(program.nodes):
        if node.op not in _ORDERS:
            continue
        if any(program.nodes[n].op == "load" for n in cone(program.nodes, [position])):
            is_whole = all(whole[a] for a in node.args)
            rules[position] = partial(_difference, node.op, is_whole)
    return rebuild(program, rules) if rules else program


def _difference(op: str, is_whole: bool, builder: ProgramBuilder, args: list[int]) -> int:
    less, more = args if op in ("lt", "le") else args[::-1]
    if is_whole and op in ("le", "ge"):
        more, op = builder.apply("add", more, builder.const(1.0)), "lt"
    strict = "gt" if op in ("lt", "gt") else "ge"
    return builder.apply(strict, builder.apply("sub", more, less), builder.const(0.0))
