"""The shift plan: which kernel computes, stores or reads the shift of each exponential.

The shift of an exponential is the maximum of the exponent over all dimensions but some, ``kept``,
which name it. A kernel that computes the exp first takes the maximum over what it sees of the
dimensions that are reduced, there or later: m[q, part], say. Intermediates then carry exp(-m) to a
power. A kernel that reduces them over ``part`` needs one shift for all splits: it reads m, takes
the maximum M[q], and multiplies what it reads by exp(m - M) to that power. This is flash decoding,
but attention is not special here. A kernel that computes the exp again reads a shift that an
earlier one stored. Exponentials of one group have a shift each, of which those are joined that
meet; that one, too, is read by every kernel but the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mirage_py.search.stabilize.shift_flow import (
    Carried,
    Dims,
    ExpShift,
    Shift,
    ShiftFlow,
    shift_flow,
)
from mirage_py.search.stabilize.shift_groups import ConflictError, Scales
from mirage_py.ugraph.ir.node import STORES
from mirage_py.ugraph.ir.ugraph import BlockGraph, LibraryCall, UGraph
from mirage_py.ugraph.operators import STATE, operator

# How a kernel makes a shift: in straight code, as the running maximum of a loop, or anew in each
# iteration of a loop that it has nothing to do with.
STRAIGHT, RUNNING, PASSING = "straight", "running", "passing"


@dataclass(frozen=True, slots=True)
class ExpPlan:
    """The shift of one exponential in one kernel.

    It has the dimensions ``kept``. It is read from memory if ``made`` is empty; else it is the
    maximum of the shift ``source``, or of the exponent if that is None. ``made`` says how in the
    sections that make it; later ones use it.
    """

    kept: Dims
    source: Dims | None
    made: Mapping[int, str]

    @property
    def is_read(self) -> bool:
        """Whether an earlier kernel made it."""
        return not self.made


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """The plans of the exponentials of one kernel, by value number, and the flow of each group."""

    exps: Mapping[int, ExpPlan]
    flows: tuple[ShiftFlow, ...]


@dataclass(frozen=True, slots=True)
class ShiftPlan:
    """The plan of each kernel; and by which kernel each shift that a later one reads is stored."""

    kernels: tuple[KernelPlan, ...]
    stored: Mapping[Shift, int]


def plan_shifts(ugraph: UGraph, scales: Scales, dims: Mapping[int, Dims]) -> ShiftPlan:
    """The plan for all groups of ``scales``; ``dims`` are those of their exps.

    Raises ConflictError for a group that these kernels cannot shift.
    """
    return _Planner(ugraph, scales, dims).run()


class _Planner:
    def __init__(self, ugraph: UGraph, scales: Scales, dims: Mapping[int, Dims]) -> None:
        self.ugraph = ugraph
        self.scales = scales
        self.dims = dims
        # The shifts of each exponential that later kernels can read, in the order they are made,
        # with the kernels that make them.
        exps = [e for members in scales.groups.values() for e in members]
        self.offered: dict[int, dict[Dims, int]] = {key: {} for key in exps}
        # The kernels that make shifts of several exponentials; others read them.
        self.joined: dict[Shift, int] = {}
        self.stored: dict[Shift, int] = {}
        # The shift in the values of an intermediate.
        self.carried: dict[tuple[str, int], Shift] = {}

    def run(self) -> ShiftPlan:
        plans: list[KernelPlan] = []
        for number, kernel in enumerate(self.ugraph.kernels):
            exps: dict[int, ExpPlan] = {}
            flows: list[ShiftFlow] = []
            for group in self.scales.groups:
                if not self.scales.kernels[number].concerns(group):
                    continue
                if isinstance(kernel, LibraryCall):
                    self._library(kernel, number, group)
                    continue
                found = self._block(kernel, number, group)
                if found is not None:
                    exps.update(found.exps)
                    flows.extend(found.flows)
            plans.append(KernelPlan(exps, tuple(flows)))
        return ShiftPlan(tuple(plans), self.stored)

    def _library(self, call: LibraryCall, number: int, group: int) -> None:
        kept = list(
            dict.fromkeys(self.carried[a, group] for a in call.args if (a, group) in self.carried)
        )
        if len(kept) > 1:
            self._fail(group, f"library call {call.name} mixes shifts")
        reduced = self.scales.kernels[number].reduced
        if any(_shares(dims, reduced[exp]) for exp, dims in kept[0]):
            self._fail(group, f"the shift varies along what library call {call.name} sums")
        self.carried[call.result, group] = kept[0]

    def _block(self, block: BlockGraph, number: int, group: int) -> KernelPlan | None:
        scales = self.scales.kernels[number]
        members = self.scales.groups[group]
        exps = {n: key for n, key in scales.exps.items() if key in members}
        loads = {
            n: self.carried[node.access.tensor, group]
            for n, node in block.loads()
            if group in scales.degrees[n]
        }
        chosen: dict[int, tuple[Dims, Dims | None]] = {}
        for key in members:
            read = dict.fromkeys(dims for shift in loads.values() for e, dims in shift if e == key)
            if read or key in exps.values():
                chosen[key] = self._choose(block, number, key, tuple(read))
        own = {key: kept for key, (kept, _) in chosen.items()}
        start = {n: {shift: scales.degrees[n][group]} for n, shift in loads.items()}
        flow = shift_flow(block, exps, start, own)
        for n, node in enumerate(block.nodes):
            if node.op in STORES and flow.carried[n]:
                (self.carried[node.access.tensor, group],) = flow.carried[n]
        if not exps and not flow.converting and not flow.logs:
            return None
        values = flow.values(block)
        users: dict[ExpShift, list[int]] = {}
        for shift, nodes in values.items():
            if len(shift) > 1 and self.joined.setdefault(shift, number) != number:
                self.stored[shift] = self.joined[shift]
                continue
            for part in shift:
                users.setdefault(part, []).extend(nodes)
        for n, key in exps.items():
            users.setdefault((key, own[key]), []).append(n)
        plans = {
            key: self._made(block, number, key, (kept, source), users, flow)
            for key, (kept, source) in chosen.items()
        }
        return KernelPlan(plans, (flow,))

    def _made(
        self,
        block: BlockGraph,
        number: int,
        key: int,
        chosen: tuple[Dims, Dims | None],
        users: Mapping[ExpShift, Sequence[int]],
        flow: ShiftFlow,
    ) -> ExpPlan:
        """How the kernel makes the chosen shift of an exponential; notes what it reads.

        ``users`` are the shifts that are needed, with the nodes that need them.
        """
        kept, source = chosen
        uses = users.get((key, kept), ())
        made: dict[int, str] = {}
        if source != kept and uses:
            before = self.dims[key] if source is None else source
            sections = _Sections(block, flow, key, before, kept, source is None)
            try:
                made = sections.made(uses)
            except _SectionError as fault:
                self._fail(key, str(fault))
            self._offer(number, key, kept, made)
        needed = [dims for k, dims in users if k == key]
        for dims in [*([source] if uses and source is not None else []), *needed]:
            if dims != kept or not made:
                self.stored[((key, dims),)] = self.offered[key][dims]
        return ExpPlan(kept, source, made)

    def _choose(
        self, block: BlockGraph, number: int, key: int, carried: Sequence[Dims]
    ) -> tuple[Dims, Dims | None]:
        """The dimensions of the kernel's shift, and those of the shift it is made from."""
        kept, source = self._chosen(block, number, key, carried)
        reduced = self.scales.kernels[number].reduced[key]
        if _shares(kept, reduced):
            self._fail(key, f"kernel {block.name} sums over {', '.join(reduced)}")
        return kept, source

    def _chosen(
        self, block: BlockGraph, number: int, key: int, carried: Sequence[Dims]
    ) -> tuple[Dims, Dims | None]:
        needed = self.scales.kernels[number].reduced[key]
        known = self.offered[key]
        if not known:
            later = (d for k in self.scales.kernels[number:] for d in k.reduced[key])
            reduced = [d for d in later if d not in _split(block)]
            kept = tuple(d for d in self.dims[key] if d not in reduced)
            if kept == self.dims[key] and self._is_alone(key):
                self._fail(key, f"kernel {block.name} sees nothing to take a maximum over")
            return kept, None
        fits = [v for v in known if not _shares(v, needed) and all(_within(v, c) for c in carried)]
        if fits:
            finest = max(fits, key=len)
            return finest, finest
        start = carried or [max(known, key=len)]
        kept = tuple(
            d for d in self.dims[key] if d not in needed and all(d in dims for dims in start)
        )
        source = min((v for v in known if _within(kept, v)), key=len)
        if any(d in _split(block) for d in source if d not in kept):
            self._fail(key, f"kernel {block.name} mixes shifts of other blocks")
        return kept, source

    def _offer(self, number: int, key: int, kept: Dims, made: Mapping[int, str]) -> None:
        """Let later kernels read the shift, if there is one and it can be stored."""
        block = self.ugraph.kernels[number]
        assert isinstance(block, BlockGraph)
        if len(made) > 1:
            return
        ((section, how),) = made.items()
        if how != PASSING or block.sections[section].loop in kept:
            self.offered[key][kept] = number

    def _is_alone(self, key: int) -> bool:
        """Whether an exponential is all of its group; others may be shifted by what they are."""
        return (key,) in self.scales.groups.values()

    def _fail(self, key: int, reason: str) -> None:
        """``key`` is a group, or an exponential of one."""
        group = next(g for g, members in self.scales.groups.items() if key in members)
        raise ConflictError((group,), reason, is_structural=True)


