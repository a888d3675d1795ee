"""The order of a thread's loads and operations: a load is followed by all that it makes possible.

Sums take each term as soon as it is available. So a row of an image is read, added to all sums that
contain it, and dead afterwards: few values are live at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mirage_py.codegen.cuda.windows.scalars import Element, ScalarGraph
from mirage_py.codegen.cuda.windows.vectors import Vector, vectors_of
from mirage_py.ugraph.ir.program import Tensor

INLINE = ("const", "mask", "index")
FOLDS = ("sum", "max")


@dataclass(frozen=True, slots=True)
class Step:
    """A ``load`` or ``store`` of a vector, whose members are scalars; or a ``scalar`` that is
    computed, or a part that it takes, ``part``, the ``first`` or a later one.
    """

    vector: Vector | None = None
    is_store: bool = False
    scalar: int = -1
    part: int = -1
    first: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of a thread. ``joined`` are products that are multiplied as they are added."""

    graph: ScalarGraph
    steps: tuple[Step, ...]
    uses: Mapping[int, int]
    joined: Collection[int]


def schedule(
    graph: ScalarGraph, tensors: Mapping[str, Tensor], windowed: Collection[str]
) -> Schedule:
    """The steps of a graph; ``windowed`` tensors are read after those that their elements meet."""
    return _Scheduler(graph, tensors, windowed).run()


class _Scheduler:
    def __init__(
        self, graph: ScalarGraph, tensors: Mapping[str, Tensor], windowed: Collection[str]
    ) -> None:
        self.graph, self.tensors, self.windowed = graph, tensors, windowed
        self.scalars = graph.scalars
        self.live = self._live()
        self.users: dict[int, list[int]] = {n: [] for n in self.live}
        for n in self.live:
            for a in self.scalars[n].args:
                self.users[a].append(n)
        self.missing = {n: len(self.scalars[n].args) for n in self.live}
        self.begun: dict[int, None] = {}
        self.steps: list[Step] = []
        stored = dict.fromkeys(value for _, value in graph.stores)
        self.joined = {
            n: None
            for n in self.live
            if self.scalars[n].op == "mul"
            and n not in stored
            and [self.scalars[u].op for u in self.users[n]] == ["sum"]
        }
        elements = [e for e, _ in graph.stores]
        self.stores = vectors_of(elements, tensors, whole=True)
        self.waiting = [len(v.members) for v in self.stores]
        self.stored_in: dict[int, list[int]] = {}
        for number, vector in enumerate(self.stores):
            for member in vector.members:
                assert member is not None
                self.stored_in.setdefault(graph.stores[member][1], []).append(number)

    def run(self) -> Schedule:
        loads = [n for n in self.live if self.scalars[n].op == "load"]
        for n in self.live:
            if self.scalars[n].op in INLINE:
                self._ready(n)
        for some in self._groups(loads):
            found = vectors_of([self._element(n) for n in some], self.tensors, whole=False)
            for vector in found:
                members = tuple(None if m is None else some[m] for m in vector.members)
                mine = Vector(
                    vector.tensor, vector.terms, vector.first, vector.width, vector.guard, members
                )
                self.steps.append(Step(mine))
                for member in members:
                    if member is not None:
                        self._ready(member)
        uses = {n: len(self.users[n]) + len(self.stored_in.get(n, ())) for n in self.live}
        return Schedule(self.graph, tuple(self.steps), uses, tuple(self.joined))

    def _groups(self, loads: Sequence[int]) -> list[list[int]]:
        """What windows meet, the windows, and what their sums meet."""
        behind: dict[int, None] = {}
        for n in self.live:
            scalar = self.scalars[n]
            if any(self.scalars[a].op in FOLDS or a in behind for a in scalar.args):
                behind[n] = None
        groups: list[list[int]] = [[], [], []]
        for n in loads:
            if self._element(n).tensor in self.windowed:
                groups[1].append(n)
            else:
                late = all(u in behind and self.scalars[u].op not in FOLDS for u in self.users[n])
                groups[2 if late else 0].append(n)
        return groups

    def _element(self, number: int) -> Element:
        element = self.scalars[number].element
        assert element is not None
        return element

    def _live(self) -> list[int]:
        found: dict[int, None] = {}
        todo = [value for _, value in self.graph.stores]
        while todo:
            n = todo.pop()
            if n not in found:
                found[n] = None
                todo += self.scalars[n].args
        return sorted(found)

    def _ready(self, number: int) -> None:
        for store in self.stored_in.get(number, ()):
            self.waiting[store] -= 1
            if not self.waiting[store]:
                vector = self.stores[store]
                values = tuple(
                    None if m is None else self.graph.stores[m][1] for m in vector.members
                )
                self.steps.append(Step(replace(vector, members=values), is_store=True))
        for user in self.users[number]:
            scalar = self.scalars[user]
            self.missing[user] -= 1
            if scalar.op in FOLDS:
                self.steps.append(Step(scalar=user, part=number, first=user not in self.begun))
                self.begun[user] = None
            elif not self.missing[user] and user not in self.joined:
                self.steps.append(Step(scalar=user))
            if not self.missing[user]:
                self._ready(user)
