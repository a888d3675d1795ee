"""Reports of the emitted-code checker for the kernels of a plan, made when somebody reads them.

The checker takes seconds of a plan. Of the plans that there is evidence for, those of each back end
of each part, one is what serves in the end, or none is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

Report = Mapping[str, Any]


class CodeReports(Sequence[Report]):
    """A report for each kernel, by ``make``, which is called once if at all."""

    def __init__(self, make: Callable[[], Iterable[Report]]) -> None:
        self._make = make

    @cached_property
    def _reports(self) -> tuple[Report, ...]:
        return tuple(self._make())

    @overload
    def __getitem__(self, at: int) -> Report: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Report]: ...

    def __getitem__(self, at: int | slice) -> Report | Sequence[Report]:
        """The report of one kernel, or of some."""
        return self._reports[at]

    def __len__(self) -> int:
        """How many kernels there are."""
        return len(self._reports)

    def __eq__(self, other: object) -> bool:
        """Whether the reports are the same, of a tuple of them too."""
        return isinstance(other, Sequence) and self._reports == tuple(other)

    __hash__ = None  # type: ignore[assignment]
