"""Flow of shifts through one kernel: the shift that each value carries, and where shifts are
joined.

A loaded value carries the shift of the kernel that stored it, as a factor exp(-m) to some power. It
keeps it as long as possible. It is multiplied by exp(m - M) to that power, M being the kernel's own
shift, before a sum along which m varies, before a sum with a value that carries another shift, and
before a store that could not say which shift it carries. A log removes the factor: m, times the
power, is added to its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mirage_py.ugraph.ir.node import REDUCING, STORES, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.degrees import degree_of

# The dimensions of a shift, which name it.
Dims = tuple[str, ...]
# Shift -> power.
Carried = Mapping[Dims, Fraction]


@dataclass(frozen=True, slots=True)
class ShiftFlow:
    """``carried`` are the shifts of one group in each node, ``converting`` the nodes that need
    their operands brought to the kernel's own shift, ``logs`` those that take shifts out.
    """

    carried: tuple[Carried, ...]
    converting: tuple[int, ...]
    logs: Mapping[int, Carried]


def shift_flow(
    block: BlockGraph, exps: Iterable[int], loads: Mapping[int, Carried], own: Dims
) -> ShiftFlow:
    """The flow of one group in a kernel whose exps are shifted by ``own``."""
    shifted = tuple(exps)
    carried: list[Carried] = []
    converting: list[int] = []
    for position, node in enumerate(block.nodes):
        args = [carried[a] for a in node.args]
        if position in shifted:
            carried.append({own: Fraction(1)})
            continue
        if position in loads:
            carried.append(loads[position])
            continue
        found, conflict = degree_of(block.nodes, node, args)
        if conflict or _mixes(block, node, found, own):
            converting.append(position)
            found, _ = degree_of(block.nodes, node, [_converted(a, own) for a in args])
        carried.append({dims: power for dims, power in found.items() if power})
    logs = {n: carried[node.args[0]] for n, node in enumerate(block.nodes) if node.op == "log"}
    taken_out = {n: shifts for n, shifts in logs.items() if shifts}
    return ShiftFlow(tuple(carried), tuple(converting), taken_out)


def _mixes(block: BlockGraph, node: Node, carried: Carried, own: Dims) -> bool:
    """Whether what the node makes of values with these shifts has no shift."""
    present = [dims for dims, power in carried.items() if power]
    if present in ([], [own]):
        return False
    if node.op == "store":
        return len(present) > 1
    reduced: Sequence[str] = ()
    if node.op in REDUCING:
        reduced = node.reduced
    elif node.op in STORES:
        reduced = block.summed_axes(node)
    return any(d in dims for dims in present for d in reduced)


def _converted(carried: Carried, own: Dims) -> Carried:
    total = sum(carried.values(), Fraction(0))
    return {own: total} if total else {}
