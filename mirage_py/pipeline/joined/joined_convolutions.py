"""Convolutions as matmuls of ours, with what stands behind them in the same kernel.

A convolution of a library is a part by itself: its result goes to memory and back. An implicit
matrix product does not need it there: rows are the places of the result, and the loop goes along
(position in the window, channel), one dimension. Its image has channels last, with the zeros of its
padding in memory, and its weight is packed in the order of the loop: both are copies by a kernel
each. What reads the result then takes it from registers, and writes it in any memory format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

from mirage_py.pipeline.partition.limits import operator_count
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.convolution import Convolution
from mirage_py.ugraph.ir.dtypes import F32, Fp32Precision
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.predicates import TRUE, conjunction
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.ugraph import LibraryCall
from mirage_py.ugraph.rewrite.convolutions import library_convolution
from mirage_py.ugraph.rewrite.merged_dims import with_merged_rows, with_merged_run
from mirage_py.ugraph.rewrite.rebuild import rebuild

# Channels of a place of the image are read in pieces of so many bytes.
_PIECE_BYTES = 16
# With fewer results a tile of tensor cores is not filled.
_LEAST_RESULTS = 16
# Channels of the result that a block can hold where what reads it reduces over them.
_MOST_REDUCED = 256


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tensor in memory with the parts of its axes, as a convolution has them."""

    tensor: Tensor
    axes: tuple[str, ...]


def joined_convolutions(found: Partition) -> Partition | None:
    """The same program with each convolution that can be in the part behind it there; None where
    none can.
    """
    parts = list(found.parts)
    names = dict.fromkeys(t for part in parts for t in part.tensors)
    taken = dict.fromkeys((*names, *(d for part in parts for d in part.dim_names)))
    joined: list[str] = []
    for part in found.parts:
        call = library_convolution(part)
        if call is not None:
            made = _joined(part, call, parts, taken)
            if made is not None:
                parts = made
                joined.append(call.result)
    if not joined:
        return None
    written = [o.tensor for part in parts for o in part.outputs]
    read = [t for part in parts for t in part.inputs]
    cuts = tuple(t for t in dict.fromkeys(written) if t in read)
    sized = sum(t.bytes for part in parts for t in part.tensors.values())
    named = tuple(p.renamed(f"{found.program.name}_joined{n}") for n, p in enumerate(parts))
    reason = f"{found.reason}; not in memory: {', '.join(joined)}"
    return replace(found, parts=named, cuts=cuts, bytes=sized, reason=reason)


def _joined(
    part: Program, call: LibraryCall, parts: Sequence[Program], taken: dict[str, None]
) -> list[Program] | None:
    """The parts without a convolution, which is in its reader now; None where it cannot be."""
    assert call.convolution is not None
    readers = [p for p in parts if call.result in [t.name for t in p.inputs]]
    data, taps = (part.tensors[name] for name in call.args)
    spec = _not_transposed(call.convolution, taps)
    if len(readers) != 1 or not _is_product(spec, data, taps, part):
        return None
    reader = _with_one_place(readers[0], call.result, spec)
    place = _only_load(reader, call.result, spec)
    if place is None:
        return None
    image, copies = _image(_Operand(data, spec.axes[0]), spec, taps, parts, taken)
    if image is None:
        return None
    is_flipped = call.convolution.transposed
    packed, packing = _packed(_Operand(taps, spec.axes[1]), spec, taken, is_flipped=is_flipped)
    sizes = spec.extents(1, taps.shape)
    whole = _with_product(reader, place, spec, image, packed, sizes, taken)
    rounds = part.fp32_precision.rounds_convolutions
    whole = whole.held_to(Fp32Precision.of(matmuls=rounds, convolutions=rounds))
    read = {t.name for p in parts if p is not part for t in p.inputs} | {image.tensor.name}
    kept: list[Program] = []
    for p in parts:
        if p is part:
            kept += [*copies, packing]
        elif p is readers[0]:
            kept.append(whole)
        # A copy that only the library read is not made.
        elif operator_count(p) or any(o.tensor != data or data.name in read for o in p.outputs):
            kept.append(p)
    return kept


def _is_product(spec: Convolution, data: Tensor, taps: Tensor, part: Program) -> bool:
    """Whether tensor cores multiply it in tiles that they fill."""
    sizes = spec.extents(1, taps.shape)
    is_rounded = data.dtype.is_half or (
        data.dtype == F32 and part.fp32_precision.rounds_convolutions
    )
    return (
        is_rounded
        and data.dtype == taps.dtype
        and not spec.transposed
        and min(spec.padding) >= 0
        and spec.groups == 1
        and all(len(parts) == 1 for axes in spec.axes for parts in axes)
        and sizes.get("c", 1) * data.dtype.bytes % _PIECE_BYTES == 0
        and sizes.get("o", 1) >= _LEAST_RESULTS
    )


