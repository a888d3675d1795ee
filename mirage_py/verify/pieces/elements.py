"""Evaluation of two programs at some elements of an output, at their real sizes.

Rows and columns of large tensors are evaluated together where that is affordable, and in portions
where it is not. Reductions run over everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps
from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.interpret.program import Sample
from mirage_py.ugraph.ir.index import IndexExpr
from mirage_py.ugraph.ir.program import Output, Program
from mirage_py.verify.evaluate.difference import first_difference
from mirage_py.verify.evaluate.lazy_inputs import LazyMeaning, lazy_inputs
from mirage_py.verify.evaluate.trial import defined, redrawn
from mirage_py.verify.evaluate.work import MAX_TRIAL_WORK, peak_elements, program_work
from mirage_py.verify.sizes.affine import affine, is_mixed_radix

Element = tuple[int, ...]

# An index that is no mixed radix is inverted by looking at all of its values.
_MAX_POINTS = 2**20
# Of one array of 64-bit integers: 512 MiB.
_MAX_PEAK = 1 << 26


@dataclass(slots=True)
class Compared:
    """How many elements were compared, the first that differs, and those that could not be, with
    why.
    """

    elements: int = 0
    difference: Element | None = None
    left_out: dict[Element, str] = field(default_factory=dict)


class OutputPair:
    """One output of two programs, which write it to tensors of one shape.

    ``max_work`` is for all comparisons together, in element operations. ``filled``: draws may have
    divisors that are 0 (see ``redrawn``).
    """

    def __init__(
        self,
        left: tuple[Program, Output],
        right: tuple[Program, Output],
        max_work: float,
        *,
        filled: bool = False,
    ) -> None:
        self._programs = tuple(replace(p, outputs=(o,)) for p, o in (left, right))
        self._shape = left[1].tensor.shape
        self._left_work = max_work
        self._filled = filled

    def compare(self, elements: Sequence[Element], trial: int, seed: int) -> Compared:
        """Both at these elements, and at others that are evaluated along with them."""
        found = Compared()
        todo = [sorted(dict.fromkeys(elements))]
        while todo and found.difference is None:
            some = todo.pop()
            points = [_points(p, some) for p in self._programs]
            fault = "its place cannot be found" if None in points else self._too_much(points)
            if not fault:
                try:
                    count, found.difference = self._compared(points, trial, seed)
                except UnsupportedError as error:
                    fault = error.what
                else:
                    found.elements += count
            if fault and len(some) > 1:
                half = len(some) // 2
                todo += [some[half:], some[:half]]
            elif fault:
                found.left_out[some[0]] = fault
        return found

    def _too_much(self, points: Sequence[Mapping[str, NDArray[np.int64]] | None]) -> str:
        work = 0.0
        for program, where in zip(self._programs, points, strict=True):
            counts = {d: len(at) for d, at in (where or {}).items()}
            work += program_work(program, counts)
            if peak_elements(program, counts) > _MAX_PEAK:
                return "an array of it is too large"
        if work > min(self._left_work, MAX_TRIAL_WORK):
            return f"it takes {work:.1e} more operations"
        self._left_work -= work
        return ""

    def _compared(
        self, points: Sequence[Mapping[str, NDArray[np.int64]] | None], trial: int, seed: int
    ) -> tuple[int, Element | None]:
        left = self._programs[0]

        def attempt(ops: FieldOps) -> tuple[int, Element | None]:
            inputs, meaning = lazy_inputs(left), LazyMeaning(ops)
            places, values = [], []
            for program, where in zip(self._programs, points, strict=True):
                found = partial(evaluate_at, program, inputs, meaning, where or {})
                samples = defined(ops, found, _values) if program is left else found()
                (sample,) = samples.values()
                places.append(_positions(sample.elements, self._shape))
                values.append(sample.values.reshape((-1,)))
            both, *picked = np.intersect1d(places[0], places[1], return_indices=True)
            ours, theirs = (v[pick] for v, pick in zip(values, picked, strict=True))
            place = first_difference(ours, theirs, ops)
            if place is None:
                return len(both), None
            return len(both), tuple(map(int, np.unravel_index(both[place[0]], self._shape)))

        field, right = FIELDS[trial % len(FIELDS)], self._programs[1]
        return redrawn(left, field, seed + trial, attempt, other=right, filled=self._filled)


def _values(samples: Mapping[str, Sample[FieldArray]]) -> list[FieldArray]:
    return [s.values for s in samples.values()]


def _positions(elements: Sequence[NDArray[np.int64]], shape: Element) -> NDArray[np.int64]:
    """Row-major."""
    if not shape:
        return np.zeros(1, dtype=np.int64)
    return np.asarray(np.ravel_multi_index(tuple(elements), shape), dtype=np.int64).reshape(-1)


def _points(program: Program, elements: Sequence[Element]) -> dict[str, NDArray[np.int64]] | None:
    """Positions of the output's dimensions among which the elements are; None if hard to find."""
    (output,) = program.outputs
    found: dict[str, dict[int, None]] = {}
    for axis, expr in enumerate(output.index):
        for wanted in dict.fromkeys(e[axis] for e in elements):
            point = solved(expr, wanted, program.sizes)
            if point is None:
                return None
            for d, at in point.items():
                found.setdefault(d, {})[at] = None
    return {d: np.array(sorted(at), dtype=np.int64) for d, at in found.items()}


def solved(expr: IndexExpr, wanted: int, sizes: Mapping[str, int]) -> dict[str, int] | None:
    """The point of its dimensions at which an index expression has a value."""
    form = affine(expr)
    if form is not None and is_mixed_radix(expr, sizes):
        point: dict[str, int] = {}
        # Dimensions of size 1 have the factor of the next one and take nothing of it.
        for d, factor in sorted(form.terms, key=lambda t: (t[1], sizes[t[0]]), reverse=True):
            point[d] = min(wanted // factor, sizes[d] - 1)
            wanted -= factor * point[d]
        return None if wanted else point
    dims = expr.dims()
    shape = [sizes[d] for d in dims]
    if np.prod(shape, dtype=np.int64) > _MAX_POINTS:
        return None
    grids = np.indices(shape, sparse=True)
    values = np.broadcast_to(expr.evaluate(dict(zip(dims, grids, strict=True))), shape)
    places = np.argwhere(values == wanted)
    return None if len(places) != 1 else dict(zip(dims, map(int, places[0]), strict=True))
