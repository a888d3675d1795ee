"""Convolutions as implicit matmuls, fused with the code that reads their results.

A library convolution is a part of its own, and its result goes to memory and back. An implicit
matmul avoids that: its rows are the places (output positions), and its loop runs over (window
position, channel) as one dimension. The image has channels last, with the zeros of the padding in
memory, and the weight is packed in the order of the loop; one kernel each makes these copies. The
code that reads the result takes it from registers, and writes any memory format. If it cannot be
fused, the matmul is a part that writes its result, provided that the library is slow there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from mirage_py.pipeline.joined.geometry import Axis, axes_of
from mirage_py.pipeline.joined.operands import (
    LEAST_RESULTS,
    Operand,
    depth,
    image_of,
    packed,
    steps,
    whole_pieces,
)
from mirage_py.pipeline.joined.readers import Reader, prepared_reader, storing
from mirage_py.pipeline.partition.limits import operator_count
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.dtypes import F32, Fp32Precision
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.ir.renaming import free_name
from mirage_py.ugraph.ir.ugraph import LibraryCall
from mirage_py.ugraph.rewrite.convolutions import library_convolution
from mirage_py.ugraph.rewrite.rebuild import rebuild

# How many convolutions of a network are joined, largest first: each search takes long.
_MOST_JOINED = 4
# Fewer channels, of image or result, do not fill a library's tiles either.
_FEW_CHANNELS = 16


def joined_convolutions(found: Partition) -> Partition | None:
    """The same program with convolutions as matmuls in the parts that read them, or in parts of
    their own; None if there is none.
    """
    parts = list(found.parts)
    names = dict.fromkeys(t for part in parts for t in part.tensors)
    taken = {*names, *(d for part in parts for d in part.dim_names)}
    joined: list[str] = []
    calls = [(part, call) for part in parts if (call := library_convolution(part)) is not None]
    for part, call in sorted(calls, key=lambda pair: -_flops(*pair)):
        made = _joined(part, call, parts, taken) if len(joined) < _MOST_JOINED else None
        if made is not None:
            parts = made
            joined.append(call.result)
    if not joined:
        return None
    return found.with_parts(parts, "joined", f"convolutions of ours: {', '.join(joined)}")


def _flops(part: Program, call: LibraryCall) -> float:
    assert call.convolution is not None
    data, taps = (part.tensors[name] for name in call.args)
    return call.convolution.flops(data.shape, taps.shape)


@dataclass(frozen=True, slots=True)
class _Behind:
    """A part ``whole`` that computes the matmul instead of loading its result, and the part that it
    replaces, if any. If ``stored`` is given, a larger tensor is written: parts that read ``result``
    read it instead, and so does the further part ``copy``.
    """

    whole: Program
    replaced: Program | None
    result: str
    stored: Tensor | None = None
    copy: Program | None = None


def _joined(
    part: Program, call: LibraryCall, parts: Sequence[Program], taken: set[str]
) -> list[Program] | None:
    """The parts after joining one convolution; None if it cannot be joined."""
    spec = call.convolution
    assert spec is not None
    data, taps = (part.tensors[name] for name in call.args)
    along = axes_of(spec, taps)
    if along is None or not _is_product(spec, data, taps, part):
        return None
    channels = whole_pieces(spec.extents(1, taps.shape).get("c", 1), data.dtype.bytes)
    image, copies = image_of(Operand(data, spec.axes[0]), along, channels, parts, taken)
    weight, packing = packed(Operand(taps, spec.axes[1]), along, channels, taken)
    product = _Product(spec, along, channels, image, weight)
    behind = _behind(part, call, parts, product, taken)
    if behind is None:
        return None
    rounds = part.fp32_precision.rounds_convolutions
    whole = behind.whole.held_to(Fp32Precision.of(matmuls=rounds, convolutions=rounds))
    read = {t.name for p in parts if p is not part for t in p.inputs} | {image.tensor.name}
    read |= {t.name for p in copies for t in p.inputs}
    kept: list[Program] = []
    for p in parts:
        if p is part:
            kept += [*copies, packing]
            kept += [whole] if behind.replaced is None else []
            kept += [behind.copy] if behind.copy is not None else []
        elif p is behind.replaced:
            kept.append(whole)
        # Drop a copy that only the library call read.
        elif operator_count(p) or any(o.tensor != data or data.name in read for o in p.outputs):
            kept.append(_reading(p, behind))
    return kept


def _behind(
    part: Program,
    call: LibraryCall,
    parts: Sequence[Program],
    product: _Product,
    taken: set[str],
) -> _Behind | None:
    """The part that computes the matmul: the reader of its result, or one of its own."""
    readers = [p for p in parts if call.result in [t.name for t in p.inputs]]
    if len(readers) == 1 and call.result not in [o.tensor.name for p in readers for o in p.outputs]:
        found = prepared_reader(readers[0], call.result, product.spec, product.along)
        if found is not None:
            return _Behind(product.inside(found, taken), readers[0], call.result)
    if readers and not _library_is_slow(product.spec, part.tensors[call.args[1]]):
        return None
    result = part.outputs[0].tensor
    stored = _with_all_phases(result, product.spec, product.along, taken)
    alone, given = storing(stored or result, taken)
    found = prepared_reader(alone, given, product.spec, product.along)
    if found is None:
        return None
    whole = product.inside(found, taken)
    if stored is None or readers:
        return _Behind(whole, None, call.result, stored)
    # It is a result of the program: copy it from the larger tensor.
    copy, given = storing(result, taken)
    behind = _Behind(whole, None, given, stored)
    return replace(behind, copy=_reading(copy, behind))


def _with_all_phases(
    result: Tensor, spec: Convolution, along: Sequence[Axis], taken: set[str]
) -> Tensor | None:
    """A larger result in which each place has all its phases; None if it has them already."""
    sizes = [
        along[int(a)].places * along[int(a)].phases if a.isdigit() else n
        for a, n in zip(spec.axes[2], result.shape, strict=True)
    ]
    if tuple(sizes) == result.shape:
        return None
    return Tensor(free_name(f"{result.name}_phases", taken), tuple(sizes), result.dtype)


def _reading(part: Program, behind: _Behind) -> Program:
    """The part, reading the larger tensor at the same indices."""
    stored = behind.stored
    if stored is None or behind.result not in [t.name for t in part.inputs]:
        return part

    def node_of(node: Node) -> Node:
        if isinstance(node.attr, Access) and node.attr.tensor == behind.result:
            return replace(node, attr=Access(stored.name, node.attr.index))
        return node

    inputs = tuple(stored if t.name == behind.result else t for t in part.inputs)
    return replace(part, inputs=inputs, nodes=tuple(map(node_of, part.nodes)))


def _is_product(spec: Convolution, data: Tensor, taps: Tensor, part: Program) -> bool:
    """Whether it is a matmul that fills tensor-core tiles."""
    is_rounded = data.dtype.is_half or (
        data.dtype == F32 and part.fp32_precision.rounds_convolutions
    )
    return (
        is_rounded
        and data.dtype == taps.dtype
        and spec.groups == 1
        and all(len(parts) <= 1 for axes in spec.axes for parts in axes)
        and spec.extents(1, taps.shape).get("o", 1) >= LEAST_RESULTS
    )


def _library_is_slow(spec: Convolution, taps: Tensor) -> bool:
    """Whether the library lacks a fast tensor-core kernel for it: it has one for images with many
    channels.
    """
    sizes = spec.extents(1, taps.shape)
    few = min(sizes.get("c", 1), sizes.get("o", 1)) < _FEW_CHANNELS
    return few or spec.rank != 2 or (spec.transposed and prod(spec.stride) > 1)


@dataclass(frozen=True, slots=True)
class _Product:
    """A convolution as a matmul of an image and a packed weight."""

    spec: Convolution
    along: tuple[Axis, ...]
    channels: int
    image: Operand
    weight: Operand

    def inside(self, reader: Reader, taken: set[str]) -> Program:
        """The reader, computing the matmul instead of loading its result."""
        loaded = reader.program.nodes[reader.place].access.index
        at = {a: e for a, e in zip(self.spec.axes[2], loaded, strict=True) if a}
        step = free_name("k", taken)
        digits = steps(step, self.along, self.channels)

        def product(builder: ProgramBuilder, args: Sequence[int]) -> int:
            del args
            for operand in (self.image, self.weight):
                builder.inputs[operand.tensor.name] = operand.tensor
            builder.sizes[step] = depth(self.along, self.channels)
            index = []
            for a in self.image.axes:
                if a == "n":
                    index.append(at.get("n", ix.const(0)))
                elif a == "c":
                    index.append(digits["c"])
                elif not a:
                    index.append(ix.const(0))
                else:
                    axis = self.along[int(a)]
                    begin = ix.floordiv(at.get(a, ix.const(0)), axis.phases) * axis.step
                    index.append(begin + digits[a] * axis.reach)
            simple = [ix.simplify(e, builder.sizes) for e in index]
            left = builder.load(self.image.tensor.name, simple)
            places = {"k": ix.dim(step), "o": at["o"]}
            places |= {f"r{n}": ix.dim(d) for n, d in reader.phases.items()}
            right = builder.load(self.weight.tensor.name, [places[a] for a in self.weight.axes])
            return builder.matmul(left, right, (step,))

        return rebuild(reader.program, {reader.place: product}, drop_unread_inputs=True)