def _not_transposed(spec: Convolution, taps: Tensor) -> Convolution:
    """A transposed convolution with steps of one as one that is not: its windows read backwards."""
    if not spec.transposed or any(s > 1 for s in spec.stride):
        return spec
    kernel = spec.extents(1, taps.shape)
    reach = [(kernel.get(str(n), 1) - 1) * spec.dilation[n] for n in range(spec.rank)]
    padding = tuple(r - p for r, p in zip(reach, spec.padding, strict=True))
    return replace(spec, padding=padding, transposed=False)


def _with_one_place(reader: Program, name: str, spec: Convolution) -> Program:
    """The reader with the axes of an image as one dimension, where they are but positions."""
    (load,) = [x for x in reader.nodes if x.op == "load" and x.access.tensor == name][:1]
    found = dict(zip(spec.axes[2], load.access.index, strict=True))
    along = [found[str(n)] for n in range(spec.rank)]
    merged = reader
    if all(e.is_dim for e in along):
        merged = with_merged_run(reader, [e.name for e in along])
    return with_merged_rows(reader) if merged == reader else merged


def _only_load(reader: Program, name: str, spec: Convolution) -> int | None:
    """The one place where a part reads the result: it is computed once for each place, and a block
    has all that is reduced over. None where that is not so.
    """
    loads = [n for n, x in enumerate(reader.nodes) if x.op == "load" and x.access.tensor == name]
    if len(loads) != 1 or any(x.op in ("matmul", "read") for x in reader.nodes):
        return None
    (place,) = loads
    node = reader.nodes[place]
    if node.access.is_look_up or len(node.access.dims()) < len(node.dims):
        return None
    channel = node.access.index[spec.axes[2].index("o")]
    reduced = dict.fromkeys(d for x in reader.nodes if x.op in REDUCING for d in x.reduced)
    inside = [d for d in reduced if d in node.dims]
    if not inside:
        return place
    whole = reader.sizes.get(channel.name, 0) if channel.is_dim else 0
    return place if inside == [channel.name] and 0 < whole <= _MOST_REDUCED else None


def _image(
    data: _Operand,
    spec: Convolution,
    taps: Tensor,
    parts: Sequence[Program],
    taken: dict[str, None],
) -> tuple[_Operand | None, list[Program]]:
    """The image with channels last and its padding, and the parts that copy it so. None where it is
    no input of the program, and would have to be copied.
    """
    kernel = spec.extents(1, taps.shape)
    known = spec.extents(0, data.tensor.shape)
    needed = [
        (spec.counts[n] - 1) * spec.stride[n] + (kernel.get(str(n), 1) - 1) * spec.dilation[n] + 1
        for n in range(spec.rank)
    ]
    fits = all(needed[n] <= known.get(str(n), 1) for n in range(spec.rank))
    order = ("n", *(str(n) for n in range(spec.rank)), "c")
    if data.axes[-1] == "c" and fits and not any(spec.padding):
        return data, []
    source = _source(data, parts)
    if source is None:
        return None, []
    known = dict(zip(source.axes, source.tensor.shape, strict=True))
    axes = tuple(a for a in order if a in source.axes)
    sizes = {a: known[a] for a in axes} | {
        str(n): needed[n] for n in range(spec.rank) if str(n) in axes
    }
    name = _free(f"{source.tensor.name}_padded", taken)
    target = Tensor(name, tuple(sizes[a] for a in axes), source.tensor.dtype)
    builder = ProgramBuilder(f"{name}_copied")
    builder.sizes.update({f"a{a}": size for a, size in sizes.items()})
    builder.inputs[source.tensor.name] = source.tensor
    index: dict[str, IndexExpr] = {}
    inside: Predicate = TRUE
    for a in axes:
        index[a] = ix.dim(f"a{a}")
        if a.isdigit():
            before, size = spec.padding[int(a)], known[a]
            if before:
                inside = conjunction(inside, ix.compare("ge", index[a], before))
            if sizes[a] > before + size:
                inside = conjunction(inside, ix.compare("lt", index[a], before + size))
            if before or sizes[a] > size:
                wrapped = ix.mod(index[a] + (-before) % size, size)
                index[a] = ix.simplify(wrapped, builder.sizes)
    node = builder.load(source.tensor.name, [index[a] for a in source.axes])
    if inside != TRUE:
        node = builder.apply("where", builder.mask(inside), node, builder.const(0.0))
    plain = tuple(ix.dim(f"a{a}") for a in axes)
    builder.outputs.append(Output(target, node, plain))
    return _Operand(target, axes), [builder.build()]


