"""Execution of a few blocks of one kernel, with only those blocks that they depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeVar

from mirage_py.ugraph.interpret.block import BlockRun
from mirage_py.ugraph.interpret.buffers import Buffer
from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.verify.evaluate.work import block_work
from mirage_py.verify.samples.sampled_library import (
    Interval,
    Part,
    operand_parts,
    part_work,
    run_part,
    union_of_parts,
)

A = TypeVar("A")

# Grid axes to the starts of the tiles that run; all tiles run of an axis that is missing.
Starts = Mapping[str, Sequence[int]]
# The work to run of a kernel: blocks, or a part of the result of a library call.
Need = Starts | Part

# Measured: the interpreter spends on one node in one iteration what some thousand elements cost.
_STEP_COST = 2e3


def blocks_needed(ugraph: UGraph, target: int, need: Need) -> dict[int, Need]:
    """For each kernel that has to run, in order, what of it, so that ``need`` of ``target`` can."""
    needs: dict[int, Need] = {target: need}
    for consumer in range(target, -1, -1):
        if consumer not in needs:
            continue
        for tensor, intervals in _reads(ugraph, consumer, needs[consumer]):
            for producer in range(consumer):
                blocks = _writing_blocks(ugraph, producer, tensor, intervals)
                if blocks is not None:
                    known = needs.get(producer)
                    needs[producer] = blocks if known is None else _either(known, blocks)
    return dict(sorted(needs.items()))


def sampled_work(ugraph: UGraph, needs: Mapping[int, Need]) -> float:
    """Work of running these blocks, in element operations."""
    sizes = ugraph.program.sizes
    work = 0.0
    for number, need in needs.items():
        kernel = ugraph.kernels[number]
        if isinstance(kernel, LibraryCall):
            work += part_work(kernel, ugraph.tensors, _part(need))
            continue
        starts = _starts(need)
        blocks = prod(
            len(starts.get(a.dim) or _tiles(kernel, a.dim, sizes)) for a in kernel.split_axes
        )
        steps = sum(
            len(s.nodes) * (-(-sizes[s.loop] // (s.tile or 1)) if s.loop else 1)
            for s in kernel.sections
        )
        work += blocks * (block_work(kernel, sizes) + steps * _STEP_COST)
    return work


def run_blocks(
    ugraph: UGraph, needs: Mapping[int, Need], inputs: Mapping[str, A], meaning: Meaning[A]
) -> dict[str, A]:
    """What these blocks write, by tensor; elements that they do not write are 0."""
    tensors = dict(inputs)
    buffers: dict[str, Buffer[A]] = {}
    for number, need in needs.items():
        kernel = ugraph.kernels[number]
        written = _written(kernel)
        for name in written:
            if name not in buffers:
                buffers[name] = meaning.buffer(ugraph.tensors[name].shape)
        if isinstance(kernel, LibraryCall):
            part, buffer = _part(need), buffers[kernel.result]
            run_part(kernel, ugraph.tensors, part, tensors, buffer, meaning)
        else:
            run = BlockRun(kernel, ugraph.program.sizes, tensors, buffers, meaning)
            run.run(_starts(need))
        for name in written:
            tensors[name] = buffers[name].read()
    return {name: tensors[name] for name in buffers}


def _tiles(block: BlockGraph, dim: str, sizes: Mapping[str, int]) -> range:
    return range(0, sizes[dim], block.grid_tiles[dim] or 1)


def _written(kernel: BlockGraph | LibraryCall) -> tuple[str, ...]:
    if isinstance(kernel, LibraryCall):
        return (kernel.result,)
    return tuple(dict.fromkeys(n.access.tensor for _, n in kernel.stores()))


def _starts(need: Need) -> Starts:
    assert not isinstance(need, tuple)
    return need


def _part(need: Need) -> Part:
    assert isinstance(need, tuple)
    return need


def _reads(ugraph: UGraph, number: int, need: Need) -> list[tuple[str, Part]]:
    kernel = ugraph.kernels[number]
    if isinstance(kernel, LibraryCall):
        return operand_parts(kernel, ugraph.tensors, _part(need))
    sizes, tiles, starts = ugraph.program.sizes, kernel.grid_tiles, _starts(need)

    def interval(expr: IndexExpr) -> Interval:
        if not expr.is_dim or expr.name not in starts:
            return None
        chosen = starts[expr.name]
        return min(chosen), min(max(chosen) + (tiles[expr.name] or 1), sizes[expr.name])

    accesses = [n.access for _, n in kernel.loads()]
    return [(a.tensor, tuple(interval(e) for e in a.index)) for a in accesses]


def _writing_blocks(ugraph: UGraph, number: int, tensor: str, intervals: Part) -> Need | None:
    """The blocks that write these elements; None if the kernel does not write the tensor."""
    kernel = ugraph.kernels[number]
    if isinstance(kernel, LibraryCall):
        return intervals if kernel.result == tensor else None
    split = [axis.dim for axis in kernel.split_axes]
    found: Starts | None = None
    for _, store in kernel.stores():
        if store.access.tensor != tensor:
            continue
        blocks: dict[str, Sequence[int]] = {}
        for expr, interval in zip(store.access.index, intervals, strict=True):
            if expr.is_dim and expr.name in split and interval is not None:
                tile = kernel.grid_tiles[expr.name] or 1
                starts = _tiles(kernel, expr.name, ugraph.program.sizes)
                blocks[expr.name] = [
                    s for s in starts if s < interval[1] and s + tile > interval[0]
                ]
        # Along these the first block writes for all.
        blocks |= {d: [0] for d in kernel.predicated_axes(store)}
        found = blocks if found is None else _union(found, blocks)
    return found


def _either(left: Need, right: Need) -> Need:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return union_of_parts(left, right)
    return _union(_starts(left), _starts(right))


def _union(left: Starts, right: Starts) -> Starts:
    """A box of tiles that contains both; an axis with all tiles in either has all of them."""
    return {d: sorted({*left[d], *right[d]}) for d in left if d in right}
