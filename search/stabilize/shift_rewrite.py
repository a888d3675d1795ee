"""Rewrite of one kernel by the shift plan: maxima, rescaled sums, rescaled loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from mirage_py.search.stabilize.shift_flow import Carried, Dims, Shift, dims_of
from mirage_py.search.stabilize.shift_groups import KernelScales
from mirage_py.search.stabilize.shift_masks import Masks
from mirage_py.search.stabilize.shift_plan import PASSING, RUNNING, KernelPlan
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.node import Access, Attr, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT, is_quotient


@dataclass(frozen=True, slots=True)
class ShiftTensors:
    """The intermediates that hold shifts.

    ``written`` are those that the kernel at hand stores, ``order`` is that of all dimensions.
    """

    names: Mapping[Shift, str]
    written: tuple[Shift, ...]
    order: Dims


def with_shifts(
    block: BlockGraph,
    scales: KernelScales,
    plan: KernelPlan,
    tensors: ShiftTensors,
    masks: Masks,
    numbers: Sequence[int],
) -> BlockGraph:
    """The kernel with every planned exp shifted; ``numbers`` are those of its nodes."""
    return _Rewriter(block, scales, plan, tensors, masks, numbers).run()


class _Rewriter:
    """Copies a block graph section by section.

    New nodes go into the section under way, or before its loop if they do not depend on it.
    """

    def __init__(
        self,
        block: BlockGraph,
        scales: KernelScales,
        plan: KernelPlan,
        tensors: ShiftTensors,
        masks: Masks,
        numbers: Sequence[int],
    ) -> None:
        self.block = block
        self.scales = scales
        self.plans = plan.exps
        self.flows = plan.flows
        self.tensors = tensors
        self.masks = masks
        self.numbers = numbers
        self.nodes: list[Node] = []
        self.map: dict[int, int] = {}
        self.number = 0
        self.section = block.sections[0]
        self.before: list[int] = []
        self.body: list[int] = []
        # What later sections may use, and what dies with an iteration of the section under way.
        self.lasting: dict[tuple[str, object], int] = {}
        self.passing: dict[tuple[str, object], int] = {}

    def run(self) -> BlockGraph:
        built: list[tuple[Section, list[int]]] = []
        for number, section in enumerate(self.block.sections):
            self.number, self.section = number, section
            self.before, self.body, self.passing = [], [], {}
            for node in section.nodes:
                self._copy(node)
            _append_straight(built, self.before)
            built.append((section, self.body))
        self.body = []
        for shift in self.tensors.written:
            if ("shift", shift) in self.lasting:
                self._store(shift, self.lasting["shift", shift])
        _append_straight(built, self.body)
        return self._assembled(built)

    def _assembled(self, built: Sequence[tuple[Section, list[int]]]) -> BlockGraph:
        """The block with its nodes numbered in the order in which they run."""
        order = [n for _, part in built for n in part]
        place = {n: position for position, n in enumerate(order)}
        nodes = tuple(
            replace(self.nodes[n], args=tuple(place[a] for a in self.nodes[n].args)) for n in order
        )
        sections = tuple(replace(s, nodes=tuple(place[n] for n in part)) for s, part in built)
        return replace(self.block, nodes=nodes, sections=sections, threads=())

    def _add(
        self, where: list[int], op: str, args: tuple[int, ...], attr: Attr, dims: Iterable[str]
    ) -> int:
        self.nodes.append(Node(op, args, attr, tuple(dims)))
        where.append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def _copy(self, number: int) -> None:
        node = self.block.nodes[number]
        if number in self.map:  # a mask that a shift needed before its place
            return
        args = tuple(self._operand(a, number) for a in node.args)
        key = self.scales.exps.get(number)
        if key is not None and key in self.plans:
            # A masked exponent may exceed the maximum: exp must not overflow there.
            argument = self._masked(key, args[0], node.dims)
            shift = self._shift(key, argument, node.dims)
            args = (self._add(self.body, "sub", (argument, shift), None, node.dims),)
        op, attr = node.op, node.attr
        moving = self._moving(number) if op == "accum_sum" else {}
        if moving:
            op, attr = "accum_rescaled", tuple(moving.values())
            args = (*args, *(self.lasting["shift", ((k, self.plans[k].kept),)] for k in moving))
        self.map[number] = self._add(self.body, op, args, attr, node.dims)
        for flow in self.flows:
            for taken, power in flow.logs.get(number, {}).items():
                self._take_out(number, taken, power)

    def _take_out(self, log: int, taken: Shift, power: Fraction) -> None:
        """log(x exp(-k m)) + k m = log(x)."""
        shift = self._power(taken, power)
        sum_dims = self.block.nodes[log].dims
        self.map[log] = self._add(self.body, "add", (self.map[log], shift), None, sum_dims)

    def _moving(self, number: int) -> dict[int, int]:
        """The exponentials whose maximum moves in the loop under way, and the powers in the
        value.
        """
        running = [k for k, p in self.plans.items() if p.made.get(self.number) == RUNNING]
        carried = {s: power for flow in self.flows for s, power in flow.carried[number].items()}
        shifts = {k: ((k, self.plans[k].kept),) for k in running}
        return {k: int(carried[shifts[k]]) for k in running if shifts[k] in carried}

    def _operand(self, argument: int, user: int) -> int:
        """An operand; with the shift that its user needs."""
        value = self.map[argument]
        for flow in self.flows:
            if user not in flow.converting:
                continue
            wanted = flow.converting[user]
            carried = flow.carried[argument]
            dims = self.block.nodes[argument].dims
            if is_quotient(carried):
                if wanted in self.tensors.written:
                    self._value(wanted)
                value = self._scaled(value, self._quotient(carried), dims, *carried)
                continue
            for shift, power in carried.items():
                if shift != wanted:
                    factor = self._factor(shift, wanted, power)
                    value = self._scaled(value, factor, dims, shift, wanted)
        return value

    def _scaled(self, value: int, factor: int, dims: Dims, *shifts: Shift) -> int:
        """A value of these dimensions times the factor between shifts."""
        name = f"scaled %{value}", factor
        memory = self.lasting if self.section.loop is None else self.passing
        if name not in memory:
            together = self._union(dims, self._dims(*shifts))
            memory[name] = self._add(self.body, "mul", (value, factor), None, together)
        return memory[name]

    def _quotient(self, carried: Carried) -> int:
        """What takes shifts out of a value whose powers of them add up to 0: exp(m - n). By way of
        the larger of both, from which one may be far, it would be 0 times infinity.
        """
        what = "quotient", tuple(carried.items())
        known = self._known(*what)
        if known is not None:
            return known
        (first, power), *others = sorted(carried.items(), key=lambda item: item[1] < 0)
        exponent, dims = self._power(first, power), self._dims(first)
        for shift, power in others:
            op = "add" if power > 0 else "sub"
            term = self._power(shift, abs(power))
            dims = self._union(dims, self._dims(shift))
            exponent = self._add(self.body, op, (exponent, term), None, dims)
        memory = self.lasting if self.section.loop is None else self.passing
        memory[what] = self._add(self.body, "exp", (exponent,), None, dims)
        return memory[what]

    def _power(self, shift: Shift, power: Fraction) -> int:
        """A shift as often as its factor is there."""
        value = self._value(shift)
        if power == 1:
            return value
        times = self._add(self.body, "const", (), float(power), ())
        return self._add(self.body, "mul", (value, times), None, self._dims(shift))

    def _dims(self, *shifts: Shift) -> Dims:
        return self._union(*map(dims_of, shifts))

    def _union(self, *parts: Dims) -> Dims:
        """All dimensions, in the program's order."""
        return tuple(d for d in self.tensors.order if any(d in dims for dims in parts))

    def _place(self, dims: Dims) -> tuple[list[int], dict[tuple[str, object], int]]:
        """Where to put what has these dimensions, and where to remember it."""
        if self.section.loop is None:
            return self.body, self.lasting
        if self.section.loop in dims:
            return self.body, self.passing
        return self.before, self.lasting

    def _known(self, what: str, key: object) -> int | None:
        name = what, key
        return self.passing.get(name, self.lasting.get(name))

    def _factor(self, shift: Shift, wanted: Shift, power: Fraction) -> int:
        """What turns one shift in a value into another: exp(m - M) to its power."""
        new = self._value(wanted)
        what = f"factor {power}", (shift, wanted)
        known = self._known(*what)
        if known is not None:
            return known
        dims = self._dims(shift, wanted)
        where, memory = self._place(dims)
        if self.section.loop is not None and new in self.body:
            where, memory = self.body, self.passing
        exponent = self._add(where, "sub", (self._value(shift), new), None, dims)
        if power != 1:
            times = self._add(where, "const", (), float(power), ())
            exponent = self._add(where, "mul", (exponent, times), None, dims)
        memory[what] = self._add(where, "exp", (exponent,), None, dims)
        return memory[what]

    def _value(self, shift: Shift) -> int:
        """A shift: the kernel's own, one that an earlier kernel stored, or the maximum of some."""
        if len(shift) == 1:
            ((key, dims),) = shift
            return self._shift(key) if dims == self.plans[key].kept else self._load(shift)
        if shift in self.tensors.names and shift not in self.tensors.written:
            return self._load(shift)
        known = self._known("shift", shift)
        if known is not None:
            return known
        parts = [(self._value((part,)), part[1]) for part in shift]
        where, memory = self._place(self._dims(shift))
        if self.section.loop is not None and any(n in self.body for n, _ in parts):
            where, memory = self.body, self.passing
        top, dims = parts[0]
        for other, own in parts[1:]:
            dims = self._union(dims, own)
            top = self._add(where, "maximum", (top, other), None, dims)
        memory["shift", shift] = self._add(where, "shift", (top,), None, dims)
        if memory is self.passing and shift in self.tensors.written:
            self._store(shift, memory["shift", shift])
        return memory["shift", shift]

    def _load(self, shift: Shift) -> int:
        """A shift that an earlier kernel stored."""
        known = self._known("load", shift)
        if known is None:
            dims = self._dims(shift)
            where, memory = self._place(dims)
            access = Access(self.tensors.names[shift], tuple(map(ix.dim, dims)))
            known = memory["load", shift] = self._add(where, "load", (), access, dims)
        return known

    def _shift(self, key: int, argument: int | None = None, dims: Dims = ()) -> int:
        """The kernel's shift of an exponential; ``argument`` is the exponent, over ``dims``, from
        which it is made if it is made here and not of another shift.
        """
        plan = self.plans[key]
        if plan.is_read:
            return self._load(((key, plan.kept),))
        name = "shift", ((key, plan.kept),)
        known = self._known(*name)
        if known is not None:
            return known
        if plan.source is not None:
            before, value = plan.source, self._load(((key, plan.source),))
            where, memory = self._place(before)
        else:
            assert argument is not None
            before, value = dims, argument
            where, memory = self.body, self.lasting
        reduced = tuple(d for d in before if d not in plan.kept)
        shift = self._add(where, "max", (value,), reduced, plan.kept) if reduced else value
        how = plan.made[self.number]
        if how == RUNNING:
            shift = self._add(where, "accum_max", (shift,), "shift", plan.kept)
            memory = self.lasting
        else:
            shift = self._add(where, "shift", (shift,), None, plan.kept)
        if how == PASSING:
            memory = self.passing
            if name[1] in self.tensors.written:
                self._store(name[1], shift)
        memory[name] = shift
        return shift

    def _store(self, shift: Shift, value: int) -> None:
        dims = self._dims(shift)
        access = Access(self.tensors.names[shift], tuple(map(ix.dim, dims)))
        self._add(self.body, "store", (value,), access, dims)

    def _masked(self, key: int, argument: int, dims: Dims) -> int:
        """The argument of an exp, lowered where all that reads the exp masks it away."""
        for mask in self.masks.of_group[key]:
            condition = self._condition(mask)
            low = self._add(self.body, "const", (), LOWEST_SHIFT, ())
            argument = self._add(self.body, "where", (condition, argument, low), None, dims)
        return argument

    def _condition(self, mask: int) -> int:
        """The value of a mask, or of what it depends on, here: found, or computed before its turn.

        ``mask`` is a position in the list of all kernels' nodes.
        """
        number, node = self.masks.numbers[mask], self.masks.nodes[mask]
        sections, where = self.block.sections, self.block.section_of
        same = [n for n, m in enumerate(self.numbers) if m == number]
        for n in same:
            if n in self.map and (where[n] == self.number or sections[where[n]].loop is None):
                return self.map[n]
        known = self._known("mask", number)
        if known is None:
            args = tuple(self._condition(a) for a in node.args)
            known = self._add(self.body, node.op, args, node.attr, node.dims)
            memory = self.lasting if self.section.loop is None else self.passing
            memory["mask", number] = known
            self.map.update((n, known) for n in same if where[n] == self.number)
        return known


def _append_straight(built: list[tuple[Section, list[int]]], nodes: list[int]) -> None:
    """Straight code, into the section before it if that is straight too."""
    if nodes and built and built[-1][0].loop is None:
        built[-1][1].extend(nodes)
    elif nodes:
        built.append((Section(()), nodes))
