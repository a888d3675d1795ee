"""Operands of an implicit matmul in memory: the image with channels last, and the packed weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mirage_py.pipeline.joined.geometry import Axis
from mirage_py.pipeline.partition.limits import operator_count
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.predicates import TRUE, conjunction
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.renaming import free_name

# Fewer results do not fill a tensor-core tile.
LEAST_RESULTS = 16
# Channels of a place are read in pieces of this many bytes, or of half as many if there are few.
_PIECE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in memory, with the role of each axis in the convolution (n, c, o, 0, 1 ...)."""

    tensor: Tensor
    axes: tuple[str, ...]


def whole_pieces(channels: int, element_bytes: int) -> int:
    """The number of channels, rounded up so that a place is read in whole pieces of memory."""
    piece = _PIECE_BYTES // element_bytes
    if 2 * channels <= piece:
        piece //= 2
    return -(-channels // piece) * piece


def image_of(
    data: Operand,
    along: Sequence[Axis],
    channels: int,
    parts: Sequence[Program],
    taken: set[str],
) -> tuple[Operand, list[Program]]:
    """The image with channels last, ``channels`` of them, and zeros around it; and the parts that
    copy it into this layout, none if it has it already.
    """
    known = dict(zip(data.axes, data.tensor.shape, strict=True))
    order = ("n", *(str(n) for n in range(len(along))), "c")
    fits = all(a.before == 0 and a.span <= known.get(str(n), 1) for n, a in enumerate(along))
    if data.axes[-1] == "c" and fits and channels == known["c"]:
        return data, []
    source = _source(data, parts)
    known = dict(zip(source.axes, source.tensor.shape, strict=True))
    sizes = {"n": known.get("n", 1), **{str(n): a.span for n, a in enumerate(along)}, "c": channels}
    axes = tuple(a for a in order if a in (*source.axes, "c") or sizes[a] > 1)
    sizes = {a: sizes[a] for a in axes}
    name = free_name(f"{source.tensor.name}_padded", taken)
    target = Tensor(name, tuple(sizes[a] for a in axes), source.tensor.dtype)
    builder = ProgramBuilder(f"{name}_copied")
    builder.sizes.update({f"a{a}": size for a, size in sizes.items()})
    builder.inputs[source.tensor.name] = source.tensor
    index: dict[str, IndexExpr] = {}
    inside: Predicate = TRUE
    for a in axes:
        index[a] = ix.dim(f"a{a}")
        before = along[int(a)].before if a.isdigit() else 0
        size = known.get(a, 1)
        if before > 0:
            inside = conjunction(inside, ix.compare("ge", index[a], before))
        if sizes[a] > before + size:
            inside = conjunction(inside, ix.compare("lt", index[a], before + size))
        if before or sizes[a] > size:
            wrapped = ix.mod(index[a] + (-before) % size, size)
            index[a] = ix.simplify(wrapped, builder.sizes)
    node = builder.load(source.tensor.name, [index.get(a, ix.const(0)) for a in source.axes])
    if inside != TRUE:
        node = builder.apply("where", builder.mask(inside), node, builder.const(0.0))
    plain = tuple(ix.dim(f"a{a}") for a in axes)
    builder.outputs.append(Output(target, node, plain))
    return Operand(target, axes), [builder.build()]


def _source(data: Operand, parts: Sequence[Program]) -> Operand:
    """The program input that an image is a plain copy of; else the image itself."""
    written = [p for p in parts if any(o.tensor == data.tensor for o in p.outputs)]
    if not written:
        return data
    (part,) = written
    if operator_count(part) or len(part.nodes) != 1:
        return data
    (output,), (node,) = part.outputs, part.nodes
    source = part.tensors[node.access.tensor]
    if any(o.tensor == source for p in parts for o in p.outputs):
        return data
    index = list(output.index)
    if sorted(map(str, index)) != sorted(map(str, node.access.index)):
        return data
    return Operand(source, tuple(data.axes[index.index(e)] for e in node.access.index))


def packed(
    taps: Operand,
    along: Sequence[Axis],
    channels: int,
    taken: set[str],
) -> tuple[Operand, Program]:
    """The weight as a matrix in the order of the loop, for each phase of the results, and the part
    that makes it.
    """
    known = dict(zip(taps.axes, taps.tensor.shape, strict=True))
    name = free_name(f"{taps.tensor.name}_packed", taken)
    extents = {"k": depth(along, channels), "o": known["o"]}
    extents |= {f"r{n}": axis.phases for n, axis in enumerate(along) if axis.phases > 1}
    behind = tuple(a for a in extents if a not in "ko")
    # wgmma takes TF32 operands only with K contiguous.
    axes = (*behind, "o", "k") if taps.tensor.dtype == F32 else ("k", *behind, "o")
    target = Tensor(name, tuple(extents[a] for a in axes), taps.tensor.dtype)
    builder = ProgramBuilder(f"{name}_copied")
    builder.sizes.update({a: extents[a] for a in axes})
    builder.inputs[taps.tensor.name] = taps.tensor
    digits = steps("k", along, channels)
    inside: Predicate = TRUE
    index = {"o": ix.dim("o"), "c": digits["c"]}
    if known.get("c", 1) < channels:
        inside = ix.compare("lt", digits["c"], known.get("c", 1))
        index["c"] = ix.mod(digits["c"], known.get("c", 1))
    for n, axis in enumerate(along):
        phase = ix.dim(f"r{n}") if axis.phases > 1 else ix.const(0)
        met = phase + axis.start + digits[str(n)] * -axis.turn
        if axis.is_full:
            index[str(n)] = ix.floordiv(met, axis.dilation)
            continue
        reach = axis.extent * axis.dilation
        inside = conjunction(inside, ix.compare("ge", met, 0))
        inside = conjunction(inside, ix.compare("lt", met, reach))
        # Keep the dividend non-negative: languages differ on negative ones.
        met += -(-max(0, axis.turn * (axis.taps - 1) - axis.start) // reach) * reach
        if axis.dilation > 1:
            inside = conjunction(inside, ix.compare("eq", ix.mod(met, axis.dilation), 0))
        index[str(n)] = ix.floordiv(ix.mod(met, reach), axis.dilation)
    simple = {a: ix.simplify(e, builder.sizes) for a, e in index.items()}
    node = builder.load(taps.tensor.name, [simple.get(a, ix.const(0)) for a in taps.axes])
    if inside != TRUE:
        node = builder.apply("where", builder.mask(inside), node, builder.const(0.0))
    builder.outputs.append(Output(target, node, tuple(map(ix.dim, axes))))
    return Operand(target, axes), builder.build()


def depth(along: Sequence[Axis], channels: int) -> int:
    """K: the number of terms in the sum of one result."""
    return prod(a.taps for a in along) * channels


def steps(name: str, along: Sequence[Axis], channels: int) -> dict[str, IndexExpr]:
    """The tap along each axis and the channel of a step along K; the channel runs fastest."""
    return _digits(name, {**{str(n): a.taps for n, a in enumerate(along)}, "c": channels})


def _digits(name: str, sizes: Mapping[str, int]) -> dict[str, IndexExpr]:
    """A number as mixed-radix digits, the last running fastest; a digit of size 1 is 0."""
    found: dict[str, IndexExpr] = {}
    rest = prod(sizes.values())
    total = rest
    for a, size in sizes.items():
        rest //= size
        behind = ix.floordiv(ix.dim(name), rest)
        found[a] = ix.const(0) if size == 1 else behind
        if size > 1 and rest * size < total:
            found[a] = ix.mod(behind, size)
    return found
