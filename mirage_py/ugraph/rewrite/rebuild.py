"""A copy of a program with some nodes replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.ugraph.operators import ELEMENTWISE, operator

# The builder and the new positions of the node's operands to the new node.
Rule = Callable[[ProgramBuilder, Sequence[int]], int]


def rebuild(
    program: Program, rules: Mapping[int, Rule], *, drop_unread_inputs: bool = False
) -> Program:
    """The program with the nodes of ``rules`` replaced; all else is the same, strides included.

    Nodes that nothing needs any more are left out. Raises InputError for an input that nothing
    reads any more, unless those are dropped too.
    """
    builder = ProgramBuilder(program.name, program.fp32_precision)
    for d in program.dims:
        builder.dim(d.name, d.size)
    for tensor in program.inputs:
        builder.input(tensor.name, tensor.shape, tensor.dtype, tensor.strides)
    new: list[int] = []
    for position, node in enumerate(program.nodes):
        args = [new[a] for a in node.args]
        rule = rules.get(position)
        new.append(copied(builder, node, args) if rule is None else rule(builder, args))
    builder.outputs.extend(Output(o.tensor, new[o.node], o.index) for o in program.outputs)
    if drop_unread_inputs:
        read = _read_tensors(builder)
        builder.inputs = {name: t for name, t in builder.inputs.items() if name in read}
    return builder.build()


def copied(builder: ProgramBuilder, node: Node, args: Sequence[int]) -> int:
    """The node of another program over operands of this one."""
    attr = node.attr
    if node.op == "load":
        return builder.load(node.access.tensor, node.access.index)
    if node.op == "read":
        return builder.read(args[0], node.access.index)
    if node.op == "const":
        assert isinstance(attr, float)
        return builder.const(attr)
    if node.op == "size":
        return builder.size(str(attr))
    if isinstance(attr, IndexExpr):
        return builder.index(attr)
    if isinstance(attr, Predicate):
        return builder.mask(attr)
    if operator(node.op).kind == ELEMENTWISE:
        return builder.apply(node.op, *args, attr=attr)
    if node.op == "matmul":
        return builder.matmul(args[0], args[1], node.reduced)
    return (builder.sum if node.op == "sum" else builder.max)(args[0], node.reduced)


def _read_tensors(builder: ProgramBuilder) -> set[str]:
    """Tensors that the outputs depend on."""
    needed = (builder.nodes[n] for n in cone(builder.nodes, [o.node for o in builder.outputs]))
    return {t for n in needed if n.op == "load" for t in n.access.tensors}
