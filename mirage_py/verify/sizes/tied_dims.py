"""Tied dimensions: they must have equal sizes because a library call uses whole tensors.

A library call has axes, not dimensions: in (silu(x @ wg) * (x @ wu)) @ wd + x the input is read as
x[m, k] by the matmuls and as x[m, n] by the addition, and a library matmul takes all of its
columns. At other sizes k and n have to agree, or the matmul would take columns that are not its
own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mirage_py.errors import ValidationError
from mirage_py.ugraph.interpret.library import library_shape
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import BlockGraph, Kernel, LibraryCall
from mirage_py.verify.sizes.affine import radix_dims

T = TypeVar("T", bound=Hashable)
# A tensor, and the number of one of its axes counted from the last, which is 1: batches broadcast.
_Axis = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TiedDims:
    """``groups`` have one size each; ``fixed`` dimensions keep theirs: no other fits."""

    groups: tuple[tuple[str, ...], ...] = ()
    fixed: tuple[str, ...] = ()

    def kept(self, fixed: Iterable[str]) -> tuple[str, ...]:
        """``fixed``, and what has to stay as it is because these do."""
        found = dict.fromkeys((*fixed, *self.fixed))
        for group in self.groups:
            if any(d in found for d in group):
                found.update(dict.fromkeys(group))
        return tuple(found)

    def has(self, dim: str) -> bool:
        """Whether another dimension has its size."""
        return any(dim in group for group in self.groups)

    def spread(self, extents: Mapping[str, int]) -> dict[str, int]:
        """The extents with one size for each group: that of its first dimension."""
        chosen = dict(extents)
        for group in self.groups:
            chosen.update({d: chosen[group[0]] for d in group if group[0] in chosen})
        return chosen


def tied_dims(program: Program, kernels: Sequence[Kernel]) -> TiedDims:
    """What the library calls among the kernels ask of sizes."""
    calls = [k for k in kernels if isinstance(k, LibraryCall)]
    if not calls:
        return TiedDims()
    shapes = _shapes(program, kernels, calls)
    axes, dims = _Classes[_Axis](), _Classes[str]()
    fixed: dict[str, None] = {}
    for call in calls:
        if call.convolution is not None:
            # Windows and groups fit at these sizes.
            touched = (*call.args, call.result)
            found = (a for a in _accesses(program, kernels) if a.tensor in touched)
            fixed.update(dict.fromkeys(d for a in found for d in a.dims()))
            continue
        for one, other in _common_axes(call, shapes):
            axes.join(one, other)
    contracted = {(call.args[0], 1): None for call in calls if call.op == "matmul"}
    for members in axes.groups():
        read = [_indices(program, kernels, axis) for axis in members]
        if all(r == read[0] for r in read) and not any(a in contracted for a in members):
            # Equal at all sizes. Rows and columns that nobody else reads do no harm.
            continue
        extent = max(_extent(shapes[name], place) for name, place in members)
        exprs = list(dict.fromkeys(e for r in read for e in r))
        forms = [radix_dims(e, extent, program.sizes) for e in exprs]
        sizes = [[program.sizes[d] for d in form or ()] for form in forms]
        if any(form is None or size != sizes[0] for form, size in zip(forms, sizes, strict=True)):
            fixed.update(dict.fromkeys(d for e in exprs for d in e.dims()))
            continue
        for form in forms:
            for d, first in zip(form or (), forms[0] or (), strict=True):
                dims.join(first, d)
    groups = tuple(program.order(tuple(g)) for g in dims.groups() if len(g) > 1)
    return TiedDims(groups, program.order(tuple(fixed)))


def _shapes(
    program: Program, kernels: Sequence[Kernel], calls: Sequence[LibraryCall]
) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors that calls touch, as far as accesses and calls tell them."""
    shapes = {name: tensor.shape for name, tensor in program.tensors.items()}
    for access in _accesses(program, kernels):
        reached = tuple(e.bounds(program.sizes)[1] + 1 for e in access.index)
        known = shapes.get(access.tensor, reached)
        shapes[access.tensor] = tuple(map(max, known, reached))
    for call in calls:
        for name in call.args:
            if name not in shapes:
                raise ValidationError(
                    f"tensor '{name}' is read before it is written, or never written",
                    where=f"library call {call.name}",
                    repair="order the kernels so that writers come first",
                )
        if call.result not in shapes:
            shapes[call.result] = library_shape(call, [shapes[a] for a in call.args])
    return shapes


def _common_axes(
    call: LibraryCall, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[_Axis, _Axis]]:
    """Pairs of axes that the call takes point by point."""
    result = call.result
    for place in range(1, len(shapes[result]) + 1):
        for number, name in enumerate(call.args):
            # The rows of a product are the left operand's, its columns the right one's.
            if call.op == "matmul" and place <= 2 and (place == 2) != (number == 0):
                continue
            if _extent(shapes[name], place) == _extent(shapes[result], place):
                yield (result, place), (name, place)
    if call.op == "matmul":
        left, right = call.args
        yield (left, 1), (right, 2)


def _extent(shape: tuple[int, ...], place: int) -> int:
    return shape[-place] if place <= len(shape) else 1


def _accesses(program: Program, kernels: Sequence[Kernel]) -> Iterator[Access]:
    blocks = [k for k in kernels if isinstance(k, BlockGraph)]
    for node in (*program.nodes, *(n for b in blocks for n in b.nodes)):
        if isinstance(node.attr, Access):
            yield node.attr
    for output in program.outputs:
        yield Access(output.tensor.name, output.index)


def _indices(program: Program, kernels: Sequence[Kernel], axis: _Axis) -> dict[IndexExpr, None]:
    """How programs and kernels index an axis; a dict as an ordered set."""
    name, place = axis
    found = [a.index for a in _accesses(program, kernels) if a.tensor == name]
    return dict.fromkeys(index[-place] for index in found if place <= len(index))


class _Classes(Generic[T]):
    """Disjoint classes that are joined; classes and members come in the order of their joining."""

    def __init__(self) -> None:
        self._class: dict[T, dict[T, None]] = {}

    def join(self, one: T, other: T) -> None:
        joined = {**self._class.get(one, {one: None}), **self._class.get(other, {other: None})}
        self._class.update(dict.fromkeys(joined, joined))

    def groups(self) -> list[tuple[T, ...]]:
        return [tuple(c) for c in {id(c): c for c in self._class.values()}.values()]
