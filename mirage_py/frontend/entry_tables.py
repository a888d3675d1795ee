"""The tables of a decorated function: what serves each signature, and each range of sizes."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from mirage_py.errors import MirageWarning, UnsupportedError, why_failed
from mirage_py.frontend import refused_calls
from mirage_py.frontend.dynamic_axes import (
    DynamicAxis,
    dynamic_axes,
    group_key,
    leading_axis,
    marks_of,
    sizes_of,
    without_sizes,
)
from mirage_py.frontend.entries import Entry, is_current
from mirage_py.frontend.preparation import Preparation
from mirage_py.frontend.sized_calls import SizedGroup
from mirage_py.frontend.torch.guards.call_key import Call, call_key
from mirage_py.frontend.torch.guards.changing_numbers import ChangingNumbers, key_without_numbers
from mirage_py.reasons import Served, Server
from mirage_py.shapes.dispatch import Row
from mirage_py.shapes.policy import STATIC
from mirage_py.shapes.predicate import SizePredicate

log = logging.getLogger("mirage_py.frontend")

# Exact sizes whose row of a dispatch table is remembered.
_MOST_ROWS = 4096
# For so many states of what a function reads from elsewhere kernels are made, one after the other.
_MOST_STATES = 8
# What begins the keys of refusals that the dispatch table has a row for.
_SIZES_REFUSED = "sizes refused"


@dataclass(frozen=True, slots=True)
class Found:
    """What serves a call, its key in the table, and its row if its sizes are among many."""

    key: Hashable
    entry: Entry
    row: Row[Entry] | None = None


class EntryTables:
    """Signatures and what serves them, prepared at the first call. Threads may share it.

    ``mode`` says what else a signature consists of: the training mode of a module.
    """

    def __init__(self, name: str, preparation: Preparation, mode: Callable[[], Hashable]) -> None:
        self._name = name
        self._preparation = preparation
        self._reader = preparation.reader
        self._options = preparation.options
        self._policy = self._options.policy
        is_named = bool(self._options.dynamic) or self._policy.invariant
        self._is_declared = is_named and self._policy.kind != STATIC
        self._mode = mode
        self._entries: dict[Hashable, Entry] = {}
        # Entries that held in another state of what the function reads: a flag may be set back.
        self._past: dict[Hashable, list[Entry]] = {}
        self._numbers = ChangingNumbers()
        self._groups: dict[Hashable, SizedGroup[Entry]] = {}
        self._rows: dict[Hashable, Row[Entry]] = {}
        self._lock = threading.RLock()

    def find(self, call: Call) -> Found:
        """What serves the call, prepared if need be."""
        key: Hashable
        key = (self._mode(), call_key(call))
        marks = () if self._policy.kind == STATIC else marks_of(call.leaves)
        try:
            if marks or self._is_declared:
                found = self._sized_entry(call, (marks, key))
                if found is not None:
                    return found
            entry = self._entries.get(key)
        except TypeError as error:  # an argument has no hash
            key = ("no key", self._reader.describe(call))
            return Found(key, self.refused(call, key, refused_calls.unhashable(error)))
        if entry is not None and is_current(entry):
            return Found(key, entry)
        with self._lock:
            # Another thread may have been first.
            entry = self._entries.get(key)
            if entry is not None and is_current(entry):
                return Found(key, entry)
            again = self._again(key, entry) if entry is not None else None
            if again is not None:
                return Found(key, again)
            if refused_calls.is_capturing():
                return self._refused_in_graph(call, key)
            if len(self._past.get(key, ())) >= _MOST_STATES:
                return Found(key, self.refused(call, key, refused_calls.unsteady()))
            others = key_without_numbers(call)
            family = (self._mode(), others) if others is not None else None
            if self._numbers.are_many(family):
                return self._of_any_numbers(call, family)
            return Found(key, self._prepared(call, key, family))

    def refused(
        self,
        call: Call,
        key: Hashable,
        error: Exception,
        *,
        in_parts: bool = False,
        is_sized: bool = False,
    ) -> Entry:
        """Note and say, once, why no kernel serves the call; with ``strict``, and where the
        function itself would break a promise (``invariant``), raise instead. A function that cannot
        be a program may be served ``in_parts``.
        """
        if self._options.strict or self._options.invariant:
            raise error
        known = self._entries.get(key)
        if known is not None and known.kernel is None:
            return known
        self._past.pop(key, None)
        signature = self._reader.describe(call)
        instead = None
        if in_parts:
            instead = self._preparation.instead(self._name, call, error, is_sized=is_sized)
        entry = Entry(signature, Served(Server.EAGER, why_failed(error)), instead=instead)
        self._entries[key] = entry
        log.info("%s%s", self._name, entry)
        if instead is not None:  # which says what serves when it is called
            return entry
        # Which signature it is the dispatch table says; where many are refused for one reason,
        # Python shows equal warnings once.
        message = f"{self._name} falls back to eager: {error}"
        warnings.warn(message, MirageWarning, stacklevel=refused_calls.callers_level())
        return entry

    def replace(self, entry: Entry, refused: Entry) -> None:
        """Where a kernel has failed that many sizes share."""
        for group in list(self._groups.values()):
            for row in group.table:
                if row.entry is entry:
                    row.entry = refused

    def __str__(self) -> str:
        if not self._entries and not self._groups:
            return f"{self._name}: not called yet"
        for group in list(self._groups.values()):
            for row in group.table:
                row.served_by, row.source = str(row.entry.served), row.entry.source
        lines = [str(e) for k, e in list(self._entries.items()) if not _is_of_sizes(k)]
        lines += [line for g in list(self._groups.values()) for line in str(g).splitlines()]
        return "\n".join([f"{self._name}:", *(f"  {line}" for line in lines)])

    # -- inside ------------------------------------------------------------------------------------

    def _again(self, key: Hashable, entry: Entry) -> Entry | None:
        """An earlier entry that holds again, instead of one that does not any more."""
        past = self._past.setdefault(key, [])
        found = next((e for e in past if is_current(e)), None)
        if found is not None:
            past.remove(found)
            self._entries[key] = found
        past.append(entry)
        return found

    def _prepared(self, call: Call, key: Hashable, family: Hashable | None) -> Entry:
        """A new entry; ``family`` is the key of calls that differ from this one in numbers alone,
        None where it has no numbers.
        """
        try:
            self._preparation.check(call)
        except UnsupportedError as error:
            return self.refused(call, key, error)
        self._preparation.ensure_optimizers(sized=False)
        program: Hashable = key
        try:
            entry = self._preparation.exactly(call)
            if entry.traced is not None:
                program = entry.traced.program
        # A function that works must go on working, whatever goes wrong in making it faster.
        except Exception as error:  # noqa: BLE001
            return self.refused(call, key, error, in_parts=True)
        finally:
            self._numbers.add(family, program)
        self._entries[key] = entry
        log.info("%s%s", self._name, entry)
        return entry

    def _of_any_numbers(self, call: Call, family: Hashable) -> Found:
        """What serves calls whatever their numbers are: torch.compile, or the function itself."""
        key = ("any numbers", family)
        error = refused_calls.changing_numbers()
        return Found(key, self.refused(call, key, error, in_parts=True, is_sized=True))

    def _refused_in_graph(self, call: Call, key: Hashable) -> Found:
        """Only this time: under a key of its own, so that a later call prepares it."""
        key = ("in a CUDA graph", key)
        return Found(key, self.refused(call, key, refused_calls.in_cuda_graph()))

    def _sized_entry(self, call: Call, exactly: Hashable) -> Found | None:
        """What serves a call whose sizes are among many; None where no axis of it is dynamic.

        ``exactly`` is the key of the call with its sizes: for those that were met before there is
        nothing to work out. Raises TypeError where an argument has no hash.
        """
        known = self._rows.get(exactly)
        if known is not None and is_current(known.entry):
            known.calls += 1
            return Found((_SIZES_REFUSED, exactly), known.entry, known)
        axes = dynamic_axes(call, self._reader.names, self._options.dynamic)
        if self._policy.invariant and not axes:
            axes = leading_axis(call)
        sizes = sizes_of(call, axes) if axes else None
        if sizes is None:
            return self._without_rows(call, exactly) if self._policy.invariant else None
        rest = call_key(without_sizes(call, axes))
        key: Hashable = ("sizes", self._mode(), rest, group_key(call, axes))
        group = self._groups.get(key)
        row = group.table.find(sizes) if group is not None else None
        if row is None or not is_current(row.entry):
            with self._lock:
                if group is None:
                    signature = self._reader.describe(call, axes)
                    group = self._groups.setdefault(key, SizedGroup(signature, axes))
                row = group.table.find(sizes)
                if row is None or not is_current(row.entry):
                    if refused_calls.is_capturing():
                        return self._refused_in_graph(call, key)
                    if row is not None:  # what the function takes from elsewhere has changed
                        group.table.discard(row)
                    row = group.table.add(self._sized_row(call, axes, sizes, key))
        row.calls += 1
        if len(self._rows) >= _MOST_ROWS:
            self._rows.clear()
        self._rows[exactly] = row
        return Found((_SIZES_REFUSED, exactly), row.entry, row)

    def _without_rows(self, call: Call, key: Hashable) -> Found:
        error = UnsupportedError(
            "the rows of this call are not of one number",
            where=self._name,
            why="one kernel serves any number of rows",
            repair='say which axes are rows: dynamic={"x": {0: "rows"}}',
        )
        return Found(key, self.refused(call, key, error))

    def _sized_row(
        self,
        call: Call,
        axes: tuple[DynamicAxis, ...],
        sizes: Mapping[str, int],
        key: Hashable,
    ) -> Row[Entry]:
        predicate = SizePredicate.ranges({n: self._policy.bucket(s) for n, s in sizes.items()})
        self._preparation.ensure_optimizers(sized=True)
        try:
            self._preparation.check(call)
            if min(sizes.values()) <= 1 and not self._policy.invariant:
                # Axes of one point are no dimensions: a program of its own.
                predicate = SizePredicate.ranges({n: (s, s) for n, s in sizes.items()})
                entry = self._preparation.exactly(call)
            else:
                entry, predicate = self._preparation.for_sizes(call, axes, sizes)
        except Exception as error:  # noqa: BLE001  as in _prepared
            entry = self.refused(call, (_SIZES_REFUSED, key), error, in_parts=True, is_sized=True)
        return Row(predicate, entry, str(entry.served), entry.source)


def _is_of_sizes(key: Hashable) -> bool:
    return isinstance(key, tuple) and key[:1] == (_SIZES_REFUSED,)
