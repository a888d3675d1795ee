"""A program as one kernel without loops: the shortest way from an operator to a kernel."""

from __future__ import annotations

from mirage_py.ugraph.ir.launch_config import LaunchConfig
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, GridAxis, Section, UGraph


def naive_plan(
    program: Program, tiles: dict[str, int], options: LaunchConfig | None = None
) -> Plan:
    """Each dimension of ``tiles`` is gridded; all others are whole in every block."""
    nodes = list(program.nodes)
    for output in program.outputs:
        access = Access(output.tensor.name, output.index)
        dims = tuple(d for d in program.dim_names if d in access.dims())
        nodes.append(Node("store", (output.node,), access, dims))
    block = BlockGraph(
        name=f"{program.name}_kernel",
        grid=tuple(GridAxis(d, t) for d, t in tiles.items()),
        nodes=tuple(nodes),
        sections=(Section(tuple(range(len(nodes)))),),
    )
    return Plan(UGraph(program, (block,)), (options or LaunchConfig(),))
