"""Outputs in place: what a plan computes, written by its kernels to a position of a tensor that is
there already, such as a cache of keys and values.

The search makes plans whose outputs are tensors of their own. In a placed plan such an output is
the whole tensor: a kernel stores each element as before, at another address, a position of an axis,
or consecutive ones, the first of which may be an element of an integer input. Nothing else of the
tensor is touched. Its other axes are those of the output, so that different elements stay
different. A position outside of the tensor ends the kernel with an error, as an index of torch
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mirage_py.errors import ScheduleError
from mirage_py.ugraph.ir.index import IndexExpr, dim
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Output, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel

# In a position, the place along the axis of the output.
PLACE = "place"


@dataclass(frozen=True, slots=True)
class Placement:
    """Output number ``output`` goes to ``tensor``, which has its name and all of its axes; along
    ``axis`` to ``position``, made of elements of the tensors ``read``: where the output has several
    elements there, of the dimension ``PLACE`` and what is the same for all of them.
    """

    output: int
    tensor: Tensor
    axis: int
    position: IndexExpr
    read: tuple[Tensor, ...]
    count: int = 1


def goes_up_by_one(position: IndexExpr) -> bool:
    """Whether different places have different positions: each is one more than that before it,
    perhaps modulo an extent that the places do not exceed.
    """
    terms = [position.args[0] if position.op == "mod" else position]
    while any(t.op == "add" for t in terms):
        terms = [a for t in terms for a in (t.args if t.op == "add" else (t,))]
    places = [t for t in terms if PLACE in t.dims()]
    return places == [dim(PLACE)]


def placed(plan: Plan, placements: Sequence[Placement]) -> Plan:
    """The plan with these outputs in place. It is compiled and launched, and nothing else: its
    program has inputs that no node loads. Raises ScheduleError where a kernel of another kind, or
    several blocks that add, write such an output.
    """
    by_name = {p.tensor.name: p for p in placements}
    program = plan.ugraph.program
    inputs = {t.name: t for t in program.inputs}
    inputs |= {t.name: t for p in placements for t in p.read}
    outputs = tuple(_placed_output(o, by_name) for o in program.outputs)
    kernels = tuple(_placed_kernel(k, by_name) for k in plan.ugraph.kernels)
    whole = replace(program, inputs=tuple(inputs.values()), outputs=outputs)
    return replace(plan, ugraph=replace(plan.ugraph, program=whole, kernels=kernels))


def _placed_output(output: Output, by_name: Mapping[str, Placement]) -> Output:
    found = by_name.get(output.tensor.name)
    if found is None:
        return output
    old, new = list(output.tensor.shape), list(found.tensor.shape)
    alike = output.tensor.dtype == found.tensor.dtype and len(old) == len(new)
    old[found.axis : found.axis + 1], new[found.axis : found.axis + 1] = [], []
    count = output.tensor.shape[found.axis]
    fits = count <= found.tensor.shape[found.axis]
    is_apart = count == 1 or (fits and goes_up_by_one(found.position))
    if not alike or old != new or count != found.count or not is_apart:
        raise ScheduleError(f"{output.tensor} is no part of {found.tensor}", where="placed")
    return Output(found.tensor, output.node, _at(output.index, found))


def _placed_kernel(kernel: Kernel, by_name: Mapping[str, Placement]) -> Kernel:
    if isinstance(kernel, BlockGraph):
        return replace(kernel, nodes=tuple(_placed_node(n, by_name) for n in kernel.nodes))
    for name in kernel.written_tensors:
        if name in by_name:
            raise ScheduleError(f"a library writes {name}", where=kernel.name)
    return kernel


def _placed_node(node: Node, by_name: Mapping[str, Placement]) -> Node:
    found = by_name.get(node.access.tensor) if node.op in (*STORES, "read", "load") else None
    if found is None:
        return node
    if node.op != "store":
        raise ScheduleError(f"a {node.op} of {found.tensor.name}", where="placed")
    return replace(node, attr=Access(node.access.tensor, _at(node.access.index, found)))


def _at(index: Sequence[IndexExpr], found: Placement) -> tuple[IndexExpr, ...]:
    position = found.position.substitute({PLACE: index[found.axis]})
    return (*index[: found.axis], position, *index[found.axis + 1 :])
