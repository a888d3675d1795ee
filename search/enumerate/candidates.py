"""Candidates for values between kernels, and the first kernels that can store them.

A first kernel is closed in every configuration. A tensor of its pools that it may store is a
candidate; so are library matmuls of inputs and of candidates. A second kernel reads candidates as
it reads inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mirage_py.reasons import Code, reason
from mirage_py.search.closure.closure import Given
from mirage_py.search.closure.pool import Pool
from mirage_py.search.enumerate.draws import Draw, OutOfTimeError
from mirage_py.search.enumerate.intermediates import storables
from mirage_py.search.enumerate.libraries import (
    LibraryMatmul,
    Operand,
    input_operands,
    library_matmuls,
)
from mirage_py.search.extract.bounds import Bounds, bits_of
from mirage_py.search.extract.choices import Choices
from mirage_py.search.extract.task import Outcome
from mirage_py.search.extract.work import BlockWork
from mirage_py.search.space.spaces import Configuration, configurations
from mirage_py.search.space.values import Values, evaluate
from mirage_py.ugraph.ir.program import Program


@dataclass(frozen=True)
class Producer:
    """A first kernel: a configuration, its pool and its costs.

    ``stores`` has the tensors of the pool that have a candidate's value.
    """

    configuration: Configuration
    pool: Pool
    work: BlockWork
    max_stage: int
    stores: Mapping[int, tuple[int, ...]]
    _choices: dict[int, Choices] = field(default_factory=dict)

    def choices_at(self, stages: int) -> Choices:
        """What there is to choose in so many stages, and what it costs."""
        if stages not in self._choices:
            self._choices[stages] = Choices(Bounds(self.pool, self.work, stages))
        return self._choices[stages]

    def needs_its_loops(self, values: Sequence[int]) -> bool:
        """Whether each of its loops accumulates something that goes into these values.

        If not, a producer with fewer loops stores them as well.
        """
        tensors = [n for v in values for n in self.stores[v]]
        used = [d for n in tensors for d in self.accumulated[n]]
        return all(d in used for d in self.configuration.looped)

    @cached_property
    def accumulated(self) -> Sequence[Sequence[str]]:
        """For each tensor of the pool the loops that a derivation of it may accumulate in."""
        found: list[dict[str, None]] = [{} for _ in self.pool.tensors]
        changed = True
        while changed:
            changed = False
            for number, tensor in enumerate(self.pool.tensors):
                known = len(found[number])
                for way in tensor.alternatives:
                    if way.op.startswith("accum_") and isinstance(way.attr, tuple):
                        found[number][str(way.attr[0])] = None
                    for a in way.args:
                        found[number].update(found[a])
                changed |= len(found[number]) > known
        return [tuple(dims) for dims in found]

    def alone_us(self, values: Sequence[int]) -> float:
        """About what computing and storing these values costs."""
        numbers = [self.stores[v][0] for v in values]
        made_us = self.choices_at(self.max_stage).bounds.expected_us(0, bits_of(numbers))
        return made_us + sum(self.work.store_us(self.pool[n].dims) for n in numbers)


@dataclass
class Candidate:
    """A tensor that a first kernel can store for a second one; ``dims`` are its axes in memory.

    ``call`` is the library call that computes it, if no producer does. ``basic``
    ones may be read by a block graph, the others by a library only.
    """

    name: str
    value: int
    dims: tuple[str, ...]
    classes: dict[int, None] = field(default_factory=dict)
    producers: dict[int, None] = field(default_factory=dict)
    call: LibraryMatmul | None = None
    basic: bool = False

    @property
    def given(self) -> Given:
        """What a closure reads."""
        return Given(self.name, self.value, tuple(self.classes))


def given_value(candidate: Candidate, made: Mapping[int, int], values: Values) -> int:
    """The value of a candidate over other inputs; ``made`` has what the first kernel stores there.

    Its keys are the values over the inputs that the search drew.
    """
    call = candidate.call
    if call is None:
        return made[candidate.value]
    left = call.left.leaf
    right = call.right.leaf
    assert right is not None
    operand = made[call.left.value] if left is None else values.leaf(left.node)
    axes = values.space.axes[call.contracted]
    return values.contract((operand, values.leaf(right.node)), axes)


def library_us(program: Program, call: LibraryMatmul) -> float:
    """What a library matmul costs in the same unit: as a kernel that does only this."""
    gridded = [d for d in program.dim_names if d != call.contracted]
    work = BlockWork(program, gridded=gridded)
    loads = [(*call.left_dims,), call.right.dims]
    read_us = sum(work.store_us(dims) for dims in loads)
    dims = tuple(dict.fromkeys((*call.left_dims, *call.right.dims)))
    made_us = work.step_us("matmul", (call.contracted,), dims, None)
    return read_us + made_us + work.store_us(call.dims)


class Candidates:
    """All producers and candidates of one draw. ``by_name`` has the candidates."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.producers: list[Producer] = []
        self.by_name: dict[str, Candidate] = {}
        # Its own counts: several jobs share these candidates.
        outcome = draw.outcome
        here = draw.begin(draw.stop)
        try:
            self._close_producers()
        except OutOfTimeError:
            outcome.counter.add(here.counter)
            raise
        finally:
            draw.outcome = outcome
        self._keep_likely(here)
        if not draw.task.variant.splits:
            self._add_library_matmuls()
        self.counter, self.exhausted = here.counter, here.exhausted
        self.reasons = here.reasons

    def _close_producers(self) -> None:
        task = self.draw.task
        program, splits = task.program, task.variant.splits
        names: dict[int, str] = {}
        stem = self._free("made")
        for configuration in configurations(program, task.limits.max_loop_dims, gridded=splits):
            pool = self.draw.close(configuration)
            number = len(self.producers)
            stores: dict[int, tuple[int, ...]] = {}
            found = storables(pool, self.draw.targets, splits, self.draw.outcome.counter)
            for item in found:
                # Not by its value: how those are numbered depends on what was evaluated before.
                name = names.setdefault(item.value, f"{stem}{len(names)}")
                dims = pool[item.number].dims
                candidate = self.by_name.setdefault(name, Candidate(name, item.value, dims))
                candidate.basic |= item.basic
                candidate.classes.update(dict.fromkeys(pool[item.number].classes))
                candidate.producers[number] = None
                stores[item.value] = (*stores.get(item.value, ()), item.number)
            if stores:
                work = BlockWork(program, gridded=configuration.gridded)
                stages = max(t.stage for t in pool.tensors)
                self.producers.append(Producer(configuration, pool, work, stages, stores))

    def _keep_likely(self, outcome: Outcome) -> None:
        """Of very many candidates those stay that the program itself computes, then those that cost
        least to make.
        """
        most = self.draw.task.limits.max_intermediates
        if len(self.by_name) <= most:
            return
        values = self.draw.values
        own = dict.fromkeys(evaluate(self.draw.task.program, values))

        def order(candidate: Candidate) -> tuple[bool, bool, float]:
            us = min(self.producers[p].alone_us([candidate.value]) for p in candidate.producers)
            return candidate.value not in own, not candidate.basic, us

        kept = dict.fromkeys(c.name for c in sorted(self.by_name.values(), key=order)[:most])
        outcome.give_up(reason(Code.INTERMEDIATES_CUT, most, len(self.by_name)))
        self.by_name = {name: c for name, c in self.by_name.items() if name in kept}

    def _add_library_matmuls(self) -> None:
        """Matmuls of inputs, then matmuls of a candidate with an input."""
        task, values = self.draw.task, self.draw.values
        inputs = input_operands(task.program, task.form.leaves, task.table, values)
        made = [
            Operand(None, c.value, c.dims, tuple(c.classes))
            for c in self.by_name.values()
            if len(c.dims) > 1
        ]
        known: dict[tuple[int, int], None] = {}
        stem = self._free("product")
        for call in library_matmuls([*inputs, *made], inputs, task.table, values):
            if (call.left.value, call.value) in known:
                continue
            known[call.left.value, call.value] = None
            name = f"{stem}{len(known)}"
            basic = call.value not in self.draw.targets
            classes = dict.fromkeys(call.classes)
            self.by_name[name] = Candidate(name, call.value, call.dims, classes, {}, call, basic)

    def _free(self, stem: str) -> str:
        """The stem, longer until no tensor of the program begins with it."""
        while any(name.startswith(stem) for name in self.draw.task.program.tensors):
            stem += "_"
        return stem

    def readable(self) -> list[Candidate]:
        """What a block graph may read."""
        return [c for c in self.by_name.values() if c.basic]

    def to_make(self, names: Sequence[str]) -> tuple[int, ...]:
        """The values that a first kernel must store so that these tensors can be read.

        In the order in which they were found, not of their numbers: those depend on what was
        evaluated before.
        """
        values: dict[int, None] = {}
        for name in names:
            candidate = self.by_name[name]
            if candidate.call is None:
                values[candidate.value] = None
            elif candidate.call.left.leaf is None:
                values[candidate.call.left.value] = None
        found = [c.value for c in self.by_name.values() if c.call is None]
        return tuple(v for v in found if v in values)

    def producers_of(self, values: Sequence[int]) -> list[Producer]:
        """The first kernels that can store all of these values, cheapest first; of a split
        dimension the cheapest that loops over a split comes before all, as few splits are long.
        """
        able = [m for m in self.producers if all(v in m.stores for v in values)]
        able = [m for m in able if m.needs_its_loops(values)]
        able.sort(key=lambda m: m.alone_us(values))
        split = self.draw.task.variant.split
        first = next((m for m in able if split in m.configuration.looped), None)
        return able if first is None else [first, *(m for m in able if m is not first)]
