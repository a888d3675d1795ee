"""The same program over other tensors, without divisions in indices: these keep dimensions from
being made small, and from being split.

Axes that only go together are one axis: x[p // 512, p % 512] is x[p]. Both name the same elements
in the same order, so whatever holds of one program holds of the other.

What is read round the end of an axis, as padding is, is read from a longer one: x[(s + k + 511) %
512] is y[s + k], of a y with as many elements as are named, and x[s] beside it y[s + 1]. Programs
that are equal for every y are so for the one whose elements are those of x.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.ugraph import BlockGraph, UGraph
from mirage_py.verify.sizes.affine import affine

_Index = tuple[IndexExpr, ...]
_Sizes = Mapping[str, int]


def with_flat_axes(program: Program, ugraph: UGraph) -> tuple[Program, UGraph]:
    """Both over tensors in which two axes are one wherever all indices there, in either of them,
    are the two halves of one position; and which are as long as they are read, wherever all go
    round the end.
    """
    if not all(isinstance(kernel, BlockGraph) for kernel in ugraph.kernels):
        return program, ugraph
    while (change := next(_changes(program, ugraph), None)) is not None:
        blocks = [k for k in ugraph.kernels if isinstance(k, BlockGraph)]
        sizes = ugraph.program.sizes
        kernels = tuple(replace(k, nodes=change.nodes(k.nodes, sizes)) for k in blocks)
        program = change.program(program)
        ugraph = replace(ugraph, program=change.program(ugraph.program), kernels=kernels)
    return program, ugraph


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the axis ``axis`` of a tensor, whose ``extent`` is another one then."""

    tensor: str
    axis: int
    extent: int

    @abstractmethod
    def index(self, index: _Index, sizes: _Sizes) -> _Index:
        """An index of the tensor as it is then."""

    @abstractmethod
    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the tensor then."""

    def nodes(self, nodes: Sequence[Node], sizes: _Sizes) -> tuple[Node, ...]:
        """Nodes that read and write it so."""
        return tuple(
            replace(n, attr=Access(self.tensor, self.index(n.attr.index, sizes)))
            if isinstance(n.attr, Access) and n.attr.tensor == self.tensor
            else n
            for n in nodes
        )

    def program(self, program: Program) -> Program:
        """A program with the tensor so."""
        outputs = tuple(
            replace(o, tensor=self._changed(o.tensor), index=self.index(o.index, program.sizes))
            if o.tensor.name == self.tensor
            else o
            for o in program.outputs
        )
        inputs = tuple(self._changed(t) if t.name == self.tensor else t for t in program.inputs)
        return replace(
            program, inputs=inputs, nodes=self.nodes(program.nodes, program.sizes), outputs=outputs
        )

    def _changed(self, tensor: Tensor) -> Tensor:
        # Where it lies in memory is all the same here.
        return replace(tensor, shape=self.shape(tensor.shape), strides=None)


class _Joined(_Change):
    """The axis and the one behind it are one; ``extent`` is that of the one behind."""

    __slots__ = ()

    def index(self, index: _Index, sizes: _Sizes) -> _Index:
        joint = ix.joint(index[self.axis], index[self.axis + 1], self.extent, sizes)
        return (*index[: self.axis], joint, *index[self.axis + 2 :])

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        both = shape[self.axis] * self.extent
        return (*shape[: self.axis], both, *shape[self.axis + 2 :])


@dataclass(frozen=True, slots=True)
class _Unwrapped(_Change):
    """The axis, which had ``round`` elements, is as long as it is read, from the position ``first``
    on.
    """

    round: int = 1
    first: int = 0

    def index(self, index: _Index, sizes: _Sizes) -> _Index:
        del sizes
        place = _unwrapped(index[self.axis], self.round)
        assert place is not None
        return (*index[: self.axis], place - self.first, *index[self.axis + 1 :])

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[: self.axis], self.extent, *shape[self.axis + 1 :])


def _changes(program: Program, ugraph: UGraph) -> Iterator[_Change]:
    """The changes that there are, each alone."""
    other = ugraph.program
    blocks = [k.nodes for k in ugraph.kernels if isinstance(k, BlockGraph)]
    accesses: list[tuple[str, _Index, Mapping[str, int]]] = []
    for of, nodes in ((program, program.nodes), *((other, n) for n in (other.nodes, *blocks))):
        accesses += [(o.tensor.name, o.index, of.sizes) for o in of.outputs]
        attrs = (n.attr for n in nodes if isinstance(n.attr, Access))
        accesses += [(a.tensor, a.index, of.sizes) for a in attrs]
    # An element that is a position is read where indices say so.
    read = {t for _, index, _ in accesses for e in index for t in e.tensors()}
    for tensor in (*program.inputs, *(o.tensor for o in program.outputs)):
        within = [(index, sizes) for name, index, sizes in accesses if name == tensor.name]
        mine = [index for index, _ in within]
        if tensor.name in read:
            continue
        for axis in range(len(tensor.shape) - 1):
            extent = tensor.shape[axis + 1]
            before = [ix.divisions(i[axis]) + ix.divisions(i[axis + 1]) for i in mine]
            joint = [ix.divisions(ix.joint(i[axis], i[axis + 1], extent, s)) for i, s in within]
            is_halved = any(_divides(index[axis + 1]) for index in mine)
            # Of three axes the first two are joined first, to the quotient by the third.
            if is_halved and all(a < b or not a for a, b in zip(joint, before, strict=True)):
                yield _Joined(tensor.name, axis, extent)
        for axis, extent in enumerate(tensor.shape) if tensor in program.inputs else ():
            if not any(_goes_round(index[axis], extent) for index in mine):
                continue
            places = [(_unwrapped(index[axis], extent), sizes) for index, sizes in within]
            ends = [place.bounds(sizes) for place, sizes in places if place is not None]
            if len(ends) < len(places):
                continue
            first, last = min(low for low, _ in ends), max(high for _, high in ends)
            # Not further than padding goes.
            if last - first < 2 * extent:
                yield _Unwrapped(tensor.name, axis, last + 1 - first, extent, first)


def _goes_round(expr: IndexExpr, extent: int) -> bool:
    """Whether it is a position taken round the end of an axis, once or again."""
    return (expr.op == "mod" and expr.value == extent) or (
        expr.op == "add" and any(_goes_round(a, extent) for a in expr.args)
    )


def _unwrapped(expr: IndexExpr, extent: int) -> IndexExpr | None:
    """A sum of dimensions that differs from a position by whole rounds, and is near the start; None
    where the position is no such sum.
    """
    form = affine(_without_rounds(expr, extent))
    if form is None:
        return None
    half = extent // 2
    near = (form.constant + half) % extent - half
    terms = [ix.mul(ix.dim(d), factor) for d, factor in form.terms]
    return reduce(ix.add, [*terms, ix.const(near)])


def _without_rounds(expr: IndexExpr, extent: int) -> IndexExpr:
    if expr.op == "mod" and expr.value == extent:
        return _without_rounds(expr.args[0], extent)
    if expr.op == "add":
        return ix.add(*(_without_rounds(a, extent) for a in expr.args))
    return expr


def _divides(expr: IndexExpr) -> bool:
    return ix.divisions(expr) > 0
