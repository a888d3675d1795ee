"""The first differences between two values over a field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage_py.ugraph.field import FieldArray, FieldOps


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where the two first differ: an element of an output, or ``reason`` why there is no value."""

    output: str
    index: tuple[int, ...]
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        return f"{self.output}[{', '.join(map(str, self.index))}] differs"


def first_difference(a: FieldArray, b: FieldArray, ops: FieldOps) -> tuple[int, ...] | None:
    """The index of the first element that differs, in either part where both have it."""
    if a.shape != b.shape:
        return ()
    if ops.equal(a, b):
        return None
    differs = a.p != b.p
    if a.q is not None and b.q is not None:
        differs = differs | (a.q != b.q)
    return tuple(int(i) for i in np.argwhere(differs)[0])
