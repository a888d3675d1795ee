"""Buffers in shared memory, with their lifetimes in phases."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from mirage_py.codegen.cuda.memory.memory_plan import (
    Buffer,
    MemoryPlan,
    plan_memory,
    plan_without_reuse,
)


class SharedMemory:
    """Collects buffers while the text is written; a phase ends at each barrier.

    Where it ``is_reused``, buffers that are never in use together share memory.
    """

    def __init__(self, is_reused: bool) -> None:
        self.phase = 0
        # The phase at whose end a loop's stages are read for the last time; -1: none that is known.
        self.last_read = -1
        self.is_reused = is_reused
        self._sizes: dict[str, tuple[int, int, str]] = {}
        self._lives: dict[str, list[int]] = {}
        self._loops: list[list[str]] = []

    def new(self, name: str, size_bytes: int, alignment_bytes: int, c_type: str) -> str:
        """A buffer from this phase on; its name in C."""
        unique, count = name, 2
        while unique in self._sizes:
            unique, count = f"{name}{count}", count + 1
        self._sizes[unique] = (size_bytes, alignment_bytes, c_type)
        self._lives[unique] = [self.phase, self.phase]
        for loop in self._loops:
            loop.append(unique)
        return unique

    def use(self, name: str) -> None:
        """It is read or written in this phase."""
        self._lives[name][1] = self.phase
        for loop in self._loops:
            loop.append(name)

    @property
    def has_idle_stages(self) -> bool:
        """Whether a barrier now would free the stages of a loop that has just ended."""
        return self.is_reused and not self._loops and self.phase == self.last_read

    @property
    def names(self) -> Collection[str]:
        """All buffers so far."""
        return self._sizes.keys()

    @contextmanager
    def loop(self, may_be_empty: bool = False) -> Iterator[None]:
        """What is used inside is in use from the loop's begin to its end: iterations follow one
        another. A loop that ``may_be_empty`` has no barrier for those who pass it: what is used
        right before it is in use until its end.
        """
        first = self.phase
        self._loops.append([])
        yield
        used = self._loops.pop()
        if may_be_empty:
            used += [name for name, life in self._lives.items() if life[1] == first]
        for name in used:
            life = self._lives[name]
            life[0], life[1] = min(life[0], first), self.phase

    def plan(self, limit_bytes: int) -> MemoryPlan:
        """Offsets; ScheduleError if it does not fit."""
        buffers = [
            Buffer(name, size, alignment, *self._lives[name])
            for name, (size, alignment, _) in self._sizes.items()
        ]
        return (plan_memory if self.is_reused else plan_without_reuse)(buffers, limit_bytes)

    def declarations(self, plan: MemoryPlan) -> list[str]:
        """A pointer to each buffer."""
        lines = []
        for name, (_, _, c_type) in self._sizes.items():
            offset = plan.offsets[name]
            place = f"shared_memory + {offset}" if offset else "shared_memory"
            if c_type != "unsigned char":
                place = f"reinterpret_cast<{c_type}*>({place})"
            lines.append(f"{c_type}* const {name} = {place};")
        return lines
