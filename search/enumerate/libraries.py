"""Matmuls that a vendor library computes as a kernel of its own.

A library multiplies whole row-major tensors, A[.., m, k] by B[.., k, n], and nothing else. B must
be a program input with this layout; A may be one too, or an intermediate, which is stored in the
layout that the call needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mirage_py.axioms.terms.class_table import ClassTable
from mirage_py.search.closure.closure import given_access
from mirage_py.search.space.abstraction import loop_axis, tile_axis
from mirage_py.search.space.leaves import Leaf
from mirage_py.search.space.values import Values
from mirage_py.ugraph.ir.node import Access
from mirage_py.ugraph.ir.program import Program, Tensor


@dataclass(frozen=True, slots=True)
class Operand:
    """A whole tensor in memory: the ``leaf`` that reads an input, or None: still to be stored."""

    leaf: Leaf | None
    value: int
    dims: tuple[str, ...]
    classes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LibraryMatmul:
    """left @ right, summed over ``contracted``.

    ``dims`` are the axes of the result in memory, ``left_dims`` those of left.
    """

    left: Operand
    left_dims: tuple[str, ...]
    right: Operand
    contracted: str
    value: int
    dims: tuple[str, ...]
    classes: tuple[int, ...]


def input_operands(
    program: Program, leaves: Sequence[Leaf], table: ClassTable, values: Values
) -> tuple[Operand, ...]:
    """The program inputs that are read whole and in place, of two axes or more."""
    found = []
    for leaf in leaves:
        if leaf.node.op != "load":
            continue
        access = leaf.node.access
        tensor = program.tensors[access.tensor]
        dims = tuple(e.name for e in access.index if e.is_dim)
        whole = tuple(program.sizes[d] for d in dims) == tensor.shape
        if len(dims) < 2 or len({*dims}) < len(access.index) or not whole or tensor.strides:
            continue
        class_ = table.lookup("leaf", leaf.name, ())
        if class_ is not None:
            found.append(Operand(leaf, values.leaf(leaf.node), dims, (class_,)))
    return tuple(found)


def lies_as(tensor: Tensor, access: Access, dims: Sequence[str]) -> bool:
    """Whether these are the axes of a row-major tensor, in this order and in place."""
    return access == given_access(tensor.name, dims) and not tensor.strides


def library_matmuls(
    lefts: Sequence[Operand], rights: Sequence[Operand], table: ClassTable, values: Values
) -> Iterator[LibraryMatmul]:
    """Every matmul of the operands that the class table knows as a part of the program."""
    for left in lefts:
        for right in rights:
            layout = _layout(left, right)
            if layout is None:
                continue
            left_dims, contracted, dims = layout
            classes = _contraction_classes(left, right, contracted, table, values)
            if classes:
                axes = values.space.axes[contracted]
                value = values.contract((left.value, right.value), axes)
                yield LibraryMatmul(left, left_dims, right, contracted, value, dims, classes)


def _layout(left: Operand, right: Operand) -> tuple[tuple[str, ...], str, tuple[str, ...]] | None:
    """Axes of left, the contracted dimension, axes of the result; None if they do not fit."""
    *batch, contracted, column = right.dims
    if contracted not in left.dims or column in left.dims or len(left.dims) < 2:
        return None
    rows = tuple(d for d in left.dims if d != contracted and d not in batch)
    if any(d not in left.dims for d in batch) or (batch and len(rows) != 1) or not rows:
        return None
    left_dims = (*batch, *rows, contracted)
    if left.leaf is not None and left.dims != left_dims:
        return None
    return left_dims, contracted, (*batch, *rows, column)


def _contraction_classes(
    left: Operand, right: Operand, contracted: str, table: ClassTable, values: Values
) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for a in left.classes:
        for b in right.classes:
            product = table.lookup("mul", "", (a, b))
            if product is None:
                continue
            total = table.lookup("sum", tile_axis(contracted), (product,))
            if total is not None and contracted in values.space.loopable:
                total = table.lookup("sum", loop_axis(contracted), (total,))
            if total is not None:
                found[total] = None
    return tuple(found)
