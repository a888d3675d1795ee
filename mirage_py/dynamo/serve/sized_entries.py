"""The dispatch table of a region with symbolic sizes: a search for each bucket of them, so many at
most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import GraphModule

from mirage_py.dynamo.regions.region_program import RegionProgram, TensorLayout, region_program
from mirage_py.dynamo.regions.sized_regions import SizedRegion, sized_region
from mirage_py.dynamo.regions.symbolic_sizes import SymbolicSizes
from mirage_py.dynamo.serve.service import Entry, Service
from mirage_py.errors import MirageError
from mirage_py.reasons import Code, reason
from mirage_py.shapes.dispatch import DispatchTable, Row
from mirage_py.shapes.policy import ShapePolicy
from mirage_py.shapes.predicate import SizePredicate

Layouts = Sequence[TensorLayout | int]
# (words for the table, a program with the layouts of the region's inputs) -> what serves it; never
# raises for a model's sake.
Maker = Callable[[str, Callable[[], tuple[RegionProgram, Layouts]]], Entry]


class SizedEntries:
    """What serves a region at each size. The caller's lock is around every call.

    A size of 0 or 1 has an entry of its own, as such an axis is no dimension; so has each size of
    what is no program of many sizes. Beyond ``max_sizes`` searches the kernel of the nearest bucket
    serves, where it is right, and else torch.
    """

    def __init__(
        self,
        module: GraphModule,
        symbolic: SymbolicSizes,
        policy: ShapePolicy,
        made: Maker,
        max_sizes: int | None,
    ) -> None:
        self._module = module
        self._symbolic = symbolic
        self._policy = policy
        self._made = made
        self._max_sizes = max_sizes
        self._table: DispatchTable[tuple[Entry, SizedRegion | None]] = DispatchTable()
        self.searches = 0

    def find(self, sizes: Any, *, may_search: bool = True) -> Entry | None:
        """What serves these sizes, prepared if need be; None where it would be and may not."""
        named = dict(zip(self._symbolic.names, sizes, strict=True))
        row = self._table.find(named)
        if row is None:
            if not may_search:
                return None
            row = self._prepared(named, sizes)
        row.calls += 1
        entry, sized = row.entry
        if sized is None or entry.program is None:
            return entry
        return replace(entry, program=replace(entry.program, results=sized.at(sizes).results))

    def __str__(self) -> str:
        most = "" if self._max_sizes is None else f" of at most {self._max_sizes}"
        return f"{self._table}\nsearches: {self.searches}{most}"

    # -- inside ------------------------------------------------------------------------------------

    def _prepared(
        self, named: Mapping[str, int], sizes: tuple[int, ...]
    ) -> Row[tuple[Entry, SizedRegion | None]]:
        found: tuple[SizePredicate, Entry, SizedRegion | None]
        if self.searches == self._max_sizes:
            found = self._nearest(named) or self._beyond(named)
        elif min(sizes) <= 1:
            found = self._exactly(named, sizes)
        else:
            found = self._bucket(named, sizes)
        row = self._added(*found)
        return row if row.predicate.holds(named) else self._added(*self._unlike(named))

    def _added(
        self, predicate: SizePredicate, entry: Entry, sized: SizedRegion | None
    ) -> Row[tuple[Entry, SizedRegion | None]]:
        source = "fallback" if entry.served.kernel is None else "kernel"
        return self._table.add(Row(predicate, (entry, sized), str(entry.served), source))

    def _exactly(
        self, named: Mapping[str, int], sizes: tuple[int, ...]
    ) -> tuple[SizePredicate, Entry, None]:
        def program() -> tuple[RegionProgram, Layouts]:
            layouts = self._symbolic.layouts(sizes)
            found = region_program(self._module, layouts)
            self.searches += 1
            return found, layouts

        return _only(named), self._made(_words(named), program), None

    def _bucket(
        self, named: Mapping[str, int], sizes: tuple[int, ...]
    ) -> tuple[SizePredicate, Entry, SizedRegion | None]:
        found: list[SizedRegion] = []

        def program() -> tuple[RegionProgram, Layouts]:
            # Counted here: what is no program of many sizes is not searched.
            sized = sized_region(self._module, self._symbolic, named, self._policy)
            found.append(sized)
            self.searches += 1
            return sized.region, self._symbolic.layouts(sized.tuned)

        entry = self._made(_words(named), program)
        if not found and entry.refused is not None:
            return self._bucket_of(named), entry, None
        if not found:
            # As a view that turns batch and length: no dimension of one kernel, so these alone.
            return self._exactly(named, sizes)
        try:
            validity = found[0].validity(getattr(entry.served.kernel, "validity", None))
        except MirageError as error:
            why = reason(Code.WRONG_AT_SIZES, error)
            return found[0].validity(None), Entry(_words(named), Service(None, why)), None
        return validity, entry, found[0]

    def _nearest(self, named: Mapping[str, int]) -> tuple[SizePredicate, Entry, SizedRegion] | None:
        """A kernel that is tuned for another bucket and right in this one, too."""

        def distance(sized: SizedRegion) -> float:
            tuned = zip(sized.tuned, named.values(), strict=True)
            return sum(abs(math.log2(t / max(1, n))) for t, n in tuned)

        rows = [(e, s) for e, s in (r.entry for r in self._table) if s and e.served.kernel]
        for entry, sized in sorted(rows, key=lambda row: distance(row[1])):
            try:
                predicate = sized.reaches(named, getattr(entry.served.kernel, "validity", None))
            except MirageError:
                continue
            if predicate.holds(named):
                return predicate, entry, sized
        return None

    def _beyond(self, named: Mapping[str, int]) -> tuple[SizePredicate, Entry, None]:
        why = reason(Code.MAX_SIZES, self._max_sizes)
        return self._bucket_of(named), Entry(_words(named), Service(None, why)), None

    def _unlike(self, named: Mapping[str, int]) -> tuple[SizePredicate, Entry, None]:
        why = reason(Code.OTHER, "sizes that its operators make one are not equal, or too large")
        return self._bucket_of(named), Entry(_words(named), Service(None, why)), None

    def _bucket_of(self, named: Mapping[str, int]) -> SizePredicate:
        return SizePredicate.ranges({n: self._policy.bucket(s) for n, s in named.items()})


def _only(named: Mapping[str, int]) -> SizePredicate:
    return SizePredicate.ranges({n: (s, s) for n, s in named.items()})


def _words(named: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in named.items())
