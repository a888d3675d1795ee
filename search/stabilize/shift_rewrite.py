"""Rewrite of one kernel by the shift plan: maxima, rescaled sums, rescaled loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from mirage_py.search.stabilize.shift_flow import Dims
from mirage_py.search.stabilize.shift_groups import KernelScales
from mirage_py.search.stabilize.shift_masks import Masks
from mirage_py.search.stabilize.shift_plan import PASSING, RUNNING, GroupPlan
from mirage_py.ugraph.ir import index as ix
from mirage_py.ugraph.ir.node import Access, Attr, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section
from mirage_py.ugraph.rewrite.degrees import LOWEST_SHIFT


@dataclass(frozen=True, slots=True)
class ShiftTensors:
    """Group and dimensions of a shift to the intermediate that holds it.

    ``written`` are those that the kernel at hand stores.
    """

    names: Mapping[tuple[int, Dims], str]
    written: tuple[tuple[int, Dims], ...]


def with_shifts(
    block: BlockGraph,
    scales: KernelScales,
    plans: Mapping[int, GroupPlan],
    tensors: ShiftTensors,
    masks: Masks,
    numbers: Sequence[int],
) -> BlockGraph:
    """The kernel with every exp of a planned group shifted; ``numbers`` are those of its nodes."""
    return _Rewriter(block, scales, plans, tensors, masks, numbers).run()


class _Rewriter:
    """Copies a block graph section by section.

    New nodes go into the section under way, or before its loop if they do not depend on it.
    """

    def __init__(
        self,
        block: BlockGraph,
        scales: KernelScales,
        plans: Mapping[int, GroupPlan],
        tensors: ShiftTensors,
        masks: Masks,
        numbers: Sequence[int],
    ) -> None:
        self.block = block
        self.scales = scales
        self.plans = plans
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
        self.lasting: dict[tuple[str, int, Dims], int] = {}
        self.passing: dict[tuple[str, int, Dims], int] = {}

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
        for key, dims in self.tensors.written:
            if self.plans[key].made[min(self.plans[key].made)] != PASSING:
                self._store(key, dims, self.lasting["shift", key, dims])
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
            args = (*args, *(self.lasting["shift", k, self.plans[k].kept] for k in moving))
        self.map[number] = self._add(self.body, op, args, attr, node.dims)
        for key, plan in self.plans.items():
            for dims, power in plan.flow.logs.get(number, {}).items():
                self._take_out(number, key, dims, power)

    def _take_out(self, log: int, key: int, dims: Dims, power: Fraction) -> None:
        """log(x exp(-k m)) + k m = log(x)."""
        is_own = dims == self.plans[key].kept
        shift = self._shift(key) if is_own else self._load(key, dims)
        if power != 1:
            factor = self._add(self.body, "const", (), float(power), ())
            shift = self._add(self.body, "mul", (shift, factor), None, dims)
        sum_dims = self.block.nodes[log].dims
        self.map[log] = self._add(self.body, "add", (self.map[log], shift), None, sum_dims)

    def _moving(self, number: int) -> dict[int, int]:
        """The groups whose maximum moves in the loop under way, and the powers in the value."""
        plans = self.plans.items()
        running = [k for k, p in plans if p.made.get(self.number) == RUNNING]
        carried = {k: self.plans[k].flow.carried[number] for k in running}
        kept = {k: self.plans[k].kept for k in running}
        return {k: int(carried[k][kept[k]]) for k in running if kept[k] in carried[k]}

    def _operand(self, argument: int, user: int) -> int:
        """An operand; with the kernel's own shifts if that is what its user needs."""
        value = self.map[argument]
        for key, plan in self.plans.items():
            if user not in plan.flow.converting:
                continue
            for dims, power in plan.flow.carried[argument].items():
                if dims == plan.kept:
                    continue
                factor = self._factor(key, dims, power)
                name = f"scaled %{value}", factor, ()
                memory = self.lasting if self.section.loop is None else self.passing
                if name not in memory:
                    node = self.block.nodes[argument]
                    memory[name] = self._add(self.body, "mul", (value, factor), None, node.dims)
                value = memory[name]
        return value

    def _place(self, dims: Dims) -> tuple[list[int], dict[tuple[str, int, Dims], int]]:
        """Where to put what has these dimensions, and where to remember it."""
        if self.section.loop is None:
            return self.body, self.lasting
        if self.section.loop in dims:
            return self.body, self.passing
        return self.before, self.lasting

    def _known(self, what: str, key: int, dims: Dims) -> int | None:
        name = what, key, dims
        return self.passing.get(name, self.lasting.get(name))

    def _factor(self, key: int, dims: Dims, power: Fraction) -> int:
        """What turns another shift in a value into the kernel's: exp(m - M) to its power."""
        shift = self._shift(key)
        what = f"factor {power}"
        known = self._known(what, key, dims)
        if known is not None:
            return known
        where, memory = self._place(dims)
        if self.section.loop is not None and shift in self.body:
            where, memory = self.body, self.passing
        exponent = self._add(where, "sub", (self._load(key, dims), shift), None, dims)
        if power != 1:
            times = self._add(where, "const", (), float(power), ())
            exponent = self._add(where, "mul", (exponent, times), None, dims)
        memory[what, key, dims] = self._add(where, "exp", (exponent,), None, dims)
        return memory[what, key, dims]

    def _load(self, key: int, dims: Dims) -> int:
        """A shift that an earlier kernel stored."""
        known = self._known("load", key, dims)
        if known is None:
            where, memory = self._place(dims)
            access = Access(self.tensors.names[key, dims], tuple(map(ix.dim, dims)))
            known = memory["load", key, dims] = self._add(where, "load", (), access, dims)
        return known

    def _shift(self, key: int, argument: int | None = None, dims: Dims = ()) -> int:
        """The kernel's shift of a group; ``argument`` is the exponent, over ``dims``, from which it
        is made if it is made here and not of another shift.
        """
        plan = self.plans[key]
        if plan.is_read:
            return self._load(key, plan.kept)
        known = self._known("shift", key, plan.kept)
        if known is not None:
            return known
        if plan.source is not None:
            before, value = plan.source, self._load(key, plan.source)
            where, memory = self._place(before)
        else:
            assert argument is not None
            before, value = dims, argument
            where, memory = self.body, self.lasting
        reduced = tuple(d for d in before if d not in plan.kept)
        shift = self._add(where, "max", (value,), reduced, plan.kept)
        how = plan.made[self.number]
        if how == RUNNING:
            shift = self._add(where, "accum_max", (shift,), "shift", plan.kept)
            memory = self.lasting
        else:
            shift = self._add(where, "shift", (shift,), None, plan.kept)
        if how == PASSING:
            memory = self.passing
            if (key, plan.kept) in self.tensors.written:
                self._store(key, plan.kept, shift)
        memory["shift", key, plan.kept] = shift
        return shift

    def _store(self, key: int, dims: Dims, shift: int) -> None:
        access = Access(self.tensors.names[key, dims], tuple(map(ix.dim, dims)))
        self._add(self.body, "store", (shift,), access, dims)

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
        known = self._known("mask", number, ())
        if known is None:
            args = tuple(self._condition(a) for a in node.args)
            known = self._add(self.body, node.op, args, node.attr, node.dims)
            memory = self.lasting if self.section.loop is None else self.passing
            memory["mask", number, ()] = known
            self.map.update((n, known) for n in same if where[n] == self.number)
        return known


def _append_straight(built: list[tuple[Section, list[int]]], nodes: list[int]) -> None:
    """Straight code, into the section before it if that is straight too."""
    if nodes and built and built[-1][0].loop is None:
        built[-1][1].extend(nodes)
    elif nodes:
        built.append((Section(()), nodes))
