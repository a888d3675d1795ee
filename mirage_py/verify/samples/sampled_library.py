"""The part of a library call that a few blocks of other kernels depend on.

Rows and columns of a matmul need rows of one operand and columns of the other: a window of it costs
little where the whole result would take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from mirage_py.ugraph.interpret.buffers import Buffer
from mirage_py.ugraph.interpret.library import call_library
from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.ir.program import Tensor
from mirage_py.ugraph.ir.ugraph import LibraryCall
from mirage_py.verify.evaluate.work import FIELD_PRICES

A = TypeVar("A")

# Of one tensor axis the positions [start, stop); None is all of them.
Interval = tuple[int, int] | None
# One for each axis of a tensor.
Part = tuple[Interval, ...]


def union_of_parts(left: Part, right: Part) -> Part:
    """The smallest part that contains both."""
    return tuple(
        None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
        for a, b in zip(left, right, strict=True)
    )


def operand_parts(
    call: LibraryCall, tensors: Mapping[str, Tensor], part: Part
) -> list[tuple[str, Part]]:
    """The operands of a part of the result."""
    shapes = [tensors[name].shape for name in call.args]
    if call.convolution is not None:
        return [(name, (None,) * len(shape)) for name, shape in zip(call.args, shapes, strict=True)]
    if call.op != "matmul":
        return [
            (name, _aligned(part, shape)) for name, shape in zip(call.args, shapes, strict=True)
        ]
    left, right = shapes
    *batch, rows, columns = part
    return [
        (call.args[0], (*_aligned(batch, left[:-2]), rows, None)),
        (call.args[1], (*_aligned(batch, right[:-2]), None, columns)),
    ]


def _aligned(part: Sequence[Interval], shape: tuple[int, ...]) -> Part:
    """The last axes belong together; one of a single element is repeated, and read whole."""
    own = part[len(part) - len(shape) :]
    return tuple(None if extent == 1 else where for where, extent in zip(own, shape, strict=True))


def part_work(call: LibraryCall, tensors: Mapping[str, Tensor], part: Part) -> float:
    """Work of computing a part, in element operations."""
    if call.convolution is not None:
        args = [tensors[name] for name in call.args]
        flops = call.convolution.flops(*(t.shape for t in args))
        return float(flops / 2 * FIELD_PRICES.product + sum(t.elements for t in args))
    sides = [_extents(p, tensors[name].shape) for name, p in operand_parts(call, tensors, part)]
    result = prod(_extents(part, tensors[call.result].shape))
    terms = result * sides[0][-1] * FIELD_PRICES.product if call.op == "matmul" else result
    return float(terms + sum(map(prod, sides)))


def _extents(part: Part, shape: tuple[int, ...]) -> list[int]:
    return [e if p is None else p[1] - p[0] for p, e in zip(part, shape, strict=True)]


def run_part(
    call: LibraryCall,
    shapes: Mapping[str, Tensor],
    part: Part,
    tensors: Mapping[str, A],
    buffer: Buffer[A],
    meaning: Meaning[A],
) -> None:
    """Compute a part of the result into its place."""
    # Loading makes inputs that are drawn as they are read.
    operands = {}
    for place, (name, own) in enumerate(operand_parts(call, shapes, part)):
        operands[f"operand {place}"] = meaning.load(tensors[name], _slices(own))
    alone = replace(call, args=tuple(operands))
    value = call_library(alone, operands, meaning)
    if call.convolution is not None:
        # Windows overlap: it is computed whole.
        value = meaning.load(value, _slices(part))
    buffer.write(_slices(part), value)


def _slices(part: Part) -> tuple[slice, ...]:
    return tuple(slice(None) if p is None else slice(*p) for p in part)
