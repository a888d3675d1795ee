"""Jobs: the independent units of a search, which can run in any process.

A job is one ring of laws, one variant of the program, and one last kernel (a configuration of it).
Jobs of one ring and variant share the class table and the pools of first kernels, which each
process computes once and caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

from mirage_py.axioms.saturation.saturate import saturate
from mirage_py.axioms.terms.law import Ring
from mirage_py.reasons import Code, reason
from mirage_py.search.closure.derivation import Derivation
from mirage_py.search.closure.hits import hits, holds
from mirage_py.search.closure.pool import Pool
from mirage_py.search.clusters.cluster_rows import shared_rows
from mirage_py.search.enumerate.chains import TwoKernels
from mirage_py.search.enumerate.draws import Draw, OutOfTimeError
from mirage_py.search.extract.extract import extract, stages_worth_a_search
from mirage_py.search.extract.family import ONE_KERNEL, Family, Origin
from mirage_py.search.extract.loops import arrangement_us, arrangements
from mirage_py.search.extract.lower import lower, output_stores
from mirage_py.search.extract.task import Outcome, SearchLimits, Task
from mirage_py.search.extract.work import BlockWork
from mirage_py.search.space.abstraction import abstract
from mirage_py.search.space.no_pruning import without_pruning
from mirage_py.search.space.spaces import Configuration, configurations
from mirage_py.search.space.variants import Variant, variants
from mirage_py.ugraph.field import DivisionByZero
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.ir.ugraph import UGraph

# Draws of the inputs: another one where two different tensors happened to agree, or a divisor to
# be zero.
_DRAWS = 8

# Threads that search the same program share its draws, and a draw writes to one outcome.
_ONE_AT_A_TIME = Lock()

_BOUNDS = {"nodes": Code.BOUND_ON_NODES, "rounds": Code.BOUND_ON_ROUNDS}

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Job:
    """``split`` names the variant. ``kernels`` is 1, or 2 for a last kernel that another one feeds;
    ``configuration`` is that of the last kernel, None for a library call.
    """

    ring: Ring
    split: str | None
    kernels: int
    configuration: Configuration | None

    def __str__(self) -> str:
        variant = f"split {self.split}" if self.split else "whole"
        last = self.configuration if self.configuration is not None else "library call"
        return f"{self.ring} ring, {variant}, {self.kernels} kernels, last: {last}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What all jobs of a search have in common. It is a value: other processes are sent it."""

    program: Program
    seed: int
    limits: SearchLimits


def jobs_of(setting: Setting) -> Iterator[Job]:
    """All jobs, in order of their results."""
    for ring in setting.limits.rings:
        for variant in variants(setting.program):
            yield from _jobs_of_variant(setting, ring, variant)


def _jobs_of_variant(setting: Setting, ring: Ring, variant: Variant) -> Iterator[Job]:
    limits = setting.limits
    if variant.split is None:
        for configuration in OneKernel.configurations(variant.program, limits):
            yield Job(ring, None, 1, configuration)
    if limits.max_kernels < 2 or (variant.split is None and limits.max_unsplit_kernels < 2):
        return
    if variant.split is None:
        yield Job(ring, None, 2, None)
    for configuration in TwoKernels.configurations(variant, limits):
        yield Job(ring, variant.split, 2, configuration)


def run(setting: Setting, job: Job, stop: Stop) -> Outcome:
    """The outcome of the first draw of inputs that shows no coincidence, or of the last one.

    Raises MirageError or DivisionByZero for a program without an abstract form, or without a value
    in a field.
    """
    with _ONE_AT_A_TIME:
        for number in range(_DRAWS):
            last = number == _DRAWS - 1
            try:
                outcome = _attempt(setting, job, number, stop, skip_divisions=last)
            except DivisionByZero:
                if last:
                    raise
                continue
            if not outcome.refuted or outcome.stopped or last:
                return outcome
    raise AssertionError("the last draw returns")


def _attempt(
    setting: Setting, job: Job, number: int, stop: Stop, *, skip_divisions: bool
) -> Outcome:
    task = task_of(setting, job.ring, job.split)
    draw = _draw(setting, job.ring, job.split, number, skip_divisions)
    if isinstance(draw, DivisionByZero):
        raise DivisionByZero(*draw.args)
    outcome = draw.begin(stop)
    if job.split is None:
        outcome.classes, outcome.saturated = task.table.classes, task.table.saturated
    if job.ring != setting.limits.rings[0]:
        first = task_of(setting, setting.limits.rings[0], job.split)
        if first.table.saturated and first.table.size == task.table.size:
            return outcome  # its laws had nothing to add, so it is the first ring again
    if not task.table.saturated:
        outcome.give_up(reason(_BOUNDS[task.table.bound], task.variant))
    try:
        if job.kernels == 1:
            assert job.configuration is not None
            OneKernel(draw).explore(job.configuration)
        else:
            pairs = _two_kernels(draw)
            _explore_pairs(setting, job, pairs, outcome)
    except OutOfTimeError:
        outcome.stopped, outcome.exhausted = True, False
    return outcome


