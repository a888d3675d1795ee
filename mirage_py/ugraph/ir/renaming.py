"""Renaming of dimensions: splitting and refreshing them leaves gaps in their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Access, Attr, Node
from mirage_py.ugraph.ir.program import Dim, Output, Program


def tidy_dims(program: Program) -> Program:
    """The same program with the shortest names: ``n_4``, ``n_5`` become ``n``, ``n_1``.

    A dimension keeps its stem and its place; no dimension is called as a tensor is.
    """
    taken = dict.fromkeys(program.tensors)
    names: dict[str, str] = {}
    for d in program.dim_names:
        stem = d.rstrip("0123456789_") or "i"
        name, number = stem, 0
        while name in taken:
            number += 1
            name = f"{stem}_{number}"
        taken[name] = None
        names[d] = name
    return rename_dims(program, names)


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
    exprs = {old: ix.dim(new) for old, new in names.items()}
    dims = tuple(names.get(d, d) for d in node.dims)
    return Node(node.op, node.args, _renamed_attr(node, names, exprs), dims)


def _renamed_attr(node: Node, names: Mapping[str, str], exprs: Mapping[str, IndexExpr]) -> Attr:
    attr = node.attr
    if isinstance(attr, Access):
        return Access(attr.tensor, tuple(e.substitute(exprs) for e in attr.index))
    if isinstance(attr, (IndexExpr, Predicate)):
        return attr.substitute(exprs)
    if node.op == "size":
        return names.get(str(attr), str(attr))
    if node.op in REDUCING:
        return tuple(names.get(d, d) for d in node.reduced)
    return attr
