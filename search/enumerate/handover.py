"""Candidates for values between kernels, and the first kernels that can store them.

A first kernel is closed in every configuration. A tensor of its pools that it may store is a
candidate; so are library matmuls of inputs and of candidates. A second kernel reads candidates as
it reads inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mirage_py.search.closure.closure import Given
from mirage_py.search.closure.pool import Pool
from mirage_py.search.enumerate.draws import Draw, OutOfTimeError
from mirage_py.search.enumerate.intermediates import storables
from mirage_py.search.enumerate.libraries import (
    LibraryProduct,
    Operand,
    input_operands,
    library_products,
)
from mirage_py.search.extract.bounds import Bounds, bits_of
from mirage_py.search.extract.choices import Choices
from mirage_py.search.extract.work import BlockWork
from mirage_py.search.space.spaces import Configuration, configurations
from mirage_py.search.space.values import Values
from mirage_py.ugraph.ir.program import Program


@dataclass(frozen=True)
class Maker:
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

        If not, a maker with fewer loops makes them as well.
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
        """About what making and storing these values costs."""
        numbers = [self.stores[v][0] for v in values]
        made_us = self.choices_at(self.max_stage).bounds.expected_us(0, bits_of(numbers))
        return made_us + sum(self.work.store_us(self.pool[n].dims) for n in numbers)


@dataclass
class Candidate:
    """A tensor that can be handed over; ``dims`` are its axes in memory.

    ``product`` is the library call that makes it, if none of the makers is to do so. ``basic``
    ones may be read by a block graph, the others by a library only.
    """

    name: str
    value: int
    dims: tuple[str, ...]
    classes: dict[int, None] = field(default_factory=dict)
    makers: dict[int, None] = field(default_factory=dict)
    product: LibraryProduct | None = None
    basic: bool = False

    @property
    def given(self) -> Given:
        """What a closure reads."""
        return Given(self.name, self.value, tuple(self.classes))


def given_value(candidate: Candidate, made: Mapping[int, int], values: Values) -> int:
    """The value of a candidate over other inputs; ``made`` has what the first kernel stores there.

    Its keys are the values over the inputs that the search drew.
    """
    call = candidate.product
    if call is None:
        return made[candidate.value]
    left = call.left.leaf
    right = call.right.leaf
    assert right is not None
    operand = made[call.left.value] if left is None else values.leaf(left.node)
    axes = values.space.axes[call.contracted]
    return values.contract((operand, values.leaf(right.node)), axes)


def library_us(program: Program, product: LibraryProduct) -> float:
    """What a library product costs in the same unit: as a kernel that does only this."""
    gridded = [d for d in program.dim_names if d != product.contracted]
    work = BlockWork(program, gridded=gridded)
    loads = [(*product.left_dims,), product.right.dims]
    read_us = sum(work.store_us(dims) for dims in loads)
    dims = tuple(dict.fromkeys((*product.left_dims, *product.right.dims)))
    made_us = work.step_us("matmul", (product.contracted,), dims, None)
    return read_us + made_us + work.store_us(product.dims)


class Handover:
    """All makers and candidates of one draw. ``candidates`` by name."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.makers: list[Maker] = []
        self.candidates: dict[str, Candidate] = {}
        # Its own counts: several jobs read one handover.
        outcome = draw.outcome
        here = draw.begin(draw.stop)
        try:
            self._close_makers()
        except OutOfTimeError:
            outcome.counter.add(here.counter)
            raise
        finally:
            draw.outcome = outcome
        if not draw.task.variant.parts:
            self._add_library_products()
        self.counter, self.exhausted = here.counter, here.exhausted

    def _close_makers(self) -> None:
        task = self.draw.task
        program, parts = task.program, task.variant.parts
        names: dict[int, str] = {}
        stem = self._free("made")
        for configuration in configurations(program, task.limits.max_loop_dims, gridded=parts):
            pool = self.draw.close(configuration)
            number = len(self.makers)
            stores: dict[int, tuple[int, ...]] = {}
            found = storables(pool, self.draw.targets, parts, self.draw.outcome.counter)
            for item in found:
                # Not by its value: how those are numbered depends on what was evaluated before.
                name = names.setdefault(item.value, f"{stem}{len(names)}")
                dims = pool[item.number].dims
                candidate = self.candidates.setdefault(name, Candidate(name, item.value, dims))
                candidate.basic |= item.basic
                candidate.classes.update(dict.fromkeys(pool[item.number].classes))
                candidate.makers[number] = None
                stores[item.value] = (*stores.get(item.value, ()), item.number)
            if stores:
                work = BlockWork(program, gridded=configuration.gridded)
                stages = max(t.stage for t in pool.tensors)
                self.makers.append(Maker(configuration, pool, work, stages, stores))

    def _add_library_products(self) -> None:
        """Products of inputs, then products of a candidate with an input."""
        task, values = self.draw.task, self.draw.values
        inputs = input_operands(task.program, task.form.leaves, task.table, values)
        made = [
            Operand(None, c.value, c.dims, tuple(c.classes))
            for c in self.candidates.values()
            if len(c.dims) > 1
        ]
        known: dict[tuple[int, int], None] = {}
        stem = self._free("product")
        for product in library_products([*inputs, *made], inputs, task.table, values):
            if (product.left.value, product.value) in known:
                continue
            known[product.left.value, product.value] = None
            name = f"{stem}{len(known)}"
            basic = product.value not in self.draw.targets
            classes = dict.fromkeys(product.classes)
            self.candidates[name] = Candidate(
                name, product.value, product.dims, classes, {}, product, basic
            )

    def _free(self, stem: str) -> str:
        """The stem, longer until no tensor of the program begins with it."""
        while any(name.startswith(stem) for name in self.draw.task.program.tensors):
            stem += "_"
        return stem

    def readable(self) -> list[Candidate]:
        """What a block graph may read."""
        return [c for c in self.candidates.values() if c.basic]

    def to_make(self, names: Sequence[str]) -> tuple[int, ...]:
        """The values that a first kernel must store so that these tensors can be read.

        In the order in which they were found, not of their numbers: those depend on what was
        evaluated before.
        """
        values: dict[int, None] = {}
        for name in names:
            candidate = self.candidates[name]
            if candidate.product is None:
                values[candidate.value] = None
            elif candidate.product.left.leaf is None:
                values[candidate.product.left.value] = None
        found = [c.value for c in self.candidates.values() if c.product is None]
        return tuple(v for v in found if v in values)

    def makers_of(self, values: Sequence[int]) -> list[Maker]:
        """The first kernels that can store all of these values, cheapest first."""
        able = [m for m in self.makers if all(v in m.stores for v in values)]
        able = [m for m in able if m.needs_its_loops(values)]
        return sorted(able, key=lambda m: m.alone_us(values))