def _source(data: _Operand, parts: Sequence[Program]) -> _Operand | None:
    """The input of the program that an image is, or is a copy of."""
    written = [p for p in parts if any(o.tensor == data.tensor for o in p.outputs)]
    if not written:
        return data
    (part,) = written
    if operator_count(part) or len(part.nodes) != 1:
        return None
    (output,), (node,) = part.outputs, part.nodes
    source = part.tensors[node.access.tensor]
    if any(o.tensor == source for p in parts for o in p.outputs):
        return None
    index = list(output.index)
    if sorted(map(str, index)) != sorted(map(str, node.access.index)):
        return None
    return _Operand(source, tuple(data.axes[index.index(e)] for e in node.access.index))


def _packed(
    taps: _Operand, spec: Convolution, taken: dict[str, None], *, is_flipped: bool
) -> tuple[_Operand, Program]:
    """The weight as a matrix in the order of the sum, and the part that makes it; windows that
    read backwards have their last position first.
    """
    sizes = spec.extents(1, taps.tensor.shape)
    name = _free(f"{taps.tensor.name}_packed", taken)
    depth = prod(n for a, n in sizes.items() if a != "o")
    extents = {"k": depth, "o": sizes["o"]}
    # Tensor cores take TF32 with what is summed over in rows alone.
    axes = ("o", "k") if taps.tensor.dtype == F32 else ("k", "o")
    target = Tensor(name, tuple(extents[a] for a in axes), taps.tensor.dtype)
    builder = ProgramBuilder(f"{name}_copied")
    builder.sizes.update(extents)
    builder.inputs[taps.tensor.name] = taps.tensor
    digits = _digits("k", spec, sizes)
    if is_flipped:
        last = {a: sizes[a] - 1 for a in digits if a.isdigit()}
        digits |= {a: ix.const(n) - digits[a] for a, n in last.items()}
    index = [ix.dim("o") if a == "o" else digits[a] for a in taps.axes]
    node = builder.load(taps.tensor.name, index)
    builder.outputs.append(Output(target, node, tuple(map(ix.dim, axes))))
    return _Operand(target, axes), builder.build()


def _digits(name: str, spec: Convolution, sizes: Mapping[str, int]) -> dict[str, IndexExpr]:
    """Position in the window and channel of a step of the sum, the channel running fastest."""
    order = [a for a in (*(str(n) for n in range(spec.rank)), "c") if a in sizes]
    found: dict[str, IndexExpr] = {}
    for n, a in enumerate(order):
        behind = ix.floordiv(ix.dim(name), prod(sizes[b] for b in order[n + 1 :]))
        found[a] = ix.mod(behind, sizes[a]) if n else behind
    return found


def _with_product(
    reader: Program,
    place: int,
    spec: Convolution,
    image: _Operand,
    packed: _Operand,
    sizes: Mapping[str, int],
    taken: dict[str, None],
) -> Program:
    """The reader with the product in the place of the load of its result."""
    loaded = reader.nodes[place].access.index
    at = {a: e for a, e in zip(spec.axes[2], loaded, strict=True) if a}
    depth = packed.tensor.shape[packed.axes.index("k")]
    step = _free("k", taken)
    digits = _digits(step, spec, sizes)

    def product(builder: ProgramBuilder, args: Sequence[int]) -> int:
        del args
        for operand in (image, packed):
            builder.inputs[operand.tensor.name] = operand.tensor
        builder.sizes[step] = depth
        index = []
        for a in image.axes:
            if a == "n":
                index.append(at.get("n", ix.const(0)))
            elif a == "c":
                index.append(digits["c"])
            else:
                along = int(a)
                begin = at.get(a, ix.const(0)) * spec.stride[along]
                index.append(begin + digits[a] * spec.dilation[along])
        left = builder.load(image.tensor.name, index)
        places = {"k": ix.dim(step), "o": at["o"]}
        right = builder.load(packed.tensor.name, [places[a] for a in packed.axes])
        return builder.matmul(left, right, (step,))

    return rebuild(reader, {place: product}, drop_unread_inputs=True)


def _free(name: str, taken: dict[str, None]) -> str:
    found = next(n for k in count() if (n := f"{name}{k or ''}") not in taken)
    taken[found] = None
    return found
