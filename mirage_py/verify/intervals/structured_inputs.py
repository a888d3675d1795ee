"""Structured inputs, which random ones never are: zeros, ties, small whole numbers, empty masks.

Of random numbers no two are equal and none is 0, so that `>` and `>=`, a guarded division and one
without its guard, cannot be told apart on them. Each draw gives every input a style; in the first
draws all inputs have the same one, and so are equal to each other, in the others each has its own.
The style "levels" lifts whole lines above all limits of the program, or below; "limits" has one
number of the program in each line, or any number of truths. Most numbers have few bits: what is
computed from them is often exact. In every second of the others a comparison of the program is made
a tie (mirage_py.verify.intervals.solved_ties).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod, sqrt

import numpy as np

from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import BOOL
from mirage_py.ugraph.ir.node import Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.labels import label_ranges
from mirage_py.verify.intervals.exact_values import Exact, of_decimals
from mirage_py.verify.intervals.intervals import Interval
from mirage_py.verify.intervals.solved_ties import with_ties

STYLES = (
    "zero", "one", "signs", "counts", "constants", "small", "distinct", "positive", "lines",
    "near one", "levels", "limits",
)  # fmt: skip
# Of the draws in which each input has its own style: with ties only, one maximum hides another.
_DISTINCT_SHARE = 0.4
# What is limited after a reduction is at its limit where all of its operand lies beyond it.
_LEVEL_SHARE = 0.2

# An index of a large dimension is met by few of the values of its range.
_LABELS = 64
_NEAR = (2.0**-30, 2.0**-44)


def selects(program: Program) -> bool:
    """Whether it may leave elements out: then they may be anything, also no numbers."""
    return any(n.op in ("where", "mask") for n in program.nodes) or any(
        t.dtype == BOOL for t in program.inputs
    )


def structured_inputs(program: Program, draws: int, seed: int) -> dict[str, Interval]:
    """Every input by name; the last axis counts the draws."""
    return {name: x.interval for name, x in exact_inputs([program], draws, seed).items()}


def exact_inputs(programs: Sequence[Program], draws: int, seed: int) -> dict[str, Exact]:
    """Those of programs that have the same ones, with the numbers and ties that each needs."""
    program = programs[0]
    columns: dict[str, list[FloatArray]] = {t.name: [] for t in program.inputs}
    ranges = label_ranges(program)
    pool = np.array(list(dict.fromkeys(x for p in programs for x in _pool(p))))
    for number in range(draws):
        # What `choice` draws, without the array that it makes of what is chosen from.
        draw = np.random.default_rng([seed, number])
        shared = STYLES[number] if number < len(STYLES) else None
        for tensor in program.inputs:
            style = shared or STYLES[draw.integers(len(STYLES))]
            if not shared and (chance := draw.random()) < _DISTINCT_SHARE + _LEVEL_SHARE:
                style = "distinct" if chance < _DISTINCT_SHARE else "levels"
            if tensor.name in ranges:
                values = _labels(tensor, style, ranges[tensor.name], draw)
            elif tensor.dtype == BOOL:
                values = _truths(tensor, style, draw)
            else:
                values = _numbers(tensor, style, pool, draw)
            columns[tensor.name].append(values)
    drawn = {name: of_decimals(np.stack(values, axis=-1)) for name, values in columns.items()}
    return with_ties(programs, drawn, range(len(STYLES) + 1, draws, 2), seed)


def with_undefined(
    program: Program, inputs: Mapping[str, Exact], draws: Sequence[int], seed: int
) -> dict[str, Exact]:
    """The inputs, of which one has elements without a value in each of ``draws``."""
    found = {name: x.copy() for name, x in inputs.items()}
    floats = [t for t in program.inputs if t.dtype.is_float]
    for turn, number in enumerate(draws if floats else ()):
        draw = np.random.default_rng([seed, number, 1])
        tensor = floats[turn % len(floats)]
        places = (*_line(tensor.shape, draw), slice(number, number + 1))
        shape = found[tensor.name][places].residue.shape
        nothing = Interval(np.full(shape, np.nan), np.zeros(shape))
        found[tensor.name].put(places, Exact(nothing, np.zeros(shape, dtype=np.int64)))
    return found


def _line(shape: Sequence[int], draw: np.random.Generator) -> tuple[slice, ...]:
    """One element, or all with one index along some axis: at its ends, where masks of positions are
    false, or anywhere.
    """
    places = [(0, n - 1, int(draw.integers(n)))[draw.integers(3)] for n in shape]
    fixed = int(draw.integers(len(shape) + 1))
    lines = (
        (n, n + 1) if fixed in (axis, len(shape)) else (None, None) for axis, n in enumerate(places)
    )
    return tuple(slice(*line) for line in lines)


def _pool(program: Program) -> FloatArray:
    """The program's numbers, what lies beside them, and their negatives."""
    found: dict[float, None] = {0.0: None, 1.0: None}
    for node in program.nodes:
        if isinstance(node.attr, float) and isfinite(node.attr) and abs(node.attr) < 1e6:
            near = (node.attr, node.attr + 1, node.attr - 1) if _is_compared(program, node) else ()
            # What is squared before it is compared.
            root = (sqrt(abs(node.attr)),) if near else ()
            found.update(dict.fromkeys((node.attr, -node.attr, *near, *root)))
    return np.array(list(found))


