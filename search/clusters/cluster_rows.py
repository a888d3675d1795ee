"""Rows shared by a cluster, for kernels that reduce and store an unsplit dimension.

A softmax or a normalisation whose result is as long as its rows cannot be split into two kernels:
the second one would read the rows again. But each block of a cluster can keep a slice of a row,
reduce it together with the others and store its slice, so that few long rows fill the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mirage_py.errors import ValidationError
from mirage_py.search.extract.family import CLUSTER, ONE_KERNEL, Family
from mirage_py.search.model.model_constants import constants_of
from mirage_py.search.space.variants import nominal_splits
from mirage_py.targets import H200
from mirage_py.ugraph.checks.block_rules import check_block
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dims import node_dims
from mirage_py.ugraph.ir.node import STORES, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph
from mirage_py.ugraph.operators import CONTRACT, REDUCE, operator
from mirage_py.ugraph.rewrite.split_dim import outer_dim, split_attr, split_dim


def shared_rows(family: Family) -> Iterator[Family]:
    """The families in which clusters share a dimension that each block of ``family`` holds unsplit,
    one for each dimension that it reduces and stores; none where it has loops.
    """
    if family.kind != ONE_KERNEL:
        return
    (block,) = family.ugraph.kernels
    assert isinstance(block, BlockGraph)
    if block.has_loops:
        return
    program = family.ugraph.program
    stored = {d for node in block.nodes if node.op in STORES for d in node.dims}
    for dim in _reduced(block):
        splits = nominal_splits(program.sizes[dim]) if dim in stored else None
        if splits is None or outer_dim(dim) in (*program.sizes, *program.tensors):
            continue
        split = split_dim(program, dim, splits)
        shared = _shared(block, split, dim)
        if shared is not None:
            cost_us = family.cost_us + constants_of(H200).cluster_us
            yield Family(UGraph(split, (shared,)), cost_us, CLUSTER, family.origins)


def _reduced(block: BlockGraph) -> tuple[str, ...]:
    kinds = (REDUCE, CONTRACT)
    reductions = (n for n in block.nodes if operator(n.op).kind in kinds)
    return tuple(dict.fromkeys(d for n in reductions for d in n.reduced))


def _shared(block: BlockGraph, split: Program, dim: str) -> BlockGraph | None:
    """The kernel over the split program, its splits in a cluster; None where it breaks a rule."""
    outer, order = outer_dim(dim), split.dim_names
    exprs = {dim: ix.dim(outer) * split.sizes[dim] + ix.dim(dim)}
    nodes: list[Node] = []
    place: dict[int, int] = {}

    def add(node: Node) -> int:
        nodes.append(replace(node, dims=node_dims(node, [nodes[a].dims for a in node.args], order)))
        return len(nodes) - 1

    for number in (n for section in block.sections for n in section.nodes):
        node = block.nodes[number]
        args = tuple(place[a] for a in node.args)
        if node.op == "size" and node.attr == dim:
            halves = (add(Node("size", (), outer)), add(Node("size", (), dim)))
            place[number] = add(Node("mul", halves))
        elif node.op == "matmul" and dim in node.reduced:
            product = add(Node("matmul", args, node.reduced))
            place[number] = add(Node("sum", (product,), (outer,)))
        else:
            place[number] = add(Node(node.op, args, split_attr(node, dim, exprs)))
    grid = (*block.grid, GridAxis(outer, cluster=True))
    sections = (Section(tuple(range(len(nodes)))),)
    shared = BlockGraph(block.name, grid, tuple(nodes), sections)
    inputs = {t.name: t for t in split.inputs}
    outputs = {o.tensor.name: o.tensor for o in split.outputs}
    try:
        check_block(shared, split.sizes, inputs, outputs)
    except ValidationError:
        return None
    return shared
