"""New names: of dimensions, whose splitting and refreshing leaves gaps in theirs, and free ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Attr, Node
from mirage_py.ugraph.ir.program import Dim, Output, Program


def tidy_dims(program: Program) -> Program:
    """The same program with the shortest names: ``n_4``, ``n_5`` become ``n``, ``n_1``.

    A dimension keeps its stem and its place; no dimension is called as a tensor is.
    """
    taken = {*program.tensors}
    names = {d: free_name(d.rstrip("0123456789_") or "i", taken) for d in program.dim_names}
    return rename_dims(program, names)


def free_name(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken; from now on it is."""
    free = name
    for number in count(1):
        if free not in taken:
            break
        free = f"{name}_{number}"
    taken.add(free)
    return free


def rename_dims(program: Program, names: Mapping[str, str]) -> Program:
    """The same program with dimension d called ``names[d]``; the new names are distinct."""
    exprs = {old: ix.dim(new) for old, new in names.items()}
    return replace(
        program,
        dims=tuple(Dim(names.get(d.name, d.name), d.size) for d in program.dims),
        nodes=tuple(renamed_node(n, names) for n in program.nodes),
        outputs=tuple(
            Output(o.tensor, o.node, tuple(e.substitute(exprs) for e in o.index))
            for o in program.outputs
        ),
    )


def renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    """The same node with dimension d called ``names[d]``."""
    dims = tuple(names.get(d, d) for d in node.dims)
    return Node(node.op, node.args, _renamed_attr(node, names), dims)


def _renamed_attr(node: Node, names: Mapping[str, str]) -> Attr:
    attr = node.attr
    if isinstance(attr, (Access, IndexExpr, Predicate)):
        # A program has hundreds of dimensions, an index one or two.
        exprs = {d: ix.dim(names[d]) for d in attr.dims() if d in names}
        if isinstance(attr, Access):
            return Access(attr.tensor, tuple(e.substitute(exprs) for e in attr.index))
        return attr.substitute(exprs)
    if node.op == "size":
        return names.get(str(attr), str(attr))
    if node.op in REDUCING:
        return tuple(names.get(d, d) for d in node.reduced)
    return attr
