"""Row invariance: plans that compute each row alike, bit by bit, however many rows there are.

Rows are the points of dimensions that no operator reduces over. A plan of this kind, with the
numbers of rows as run-time sizes, is one text for all of them: tiles, loops, splits and MMA shapes
are the same numbers at every call, and more rows are only more blocks. What is left is that rows
in one block must not meet, which ``why_rows_meet`` reads off the plan:

* A block holds a tile of rows and no operator reduces over them, so an element of a row is a sum
  over elements of that row alone, in the order of loops and tiles. Rows that are padding are rows
  like others: nothing of theirs is read by another one.
* What decides how a block runs (which tiles a mask has it skip, a vote of a warp) depends on no
  other row.
* Sums of several blocks meet in an order that is written down, not in that of their arrival.
* No library chooses an algorithm by the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mirage_py.ugraph.checks.run_time_sizes import why_fixed, with_run_time_sizes
from mirage_py.ugraph.ir.index import Predicate
from mirage_py.ugraph.ir.launch_choices import RescalingMode
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, UGraph


def why_no_rows(program: Program, rows: Iterable[str]) -> str:
    """Why dimensions of a program cannot be those of rows; empty where they can."""
    for row in rows:
        if row not in program.dim_names:
            return f"there is no dimension '{row}'"
        for reason in _reasons_of_nodes(program.nodes, row):
            return reason
    return ""


def why_rows_meet(plan: Plan, rows: Iterable[str]) -> str:
    """Why the bits of one row may depend on others, or on how many there are; empty where they do
    not.
    """
    named = tuple(rows)
    if named and any(o.rescaling is RescalingMode.OPTIMISTIC for o in plan.options):
        return "a warp votes on the maxima of all its rows"
    fixed = (reason for row in named if (reason := why_fixed(plan, row)))
    return why_rows_meet_in(plan.ugraph, named) or next(fixed, "")


def why_rows_meet_in(ugraph: UGraph, rows: Iterable[str]) -> str:
    """The same of a µGraph whose tiles may be open."""
    kernels = [(kernel, row) for row in rows for kernel in ugraph.kernels]
    return next((r for kernel, row in kernels for r in _reasons_of_kernel(kernel, row)), "")


def with_invariant_rows(plan: Plan, rows: Iterable[str]) -> Plan:
    """The plan for any number of rows, compiled once for all numbers.

    Raises InputError where a number of rows is written into it. Machine code that takes a number
    for a multiple of 16 may lay out tiles, and so order sums, in another way.
    """
    sized = with_run_time_sizes(plan, rows)
    return replace(sized, options=tuple(replace(o, one_variant=True) for o in sized.options))


# -- inside ----------------------------------------------------------------------------------------


def _reasons_of_kernel(kernel: Kernel, row: str) -> Iterator[str]:
    if not isinstance(kernel, BlockGraph):
        yield f"a library computes {kernel.name}, and may choose how by the number of rows"
        return
    for tensor in kernel.added_tensors:
        yield f"blocks add to {tensor} in the order of their arrival"
    yield from _reasons_of_nodes(kernel.nodes, row)
    if any(section.loop == row for section in kernel.sections):
        yield f"{kernel.name} loops over '{row}'"
    if row in kernel.cluster_dims:
        yield f"the blocks of a cluster share '{row}'"
    if row not in kernel.grid_tiles and any(row in n.dims for n in kernel.nodes):
        yield f"each block of {kernel.name} holds all of '{row}'"


def _reasons_of_nodes(nodes: Iterable[Node], row: str) -> Iterator[str]:
    for node in nodes:
        if node.op in REDUCING and row in node.reduced:
            yield f"a {node.op} reduces over '{row}'"
        if isinstance(node.attr, Predicate) and row in node.attr.dims():
            yield f"a mask compares positions of '{row}', which decides over tiles to skip"
