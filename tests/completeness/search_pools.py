"""The search under test: its pools, for one subject and one ring of laws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from completeness.containment import Index, Place
from completeness.derivations import derivations
from completeness.graphs import Graph, Step
from completeness.kinds import HAND
from completeness.programs import CASES, Subject

from mirage_py.axioms.terms.law import Ring
from mirage_py.search.closure.closure import given_access
from mirage_py.search.closure.hits import hits
from mirage_py.search.enumerate.candidates import Candidates
from mirage_py.search.enumerate.draws import Draw
from mirage_py.search.enumerate.jobs import Setting, task_of
from mirage_py.search.extract.task import SearchLimits
from mirage_py.search.space.spaces import Configuration
from mirage_py.ugraph.ir.node import Access


def draw_of(subject: Subject, ring: Ring) -> Draw:
    """A draw of the search's own."""
    setting = Setting(CASES[subject.name].make(), 0, SearchLimits())
    task_of.cache_clear()  # a test may have changed the laws
    return Draw(task_of(setting, ring, subject.split), 0, skip_divisions=False)


class OneKernel:
    """The pool of a kernel that computes all of a program."""

    def __init__(self, subject: Subject, ring: Ring) -> None:
        self.subject = subject
        draw = draw_of(subject, ring)
        assert draw.task.program.nodes == subject.program.nodes
        (looped,) = subject.looped
        self.pool = draw.close(Configuration(looped))
        self.roots = tuple(hits(draw.task.program, self.pool, draw.targets))
        self._index = Index(self.pool)

    def contains(self, graph: Graph) -> bool:
        """Whether the graph is a derivation of the pool."""
        places: list[Place] = []
        for step in graph.steps:
            places.append(self._index.place(step, [places[a] for a in step.args]))
        return all(isinstance(places[o], int) for o in graph.outputs)

    def derivations(self) -> Iterator[Graph]:
        """All of no more operators than the subject."""
        for roots in self.roots:
            yield from derivations(self.pool, roots, self.subject.most)


class TwoKernels:
    """The pools of a first kernel, and of a second one that reads what the first may store."""

    def __init__(self, subject: Subject, ring: Ring) -> None:
        self.subject = subject
        draw = draw_of(subject, ring)
        task = draw.task
        assert task.program.nodes == subject.program.nodes
        first, last = subject.looped
        candidates = Candidates(draw)
        configuration = Configuration(first, task.variant.splits)
        producers = [m for m in candidates.producers if m.configuration == configuration]
        self.producer = producers[0] if producers else None
        readable = candidates.readable()
        # Library products are no block graphs.
        self.handed = {c.value: c.name for c in readable if c.call is None}
        self.products = [c.name for c in readable if c.call is not None]
        given = [c.given for c in readable]
        self.pool = draw.close(Configuration(last), given, task.variant.splits)
        self.roots = tuple(hits(task.program, self.pool, draw.targets))
        self._last = Index(self.pool)
        self._first = Index(self.producer.pool) if self.producer else None

    def contains(self, graph: Graph) -> bool:
        """Whether both kernels are derivations of their pools."""
        places: list[Place] = []
        for step in graph.steps:
            args = [places[a] for a in step.args]
            if step.op == HAND:
                places.append(self._hand(step, args[0]))
            elif step.kind.kernel:
                places.append(self._last.place(step, args))
            else:
                places.append(self._first.place(step, args) if self._first else None)
        return all(isinstance(places[o], int) for o in graph.outputs)

    def _hand(self, step: Step, place: Place) -> Place:
        if not isinstance(place, int) or self.producer is None:
            return None
        name = self.handed.get(self.producer.pool[place].value)
        if name is None:
            return None
        load = Step("load", (), given_access(name, step.kind.dims), step.kind)
        return self._last.place(load, [])

    def derivations(self) -> Iterator[Graph]:
        """All of no more operators than the subject; those that read nothing of the first kernel
        are kernels that compute all of the program.
        """
        names = {name: value for value, name in self.handed.items()}
        for roots in self.roots:
            for last in derivations(self.pool, roots, self.subject.most, kernel=1):
                loads = [s.attr.tensor for s in last.steps if isinstance(s.attr, Access)]
                read = [name for name in loads if name in names]
                if any(name in self.products for name in loads):
                    continue
                if not read:
                    yield last
                yield from self._pairs(last, [names[name] for name in dict.fromkeys(read)])

    def _pairs(self, last: Graph, values: Sequence[int]) -> Iterator[Graph]:
        producer = self.producer
        if not values or producer is None or any(v not in producer.stores for v in values):
            return
        left = self.subject.most - last.operators - len(values)
        for numbers in product(*(producer.stores[v] for v in values)):
            for first in derivations(producer.pool, numbers, left):
                stored = {self.handed[v]: o for v, o in zip(values, first.outputs, strict=True)}
                yield _joined(first, last, stored)


def _joined(first: Graph, last: Graph, stored: dict[str, int]) -> Graph:
    """Both kernels as one graph; ``stored`` has the step of each tensor that the last one reads."""
    steps = list(first.steps)
    for name, number in stored.items():
        (kind,) = {
            s.kind for s in last.steps if isinstance(s.attr, Access) and s.attr.tensor == name
        }
        steps.append(Step(HAND, (number,), None, kind))
    hands = {name: len(first.steps) + n for n, name in enumerate(stored)}
    place: list[int] = []
    for step in last.steps:
        if isinstance(step.attr, Access) and step.attr.tensor in hands:
            place.append(hands[step.attr.tensor])
            continue
        place.append(len(steps))
        steps.append(replace(step, args=tuple(place[a] for a in step.args)))
    return Graph(tuple(steps), tuple(place[o] for o in last.outputs))


def searched(subject: Subject, ring: Ring) -> OneKernel | TwoKernels:
    """What the search holds of a subject."""
    return OneKernel(subject, ring) if len(subject.looped) == 1 else TwoKernels(subject, ring)
