"""Structured inputs, which random ones never are: zeros, ties, small whole numbers, empty masks.

Of random numbers no two are equal and none is 0, so that `>` and `>=`, a guarded division and one
without its guard, cannot be told apart on them. Each draw gives every input a style; in the first
draws all inputs have the same one, and so are equal to each other, in the others each has its own.
The style "levels" lifts whole lines above all limits of the program, or below. All numbers have few
bits: what is computed from them is often exact, and ties stay ties. In every second of the others a
comparison of the program is made a tie (mirage_py.verify.intervals.solved_ties).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.labels import label_ranges
from mirage_py.verify.intervals.intervals import UNIT, Interval
from mirage_py.verify.intervals.solved_ties import with_ties

STYLES = (
    "zero", "one", "signs", "counts", "constants", "small", "distinct", "positive", "lines",
    "near one", "levels",
)  # fmt: skip
# Of the draws in which each input has its own style: with ties only, one maximum hides another.
_DISTINCT_SHARE = 0.4
# What is limited after a reduction is at its limit where all of its operand lies beyond it.
_LEVEL_SHARE = 0.2

# An index of a large dimension is met by few of the values of its range.
_LABELS = 64
_NEAR = (2.0**-30, 2.0**-44)


def structured_inputs(program: Program, draws: int, seed: int) -> dict[str, Interval]:
    """Every input by name; the last axis counts the draws."""
    columns: dict[str, list[FloatArray]] = {t.name: [] for t in program.inputs}
    ranges = label_ranges(program)
    pool = _pool(program)
    for number in range(draws):
        draw = np.random.default_rng([seed, number])
        shared = STYLES[number] if number < len(STYLES) else None
        for tensor in program.inputs:
            style = shared or str(draw.choice(STYLES))
            if not shared and (chance := draw.random()) < _DISTINCT_SHARE + _LEVEL_SHARE:
                style = "distinct" if chance < _DISTINCT_SHARE else "levels"
            if tensor.name in ranges:
                values = _labels(tensor, style, ranges[tensor.name], draw)
            elif tensor.dtype == BOOL:
                values = _truths(tensor, style, draw)
            else:
                values = _numbers(tensor, style, pool, draw)
            columns[tensor.name].append(values)
    drawn = {name: np.stack(values, axis=-1) for name, values in columns.items()}
    solved = with_ties(program, drawn, range(len(STYLES) + 1, draws, 2), seed)
    return {name: _interval(values) for name, values in solved.items()}


def _pool(program: Program) -> FloatArray:
    """The program's numbers, what lies beside them, and their negatives."""
    found: dict[float, None] = {0.0: None, 1.0: None}
    for node in program.nodes:
        if isinstance(node.attr, float) and isfinite(node.attr) and abs(node.attr) < 1e6:
            near = (node.attr, node.attr + 1, node.attr - 1) if _is_compared(program, node) else ()
            found.update(dict.fromkeys((node.attr, -node.attr, *near)))
    return np.array(list(found))


def _is_compared(program: Program, constant: Node) -> bool:
    ends = ("lt", "le", "gt", "ge", "eq", "ne", "maximum", "minimum")
    used = [n for n in program.nodes if n.op in ends]
    return any(program.nodes[a] is constant for n in used for a in n.args)


def _interval(values: FloatArray) -> Interval:
    """What is a constant of the program is the number that its decimal text means."""
    few = np.rint(values * 2.0**46) == values * 2.0**46
    return Interval(values, np.where(few, 0.0, UNIT * np.abs(values)))


def _numbers(tensor: Tensor, style: str, pool: FloatArray, draw: np.random.Generator) -> FloatArray:
    shape = tensor.shape
    if style in ("zero", "one"):
        values = np.full(shape, 0.0 if style == "zero" else 1.0)
    elif style == "signs":
        values = draw.integers(-1, 2, size=shape).astype(np.float64)
    elif style == "counts":
        values = draw.integers(0, 3, size=shape).astype(np.float64)
    elif style == "constants":
        values = draw.choice(pool, size=shape)
    elif style == "small":
        values = draw.integers(-3, 4, size=shape).astype(np.float64)
    elif style == "distinct":
        count = max(1, int(np.prod(shape)))
        step = 2.0 ** -max(0, count.bit_length() - 3)
        values = (draw.permutation(count).reshape(shape) - count // 2) * step
    elif style == "positive":
        values = draw.integers(1, 33, size=shape) / 16.0
    elif style == "lines":
        values = draw.integers(-4, 5, size=shape) / 4.0 * _lines(shape, draw)
    elif style == "levels":
        values = draw.integers(0, 9, size=shape) / 4.0 + _levels(shape, pool, draw)
    else:
        values = 1.0 + draw.integers(-2, 3, size=shape) * draw.choice(_NEAR)
    return values if tensor.dtype.is_float else np.rint(values)


def _truths(tensor: Tensor, style: str, draw: np.random.Generator) -> FloatArray:
    shape = tensor.shape
    if style in ("zero", "one"):
        return np.full(shape, 0.0 if style == "zero" else 1.0)
    chosen = draw.integers(0, 4, size=shape) > (0 if style in ("positive", "near one") else 1)
    kept = _lines(shape, draw) if style in ("lines", "counts", "signs") else np.ones(shape)
    return np.where(chosen, kept, 0.0)


def _labels(
    tensor: Tensor, style: str, span: tuple[int, int], draw: np.random.Generator
) -> FloatArray:
    """Places in a range: its ends, one place beyond them, and others."""
    low, high = span
    if style == "zero":
        return np.full(tensor.shape, float(low))
    if style == "one":
        return np.full(tensor.shape, float(high + 1))
    if style == "counts":
        return draw.integers(low - 1, min(high, low + _LABELS) + 1, size=tensor.shape).astype(float)
    return draw.integers(low, high + 2, size=tensor.shape).astype(np.float64)


def _levels(shape: Sequence[int], pool: FloatArray, draw: np.random.Generator) -> FloatArray:
    """Far above or below all numbers of the program, or near 0: whole lines of an axis, or all.

    Of many random numbers some lie on each side of a limit, so that a limit of their minimum, or
    below their maximum, would never be reached.
    """
    beyond = np.ceil(np.abs(pool).max()) + 1.0
    along = [1] * len(shape)
    axis = int(draw.integers(len(shape) + 1))
    if axis < len(shape):
        along[axis] = shape[axis]
    levels = draw.permutation([beyond, 0.0, -beyond - 2.0])
    return draw.permutation(np.resize(levels, int(np.prod(along)))).reshape(along)


def _lines(shape: Sequence[int], draw: np.random.Generator) -> FloatArray:
    """0 along some lines of an axis, rows or columns, and 1 elsewhere."""
    kept = np.ones(tuple(shape))
    if shape:
        axis = int(draw.integers(len(shape)))
        along = [1] * len(shape)
        along[axis] = shape[axis]
        kept = kept * draw.integers(0, 2, size=along)
    return kept
