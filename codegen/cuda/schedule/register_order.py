"""An order of straight-line code that keeps few registers live.

Register-minimal evaluation is easy for trees (Sethi and Ullman, 1970) and NP-hard for graphs. This
is a dynamic program over the set of finished nodes, which keeps the best states after each step; it
is exact as long as there are no more states than it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_KEPT_STATES = 64


@dataclass(frozen=True, slots=True)
class Value:
    """``registers`` that live until all ``readers`` are done; ``needs`` have to be done before."""

    registers: int
    needs: tuple[int, ...]
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _State:
    """``order`` so far, the registers that live after it, the most that lived (``peak``), and the
    sum over its steps (``area``).
    """

    peak: int
    area: int
    order: tuple[int, ...]
    live: int


def ordered(values: Sequence[Value], done: Sequence[int], waiting: Sequence[int]) -> list[int]:
    """``waiting``, which follows ``done``, in an order with a low peak of live registers.

    A value begins to live while its operands still do. ``waiting`` stands in a possible order, and
    the result has no higher peak.
    """
    finished = dict.fromkeys(done)
    begun = _State(0, 0, (), sum(_alive(values, v, finished) for v in done))
    states = [begun]
    for _ in waiting:
        found: dict[frozenset[int], _State] = {}
        for state in states:
            known = dict.fromkeys([*done, *state.order])
            for v in waiting:
                if v in known or any(a not in known for a in values[v].needs):
                    continue
                after = _after(values, state, v, known)
                key = frozenset(after.order)
                if key not in found or _key(after) < _key(found[key]):
                    found[key] = after
        states = sorted(found.values(), key=_key)[:_KEPT_STATES]
    given = begun
    for v in waiting:
        given = _after(values, given, v, dict.fromkeys([*done, *given.order]))
    return list(min(states[0], given, key=_key).order)


def _key(state: _State) -> tuple[int, int, tuple[int, ...]]:
    return (state.peak, state.area, state.order)


def _after(values: Sequence[Value], state: _State, v: int, known: dict[int, None]) -> _State:
    """The state after ``v``: it lives from now on, and operands that were read last do not."""
    top = state.live + values[v].registers
    finished = {**known, v: None}
    operands = (a for a in dict.fromkeys(values[v].needs) if v in values[a].readers)
    freed = sum(values[a].registers for a in operands if not _alive(values, a, finished))
    kept = _alive(values, v, finished)
    live = state.live - freed + kept
    return _State(max(state.peak, top), state.area + live, (*state.order, v), live)


def _alive(values: Sequence[Value], v: int, done: dict[int, None]) -> int:
    """The registers of ``v`` if somebody has still to read them."""
    return values[v].registers if any(r not in done for r in values[v].readers) else 0
