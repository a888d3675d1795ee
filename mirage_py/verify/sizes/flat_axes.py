"""Axes of tensors that only go together, as one axis: x[p // 512, p % 512] as x[p].

Both name the same elements in the same order, so whatever holds of one program holds of the other.
But an index that divides a dimension keeps it from being made small, and from being split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph

_Index = tuple[IndexExpr, ...]


def with_flat_axes(program: Program, ugraph: UGraph) -> tuple[Program, UGraph]:
    """Both over tensors in which two axes are one wherever all indices there, in either of them,
    are the two halves of one position.
    """
    if not all(isinstance(kernel, BlockGraph) for kernel in ugraph.kernels):
        return program, ugraph
    while (pair := next(_pairs(program, ugraph), None)) is not None:
        blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
        kernels = tuple(replace(k, nodes=pair.nodes(k.nodes)) for k in blocks)
        program = pair.program(program)
        ugraph = replace(ugraph, program=pair.program(ugraph.program), kernels=kernels)
    return program, ugraph


@dataclass(frozen=True, slots=True)
class _Pair:
    """The axes ``axis`` and ``axis + 1`` of a tensor; the second one has this ``extent``."""

    tensor: str
    axis: int
    extent: int

    def index(self, index: _Index) -> _Index:
        """An index of the tensor with one position for both."""
        joint = _joint(index[self.axis], index[self.axis + 1], self.extent)
        return (*index[: self.axis], joint, *index[self.axis + 2 :])

    def nodes(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Nodes that read and write it so."""
        return tuple(
            replace(n, attr=Access(self.tensor, self.index(n.attr.index)))
            if isinstance(n.attr, Access) and n.attr.tensor == self.tensor
            else n
            for n in nodes
        )

    def program(self, program: Program) -> Program:
        """A program with the tensor so."""
        outputs = tuple(
            replace(o, tensor=self._flat(o.tensor), index=self.index(o.index))
            if o.tensor.name == self.tensor
            else o
            for o in program.outputs
        )
        inputs = tuple(self._flat(t) if t.name == self.tensor else t for t in program.inputs)
        return replace(program, inputs=inputs, nodes=self.nodes(program.nodes), outputs=outputs)

    def _flat(self, tensor: Tensor) -> Tensor:
        def one(of: tuple[int, ...], both: int) -> tuple[int, ...]:
            return (*of[: self.axis], both, *of[self.axis + 2 :])

        both = tensor.shape[self.axis] * self.extent
        # Where the tensor lies in memory is all the same here.
        return replace(tensor, shape=one(tensor.shape, both), strides=None)


def _pairs(program: Program, ugraph: UGraph) -> Iterator[_Pair]:
    """The pairs of axes that are one."""
    accesses = [(o.tensor.name, o.index) for p in (program, ugraph.program) for o in p.outputs]
    blocks = [k.nodes for k in ugraph.kernels if isinstance(k, BlockGraph)]
    nodes = [n for of in (program.nodes, ugraph.program.nodes, *blocks) for n in of]
    accesses += [(n.attr.tensor, n.attr.index) for n in nodes if isinstance(n.attr, Access)]
    # An element that is a position is read where indices say so.
    read = {t for _, index in accesses for e in index for t in e.tensors()}
    for tensor in (*program.inputs, *(o.tensor for o in program.outputs)):
        mine = [index for name, index in accesses if name == tensor.name]
        for axis in range(len(tensor.shape) - 1):
            extent = tensor.shape[axis + 1]
            joints = (_joint(i[axis], i[axis + 1], extent) for i in mine)
            is_halved = any(_divides(index[axis + 1]) for index in mine)
            if is_halved and tensor.name not in read and not any(map(_divides, joints)):
                yield _Pair(tensor.name, axis, extent)


def _joint(row: IndexExpr, place: IndexExpr, extent: int) -> IndexExpr:
    """``row * extent + place``; of both halves of a number the number itself."""
    terms = _terms(row, extent)
    if place.op == "mod" and place.value == extent:
        whole = ix.mul(ix.floordiv(place.args[0], extent), extent)
        if whole in terms:
            terms.remove(whole)
            place = place.args[0]
    for term in terms:
        place = ix.add(term, place)
    return place


def _terms(expr: IndexExpr, factor: int) -> list[IndexExpr]:
    """What adds up to an expression times a factor."""
    if expr.op == "add":
        return [t for a in expr.args for t in _terms(a, factor)]
    return [ix.mul(expr, factor)]


def _divides(expr: IndexExpr) -> bool:
    return expr.op in ("floordiv", "mod") or any(map(_divides, expr.args))
