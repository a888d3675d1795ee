"""Graphs of operators: of one kernel, or of two with values between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from completeness.kinds import Kind

from mirage_py.ugraph.ir.node import Attr


@dataclass(frozen=True, slots=True)
class Step:
    """A leaf, or an operator on earlier steps. An accumulator's attribute is its loop."""

    op: str
    args: tuple[int, ...]
    attr: Attr
    kind: Kind

    @property
    def runs_in(self) -> str | None:
        """The dimension of the loop that computes it."""
        if self.op.startswith("accum_"):
            assert isinstance(self.attr, tuple)
            return str(self.attr[0])
        return self.kind.looped


@dataclass(frozen=True)
class Graph:
    """``outputs`` has the step of each output, in the program's order.

    What is about loops is meant for graphs of one kernel; see ``kernels.py`` for the others.
    """

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """In a loop: the first loop, counted from 1, that can run it; else the loops before it."""
        found: list[int] = []
        for step in self.steps:
            looped = step.kind.looped is not None
            later = [found[a] + (looped and not self.steps[a].kind.looped) for a in step.args]
            found.append(max(later, default=int(looped)))
        return tuple(found)

    @cached_property
    def loops(self) -> tuple[tuple[int, str], ...]:
        """Stage and dimension of each loop, in the order they run."""
        return tuple(sorted(dict.fromkeys(self._loop_of(n) for n in self._leaving())))

    @cached_property
    def operators(self) -> int:
        """How many steps are no leaves."""
        return sum(bool(step.args) for step in self.steps)

    def body(self, loop: tuple[int, str]) -> tuple[int, ...]:
        """The steps that a loop runs: all that what leaves it is computed from."""
        members = {n for n in self._leaving() if self._loop_of(n) == loop}
        for n in range(len(self.steps) - 1, -1, -1):
            if n in members:
                args = self.steps[n].args
                members.update(a for a in args if self.steps[a].kind.looped is not None)
        return tuple(sorted(members))

    def straight(self, stage: int) -> tuple[int, ...]:
        """The steps after the loops of a stage and before those of the next."""
        return tuple(
            n
            for n, step in enumerate(self.steps)
            if step.runs_in is None and self.stages[n] == stage
        )

    def executions(self) -> Iterator[tuple[str | None, int]]:
        """Each step as often as it is computed, with the dimension of the loop around it."""
        for n, step in enumerate(self.steps):
            if step.runs_in is None:
                yield None, n
        for loop in self.loops:
            yield from ((loop[1], n) for n in self.body(loop))

    def __str__(self) -> str:
        return ", ".join(self.formula(o) for o in self.outputs)

    def formula(self, number: int) -> str:
        """A step written out."""
        step = self.steps[number]
        if not step.args:
            return str(step.attr)
        over = "" if step.attr is None else f"[{', '.join(map(str, step.attr))}]"
        return f"{step.op}{over}({', '.join(self.formula(a) for a in step.args)})"

    def _leaving(self) -> Sequence[int]:
        """What leaves a loop: accumulators, and outputs that are stored tile by tile."""
        carried = [n for n, s in enumerate(self.steps) if s.op.startswith("accum_")]
        return [*carried, *(o for o in self.outputs if self.steps[o].kind.looped is not None)]

    def _loop_of(self, number: int) -> tuple[int, str]:
        return self.stages[number], str(self.steps[number].runs_in)
