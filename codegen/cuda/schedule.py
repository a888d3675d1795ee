"""The order of the nodes of one section, with the fewest barriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage_py.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Item:
    """A node of the section. ``needs`` are positions of the items before which it cannot go.

    Those among them in ``needs_through_shared`` lie on the other side of a barrier: they write
    shared memory that it reads, or read shared memory that it writes. ``registers`` is how many its
    value holds in each thread until its last reader (through shared memory: none). ``is_copy`` says
    that it only issues an asynchronous copy, which is the better the earlier it goes.
    """

    name: str
    needs: tuple[int, ...]
    needs_through_shared: tuple[int, ...]
    registers: int
    is_copy: bool


@dataclass(frozen=True, slots=True)
class Phase:
    """What lies between two barriers: positions of items, in order."""

    items: tuple[int, ...]


def plan_schedule(items: Sequence[Item]) -> tuple[Phase, ...]:
    """Phases with a barrier between each and the next, as few as there can be."""
    depths = barrier_depths(items)
    phases: dict[int, list[int]] = {}
    for n in topological_order(items):
        phases.setdefault(depths[n], []).append(n)
    return tuple(Phase(tuple(phases[d])) for d in sorted(phases))


def program_order(items: Sequence[Item]) -> tuple[Phase, ...]:
    """The items as they stand, with a barrier after each that is read through shared memory.

    For comparison; items stand behind what they need.
    """
    read = dict.fromkeys(n for item in items for n in item.needs_through_shared)
    phases: list[list[int]] = [[]]
    for n in range(len(items)):
        phases[-1].append(n)
        if n in read:
            phases.append([])
    return tuple(Phase(tuple(p)) for p in phases if p)


def topological_order(items: Sequence[Item]) -> list[int]:
    """The items, each behind what it needs, else as they stand; ScheduleError for a circle."""
    order: list[int] = []
    done: dict[int, None] = {}
    while len(order) < len(items):
        ready = next(
            (n for n, i in enumerate(items) if n not in done and all(a in done for a in i.needs)),
            None,
        )
        if ready is None:
            names = ", ".join(i.name for n, i in enumerate(items) if n not in done)
            raise ScheduleError("nodes wait for one another", why=f"in a circle: {names}")
        done[ready] = None
        order.append(ready)
    return order


def barrier_depths(items: Sequence[Item]) -> list[int]:
    """For each item the most barriers on any way to it."""
    depths = [0] * len(items)
    for n in topological_order(items):
        through = items[n].needs_through_shared
        depths[n] = max((depths[a] + (a in through) for a in items[n].needs), default=0)
    return depths
