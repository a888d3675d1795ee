"""The order of the nodes of one section: the fewest barriers, then few live registers.

Barriers: the longest path through the section, counted in edges that need one, cannot do with
fewer, and nodes of equal depth need none between them. Mirage (OSDI'25, section 6) does so too,
where every edge counts; here only those through shared memory do. A node that fits several phases
goes where the fewest registers live across barriers, and within its phase where the fewest live at
a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.codegen.cuda.schedule.register_order import Value, ordered
from mirage_py.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Item:
    """A node of the section. ``needs`` are positions of the items that it goes after.

    Those of them in ``needs_through_shared`` lie beyond a barrier: they write shared memory that it
    reads, or read shared memory that it writes. The others it reads in registers; ``registers`` is
    how many of a thread's its value takes until it was read there for the last time. ``is_copy``:
    it begins a transfer of which others wait for the end (an asynchronous copy, a load of device
    memory), and goes as early as it can.
    """

    name: str
    needs: tuple[int, ...]
    needs_through_shared: tuple[int, ...]
    registers: int
    is_copy: bool

    def __post_init__(self) -> None:
        assert all(n in self.needs for n in self.needs_through_shared), self


@dataclass(frozen=True, slots=True)
class Phase:
    """What lies between two barriers: positions of items, in order."""

    items: tuple[int, ...]


def plan_schedule(items: Sequence[Item]) -> tuple[Phase, ...]:
    """The phases, a barrier between each and the next; ScheduleError if items need one another."""
    order = topological_order(items)
    values = values_of(items)
    begun = (barrier_depths(items), _late(items, order))
    settled = [_settled(items, values, where, order) for where in begun]
    where = min(settled, key=lambda w: sum(_across(v, n, w) for n, v in enumerate(values)))
    count = max(where, default=-1) + 1
    phases = [[n for n in order if where[n] == p] for p in range(count)]
    done: list[int] = []
    for number, phase in enumerate(phases):
        first = _copies_first(items, phase)
        rest = [n for n in phase if n not in first]
        phases[number] = [*first, *ordered(values, [*done, *first], rest)]
        done += phase
    return tuple(Phase(tuple(p)) for p in phases)


def values_of(items: Sequence[Item]) -> list[Value]:
    """For each item the registers of its value, what it goes after, and who reads it there."""
    readers: list[list[int]] = [[] for _ in items]
    for n, item in enumerate(items):
        for a in dict.fromkeys(item.needs):
            if a not in item.needs_through_shared:
                readers[a].append(n)
    return [Value(i.registers, i.needs, tuple(r)) for i, r in zip(items, readers, strict=True)]


def topological_order(items: Sequence[Item]) -> list[int]:
    """The items, each after what it needs, else as they stand."""
    order: list[int] = []
    done: dict[int, None] = {}
    while len(order) < len(items):
        waiting = [n for n in range(len(items)) if n not in done]
        ready = next((n for n in waiting if all(a in done for a in items[n].needs)), None)
        if ready is None:
            names = ", ".join(items[n].name for n in waiting)
            raise ScheduleError("nodes that need one another", why=f"a circle among {names}")
        done[ready] = None
        order.append(ready)
    return order


def barrier_depths(items: Sequence[Item]) -> list[int]:
    """For each item the most barriers on a way to it: the earliest phase that it can be in."""
    depths = [0] * len(items)
    for n in topological_order(items):
        depths[n] = _earliest(items[n], depths)
    return depths


def _earliest(item: Item, where: Sequence[int]) -> int:
    return max((where[a] + (a in item.needs_through_shared) for a in item.needs), default=0)


def _late(items: Sequence[Item], order: Sequence[int]) -> list[int]:
    """The last phase that each item can be in; for copies and what they need, the first."""
    depths = barrier_depths(items)
    where = [max(depths, default=0)] * len(items)
    early = dict.fromkeys(n for n, i in enumerate(items) if i.is_copy)
    for n in reversed(order):
        if n in early:
            where[n] = depths[n]
            early.update(dict.fromkeys(items[n].needs))
        for a in items[n].needs:
            where[a] = min(where[a], where[n] - (a in items[n].needs_through_shared))
    return where


def _settled(
    items: Sequence[Item], values: Sequence[Value], begun: Sequence[int], order: Sequence[int]
) -> list[int]:
    """Phases that no move of one item makes better."""
    where = list(begun)
    for _ in items:
        before = list(where)
        # Towards both ends: a chain moves item by item, and most of its moves gain nothing yet.
        for numbers, latest in ((order, False), (order[::-1], True)):
            for n in numbers:
                _move(items, values, where, n, latest)
        if where == before:
            break
    return where


def _across(value: Value, number: int, where: Sequence[int]) -> int:
    """Registers of the value at each barrier that it lives across, summed up."""
    last = max((where[r] for r in value.readers), default=where[number])
    return value.registers * (last - where[number])


def _move(
    items: Sequence[Item], values: Sequence[Value], where: list[int], number: int, latest: bool
) -> None:
    """The item to the phase where the fewest registers live across barriers, among equal ones the
    first or the ``latest``. Copies stay.
    """
    if items[number].is_copy:
        return
    users = [n for n, i in enumerate(items) if number in i.needs]
    low = _earliest(items[number], where)
    high = min(
        (where[n] - (number in items[n].needs_through_shared) for n in users),
        default=max(where),
    )
    touched = [number, *values[number].needs]

    def crossing(phase: int) -> int:
        where[number] = phase
        return sum(_across(values[v], v, where) for v in touched)

    phases = range(high, low - 1, -1) if latest else range(low, high + 1)
    where[number] = min(phases, key=crossing)


def _copies_first(items: Sequence[Item], phase: Sequence[int]) -> list[int]:
    """The copies of a phase and what of it they need, in order."""
    wanted: dict[int, None] = {}
    for n in reversed(phase):
        if items[n].is_copy or n in wanted:
            wanted[n] = None
            wanted.update(dict.fromkeys(a for a in items[n].needs if a in phase))
    return [n for n in phase if n in wanted]
