"""Wrong boxes of a mutant: where it differs from the program, by a few points of each box.

Two sums of products of m indices that are alike in a box (see ``cuts``) are equal in all of it if
they are equal at one corner and at its m neighbours; random elements of a field stand for all
inputs. The grid of these points, which holds more of each box, is evaluated at once.

Source: PET (OSDI 2021), section 5.2, theorems 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from mirage_py.errors import UnsupportedError
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.networks.ir.lowering import program_of
from mirage_py.search.partial.cuts import cuts_of
from mirage_py.search.partial.recipe import Mutant, of_shape, with_inputs
from mirage_py.ugraph.field import FIELDS, FieldOps
from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.ir.program import Program
from mirage_py.verify.evaluate.lazy_inputs import LazyMeaning, lazy_inputs
from mirage_py.verify.pieces.elements import solved

MAX_POINTS = 1 << 16
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WrongBoxes:
    """``boxes`` are ranges (start, stop) of each digit of the result, whose axes have ``digits``.

    ``tested`` counts boxes, right ones too. No box: the mutant is equal as it is.
    """

    digits: tuple[tuple[int, ...], ...]
    boxes: tuple[Box, ...]
    tested: int

    @property
    def share(self) -> float:
        """How much of the result is wrong."""
        total = prod(n for axis in self.digits for n in axis)
        return sum(prod(stop - start for start, stop in box) for box in self.boxes) / total

    def mask(self) -> NDArray[np.bool_]:
        """Where the result is wrong, in its own shape."""
        wrong = np.zeros([n for axis in self.digits for n in axis], dtype=np.bool_)
        for box in self.boxes:
            wrong[tuple(slice(*ends) for ends in box)] = True
        return wrong.reshape([prod(axis) for axis in self.digits])

    def __str__(self) -> str:
        if not self.boxes:
            return "equal everywhere"
        listed = "; ".join(
            ", ".join(f"{start}:{stop}" for start, stop in box) for box in self.boxes
        )
        shape = " x ".join(f"({', '.join(map(str, axis))})" for axis in self.digits)
        return f"differs in {100 * self.share:.3g} % of the result: {listed} of {shape}"


def wrong_boxes(graph: Graph, mutant: Mutant, *, seed: int = 0) -> tuple[WrongBoxes, ...]:
    """Where a mutant differs from the graph, for each result, at the graph's sizes.

    UnsupportedError where boxes cannot be derived or are too many to be tested.
    """
    builder = with_inputs(graph)
    changed = builder.build(*mutant.build(builder, graph))
    return tuple(
        differing_boxes(
            in_digits(graph, n, layout.digits),
            changed.with_outputs((changed.outputs[n],)),
            tuple(tuple(layout.digits[d] for d in axis) for axis in layout.source),
            seed=seed,
        )
        for n, layout in enumerate(mutant.layouts(graph))
    )


def in_digits(graph: Graph, number: int, digits: tuple[int, ...]) -> Graph:
    """One result of the graph, with its digits as axes."""
    builder = with_inputs(graph)
    inputs = {Value(INPUTS, n): Value(INPUTS, n) for n in range(len(graph.inputs))}
    result = builder.copied(graph, inputs)[graph.outputs[number]]
    return builder.build(of_shape(builder, result, digits))


def differing_boxes(
    left: Graph, right: Graph, digits: tuple[tuple[int, ...], ...], *, seed: int
) -> WrongBoxes:
    """Where two graphs differ whose one result has an axis for each of ``digits``."""
    flat = [n for axis in digits for n in axis]
    cuts = [cuts_of(graph, graph.outputs[0]) for graph in (left, right)]
    intervals = [
        _intervals(sorted({*one, *more}), extent)
        for one, more, extent in zip(*cuts, flat, strict=True)
    ]
    points = [_points(axis) for axis in intervals]
    if prod(map(len, points)) > MAX_POINTS:
        raise UnsupportedError(f"a mutant of {prod(map(len, intervals))} boxes")
    ops = FieldOps(FIELDS[seed % len(FIELDS)], seed)
    one, more = (_at(program_of(graph), points, ops) for graph in (left, right))
    wrong = _by_interval(one != more, intervals)
    boxes = [
        tuple((intervals[n][a][0], intervals[n][b - 1][1]) for n, (a, b) in enumerate(ends))
        for ends in _grown(wrong)
    ]
    return WrongBoxes(digits, tuple(boxes), wrong.size)


def _intervals(cuts: Sequence[int], extent: int) -> list[tuple[int, int]]:
    ends = [0, *cuts, extent]
    return list(pairwise(ends))


def _points(intervals: Sequence[tuple[int, int]]) -> list[int]:
    """The first two positions of each interval."""
    return [n for start, stop in intervals for n in range(start, min(stop, start + 2))]


def _at(program: Program, points: Sequence[Sequence[int]], ops: FieldOps) -> NDArray[np.int64]:
    """The result on a grid of points, modulo the first prime."""
    (output,) = program.outputs
    wanted: dict[str, dict[int, None]] = {}
    for expr, positions in zip(output.index, points, strict=True):
        for position in positions:
            point = solved(expr, position, program.sizes)
            if point is None:
                raise UnsupportedError("the place of an element in a mutant")
            for d, at in point.items():
                wanted.setdefault(d, {})[at] = None
    where = {d: np.array(sorted(at), dtype=np.int64) for d, at in wanted.items()}
    samples = evaluate_at(program, lazy_inputs(program), LazyMeaning(ops), where)
    sample = samples[output.tensor.name]
    shape = output.tensor.shape
    places = np.ravel_multi_index(sample.elements, shape).reshape(-1)
    order = np.argsort(places)
    grid = np.ravel_multi_index(np.ix_(*points), shape)
    found = order[np.searchsorted(places[order], grid)]
    return np.asarray(sample.values.p.reshape(-1)[found])


def _by_interval(
    differs: NDArray[np.bool_], intervals: Sequence[Sequence[tuple[int, int]]]
) -> NDArray[np.bool_]:
    """Whether any point of each box differs."""
    for axis, ends in enumerate(intervals):
        counts = [min(2, stop - start) for start, stop in ends]
        starts = np.cumsum([0, *counts[:-1]])
        differs = np.logical_or.reduceat(differs, starts, axis=axis)
    return differs


def _grown(wrong: NDArray[np.bool_]) -> list[list[tuple[int, int]]]:
    """Cells that are true as few boxes: each grows from its first cell as far as it goes."""
    left = wrong.copy()
    boxes: list[list[tuple[int, int]]] = []
    for cell in map(tuple, np.argwhere(wrong)):
        if not left[cell]:
            continue
        ends = [(int(n), int(n) + 1) for n in cell]
        for axis, extent in enumerate(wrong.shape):
            while ends[axis][1] < extent:
                more = list(ends)
                more[axis] = (ends[axis][1], ends[axis][1] + 1)
                if not left[tuple(slice(*e) for e in more)].all():
                    break
                ends[axis] = (ends[axis][0], ends[axis][1] + 1)
        left[tuple(slice(*e) for e in ends)] = False
        boxes.append(ends)
    return boxes
