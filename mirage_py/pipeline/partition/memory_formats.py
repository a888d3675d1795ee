"""Channels last: tensors between the parts of a program in the memory format of convolutions.

On tensor cores the vendor's library computes with channels last; where a tensor lies otherwise, it
is copied before each call and back after it. So what a convolution reads and writes between parts
lies that way, and kernels of ours read and write it there. An input of the program that a
convolution reads, and an output that it writes, are copied by a kernel of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from mirage_py.pipeline.partition.partition import Partition
from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.program import Output, Program, Tensor
from mirage_py.ugraph.ir.renaming import free_name
from mirage_py.ugraph.ir.ugraph import LibraryCall
from mirage_py.ugraph.rewrite.convolutions import library_convolution

# Multiplications and additions of a convolution from which on copies are looked at at all.
_LEAST_FLOPS = 1e8
# Channels of both sides: with fewer the library fills them up, which it does while it copies.
_LEAST_CHANNELS = 8

Order = tuple[int, ...]


def channels_last(found: Partition) -> Partition:
    """The partition with channels last where its convolutions are faster so; itself where none
    is.
    """
    orders: dict[str, Order] = {}
    for part in found.parts:
        for name, order in _wanted(part):
            orders.setdefault(name, order)
    if not orders:
        return found
    given = {t.name: t for t in found.program.inputs}
    results = {o.tensor.name: o.tensor for o in found.program.outputs}
    known = {t.name: t for part in found.parts for t in part.tensors.values()}
    taken = {*known, *found.program.dim_names}
    lying = {}
    for name, order in orders.items():
        is_copied = name in given or name in results
        fresh = free_name(f"{name}_last", taken) if is_copied else name
        lying[name] = _ordered(known[name], order, fresh)
    copied = [name for name in orders if name in given]
    parts = [_copy(given[name], lying[name], orders[name], last=True) for name in copied]
    for part in found.parts:
        call = library_convolution(part)
        # Others read an input as it lies, and write an output as it has to lie.
        mine = {
            name: (lying[name], order)
            for name, order in orders.items()
            if call is not None or (name not in given and name not in results)
        }
        parts.append(_with_orders(part, mine))
        if call is not None and call.result in results and call.result in orders:
            name = call.result
            parts.append(_copy(results[name], lying[name], orders[name], last=False))
    return found.with_parts(parts, "part", f"channels last: {', '.join(orders)}")


def _wanted(part: Program) -> Iterator[tuple[str, Order]]:
    """Tensors of a convolution that should lie with channels last, and the order of their axes."""
    call = library_convolution(part)
    if call is None or not _gains(part, call):
        return
    assert call.convolution is not None
    for name, axes in (
        (call.args[0], call.convolution.axes[0]),
        (call.result, call.convolution.axes[2]),
    ):
        channel = [n for n, parts in enumerate(axes) if parts in ("c", "gc", "o", "go")]
        tensor = part.tensors[name]
        if len(channel) == 1 and len(axes) == len(tensor.shape) and tensor.strides is None:
            others = [n for n in range(len(axes)) if n != channel[0]]
            if channel[0] != len(axes) - 1:
                yield name, (*others, channel[0])


def _gains(part: Program, call: LibraryCall) -> bool:
    """Whether tensor cores compute it, and there is enough of it."""
    spec = call.convolution
    assert spec is not None
    data, taps = (part.tensors[name] for name in call.args)
    is_rounded = data.dtype.is_half or (
        data.dtype == F32 and part.fp32_precision.rounds_convolutions
    )
    sizes = spec.extents(1, taps.shape)
    channels = min(sizes.get("c", 1), sizes.get("o", 1))
    return (
        is_rounded
        and spec.rank > 1
        and spec.groups == 1
        and channels >= _LEAST_CHANNELS
        and spec.flops(data.shape, taps.shape) >= _LEAST_FLOPS
    )


def _ordered(tensor: Tensor, order: Order, name: str) -> Tensor:
    return Tensor(name, tuple(tensor.shape[n] for n in order), tensor.dtype)


def _copy(tensor: Tensor, lying: Tensor, order: Order, *, last: bool) -> Program:
    """A program that copies a tensor to the one with channels last, or back. Axes that are
    neighbours on both sides are one dimension.
    """
    builder = ProgramBuilder(f"{tensor.name}_copied")
    plain: list[IndexExpr] = []
    for axes in _neighbours(order):
        name, sizes = f"a{axes[0]}", [tensor.shape[n] for n in axes]
        builder.sizes[name] = prod(sizes)
        for k in range(len(axes)):
            behind = ix.floordiv(ix.dim(name), prod(sizes[k + 1 :]))
            plain.append(ix.mod(behind, sizes[k]) if k else behind)
    index = tuple(plain)
    turned = tuple(index[n] for n in order)
    source, target = (tensor, lying) if last else (lying, tensor)
    builder.inputs[source.name] = source
    node = builder.load(source.name, index if last else turned)
    builder.outputs.append(Output(target, node, turned if last else index))
    return builder.build()


def _neighbours(order: Order) -> list[list[int]]:
    """The axes in groups that follow one another in both orders."""
    places = [order.index(n) for n in range(len(order))]
    found = [[0]]
    for n in range(1, len(order)):
        if places[n] == places[n - 1] + 1:
            found[-1].append(n)
        else:
            found.append([n])
    return found


def _with_orders(part: Program, lying: Mapping[str, tuple[Tensor, Order]]) -> Program:
    """The part with these tensors in other places of memory."""

    def node_of(node: Node) -> Node:
        attr = node.attr
        if not isinstance(attr, Access) or attr.tensor not in lying:
            return node
        tensor, order = lying[attr.tensor]
        return replace(node, attr=Access(tensor.name, tuple(attr.index[n] for n in order)))

    def output_of(output: Output) -> Output:
        if output.tensor.name not in lying:
            return output
        tensor, order = lying[output.tensor.name]
        return Output(tensor, output.node, tuple(output.index[n] for n in order))

    return replace(
        part,
        inputs=tuple(lying[t.name][0] if t.name in lying else t for t in part.inputs),
        nodes=tuple(map(node_of, part.nodes)),
        outputs=tuple(map(output_of, part.outputs)),
    )
