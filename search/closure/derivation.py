"""A derivation: one way through the pool, from leaves to all outputs, every shared step once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mirage_py.search.closure.pool import Alternative, Pool
from mirage_py.ugraph.ir.node import Attr


class Step(NamedTuple):
    """An operator of a block graph applied to earlier steps.

    ``dims`` are those of its tile; ``looped`` is the dimension of the loop it lives in. An
    accumulator is the value after its loop: it lives in none, and its attribute is the dimension
    it goes over.
    """

    op: str
    args: tuple[int, ...]
    attr: Attr
    dims: tuple[str, ...]
    looped: str | None

    @property
    def is_accumulator(self) -> bool:
        """Whether it carries a value out of a loop."""
        return self.op.startswith("accum_")

    @property
    def runs_in(self) -> str | None:
        """The dimension of the loop whose body it is a part of."""
        if not self.is_accumulator:
            return self.looped
        assert isinstance(self.attr, tuple)
        return str(self.attr[0])


@dataclass(frozen=True)
class Derivation:
    """``outputs`` has the step of each output of the program, in order."""

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """Looped steps: the earliest loop that can compute them; others: the loops before them."""
        stages: list[int] = []
        for step in self.steps:
            # A looped operand is there from its own loop on, any other from the loop after.
            ready = [stages[a] + bool(step.looped and not self.steps[a].looped) for a in step.args]
            stages.append(max(ready, default=1 if step.looped else 0))
        return tuple(stages)

    @cached_property
    def works_over(self) -> tuple[tuple[str, ...], ...]:
        """Every dimension of a step's tile or of its operands': what its work grows with."""
        steps = self.steps
        return tuple(
            tuple(dict.fromkeys([*s.dims, *(d for a in s.args for d in steps[a].dims)]))
            for s in steps
        )

    def __str__(self) -> str:
        lines = []
        for number, step in enumerate(self.steps):
            attr = "" if step.attr is None else str(step.attr)
            if isinstance(step.attr, tuple):
                attr = ", ".join(map(str, step.attr))
            call = f"{step.op}[{attr}]" if attr else step.op
            args = ", ".join(f"t{a}" for a in step.args)
            where = (
                f"in loop {step.looped}" if step.looped else f"after {self.stages[number]} loops"
            )
            lines.append(f"t{number} = {call}({args})  {where}")
        outputs = ", ".join(f"t{o}" for o in self.outputs)
        return "\n".join([*lines, f"outputs {outputs}"])


def derivation_from(
    pool: Pool, choice: Mapping[int, Alternative], roots: Sequence[int]
) -> Derivation:
    """The derivation that makes each tensor as chosen; ``choice`` has no cycle."""
    position: dict[int, int] = {}
    steps: list[Step] = []
    todo = [*reversed(roots)]
    while todo:
        number = todo[-1]
        if number in position:
            todo.pop()
            continue
        way = choice[number]
        missing = [a for a in way.args if a not in position]
        if missing:
            todo.extend(reversed(missing))
            continue
        todo.pop()
        position[number] = len(steps)
        args = tuple([position[a] for a in way.args])
        tensor = pool[number]
        steps.append(Step(way.op, args, way.attr, tensor.dims, tensor.looped))
    return Derivation(tuple(steps), tuple(position[r] for r in roots))
