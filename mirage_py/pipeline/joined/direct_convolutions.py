"""Convolutions of few channels as sums over windows, fused with the elementwise code around them.

A depthwise convolution sums one channel, or a few, for each result: tensor cores cannot help, and
the kernel is bound by memory. As a sum over its window it is a part like any other. Elementwise
code that reads its result, or that makes an image which nothing else reads, joins the same kernel,
and the values between them are never stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mirage_py.codegen.cuda.windows.shares import MOST_POSITIONS
from mirage_py.pipeline.joined.operands import LEAST_RESULTS
from mirage_py.pipeline.partition.alike_parts import alike
from mirage_py.pipeline.partition.limits import operator_count
from mirage_py.pipeline.partition.partition import Partition
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.convolutions import library_convolution
from mirage_py.ugraph.rewrite.rebuild import copied, rebuild

# Channels summed for each result: with more it is a matmul.
_MOST_CHANNELS = 4
# How many convolutions are searched, alike ones counted once.
_MOST_SEARCHED = 6
# Operators of a part that holds a convolution and the code around it.
_MOST_OPERATORS = 40


@dataclass(frozen=True, slots=True)
class DirectPartition:
    """A partition; the parts numbered ``ours`` compute convolutions as sums."""

    partition: Partition
    ours: tuple[int, ...] = ()


def direct_convolutions(found: Partition) -> DirectPartition:
    """The partition with convolutions of few channels fused into the parts around them; the same
    partition if there are none.
    """
    parts = list(found.parts)
    mine = _largest(parts, [n for n, part in enumerate(parts) if _is_direct(part)])
    if not mine:
        return DirectPartition(found)
    kept: dict[int, Program] = dict(enumerate(parts))
    ours: dict[int, None] = {}
    results = [o.tensor.name for o in found.program.outputs]
    for number in mine:
        at, part = number, kept[number]
        call = library_convolution(part)
        assert call is not None
        # First the part before it, then the one after it.
        for image in (t.name for t in part.inputs):
            source = _only_source(kept, at, image, results)
            if source is not None:
                part = _with_source(part, image, kept[source])
                del kept[source]
        kept[at] = part
        reader = _only_reader(kept, at, call.result, results)
        if reader is not None:
            whole = _with_source(kept[reader], call.result, part)
            del kept[at]
            kept[reader] = whole
            at = reader
        ours[at] = None
    order = sorted(kept)
    why = f"{len(mine)} convolutions are sums over windows"
    changed = found.with_parts([kept[n] for n in order], "direct", why)
    return DirectPartition(changed, tuple(k for k, n in enumerate(order) if n in ours))


def _largest(parts: Sequence[Program], found: Sequence[int]) -> list[int]:
    """Those that move most bytes, and all that are like them: each search takes seconds."""
    first = alike(parts)
    groups: dict[int, None] = {}
    for n in sorted(found, key=lambda n: -sum(t.bytes for t in parts[n].tensors.values())):
        if len(groups) < _MOST_SEARCHED:
            groups[first[n]] = None
    return [n for n in found if first[n] in groups]


def _is_direct(part: Program) -> bool:
    """Whether it is a convolution with short sums."""
    call = library_convolution(part)
    if call is None or call.convolution is None:
        return False
    sizes = call.convolution.extents(1, part.tensors[call.args[1]].shape)
    positions = prod(n for part, n in sizes.items() if part not in "go")
    channels, results = sizes.get("c", 1), sizes.get("o", 1)
    is_thin = channels == 1 or (channels <= _MOST_CHANNELS and results < LEAST_RESULTS)
    return is_thin and positions <= MOST_POSITIONS


def _only_reader(
    parts: Mapping[int, Program], number: int, name: str, results: Collection[str]
) -> int | None:
    """The only part that reads a result, if it is elementwise; else None."""
    readers = [n for n, p in parts.items() if any(t.name == name for t in p.inputs)]
    if len(readers) != 1 or readers[0] <= number:
        return None
    reader = parts[readers[0]]
    loads = [n for n in reader.nodes if n.op == "load" and n.access.tensor == name]
    fits = _is_pointwise(reader) and _counts(reader, parts[number]) <= _MOST_OPERATORS
    if name in results or not fits or len(loads) != 1 or loads[0].access.is_look_up:
        return None
    # Not where each element would be computed several times.
    wide = any(set(n.dims) - set(loads[0].dims) for n in reader.nodes if n.op != "load")
    return None if wide or len(parts[number].outputs) != 1 else readers[0]


def _only_source(
    parts: Mapping[int, Program], number: int, name: str, results: Collection[str]
) -> int | None:
    """The elementwise part that makes an image for this convolution alone; else None."""
    sources = [n for n, p in parts.items() if any(o.tensor.name == name for o in p.outputs)]
    readers = [n for n, p in parts.items() if any(t.name == name for t in p.inputs)]
    if len(sources) != 1 or readers != [number] or sources[0] >= number:
        return None
    source = parts[sources[0]]
    plain = len(source.outputs) == 1 and all(e.is_dim for e in source.outputs[0].index)
    fits = _counts(source, parts[number]) <= _MOST_OPERATORS
    is_inner = plain and fits and name not in results
    if not is_inner or not operator_count(source) or not _is_pointwise(source):
        return None
    return sources[0]


def _counts(one: Program, other: Program) -> int:
    return operator_count(one) + operator_count(other)


def _is_pointwise(part: Program) -> bool:
    return not any(n.op in (*REDUCING, "read") for n in part.nodes)


def _with_source(reader: Program, name: str, source: Program) -> Program:
    """The reader, computing the value of another part instead of loading it."""
    (output,) = source.outputs
    rules = {
        place: _Copy(source, output.index, node)
        for place, node in enumerate(reader.nodes)
        if node.op == "load" and node.access.tensor == name
    }
    return rebuild(reader, rules, drop_unread_inputs=True)


@dataclass(frozen=True, slots=True)
class _Copy:
    """The value of another program in place of a load of its tensor, at the load's index."""

    source: Program
    index: Sequence[IndexExpr]
    load: Node

    def __call__(self, builder: ProgramBuilder, args: Sequence[int]) -> int:
        """Its position among the nodes of the builder."""
        del args
        source = self.source
        for tensor in source.inputs:
            builder.inputs.setdefault(tensor.name, tensor)
        places: dict[str, IndexExpr] = {}
        for own, asked in zip(self.index, self.load.access.index, strict=True):
            places |= _solved(own, asked, source.sizes)
        for dim in source.dims:
            if dim.name not in places:
                places[dim.name] = ix.dim(builder.fresh_dim(dim.name, dim.size))
        new: list[int] = []
        for node in source.nodes:
            new.append(self._node(builder, node, [new[a] for a in node.args], places))
        return new[source.outputs[0].node]

    def _node(
        self,
        builder: ProgramBuilder,
        node: Node,
        args: Sequence[int],
        places: Mapping[str, IndexExpr],
    ) -> int:
        if node.op == "load":
            index = [ix.simplify(e.substitute(places), builder.sizes) for e in node.access.index]
            return builder.load(node.access.tensor, index)
        if node.op == "size":
            return builder.const(float(self.source.sizes[str(node.attr)]))
        if isinstance(node.attr, IndexExpr):
            return builder.index(node.attr.substitute(places))
        if isinstance(node.attr, Predicate):
            return builder.mask(node.attr.substitute(places))
        if node.op not in REDUCING:
            return copied(builder, node, args)
        over = [places[d].name for d in node.reduced]
        if node.op == "matmul":
            return builder.matmul(args[0], args[1], over)
        return (builder.sum if node.op == "sum" else builder.max)(args[0], over)


def _solved(own: IndexExpr, asked: IndexExpr, sizes: Mapping[str, int]) -> dict[str, IndexExpr]:
    """The dimensions of a mixed-radix index, given the value of the index."""
    if own.op == "const":
        return {}
    if own.is_dim:
        return {own.name: asked}
    dims = own.dims()
    found = {}
    for n, d in enumerate(dims):
        behind = ix.floordiv(asked, prod(sizes[b] for b in dims[n + 1 :]))
        found[d] = ix.mod(behind, sizes[d]) if n else behind
    return found
