"""Row reductions in the producer warps.

Attention with normalised keys needs one number for each row of the key tile in every iteration,
which scales a column of scores. Consumer warps would load the tile into registers for it, although
the matmul reads it from shared memory, and would exchange the sums. Of the four warps of a producer
group three are idle. With the launch option ``sums producer`` they compute what depends on a row of
a tile alone: elementwise operators, a sum along the contiguous dimension, and operators on that
sum. All other code sees the result as a load of a made-up tensor whose tile these warps write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.operators import ELEMENTWISE, operator

# Warps of the producer group that do not load.
WARPS = 3
LITERALS = ("const", "size")


@dataclass(frozen=True, slots=True)
class RowReduction:
    """``load`` is the number of the made-up load, ``source`` that of the tile that it follows from.

    ``nodes`` are what makes it of an element, in order, by the numbers ``element``, ``total`` (the
    sum) and ``result`` refer to.
    """

    load: int
    source: int
    nodes: Mapping[int, Node]
    dtype: DType
    element: int
    total: int
    result: int


@dataclass(frozen=True, slots=True)
class RowReductions:
    """A block graph in which such sums are loads of the made-up ``tensors``."""

    typed: TypedBlock
    tensors: Mapping[str, Tensor]
    sums: tuple[RowReduction, ...]


def with_row_reductions(
    program: Program, typed: TypedBlock, given: Mapping[str, Tensor]
) -> RowReductions:
    """The block graph with all sums along rows of a loop's tiles as loads."""
    found: dict[int, tuple[int, int, dict[int, Node]]] = {}
    block = typed.block
    for section in block.sections:
        for n in section.nodes if section.loop is not None else ():
            row = _row_reduction(typed, n)
            if row is not None and section.loop in block.nodes[n].dims:
                found[row[0]] = row[1:]
    gone = _unread(typed, found)
    nodes: list[Node] = []
    dtypes: list[DType] = []
    place: dict[int, int] = {}
    sections, sums = [], []
    tensors: dict[str, Tensor] = {}
    for section in block.sections:
        begin = len(nodes)
        for n in section.nodes:
            if n in gone:
                continue
            node = block.nodes[n]
            place[n] = len(nodes)
            if n in found:
                total, source, chain = found[n]
                name = _fresh(f"sums{len(tensors)}", given)
                shape = tuple(program.sizes[d] for d in node.dims)
                tensors[name] = Tensor(name, shape, F32)
                half = typed.dtypes[source]
                sums.append(RowReduction(place[n], place[source], chain, half, source, total, n))
                access = Access(name, tuple(ix.dim(d) for d in node.dims))
                node = Node("load", (), access, node.dims)
            nodes.append(replace(node, args=tuple(place[a] for a in node.args)))
            dtypes.append(typed.dtypes[n])
        sections.append(replace(section, nodes=tuple(range(begin, len(nodes)))))
    block = replace(block, nodes=tuple(nodes), sections=tuple(sections))
    return RowReductions(TypedBlock(block, tuple(dtypes)), tensors, tuple(sums))


def has_row_reductions(block: BlockGraph) -> bool:
    """Whether a loop has a sum along the rows of one of its tiles."""
    return bool(producer_nodes(block))


def producer_nodes(block: BlockGraph) -> frozenset[int]:
    """The nodes that other warps than those that compute may evaluate; none in a cluster, whose
    cluster barriers make another block graph.
    """
    found: dict[int, Node] = {}
    if block.cluster_dims:
        return frozenset()
    for section in block.sections:
        for n in section.nodes if section.loop is not None else ():
            if section.loop in block.nodes[n].dims and (way := _way(block, n)) is not None:
                found |= way[1] | _after_total(block, n)
    return frozenset(n for n, node in found.items() if node.op not in ("load", *LITERALS))


def _way(block: BlockGraph, total: int) -> tuple[int, dict[int, Node]] | None:
    """The load that a sum along its rows follows from, and the nodes on the way."""
    nodes = block.nodes
    node = nodes[total]
    if node.op != "sum" or len(node.reduced) != 1:
        return None
    chain: dict[int, Node] = {}
    sources: set[int] = set()
    waiting = [node.args[0]]
    while waiting:
        n = waiting.pop()
        if nodes[n].op == "load":
            sources.add(n)
        elif nodes[n].op not in LITERALS:
            if not _is_plain(nodes[n]):
                return None
            waiting += nodes[n].args
        chain[n] = nodes[n]
    if len(sources) != 1:
        return None
    (source,) = sources
    same_section = block.section_of[source] == block.section_of[total]
    whole = {*nodes[source].dims} == {*node.dims, *node.reduced}
    return (source, chain) if same_section and whole else None


def _after_total(block: BlockGraph, total: int) -> dict[int, Node]:
    """A sum, what it becomes by numbers alone, one reader after another, and these numbers."""
    nodes = block.nodes
    chain = {total: nodes[total]}
    result = total
    while True:
        readers = [n for n, other in enumerate(nodes) if result in other.args]
        (reader,) = readers if len(readers) == 1 else (result,)
        others = {a: nodes[a] for a in nodes[reader].args if a != result}
        is_same = _is_plain(nodes[reader]) and nodes[reader].dims == nodes[total].dims
        if reader == result or not is_same or any(n.op not in LITERALS for n in others.values()):
            return chain
        chain |= {**others, reader: nodes[reader]}
        result = reader


def _row_reduction(typed: TypedBlock, total: int) -> tuple[int, int, int, dict[int, Node]] | None:
    """What a sum becomes, the sum, the load it follows from, and all nodes on the way."""
    way = _way(typed.block, total)
    if way is None or not typed.dtypes[way[0]].is_half:
        return None
    source, chain = way
    chain |= _after_total(typed.block, total)
    result = max(n for n in chain if chain[n].op not in LITERALS)
    if typed.dtypes[result] != F32:
        return None
    return result, total, source, dict(sorted(chain.items()))


def _is_plain(node: Node) -> bool:
    """Whether a node is computed from its operands' floats alone."""
    is_rounded = node.op == "cast" and node.attr != F32
    return operator(node.op).kind == ELEMENTWISE and not is_rounded


def _unread(typed: TypedBlock, found: Mapping[int, object]) -> set[int]:
    """Nodes that nobody reads once these are loads; stores and loads stay."""
    nodes = typed.block.nodes
    gone: set[int] = set()
    for n in reversed(range(len(nodes))):
        readers = [r for r, other in enumerate(nodes) if n in other.args]
        is_kept = n in found or not readers or nodes[n].op == "load"
        if not is_kept and all(r in gone or r in found for r in readers):
            gone.add(n)
    return gone


def _fresh(name: str, given: Mapping[str, Tensor]) -> str:
    while name in given:
        name += "_"
    return name
