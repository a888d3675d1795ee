"""Flow of shifts through one kernel: the shift that each value carries, and where shifts are
joined.

A loaded value carries the shift of the kernel that stored it, as a factor exp(-m) to some power. It
keeps it as long as possible. It is multiplied by exp(m - M) to that power, M being the kernel's own
shift, before a sum along which m varies, before a sum with a value that carries another shift, and
before a store that could not say which shift it carries. A quotient exp(-m + n) of two shifts is
multiplied by exp(m - n) at once. A log removes the factor: m, times the power, is added to its
result.

Exponentials that are added to others have shifts of their own as well. Where two of them meet, M is
the larger one at each point: a shift that is joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mirage_py.ugraph.ir.node import REDUCING, STORES, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph
from mirage_py.ugraph.rewrite.degrees import degree_of, is_quotient

# The dimensions of the shift of one exponential, which name it.
Dims = tuple[str, ...]
# An exponential, by its value number, and which of its shifts.
ExpShift = tuple[int, Dims]
# The maximum of the shifts of one or more exponentials.
Shift = tuple[ExpShift, ...]
# Shift -> power.
Carried = Mapping[Shift, Fraction]


@dataclass(frozen=True, slots=True)
class ShiftFlow:
    """``carried`` are the shifts of one group in each node, ``converting`` the nodes that need
    their operands brought to another shift, and which, ``logs`` those that take shifts out.
    """

    carried: tuple[Carried, ...]
    converting: Mapping[int, Shift]
    logs: Mapping[int, Carried]

    def values(self, block: BlockGraph) -> dict[Shift, list[int]]:
        """The shifts whose values are needed, with the nodes whose operands are brought to them."""
        found: dict[Shift, list[int]] = {}
        for shifts in self.logs.values():
            found.update({shift: [] for shift in shifts})
        for n in self.converting:
            found.update({shift: [] for a in block.nodes[n].args for shift in self.carried[a]})
        for n, shift in self.converting.items():
            found.setdefault(shift, []).append(n)
        return found


def dims_of(shift: Shift) -> Dims:
    """The dimensions along which a shift varies, in no order."""
    return tuple(dict.fromkeys(d for _, dims in shift for d in dims))


def shift_flow(
    block: BlockGraph,
    exps: Mapping[int, int],
    loads: Mapping[int, Carried],
    own: Mapping[int, Dims],
) -> ShiftFlow:
    """The flow of one group in a kernel; ``exps`` are its exponentials there, by value number, and
    ``own`` how the kernel shifts each of them.
    """
    carried: list[Carried] = []
    converting: dict[int, Shift] = {}
    for position, node in enumerate(block.nodes):
        args = [carried[a] for a in node.args]
        if position in exps:
            carried.append({((exps[position], own[exps[position]]),): Fraction(1)})
            continue
        if position in loads:
            carried.append(loads[position])
            continue
        found, conflict = degree_of(block.nodes, node, args)
        # Before a select: a factor that is no number would reach what the select leaves out.
        if conflict or _mixes(block, node, found, own) or any(map(is_quotient, args)):
            shift = converting[position] = _joined(args, own)
            found, _ = degree_of(block.nodes, node, [_converted(a, shift) for a in args])
        carried.append({shift: power for shift, power in found.items() if power})
    logs = {n: carried[node.args[0]] for n, node in enumerate(block.nodes) if node.op == "log"}
    taken_out = {n: shifts for n, shifts in logs.items() if shifts}
    return ShiftFlow(tuple(carried), converting, taken_out)


def _mixes(block: BlockGraph, node: Node, carried: Carried, own: Mapping[int, Dims]) -> bool:
    """Whether what the node makes of values with these shifts has no shift."""
    present = [shift for shift, power in carried.items() if power]
    if not present or (len(present) == 1 and all(own[e] == dims for e, dims in present[0])):
        return False
    if node.op == "store":
        return len(present) > 1
    reduced: Sequence[str] = ()
    if node.op in REDUCING:
        reduced = node.reduced
    elif node.op in STORES:
        reduced = block.summed_axes(node)
    return any(d in dims for shift in present for _, dims in shift for d in reduced)


def _joined(args: Sequence[Carried], own: Mapping[int, Dims]) -> Shift:
    """The kernel's own shift of all exponentials in the operands."""
    present = {e for carried in args for shift in carried for e, _ in shift}
    return tuple((e, dims) for e, dims in own.items() if e in present)


def _converted(carried: Carried, shift: Shift) -> Carried:
    total = sum(carried.values(), Fraction(0))
    return {shift: total} if total else {}
