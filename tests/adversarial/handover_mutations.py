"""Mutations of values between kernels: types, names, additions, library calls.

Importing this registers them with ``mutations``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from adversarial.mutations import graph_mutation, mutation
from adversarial.surgery import blocks, changed, inserted, of, replaced_by, with_index, with_kernel

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import BOOL, F8E4M3, F16, I8, I32
from mirage_py.ugraph.ir.node import STORES, Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.operators import EFFECT, STATE, operator

_WHOLE_NUMBERS = (I32, I8, BOOL)
_NARROW = (F16, F8E4M3)

# -- types ----------------------------------------------------------------------------------------


@graph_mutation
def hands_over_whole_numbers(graph: UGraph) -> Iterator[UGraph]:
    """An intermediate of an integer type, which drops the fraction."""
    for number, tensor in enumerate(graph.intermediates):
        for kind in _WHOLE_NUMBERS:
            yield _retyped(graph, number, replace(tensor, dtype=kind))


@graph_mutation
def hands_over_few_digits(graph: UGraph) -> Iterator[UGraph]:
    """An intermediate of a narrower type: equal up to rounding (numerical check)."""
    for number, tensor in enumerate(graph.intermediates):
        for kind in _NARROW:
            if kind.bytes < tensor.dtype.bytes:
                yield _retyped(graph, number, replace(tensor, dtype=kind))


@mutation
def casts_to_whole_numbers(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A value loses its fraction."""
    for n, node in enumerate(block.nodes):
        if operator(node.op).kind not in (EFFECT, STATE) and node.dims:
            for kind in _WHOLE_NUMBERS:
                yield replaced_by(block, n, lambda at, kind=kind: Node("cast", (at,), kind))


@mutation
def casts_to_few_digits(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A value is rounded: equal but for rounding, which the numerical check covers."""
    for n, node in enumerate(block.nodes):
        if operator(node.op).kind not in (EFFECT, STATE) and node.dims:
            yield replaced_by(block, n, lambda at: Node("cast", (at,), F8E4M3))


# -- intermediates --------------------------------------------------------------------------------


@graph_mutation
def reads_the_other_intermediate(graph: UGraph) -> Iterator[UGraph]:
    """A kernel reads what was stored beside, with as many of the indices as fit."""
    for number, block in blocks(graph):
        for n, node in of(block, "load"):
            for other in graph.intermediates:
                if node.access.tensor in _names(graph) and other.name != node.access.tensor:
                    index = node.access.index[: len(other.shape)]
                    if len(index) == len(other.shape):
                        access = Access(other.name, index)
                        dims = tuple(d for d in graph.program.dim_names if d in access.dims())
                        wrong = changed(block, n, attr=access, dims=dims)
                        yield with_kernel(graph, number, wrong)


@graph_mutation
def stores_into_the_other_intermediate(graph: UGraph) -> Iterator[UGraph]:
    """Two intermediates with each other's contents."""
    for number, block in blocks(graph):
        stores = [(n, s) for n, s in of(block, *STORES) if s.access.tensor in _names(graph)]
        for place, (n, one) in enumerate(stores):
            for m, other in stores[place + 1 :]:
                crossed = changed(block, n, attr=Access(other.access.tensor, one.access.index))
                crossed = changed(crossed, m, attr=Access(one.access.tensor, other.access.index))
                yield with_kernel(graph, number, crossed)


@mutation
def reads_the_first_part_only(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Every part is the first one."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            parts = [d for d in expr.dims() if d.endswith("_part")]
            for d in parts:
                wrong = expr.substitute({d: ix.const(0)})
                yield changed(block, n, attr=with_index(node.access, axis, wrong))


@mutation
def reads_the_next_part(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Part k + 1 for part k, in one of the tensors."""
    for n, node in of(block, "load"):
        for axis, expr in enumerate(node.access.index):
            for d in (d for d in expr.dims() if d.endswith("_part")):
                wrong = expr.substitute({d: (ix.dim(d) + 1) % program.sizes[d]})
                yield changed(block, n, attr=with_index(node.access, axis, wrong))


@graph_mutation
def leaves_out_a_store(graph: UGraph) -> Iterator[UGraph]:
    """An intermediate or an output that is never written; its node is gone."""
    for number, block in blocks(graph):
        for n, node in of(block, *STORES):
            kept = changed(block, n, op="neg", attr=None, dims=block.nodes[node.args[0]].dims)
            yield with_kernel(graph, number, kept)


# -- additions ------------------------------------------------------------------------------------


@mutation
def adds_in_every_block(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """A missing predicate: blocks that have the same all add it."""
    for n, node in of(block, *STORES):
        for axis in (a.dim for a in block.grid if a.dim not in node.dims):
            # Always true, and another value in each block for all that the rules can see.
            everywhere = ix.compare("ge", ix.dim(axis), 0)
            new = [Node("mask", (), everywhere), Node("mul", (n, node.args[0]))]
            wider = inserted(block, n, new)
            yield changed(wider, n + 2, op="store_add", args=(n + 1,))


@graph_mutation
def adds_for_a_store(graph: UGraph) -> Iterator[UGraph]:
    """An addition where every block writes its own place: right, but for a store in a loop."""
    for number, block in blocks(graph):
        for n, _ in of(block, "store"):
            yield with_kernel(graph, number, changed(block, n, op="store_add"))


@mutation
def adds_before_the_last_step(program: Program, block: BlockGraph) -> Iterator[BlockGraph]:
    """Parts are added up after a function that does not respect sums."""
    for n, node in of(block, "store_add"):
        for op in ("square", "exp", "sigmoid"):
            wider = inserted(block, n, [Node(op, (node.args[0],))])
            yield changed(wider, n + 1, args=(n,))


# -- library calls --------------------------------------------------------------------------------


@graph_mutation
def swaps_library_operands(graph: UGraph) -> Iterator[UGraph]:
    """B A for A B."""
    for number, call in _calls(graph):
        yield with_kernel(graph, number, replace(call, args=call.args[::-1]))


@graph_mutation
def calls_another_library_operator(graph: UGraph) -> Iterator[UGraph]:
    """An elementwise operator for a product."""
    for number, call in _calls(graph):
        for op in ("mul", "add", "maximum"):
            yield with_kernel(graph, number, replace(call, op=op))


@graph_mutation
def calls_a_library_twice(graph: UGraph) -> Iterator[UGraph]:
    """A second call writes the same tensor, from another one's elements."""
    for number, call in _calls(graph):
        second = replace(call, name=f"{call.name}_again", args=call.args[::-1])
        kernels = (*graph.kernels[: number + 1], second, *graph.kernels[number + 1 :])
        yield replace(graph, kernels=kernels)


@graph_mutation
def writes_a_library_result_elsewhere(graph: UGraph) -> Iterator[UGraph]:
    """The product goes to another tensor."""
    for number, call in _calls(graph):
        for name in graph.tensors:
            if name != call.result:
                yield with_kernel(graph, number, replace(call, result=name))


def _calls(graph: UGraph) -> list[tuple[int, LibraryCall]]:
    return [(n, k) for n, k in enumerate(graph.kernels) if isinstance(k, LibraryCall)]


def _names(graph: UGraph) -> tuple[str, ...]:
    return tuple(t.name for t in graph.intermediates)


def _retyped(graph: UGraph, number: int, tensor: Tensor) -> UGraph:
    others = graph.intermediates
    return replace(graph, intermediates=(*others[:number], tensor, *others[number + 1 :]))
