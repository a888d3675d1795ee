"""A plan for any small program without a search: one kernel whose blocks hold whole rows."""

from __future__ import annotations

from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph
from mirage_py.ugraph.rewrite.masks import lower_masks
from mirage_py.verify.shifts.shift_free import remove_free_shifts


def one_block_plan(program: Program, tile: int = 16) -> Plan:
    """Every node in straight code, and the dimensions that all outputs share on the grid."""
    program = remove_free_shifts(lower_masks(program), seed=0)[0]
    nodes = list(program.nodes)
    for output in program.outputs:
        dims = program.order(tuple(d for e in output.index for d in e.dims()))
        access = Access(output.tensor.name, output.index)
        nodes.append(Node("store", (output.node,), access, dims))
    own = [n.dims for n in nodes[len(program.nodes) :]]
    shared = [d for d in own[0] if all(d in dims for dims in own)]
    # The widest of them in tiles, the others one point a block.
    widest = max(shared, key=lambda d: program.sizes[d])
    grid = tuple(GridAxis(d, tile if d == widest else 1) for d in shared[:-1])
    section = Section(tuple(range(len(nodes))))
    block = BlockGraph("rows", grid, tuple(nodes), (section,))
    return Plan(UGraph(program, (block,)), (LaunchConfig(4),))
