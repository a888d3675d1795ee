"""The state of one draw of random inputs, shared by all steps: values, targets, checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from mirage_py.reasons import Code, reason
from mirage_py.search.closure.closure import Closure, Given, Ground
from mirage_py.search.closure.hits import draw
from mirage_py.search.closure.pool import Alternative, Pool
from mirage_py.search.closure.rounding import Rounding
from mirage_py.search.extract.task import Outcome, Task
from mirage_py.search.space.counters import Counter
from mirage_py.search.space.spaces import (
    Configuration,
    has_pieces,
    representative_space,
    shortest_space,
)
from mirage_py.search.space.values import Values
from mirage_py.ugraph.field import FIELDS, DivisionByZero

Check = tuple[Values, tuple[int, ...]]


class OutOfTimeError(Exception):
    """Time was up before a pool was closed; half of it is of no use."""


@dataclass(slots=True)
class Closed:
    """A pool, what its closure counted, whether it went to its end, and the ways that rounding took
    out of it.
    """

    pool: Pool
    counter: Counter
    whole: bool
    spoilt: list[tuple[int, Alternative]] = field(default_factory=list)


class Draw:
    """One draw of the inputs of a task.

    ``checks`` are another field, other extents, other inputs: what holds there as well is no
    coincidence. Raises DivisionByZero where another draw is needed.
    """

    def __init__(self, task: Task, seed: int, *, skip_divisions: bool) -> None:
        self.task = task
        program, splits = task.program, task.variant.splits
        space = representative_space(program, 0, splits)
        self.values, self.targets = draw(program, space, FIELDS[0], seed)
        spaces = [representative_space(program, 1, splits)]
        if has_pieces(program):
            spaces.append(shortest_space(program, splits))
        self.checks: list[Check] = [draw(program, s, FIELDS[1], seed) for s in spaces]
        # Among all combinations is x / (y - y), whatever the draw.
        self._skip_divisions = skip_divisions or task.limits.pruning == "none"
        self._buildable = tuple(dict.fromkeys(frozenset(n.dims) for n in program.nodes))
        self.rounding = Rounding(program, self.values)
        self.outcome = Outcome()
        self.stop: Callable[[], bool] = lambda: False
        # Kernels that stand alone and first kernels of two have the same pools.
        self._closed: dict[Configuration, Closed] = {}

    def begin(self, stop: Callable[[], bool]) -> Outcome:
        """A fresh outcome, which everything goes to from now on."""
        self.outcome, self.stop = Outcome(), stop
        return self.outcome

    def stopped(self) -> bool:
        """Whether time is up; then the outcome is not exhausted."""
        if self.stop():
            self.outcome.stopped = True
            self.outcome.exhausted = False
        return self.outcome.stopped

    def close(
        self,
        configuration: Configuration,
        given: Sequence[Given] = (),
        hidden: Sequence[str] = (),
    ) -> Pool:
        """The pool of a kernel that reads the program's leaves and the ``given`` tensors.

        Leaves with one of the ``hidden`` dimensions are not read. Raises OutOfTimeError.
        """
        known = self._closed.get(configuration) if not given and not hidden else None
        closed = known or self._close(configuration, given, hidden)
        if not given and not hidden:
            self._closed[configuration] = closed
        self.outcome.counter.add(closed.counter)
        if not closed.whole:
            most = min(self.task.limits.max_tensors, len(closed.pool))
            self.outcome.give_up(reason(Code.POOL_OUTGREW, most, configuration))
        # What is known of rounding by now may spoil more.
        closed.spoilt += self.rounding.prune(closed.pool)
        for number, way in closed.spoilt:
            example = partial(_described, closed.pool, number, way, configuration)
            self.outcome.counter.prune(reason(Code.ROUNDING), example)
        return closed.pool

    def _close(
        self, configuration: Configuration, given: Sequence[Given], hidden: Sequence[str]
    ) -> Closed:
        task, counter = self.task, Counter()
        leaves = tuple(x for x in task.form.leaves if not any(d in hidden for d in x.dims))
        ground = Ground(
            task.table,
            leaves,
            self._buildable,
            task.limits.max_loops,
            task.limits.max_tensors,
            self._skip_divisions,
            task.limits.max_operators,
            task.limits.merging,
        )
        closure = Closure(ground, self.values, configuration, counter, given)
        try:
            whole = closure.run(self.stop)
        except DivisionByZero:
            self.outcome.counter.add(counter)
            raise
        counter.configurations += 1
        counter.tensors += len(closure.pool)
        if not whole and self.stopped():
            self.outcome.counter.add(counter)
            raise OutOfTimeError
        return Closed(closure.pool, counter, whole)


def _described(pool: Pool, number: int, way: Alternative, configuration: Configuration) -> str:
    return f"{pool.formula(way)} for {pool.formula(pool[number].alternatives[0])} ({configuration})"