class _SectionError(Exception):
    """Why the sections of a kernel cannot make a shift."""


class _Sections:
    """How the sections of one kernel make the shift of one exponential."""

    def __init__(
        self,
        block: BlockGraph,
        flow: ShiftFlow,
        key: int,
        before: Dims,
        kept: Dims,
        is_of_exponent: bool,
    ) -> None:
        self.block = block
        self.flow = flow
        self.key = key
        self.before = before
        self.kept = kept
        self.is_of_exponent = is_of_exponent

    def made(self, uses: Iterable[int]) -> dict[int, str]:
        """How each section that makes it does so; ``uses`` are the nodes that need it."""
        found: dict[int, str] = {}
        for number in sorted({self.block.section_of[n] for n in uses}):
            if any(how != PASSING for how in found.values()):
                break
            found[number] = self._how(number)
        self._check(found)
        return found

    def _how(self, number: int) -> str:
        loop = self.block.sections[number].loop
        if loop is None:
            return STRAIGHT
        if loop in self.before and loop not in self.kept:
            return RUNNING
        if not self.is_of_exponent and loop not in self.before:
            return STRAIGHT  # before the loop
        return PASSING

    def _check(self, found: Mapping[int, str]) -> None:
        for number, how in found.items():
            here = self.block.sections[number].nodes
            loop = self.block.sections[number].loop
            if how == RUNNING and any(len(s) > 1 for n in here for s in self._own(n)):
                self._fail(f"adds what is scaled by maxima that move in loop {loop}")
            if how == RUNNING and any(self._among(self.flow.logs.get(n, {})) for n in here):
                self._fail(f"takes a log of what is scaled by a maximum that moves in loop {loop}")
            for n in self._scaled(here):
                op = self.block.nodes[n].op
                if op in STORES and (how == RUNNING or (how == PASSING and loop not in self.kept)):
                    self._fail(f"stores what is scaled by a maximum that moves in loop {loop}")
                if how == PASSING and operator(op).kind == STATE:
                    self._fail(f"carries a scale out of an iteration of loop {loop}")
                if how == RUNNING and self._is_broken_power(n):
                    self._fail("rescales a sum by a root of the scale")
        everywhere = self._scaled(range(len(self.block.nodes)))
        if len(found) > 1 and any(self.block.nodes[n].op in STORES for n in everywhere):
            self._fail("stores values with several shifts")

    def _scaled(self, nodes: Iterable[int]) -> Iterator[int]:
        return (n for n in nodes if self._own(n))

    def _own(self, n: int) -> list[Shift]:
        """The shifts in a value that the shift to be made is one of."""
        return self._among(self.flow.carried[n])

    def _among(self, carried: Carried) -> list[Shift]:
        return [shift for shift in carried if (self.key, self.kept) in shift]

    def _is_broken_power(self, n: int) -> bool:
        carried = self.flow.carried[n]
        is_sum = self.block.nodes[n].op == "accum_sum"
        return is_sum and any(carried[shift].denominator != 1 for shift in self._own(n))

    def _fail(self, what: str) -> None:
        reason = f"kernel {self.block.name} {what}"
        raise _SectionError(reason)


def _split(block: BlockGraph) -> tuple[str, ...]:
    """Dimensions on the grid, of which each block sees only its own points."""
    return tuple(axis.dim for axis in block.split_axes)


def _shares(left: Iterable[str], right: Iterable[str]) -> bool:
    return any(d in right for d in left)


def _within(left: Iterable[str], right: Iterable[str]) -> bool:
    return all(d in right for d in left)
