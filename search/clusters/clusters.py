"""Cluster form of a split reduction: two kernels become one whose blocks form clusters.

The first of two kernels stores partial results, one for each split of a dimension; the second loads
and combines them. If the blocks of all splits form a thread-block cluster, they can read one
another's results: the loads of the second kernel become the values of the first, its nodes become a
last section, and the grid axis of the splits becomes an axis of the cluster. The rewrite applies to
any such pair; exponentials and maxima are not special. Its result is verified like all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mirage_py.errors import ValidationError
from mirage_py.search.extract.family import CLUSTER, SPLIT, Family
from mirage_py.search.model.model_constants import constants_of
from mirage_py.search.space.splits import split_dims
from mirage_py.targets import H200
from mirage_py.ugraph.checks.block_rules import check_block
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph
from mirage_py.ugraph.operators import STATE, operator
from mirage_py.ugraph.rewrite.split_dim import outer_dim

# What the first kernel stores, by tensor: the position of the value, and its indices.
_Made = dict[str, tuple[int, Access]]


def clustered(family: Family) -> Family | None:
    """The family of one kernel for one of two that share a reduction; None where there is none."""
    ugraph = in_a_cluster(family.ugraph) if family.kind == SPLIT else None
    if ugraph is None:
        return None
    saved_us = H200.launch_us - constants_of(H200).cluster_us
    return Family(ugraph, family.cost_us - saved_us, CLUSTER, family.origins)


def is_clustered(ugraph: UGraph) -> bool:
    """Whether blocks of some kernel form clusters."""
    return any(isinstance(k, BlockGraph) and k.cluster_dims for k in ugraph.kernels)


def ends_in_cluster(ugraph: UGraph) -> bool:
    """Whether it is one kernel whose last section combines results of the sections before it."""
    blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
    return is_clustered(ugraph) and len(blocks[0].sections) > 1


def in_a_cluster(ugraph: UGraph) -> UGraph | None:
    """The µGraph of one kernel; None where two kernels cannot be combined in clusters.

    The second one may only loop over splits, may have no dimension on its grid that is unsplit in
    the first one, and may reduce no grid dimension of the first one except the splits.
    """
    if len(ugraph.kernels) != 2:
        return None
    first, last = ugraph.kernels
    if not isinstance(first, BlockGraph) or not isinstance(last, BlockGraph):
        return None
    splits = [outer_dim(d) for d in split_dims(ugraph.program)]
    shared = tuple(axis.dim for axis in first.grid if axis.dim in splits)
    made = _made(first, ugraph)
    if not shared or made is None or any(t.name not in made for t in ugraph.intermediates):
        return None
    free = [axis.dim for axis in first.split_axes if axis.dim not in shared]
    loops = [s.loop for s in last.sections if s.loop is not None]
    if any(axis.dim not in free for axis in last.grid) or any(d not in shared for d in loops):
        return None
    block = _joined(ugraph, first, last, made, shared)
    if block is None:
        return None
    program = ugraph.program
    inputs = {t.name: t for t in program.inputs}
    outputs = {o.tensor.name: o.tensor for o in program.outputs}
    try:
        check_block(block, program.sizes, inputs, outputs)
    except ValidationError:
        return None
    return UGraph(program, (block,))


def without_cluster(ugraph: UGraph) -> UGraph:
    """Two kernels for the one of ``in_a_cluster``, whose last section becomes the second one."""
    (block,) = ugraph.kernels
    assert isinstance(block, BlockGraph)
    ending = block.sections[-1]
    operands = (a for n in ending.nodes for a in block.nodes[n].args if a not in ending.nodes)
    between = {
        a: _between(ugraph.program, number, block.nodes[a], block.cluster_dims)
        for number, a in enumerate(dict.fromkeys(operands))
    }
    first, last = _Writer(), _Writer()
    for section in block.sections[:-1]:
        first.copy(block, section.nodes)
        first.close(section)
    for a, (_, access) in between.items():
        first.add(Node("store", (first.place[a],), access, block.nodes[a].dims))
        last.place[a] = last.add(Node("load", (), access, block.nodes[a].dims))
    first.close(Section(()))
    last.copy(block, ending.nodes)
    last.close(ending)
    used = dict.fromkeys(d for node in last.nodes for d in node.dims)
    kernels = (
        first.block(f"{block.name}_first", (replace(a, cluster=False) for a in block.grid)),
        last.block(f"{block.name}_last", (a for a in block.split_axes if a.dim in used)),
    )
    return replace(ugraph, kernels=kernels, intermediates=tuple(t for t, _ in between.values()))


def _made(first: BlockGraph, ugraph: UGraph) -> _Made | None:
    """The stored values by tensor; None where a reader would not get exactly the final values."""
    found: _Made = {}
    for position, store in first.stores():
        tensor = ugraph.tensors[store.access.tensor]
        in_loop = first.sections[first.section_of[position]].loop is not None
        if in_loop or store.op != "store" or tensor.name in found or not tensor.dtype.is_float:
            return None
        found[tensor.name] = store.args[0], store.access
    return found


def _joined(
    ugraph: UGraph, first: BlockGraph, last: BlockGraph, made: _Made, shared: tuple[str, ...]
) -> BlockGraph | None:
    """None where the second kernel reads what the first one stores in another way."""
    kept = {o.tensor.name for o in ugraph.program.outputs}
    writer = _Writer()
    for section in first.sections:
        numbers = (n for n in section.nodes if first.nodes[n].op not in STORES)
        writer.copy(first, numbers)
        writer.close(section)
    before = writer.place
    writer.place = {}
    for store in (node for _, node in first.stores()):
        if store.access.tensor in kept:
            writer.add(replace(store, args=(before[store.args[0]],)))
    for number in (n for section in last.sections for n in section.nodes):
        node = last.nodes[number]
        if node.op == "load" and node.access.tensor in made:
            value, access = made[node.access.tensor]
            if access != node.access or first.nodes[value].dims != node.dims:
                return None
            writer.place[number] = before[value]
        elif operator(node.op).kind == STATE:
            # A loop over the splits has one iteration now, in which the cluster has them all.
            value = writer.place[node.args[0]]
            is_shift = node.attr == "shift"
            shift = Node("shift", (value,), None, node.dims)
            writer.place[number] = writer.add(shift) if is_shift else value
        elif node.op == "matmul" and any(d in shared for d in node.reduced):
            args = tuple(writer.place[a] for a in node.args)
            dims = ugraph.program.order(frozenset((*node.dims, *node.reduced)))
            product = writer.add(Node("mul", args, None, dims))
            writer.place[number] = writer.add(Node("sum", (product,), node.reduced, node.dims))
        else:
            writer.copy(last, (number,))
    writer.close(Section(()))
    grid = (replace(axis, cluster=axis.dim in shared) for axis in first.grid)
    return writer.block(ugraph.program.name, grid)


def _between(
    program: Program, number: int, node: Node, splits: tuple[str, ...]
) -> tuple[Tensor, Access]:
    """A tensor for a value between the two kernels, with the splits as first axes."""
    dims = (*(d for d in node.dims if d in splits), *(d for d in node.dims if d not in splits))
    name = f"part{number}"
    while name in program.tensors or name in program.sizes:
        name += "_"
    tensor = Tensor(name, tuple(program.sizes[d] for d in dims), F32)
    return tensor, Access(name, tuple(ix.dim(d) for d in dims))


class _Writer:
    """Copies nodes of block graphs one after the other; ``place`` says where each one went."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.sections: list[Section] = []
        self.place: dict[int, int] = {}
        self._open = 0

    def add(self, node: Node) -> int:
        """Its position."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def copy(self, block: BlockGraph, numbers: Iterable[int]) -> None:
        """Add nodes of a block graph."""
        for n in numbers:
            node = block.nodes[n]
            self.place[n] = self.add(replace(node, args=tuple(self.place[a] for a in node.args)))

    def close(self, section: Section) -> None:
        """End a section that is such a loop, or straight code; an empty one is left out."""
        if self._open < len(self.nodes):
            nodes = tuple(range(self._open, len(self.nodes)))
            self.sections.append(replace(section, nodes=nodes))
        self._open = len(self.nodes)

    def block(self, name: str, grid: Iterable[GridAxis]) -> BlockGraph:
        """What was written."""
        return BlockGraph(name, tuple(grid), tuple(self.nodes), tuple(self.sections))
