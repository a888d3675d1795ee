"""Cutting a program into parts that the search goes through, where least goes through memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, prod

from mirage_py.pipeline.partition.flow import Flow
from mirage_py.pipeline.partition.limits import (
    PartitionLimits,
    fits,
    fits_part,
    is_small_part,
    operator_count,
)
from mirage_py.pipeline.partition.parts import Held, PartBuilder, held_values
from mirage_py.pipeline.partition.rereads import (
    passes_bytes,
    prologue_bytes,
    prologue_flops,
    reread_values,
)
from mirage_py.search.space.abstraction import reduced_dims
from mirage_py.ugraph.ir.data_flow import reads_of
from mirage_py.ugraph.ir.dtypes import F32
from mirage_py.ugraph.ir.node import REDUCING
from mirage_py.ugraph.ir.program import Output, Program, Tensor

# Of a tensor core, while a byte of device memory is read (H100 and H200, half types).
_FLOPS_A_BYTE = 256
# How many times as long large matmuls take that compute an operand, at least.
_SLOWER = 2
# Of a result that is an input as it is: below it is the launch that takes time.
_LARGE_COPY_BYTES = 1 << 20
# What it costs to cut attention: parts that are too large are cut there, if nowhere else.
_ATTENTION_BYTES = 1 << 50
# What one more part costs, in bytes of device memory: about a microsecond at an H100's bandwidth.
LAUNCH_BYTES = 4 << 20


@dataclass(frozen=True)
class Partition:
    """``parts`` in sequence compute ``program``.

    ``cuts`` are the tensors that go between parts: values that only exist because of the cuts, and
    outputs of the program that a later part reads. ``bytes`` is what all parts read and write.
    ``reason`` says in words what was done and why. ``in_halves``: see ``partition``.
    """

    program: Program
    parts: tuple[Program, ...]
    cuts: tuple[Tensor, ...]
    bytes: int
    reason: str
    in_halves: bool = False

    def with_parts(self, parts: Sequence[Program], name: str, why: str) -> Partition:
        """The same program in other parts, each with this name and its number, and why."""
        named = tuple(p.renamed(f"{self.program.name}_{name}{n}") for n, p in enumerate(parts))
        reason = f"{self.reason}; {why}"
        size = sum(map(_bytes, parts))
        return Partition(self.program, named, _cuts(parts), size, reason, self.in_halves)


def partition(
    program: Program,
    limits: PartitionLimits | None = None,
    *,
    products_apart: bool = False,
    in_halves: bool = False,
) -> Partition:
    """The cheapest parts in sequence, each within ``limits`` where the program can be cut so far,
    and each matmul one by itself where ``products_apart``. With ``in_halves`` cuts have the inputs'
    half type, as between PyTorch's calls: it is for where PyTorch's errors are what is allowed.

    ``program`` is in normal form. Its values are put in a topological order and cut into contiguous
    segments by dynamic programming: the cost is the bytes that all parts read and write (what
    crosses a cut is written once, and read by each part that needs it) and a launch for each part,
    and for values within it that its kernels would compute again.
    A value that carries the scale of an exponential never crosses. What cannot be cut stays one
    part, even if it is beyond the limits: the search then takes it as far as its own bounds go.
    """
    limits = limits or PartitionLimits()
    flow = Flow(program, products_apart, in_halves)
    # Of a network the order of the program is good, and trying another takes long.
    orders = flow.orders[:1] if flow.products else flow.orders
    if len(reread_values(program)) > 1:
        orders = (*orders, flow.smallest_first)
    found = [_Cuts(flow, order, limits) for order in orders]
    parts = min(found, key=lambda cuts: cuts.cost).parts() if flow.needs else ()
    if len(parts) < 2:
        parts = (program.renamed(_part_name(program, 0)),)
    cuts = _cuts(parts)
    return Partition(
        program,
        parts,
        cuts,
        sum(_bytes(part) for part in parts),
        _reason(program, parts, cuts, limits, products_apart=products_apart),
        in_halves,
    )


def copies_apart(program: Program) -> Partition | None:
    """The ``large_copies`` of a program in normal form, each a part by itself, and the rest; None
    where that form has none.
    """
    copied = large_copies(program)
    if not copied:
        return None
    rest = [o for o in program.outputs if o not in copied]
    flow = Flow(program)
    parts = [
        PartBuilder(flow, {}, tuple(flow.needs), _part_name(program, n)).build((), outputs)
        for n, outputs in enumerate([rest, *([o] for o in copied)])
    ]
    names = ", ".join(o.tensor.name for o in copied)
    words = f"partitioned in {len(parts)} parts: {names} copied by kernels of their own"
    return Partition(program, tuple(parts), (), sum(map(_bytes, parts)), words)


def large_copies(program: Program) -> list[Output]:
    """Large results that are inputs as they are, beside what is reduced, where nothing else reads
    them at the same indices; else none.

    A cache that a step returns beside its attention has dimensions of its own, which no kernel of
    the attention has a place for.
    """
    nodes = program.nodes
    users = reads_of(nodes)
    copied = [o for o in program.outputs if nodes[o.node].op == "load" and not users[o.node]]
    is_beside = any(n.op in REDUCING for n in nodes)
    return [o for o in copied if is_beside and o.tensor.bytes >= _LARGE_COPY_BYTES]


def _cuts(parts: Sequence[Program]) -> tuple[Tensor, ...]:
    """What one part writes and another reads."""
    written = [o.tensor for part in parts for o in part.outputs]
    read = [t for part in parts for t in part.inputs]
    return tuple(t for t in dict.fromkeys(written) if t in read)


def _bytes(part: Program) -> int:
    return sum(t.bytes for t in part.tensors.values())


def _cost(part: Program) -> int:
    """Bytes that a part moves, and launches as bytes. Two kernels hand over one value: of several
    that are read again and again, each is as dear as one that goes through memory. Matmuls that
    compute their operands take longer than the same memory traffic does, if they are large.
    """
    again = reread_values(part)
    handed = sum(2 * _held_bytes(part, n) + LAUNCH_BYTES for n in again) if len(again) > 1 else 0
    moved = _bytes(part) + passes_bytes(part)
    computed = prologue_flops(part) // _FLOPS_A_BYTE
    slower = max(0, _SLOWER * computed - moved) - max(0, computed - moved)
    return moved + LAUNCH_BYTES + handed + slower + prologue_bytes(part)


def _held_bytes(part: Program, number: int) -> int:
    return F32.bytes * prod(part.sizes[d] for d in part.nodes[number].dims)


def _part_name(program: Program, number: int) -> str:
    return f"{program.name}_part{number}"


class _Cuts:
    """The cheapest way to cut one topological order into segments; ``cost`` is in bytes."""

    def __init__(self, flow: Flow, order: Sequence[int], limits: PartitionLimits) -> None:
        self._flow = flow
        self._order = order
        self._limits = limits
        place = {number: n for n, number in enumerate(order)}
        # Where each value is needed last; its own place, if nowhere.
        self._last = dict(place)
        for number, needed in flow.needs.items():
            for n in needed:
                self._last[n] = max(self._last[n], place[number])
        self.cost, self._bounds = self._best()

    def parts(self) -> tuple[Program, ...]:
        """The segments as programs, in order."""
        ends = self._bounds[1:-1]
        place = {number: n for n, number in enumerate(self._order)}
        crossing = [n for n in self._order if any(place[n] < e <= self._last[n] for e in ends)]
        held = held_values(self._flow, crossing)
        return tuple(
            self._program(start, end, held, _part_name(self._flow.program, number))
            for number, (start, end) in enumerate(pairwise(self._bounds))
        )

    def _best(self) -> tuple[float, tuple[int, ...]]:
        """The cost, and the places between segments, first and last included."""
        held = held_values(self._flow, self._order)
        bounds = [0, *self._ends()]
        cost: dict[int, float] = {0: 0.0}
        start_of: dict[int, int] = {}
        attention = dict.fromkeys(self._crossed(self._flow.attended))
        too_large = -1
        for number, end in enumerate(bounds[1:]):
            shortest = bounds[number]
            starts = [shortest, *reversed(bounds[bisect_right(bounds, too_large) : number])]
            # The cheapest that it may be comes first: few segments are made to be compared.
            tried = [(cost[s] + b + LAUNCH_BYTES, -s) for s, b in self._least(starts, end, held)]
            best, too_early = (inf, 0), -1
            for least, negative in sorted(tried):
                start = -negative
                if (least, negative) >= best:
                    break
                if start != shortest and start <= too_early:
                    continue
                part = self._program(start, end, held, self._flow.program.name)
                # The shortest one cannot be cut, and is taken as it is. What is too large, or is
                # computed twice, is so in one from further back; in one that ends later some names
                # may be the same again.
                if start != shortest and not fits_part(part, self._limits):
                    too_early = start
                    if not is_small_part(part, self._limits):
                        too_large = max(too_large, start)
                    continue
                best = min(best, (cost[start] + _cost(part), negative))
            cost[end], start_of[end] = best[0] + _ATTENTION_BYTES * (end in attention), -best[1]
        path = [len(self._order)]
        while path[-1]:
            path.append(start_of[path[-1]])
        return cost[len(self._order)], tuple(reversed(path))

    def _least(
        self, starts: Sequence[int], end: int, held: Mapping[int, Held]
    ) -> Iterator[tuple[int, int]]:
        """For the segments from each of these places to ``end``, the last place first, the bytes
        that a part surely reads and writes; up to where a segment has to be cut.

        That is where one of its values is a library's, or is read by another at other indices.
        """
        flow = self._flow
        must_cut = False
        behind: dict[int, None] = {}
        needed: dict[int, None] = {}
        sizes: dict[str, int] = {}
        first = end
        for start in starts:
            for n in reversed(self._order[start:first]):
                must_cut = must_cut or n in flow.alone or n in behind
                behind.update(dict.fromkeys(flow.behind_reads[n]))
                needed.pop(n, None)
                needed.update(dict.fromkeys(flow.needs[n]))
                used = [o.tensor for o in flow.outputs.get(n, ())]
                used += [flow.program.tensors[name] for name in flow.loads[n]]
                used += [held[n].tensor] if self._last[n] >= end else []
                sizes |= {t.name: t.bytes for t in used}
            if must_cut and start != starts[0]:
                return
            first = start
            read = {held[n].tensor.name: held[n].tensor.bytes for n in needed}
            yield start, sum((sizes | read).values())

    def _ends(self) -> Iterator[int]:
        """The places after which everything that is still needed may be in memory."""
        crossed = dict.fromkeys(self._crossed(self._flow.scaled))
        yield from (n + 1 for n in range(len(self._order)) if n + 1 not in crossed)

    def _crossed(self, numbers: Collection[int]) -> Iterator[int]:
        """The places after which one of these values is still needed."""
        until = 0
        for place, number in enumerate(self._order):
            if number in numbers:
                until = max(until, self._last[number])
            if until > place:
                yield place + 1

    def _program(self, start: int, end: int, held: Mapping[int, Held], name: str) -> Program:
        """The values from one place to another as a program."""
        inside = self._order[start:end]
        outputs = [
            output
            for number, results in self._flow.outputs.items()
            for output in results
            # Outputs that are copies of leaves are written at the end.
            if number in inside or (number not in self._flow.needs and end == len(self._order))
        ]
        stored = [n for n in inside if self._last[n] >= end]
        return PartBuilder(self._flow, held, inside, name).build(stored, outputs)


def _reason(
    program: Program,
    parts: Sequence[Program],
    cuts: Sequence[Tensor],
    limits: PartitionLimits,
    *,
    products_apart: bool,
) -> str:
    size = f"{operator_count(program)} operators and {len(reduced_dims(program))} reduced dims"
    beyond = f"beyond the limit of {limits} ({program.name} has {size})"
    if products_apart:
        beyond = "each matmul by itself, as no plan of more was fast enough"
    if len(parts) < 2:
        return f"searched whole: it cannot be cut, though it is {beyond}"
    where = ", ".join(f"{t.name} ({_megabytes(t.bytes)})" for t in cuts)
    too_large = [p.name for p in parts if not fits(p, limits)]
    text = f"partitioned in {len(parts)} parts at {where or 'no tensor'}: {beyond}"
    if too_large:
        text += f"; {', '.join(too_large)} cannot be cut so far"
    return text


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 50_000 else f"{count / 1e3:.1f} kB"
