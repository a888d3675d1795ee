"""Scales of matmuls moved into their operands: sum(x * w) / r becomes sum((x / r) * w).

That is right if r does not depend on the dimensions that are summed over. Numbers stay outside, and
so does a value without a reduction: only a norm and the like is worth a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.data_flow import cone, reads_of
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.rebuild import Rule, rebuild


def with_inner_scales(program: Program) -> Program:
    """The same program with every quotient and product of a matmul and a reduced value moved to the
    operand that has its dimensions; itself where there is none.
    """
    readers = reads_of(program.nodes)
    rules: dict[int, Rule] = {}
    for number, node in enumerate(program.nodes):
        for place in range(len(node.args)) if node.op in ("mul", "div") else ():
            rule = _rule(program, node, place)
            if rule is not None and len(readers[node.args[place]]) == 1:
                rules[number] = rule
                break
    return rebuild(program, rules) if rules else program


def _rule(program: Program, node: Node, place: int) -> Rule | None:
    """How to make the node if its operand at ``place`` is the product."""
    product, scale = node.args[place], node.args[1 - place]
    made = program.nodes[product]
    if made.op != "matmul" or (node.op == "div" and place == 1):
        return None
    dims = program.nodes[scale].dims
    able = [side for side in (0, 1) if _has(program.nodes[made.args[side]], dims)]
    if not dims or not able or any(d in dims for d in made.reduced) or not _reduces(program, scale):
        return None

    def rule(builder: ProgramBuilder, args: Sequence[int]) -> int:
        operands = list(builder.nodes[args[place]].args)
        ordered = (operands[able[0]], args[1 - place])
        operands[able[0]] = builder.apply(node.op, *(ordered if place == 0 else ordered[::-1]))
        return builder.matmul(operands[0], operands[1], made.reduced)

    return rule


def _has(node: Node, dims: Sequence[str]) -> bool:
    return all(d in node.dims for d in dims)


def _reduces(program: Program, value: int) -> bool:
    """Whether computing it takes a sum or a maximum, but no matmul."""
    ops = [program.nodes[n].op for n in cone(program.nodes, [value])]
    return any(op in ("sum", "max") for op in ops) and "matmul" not in ops
