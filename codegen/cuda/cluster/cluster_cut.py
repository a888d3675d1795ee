"""The rewrite of a block graph that reduces over a cluster: by slices, or by totals for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirage_py.codegen.cuda.analysis.cluster_plan import ClusterPlan
from mirage_py.codegen.cuda.cluster.cluster_slices import Slices
from mirage_py.codegen.cuda.cluster.cluster_totals import with_totals
from mirage_py.codegen.lowering.precision import TypedBlock
from mirage_py.codegen.tiling.tiles import Tiling
from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Program, Tensor


def cluster_plan(
    program: Program, typed: TypedBlock, tensors: Mapping[str, Tensor]
) -> ClusterPlan | None:
    """The cluster barriers of a block graph; None where it reduces nothing over a cluster of
    several blocks.

    Raises ScheduleError where such a reduction stands in a loop, or is a matmul.
    """
    tiling = Tiling(program, typed.block)
    dims = tuple(d for d, _ in tiling.cluster_axes)
    found = _over(typed, dims)
    for n in found:
        block = typed.block
        node = block.nodes[n]
        is_product = node.op == "matmul"
        if is_product or block.sections[block.section_of[n]].loop is not None:
            raise ScheduleError(
                f"%{n} {node.op} over a cluster",
                where=block.name,
                why="a product over the cluster has to be a sum of products"
                if is_product
                else "blocks do not meet in loops",
            )
    if not found:
        return None
    if all(tiling.padded(d, 0) == 1 for d in dims):
        typed = _in_two_steps(typed, dims, found)
        found = _over(typed, dims)
    tiling = Tiling(program, typed.block)
    slices = Slices(program, typed, tensors, tiling, found)
    if slices.is_possible():
        return slices.run()
    return with_totals(program, typed, tensors, tiling, found)


def _over(typed: TypedBlock, dims: Sequence[str]) -> list[int]:
    return [
        n for n, node in enumerate(typed.block.nodes)
        if node.op in REDUCING and any(d in dims for d in node.reduced)
    ]  # fmt: skip


def _in_two_steps(typed: TypedBlock, dims: Sequence[str], found: Sequence[int]) -> TypedBlock:
    """Reductions over the cluster and other dimensions: over the others first, in each block."""
    nodes: list[Node] = []
    dtypes: list[DType] = []
    place: dict[int, int] = {}
    sections = []
    block = typed.block
    for section in block.sections:
        begin = len(nodes)
        for n in section.nodes:
            node = block.nodes[n]
            args = tuple(place[a] for a in node.args)
            others = tuple(d for d in node.reduced if d not in dims) if n in found else ()
            if others:
                kept = tuple(d for d in block.nodes[node.args[0]].dims if d not in others)
                nodes.append(Node(node.op, args, others, kept))
                dtypes.append(F32)
                args = (len(nodes) - 1,)
                node = replace(node, attr=tuple(d for d in node.reduced if d in dims))
            place[n] = len(nodes)
            nodes.append(replace(node, args=args))
            dtypes.append(typed.dtypes[n])
        sections.append(replace(section, nodes=tuple(range(begin, len(nodes)))))
    block = replace(block, nodes=tuple(nodes), sections=tuple(sections))
    return TypedBlock(block, tuple(dtypes))
