"""Value numbering: nodes of a program that are the same value under other dimension names.

A value that is read at two indices, such as the normalised rows that queries read by t and keys by
s, stands in a program twice. In memory it is one tensor. So what is materialised are classes of
nodes that are equal up to a renaming of dimensions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.operators import LEAF, operator
from mirage_py.ugraph.rewrite.dims import with_dims


@dataclass(frozen=True, slots=True)
class Value:
    """A node's class, and its dimensions in the order that all nodes of the class share: two nodes
    of one class are equal when their n-th dimensions are renamed into each other.
    """

    number: int
    dims: tuple[str, ...]


def values_of(program: Program) -> tuple[Value, ...]:
    """The class of every node; classes are numbered in the order of their first nodes.

    The reasoning is structural: the same operators on the same classes, wired in the same way, over
    dimensions of the same sizes.
    """
    known: dict[Hashable, int] = {}
    values: list[Value] = []
    for node in program.nodes:
        args = [values[a] for a in node.args]
        if node.op == "read":
            # The operand's dimensions are bound: an index stands at the place of each.
            index = dict(zip(program.nodes[node.args[0]].dims, node.access.index, strict=True))
            (operand,) = args
            node = replace(node, attr=Access("", tuple(index[d] for d in operand.dims)), args=())
            if _is_renamed(node.access.index):
                values.append(Value(operand.number, tuple(e.name for e in node.access.index)))
                continue
            args = [Value(operand.number, ())]
        joint = _joint(node, args)
        place = {d: n for n, d in enumerate(joint)}
        key = (
            node.op,
            _attribute(node, place),
            tuple((v.number, tuple(place[d] for d in v.dims)) for v in args),
            tuple(program.sizes[d] for d in joint),
        )
        number = known.setdefault(key, len(known))
        values.append(Value(number, tuple(d for d in joint if d in node.dims)))
    return tuple(values)


def is_work(node: Node, values: Sequence[Value]) -> bool:
    """Whether it has a place for each point of some dimension: a number costs nothing."""
    return operator(node.op).kind != LEAF and any(values[a].dims for a in node.args)


def with_values_once(program: Program) -> Program:
    """A value that is computed under two names of a dimension is computed once: what a convolution
    makes has its own names for rows and columns of an image, and what is added to it takes them,
    but for its own statistics.

    Not where a value has both dimensions, as scores of queries and keys do, or a matmul sums over
    one: columns that are those of its operand by another name are split over a grid.
    """
    while True:
        names = _renamed(program)
        if not names:
            return program
        program = with_dims(program, {d: ix.dim(name) for d, name in names.items()}, {})


def _renamed(program: Program) -> dict[str, str]:
    """Dimensions of the first value that is computed again under other names, and those names."""
    first: dict[int, Value] = {}
    values = values_of(program)
    contracted = {d for n in program.nodes if n.op == "matmul" for d in n.reduced}
    for node, value in zip(program.nodes, values, strict=True):
        known = first.setdefault(value.number, value)
        names = {b: a for a, b in zip(known.dims, value.dims, strict=True) if a != b}
        if not names or not is_work(node, values):
            continue
        dims = {*names, *names.values()}
        is_apart = len(dims) == 2 * len(names) and dims.isdisjoint(contracted)
        if is_apart and not any(_meet(program, a, b) for a, b in names.items()):
            return names
    return {}


def _meet(program: Program, a: str, b: str) -> bool:
    """Whether some value depends on both dimensions, other than by reading one as the other."""
    nodes = program.nodes
    for node in nodes:
        below = (d for x in node.args for d in nodes[x].dims if node.op != "read")
        if {a, b} <= {*node.dims, *below}:
            return True
    return False


def _is_renamed(index: Sequence[IndexExpr]) -> bool:
    """Whether it is the operand under other names."""
    return all(e.is_dim for e in index) and len({e.name: None for e in index}) == len(index)


def _joint(node: Node, args: Sequence[Value]) -> tuple[str, ...]:
    """Every dimension that a node sees, by its first place among operands and attribute."""
    found = dict.fromkeys(d for v in args for d in v.dims)
    if isinstance(node.attr, Access | IndexExpr | Predicate):
        found.update(dict.fromkeys(node.attr.dims()))
    return tuple(found)


def _attribute(node: Node, place: Mapping[str, int]) -> Hashable:
    """The attribute with places instead of names. The extent of a dimension keeps its name: only
    at these sizes is it that of another one.
    """
    names = {d: ix.dim(f"#{n}") for d, n in place.items()}
    attr = node.attr
    if isinstance(attr, Access):
        return attr.tensor, tuple(e.substitute(names) for e in attr.index)
    if isinstance(attr, (IndexExpr, Predicate)):
        return attr.substitute(names)
    if node.op in REDUCING:
        return tuple(sorted(place[d] for d in node.reduced))
    return repr(attr)
