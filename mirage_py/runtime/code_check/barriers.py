"""Barriers as vector clocks see them: named ones, those of clusters, and mbarriers with their
phases.

Each has a component of its own in all clocks, which counts the phases that a thread knows to be
over. Who arrives must know that the phase before is over, else another run could count it there;
who waits by parity must have been waited for before the phase after the next is over, else it could
miss it. Where both hold, one run stands for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(slots=True)
class Phases:
    """Of all kinds of barriers. ``clock`` and ``fenced`` join those who arrived."""

    component: int
    clock: Any
    fenced: Any
    phase: int = 0
    # Of phases that are over: the joined clocks.
    over: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def join(self, clock: Any, fenced: Any) -> None:
        """Threads with these clocks have arrived."""
        np.maximum(self.clock, clock.max(axis=0), out=self.clock)
        np.maximum(self.fenced, fenced.max(axis=0), out=self.fenced)

    def end(self) -> None:
        """The phase is over."""
        clock, fenced = self.clock.copy(), self.fenced.copy()
        clock[self.component] = fenced[self.component] = self.phase + 1
        self.over[self.phase] = clock, fenced
        # Nobody waits for what is so long ago without having been noticed.
        self.over.pop(self.phase - 3, None)
        self.phase += 1
        self.clock[:] = 0
        self.fenced[:] = 0


@dataclass(slots=True)
class Barrier(Phases):
    """A named barrier, or that of a cluster: a phase ends when so many threads have arrived."""

    expected: int = 0
    arrived: int = 0


@dataclass(slots=True)
class MBarrier(Phases):
    """In shared memory. ``count`` arrivals and all bytes end a phase; ``watched`` has for each
    phase the ticks at which threads have waited for it.
    """

    address: int = 0
    count: int = 0
    pending: int = 0
    bytes: int = 0
    thread: int = 0
    tick: int = 0
    fenced_init: bool = False
    copied: dict[int, int] = field(default_factory=dict)
    watched: dict[int, Any] = field(default_factory=dict)

    @property
    def is_due(self) -> bool:
        """Whether nothing is missing any more."""
        return self.pending == 0 and self.bytes == 0