def _explore_pairs(setting: Setting, job: Job, pairs: TwoKernels, outcome: Outcome) -> None:
    # What the first kernels' closures did is told by the job that every variant begins with.
    variant = pairs.task.variant
    if job == next(j for j in _jobs_of_variant(setting, job.ring, variant) if j.kernels == 2):
        outcome.counter.add(pairs.candidates.counter)
        outcome.reasons.extend(pairs.candidates.reasons)
    outcome.exhausted &= pairs.candidates.exhausted
    if job.configuration is None:
        pairs.explore_library_ends()
    else:
        pairs.explore(job.configuration)


@lru_cache(maxsize=32)
def task_of(setting: Setting, ring: Ring, split: str | None) -> Task:
    """The class table of a ring for a variant."""
    variant = next(v for v in variants(setting.program) if v.split == split)
    form = abstract(variant.program, variant.splits)
    limits = setting.limits
    table = saturate(
        form.roots,
        form.leaf_axes,
        axes=form.axes,
        ring=ring,
        rounds=limits.rounds,
        max_nodes=limits.max_nodes,
    )
    if limits.pruning == "none":
        table = without_pruning(table)
    return Task(variant, form, table, limits)


@lru_cache(maxsize=32)
def _draw(
    setting: Setting, ring: Ring, split: str | None, number: int, skip_divisions: bool
) -> Draw | DivisionByZero:
    """Or that there is none, which takes the longest to find out: all jobs should know."""
    first = setting.limits.rings[0]
    if ring != first and isinstance(
        none := _draw(setting, first, split, number, skip_divisions), DivisionByZero
    ):
        return none  # the inputs are those of the program, whatever the ring
    task = task_of(setting, ring, split)
    try:
        return Draw(task, setting.seed * _DRAWS + number, skip_divisions=skip_divisions)
    except DivisionByZero as error:
        return error


@lru_cache(maxsize=32)
def _two_kernels(draw: Draw) -> TwoKernels:
    """By the draw itself, not by what it was made from: it writes to that draw's outcome."""
    return TwoKernels(draw)


class OneKernel:
    """The search for µGraphs of one kernel, on one draw of the inputs."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.task = draw.task
        self.work = BlockWork(draw.task.program)

    def explore(self, configuration: Configuration) -> None:
        """Every family of one configuration goes to the outcome."""
        outcome = self.draw.outcome
        pool = self.draw.close(configuration)
        for derivation in self._derivations(configuration, pool):
            if self.draw.stopped():
                return
            if all(holds(derivation, *check) for check in self.draw.checks):
                self._add_families(configuration, derivation)
            else:
                outcome.refuted += 1
                outcome.reasons.append(reason(Code.REFUTED, configuration, derivation))

    @staticmethod
    def configurations(program: Program, limits: SearchLimits) -> Iterator[Configuration]:
        """Every choice of dimensions to loop over; none is on the grid, as all are reduced here."""
        return configurations(program, limits.max_loop_dims)

    def _derivations(self, configuration: Configuration, pool: Pool) -> Iterator[Derivation]:
        task, outcome, found = self.task, self.draw.outcome, False
        for roots in hits(task.program, pool, self.draw.targets):
            found = True
            for stages in stages_worth_a_search(pool, roots):
                extraction = extract(pool, roots, self.work, task.limits.extraction, stages)
                if extraction.cut:
                    where = f"{configuration}, {stages} stages"
                    outcome.reasons.append(reason(Code.EXTRACTION_CUT, where))
                yield from (derivation for _, derivation in extraction.derivations)
        outcome.counter.hits += found

    def _add_families(self, configuration: Configuration, derivation: Derivation) -> None:
        program = self.task.program
        for arrangement in arrangements(derivation):
            block = lower(program, derivation, arrangement, output_stores(program))
            cost_us = arrangement_us(derivation, arrangement, self.work)
            origin = Origin(configuration, arrangement.name, derivation)
            family = Family(UGraph(program, (block,)), cost_us, ONE_KERNEL, (origin,))
            self.draw.outcome.add(family)
            if self.task.limits.max_cluster_blocks > 1:
                for shared in shared_rows(family):
                    self.draw.outcome.add(shared)