def _is_compared(program: Program, constant: Node) -> bool:
    ends = ("lt", "le", "gt", "ge", "eq", "ne", "maximum", "minimum")
    used = [n for n in program.nodes if n.op in ends]
    return any(program.nodes[a] is constant for n in used for a in n.args)


def _numbers(tensor: Tensor, style: str, pool: FloatArray, draw: np.random.Generator) -> FloatArray:
    shape = tensor.shape
    if style in ("zero", "one"):
        values = np.full(shape, 0.0 if style == "zero" else 1.0)
    elif style == "signs":
        values = draw.integers(-1, 2, size=shape).astype(np.float64)
    elif style == "counts":
        values = draw.integers(0, 3, size=shape).astype(np.float64)
    elif style == "constants":
        values = pool[draw.integers(len(pool), size=shape)]
    elif style == "small":
        values = draw.integers(-3, 4, size=shape).astype(np.float64)
    elif style == "distinct":
        count = max(1, prod(shape))
        step = 2.0 ** -max(0, count.bit_length() - 3)
        values = (draw.permutation(count).reshape(shape) - count // 2) * step
    elif style == "positive":
        values = draw.integers(1, 33, size=shape) / 16.0
    elif style == "lines":
        values = draw.integers(-4, 5, size=shape) / 4.0 * _lines(shape, draw)
    elif style == "levels":
        values = draw.integers(0, 9, size=shape) / 4.0 + _levels(shape, pool, draw)
    elif style == "limits":
        values = pool[draw.integers(len(pool), size=shape)] * _lonely(shape, draw)
    else:
        values = 1.0 + draw.integers(-2, 3, size=shape) * _NEAR[draw.integers(len(_NEAR))]
    return values if tensor.dtype.is_float else np.rint(values)


def _truths(tensor: Tensor, style: str, draw: np.random.Generator) -> FloatArray:
    shape = tensor.shape
    if style in ("zero", "one"):
        return np.full(shape, 0.0 if style == "zero" else 1.0)
    if style == "limits":
        return _some(shape, draw)
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
    return draw.permutation(np.resize(levels, prod(along))).reshape(along)


def _lonely(shape: Sequence[int], draw: np.random.Generator) -> FloatArray:
    """1 at one place of each line of an axis, and 0 elsewhere: its sum is that number."""
    return np.where(_ranks(shape, draw)[0] == 0, 1.0, 0.0)


def _some(shape: Sequence[int], draw: np.random.Generator) -> FloatArray:
    """1 at any number of places of each line of an axis."""
    ranks, along = _ranks(shape, draw)
    return np.where(ranks < draw.integers(0, ranks.max() + 2, size=along), 1.0, 0.0)


def _ranks(shape: Sequence[int], draw: np.random.Generator) -> tuple[FloatArray, tuple[int, ...]]:
    """A permutation along each line of some axis, and the shape with extent 1 there."""
    if not shape:
        return np.zeros(()), ()
    axis = int(draw.integers(len(shape)))
    ranks = draw.random(tuple(shape)).argsort(axis=axis).astype(np.float64)
    return ranks, (*shape[:axis], 1, *shape[axis + 1 :])


def _lines(shape: Sequence[int], draw: np.random.Generator) -> FloatArray:
    """0 along some lines of an axis, rows or columns, and 1 elsewhere."""
    kept = np.ones(tuple(shape))
    if shape:
        axis = int(draw.integers(len(shape)))
        along = [1] * len(shape)
        along[axis] = shape[axis]
        kept = kept * draw.integers(0, 2, size=along)
    return kept
