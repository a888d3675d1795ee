"""Input sets with a structure of their own: outliers, far means, masks, ties, close differences.

The purpose of each is in mirage_py.verify.numerical_check.input_sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from mirage_py.ugraph.building.builder import ProgramBuilder
from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.data_flow import cone
from mirage_py.ugraph.ir.dtypes import BOOL, F64, DType
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.ugraph.rewrite.rebuild import copied
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.evaluate.labels import label_ranges
from mirage_py.verify.evaluate.windows import windows
from mirage_py.verify.evaluate.work import FLOAT_PRICES, program_work
from mirage_py.verify.numerical_check.input_changes import EXPONENTIALS, Change, Changes, Probe
from mirage_py.verify.numerical_check.input_roles import additive_masks, inputs_below, subtractions
from mirage_py.verify.numerical_check.periodic_input import PeriodicInput, drawn_elements

Build = Callable[[Sequence[Tensor], Sequence[Tensor], float], Changes]

_GAIN = 4.0
_MOST_OUTLIERS = 4
# One column in so many, if there are enough.
_COLUMNS_AN_OUTLIER = 64
# Last places of the mean that a spread has at least: of fewer there would be ties only.
_SPREAD_PLACES = 8.0
_SMALL_DATA, _SMALL_GAIN = 1e-3, 1e-2
_LOGIT = 100.0
# A normalised logit does not grow with its inputs.
_MOST_LOGIT_SCALE = 2.0**14
_LARGEST_INTEGER = 2
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne", "maximum", "minimum")
# Element operations to evaluate the numbers that an input is moved close to.
_MOST_WORK = 1e9


def outliers(floats: Sequence[Tensor], data: Sequence[Tensor], level: float) -> Changes:
    """A few columns of the data at ``level``, and gains of 4 there."""
    changes = {t.name: _in_columns(t, level) for t in data if t.shape}
    extents = {t.shape[-1] for t in data if t.shape}
    gains = [t for t in floats if len(t.shape) == 1 and t.shape[0] in extents]
    return {**{t.name: _in_columns(t, _GAIN) for t in gains}, **changes}


def far(floats: Sequence[Tensor], data: Sequence[Tensor], level: float) -> Changes:
    """The data around ``level``."""
    del floats
    return {t.name: Change.of(t, _spread(t, level), level) for t in data}


def far_rows(floats: Sequence[Tensor], data: Sequence[Tensor], level: float) -> Changes:
    """Rows of the data around numbers that double from row to row, up to ``level``."""
    del floats
    changes: dict[str, Change] = {}
    for t in data:
        rows = np.arange(int(np.prod(t.shape[:-1]))).reshape((*t.shape[:-1], 1))
        means = level * 2.0 ** -(rows % 8.0) * np.where(rows % 2 == 0, 1.0, -1.0)
        changes[t.name] = Change.of(t, _spread(t, level), means)
    return changes


def edges(floats: Sequence[Tensor], axes: Mapping[str, int], level: float) -> Changes:
    """The first and the last element along each of these axes times ``level``."""
    return {
        t.name: Change.of(t, _at_edges(t.shape, axes[t.name], level))
        for t in floats
        if t.name in axes
    }


def reduced_axes(program: Program, number: int = 0) -> dict[str, int]:
    """By input: of its axes that something is summed over, or the maximum is taken of, the longest;
    or the next one, of those that have so many.
    """
    reduced = {d for node in program.nodes if node.op in REDUCING for d in node.reduced}
    found: dict[str, set[int]] = {}
    for node in program.nodes:
        if node.op == "load":
            axes = found.setdefault(node.access.tensor, set())
            axes |= {n for n, e in enumerate(node.access.index) if reduced.intersection(e.dims())}
    ordered = {
        name: sorted(axes, key=lambda a: (-program.tensors[name].shape[a], a))
        for name, axes in found.items()
    }
    return {name: axes[number] for name, axes in ordered.items() if number < len(axes)}


# From zero on: the largest level with which results fit their types is taken.
EDGE_LEVELS = (4.0, 8.0, 16.0, 30.0)
LEVELS: Mapping[str, tuple[Sequence[float], Build]] = {
    "outliers": ((4.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4), outliers),
    "far": ((4.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4), far),
    "far_rows": ((4.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4), far_rows),
}


def small(floats: Sequence[Tensor], data: Sequence[Tensor]) -> Changes:
    """The data a thousandth of random, gains a hundredth."""
    gains = {t.name: Change.of(t, _SMALL_GAIN) for t in floats if len(t.shape) == 1}
    return {**gains, **{t.name: Change.of(t, _SMALL_DATA) for t in data}}


def exponentiates(program: Program) -> bool:
    """Whether there are logits."""
    return any(node.op in EXPONENTIALS for node in program.nodes)


def reduces(program: Program) -> bool:
    """Whether there is an input along which something is summed, or the maximum taken."""
    return bool(reduced_axes(program))


def reduces_two(program: Program) -> bool:
    """Whether there is an input along two of whose axes that is so."""
    return bool(reduced_axes(program, 1))


def has_maxima(program: Program) -> bool:
    """Whether there is an exponential, or a maximum or minimum over a dimension."""
    return exponentiates(program) or any(node.op == "max" for node in program.nodes)


def negative(
    base: Mapping[str, PeriodicInput],
    floats: Sequence[Tensor],
    data: Sequence[Tensor],
    changes: Changes,
) -> dict[str, PeriodicInput]:
    """The data negative, all else positive: a sum of exponentials, or a maximum, in which a zero
    counts that does not belong there, as behind the end of a row, is nothing but that.
    """
    found = {}
    names = {t.name for t in data}
    for t in floats:
        factor = float(changes[t.name].factor.max()) if t.name in changes else 1.0
        sign = -1.0 if t.name in names else 1.0
        found[t.name] = base[t.name].mapped(
            partial(_one_sided, factor=sign * factor, dtype=t.dtype)
        )
    return found


def scaled_logits(probe: Probe, data: Sequence[Tensor], largest: float = _LOGIT) -> Changes:
    """The data times what makes the largest logit that, 100 for short."""
    scale, changes = 1.0, dict[str, Change]()
    # A logit may be a product of scaled values: change it in steps.
    for _ in range(4):
        changes = {t.name: Change.of(t, scale) for t in data}
        found = probe.logits(changes)
        if not found or largest * 0.8 <= found <= largest * 1.2:
            break
        scale = min(max(scale * largest / found, 1 / _MOST_LOGIT_SCALE), _MOST_LOGIT_SCALE)
    return changes


def integers(program: Program) -> dict[str, PeriodicInput]:
    """Whole numbers, and the constants that something is compared with."""
    constants = sorted(
        {
            value
            for node in program.nodes
            if node.op in _COMPARISONS
            for a in node.args
            if isinstance(value := program.nodes[a].attr, float) and abs(value) < 1e4
        }
    )
    pool = np.array([*range(-_LARGEST_INTEGER, _LARGEST_INTEGER + 1), *constants])
    found: dict[str, PeriodicInput] = {}
    for number, t in enumerate(program.inputs):
        if t.dtype.is_float:
            draw = np.random.default_rng([len(program.inputs), number])
            chosen = pool[draw.integers(0, len(pool), size=drawn_elements(t.shape))]
            found[t.name] = PeriodicInput.of(t.shape, round_to(chosen, t.dtype))
    return found


def subtracts(program: Program) -> bool:
    """Whether an input is subtracted from something else than itself, or that from it."""
    return bool(subtractions(program)) or bool(_beside(program))


def close(
    program: Program, base: Mapping[str, PeriodicInput], changes: Changes
) -> dict[str, PeriodicInput]:
    """The inputs of subtractions: both around 100; or, for a difference of an input and a computed
    number, the input near the largest of these numbers.
    """
    types = {t.name: t.dtype for t in program.inputs}
    found: dict[str, PeriodicInput] = {}
    for pair in subtractions(program):
        for name in pair:
            found[name] = base[name].mapped(partial(_moved_far, dtype=types[name]))
    rest = {
        t.name: changes[t.name].of_input(base[t.name], t.dtype)
        if t.name in changes
        else base[t.name]
        for t in program.inputs
    }
    for name, (load, other) in _beside(program).items():
        if name not in found:
            values = _largest_beside(program, {**rest, **found}, load, other)
            fits = values is not None and values.shape == base[name].shape
            if values is not None and fits and np.isfinite(values).all():
                near = round_to(base[name].dense() + values, types[name])
                found[name] = PeriodicInput.of(near.shape, near)
    return found


def masks(program: Program) -> bool:
    """Whether an input may be a mask, or the lengths of rows."""
    is_bool = any(t.dtype == BOOL for t in program.inputs)
    return is_bool or bool(label_ranges(program)) or bool(additive_masks(program))


def masked(program: Program, kind: str) -> dict[str, PeriodicInput]:
    """Masks and lengths of this kind."""
    added, labels = additive_masks(program), label_ranges(program)
    found: dict[str, PeriodicInput] = {}
    for number, t in enumerate(program.inputs):
        draw = np.random.default_rng([len(kind), number])
        if t.name in labels:
            low, high = labels[t.name]
            drawn = draw.integers(low, high + 1, size=drawn_elements(t.shape)).astype(np.float64)
            others = np.arange(prod(t.shape)).reshape(t.shape) % 3 != 0
            table = np.stack([np.full_like(drawn, low), drawn])
            found[t.name] = PeriodicInput(t.shape, table, others.astype(np.uint8))
        elif t.dtype == BOOL:
            found[t.name] = _kept(t.shape, kind, draw)
        elif t.name in added:
            hidden = partial(_hidden, lowest=-t.dtype.max_finite)
            found[t.name] = _kept(t.shape, kind, draw).mapped(hidden)
    return found


def _moved_far(values: FloatArray, dtype: DType) -> FloatArray:
    return round_to(values + _LOGIT, dtype)


def _one_sided(values: FloatArray, factor: float, dtype: DType) -> FloatArray:
    return round_to(np.abs(values) * factor, dtype)


def _at_edges(shape: tuple[int, ...], axis: int, level: float) -> FloatArray:
    along = np.ones(shape[axis])
    along[[0, -1]] = level
    return along.reshape([-1 if a == axis else 1 for a in range(len(shape))])


def _hidden(kept: FloatArray, lowest: float) -> FloatArray:
    return np.where(kept != 0, 0.0, lowest)


def _kept(shape: tuple[int, ...], kind: str, draw: np.random.Generator) -> PeriodicInput:
    """1 where nothing is hidden; one axis alone is one row, of which half is hidden."""
    extent = shape[-1] if shape else 1
    count = prod(shape[:-1])
    rows = np.arange(count).reshape((*shape[:-1], 1))
    if kind == "masked_rows":
        drawn = draw.integers(0, 2, size=drawn_elements(shape)).astype(np.float64)
        table = np.stack([np.zeros_like(drawn), np.ones_like(drawn), drawn])
        of_row = (rows % 3).astype(np.uint8)
        return PeriodicInput(shape, table, of_row if shape else of_row.reshape(()))
    places = np.arange(extent)
    hidden = (rows * extent) // count if count > 1 else np.full_like(rows, extent // 2)
    shown = places >= hidden if kind == "left_padding" else places < extent - hidden
    return PeriodicInput(shape, np.array([[0.0], [1.0]]), shown.astype(np.uint8).reshape(shape))


def _in_columns(tensor: Tensor, level: float) -> Change:
    extent = tensor.shape[-1]
    count = max(1, min(_MOST_OUTLIERS, extent // _COLUMNS_AN_OUTLIER))
    chosen = np.zeros(extent, np.bool_)
    chosen[[(2 * n + 1) * extent // (2 * count) for n in range(count)]] = True
    signs = np.where(np.arange(extent) % 2 == 0, level, -level)
    return Change.of(tensor, np.where(chosen, 0.0, 1.0), np.where(chosen, signs, 0.0))


def _spread(tensor: Tensor, mean: float) -> float:
    return max(1.0, _SPREAD_PLACES * mean * tensor.dtype.unit_roundoff)


def _beside(program: Program) -> dict[str, tuple[Node, int]]:
    """By input: how it is read where a computed number that does not depend on it is subtracted
    from it, or it from that, and that number.
    """
    found: dict[str, tuple[Node, int]] = {}
    for node in program.nodes:
        if node.op != "sub":
            continue
        for one, other in (node.args, node.args[::-1]):
            load = program.nodes[one]
            if load.op == "cast":
                load = program.nodes[load.args[0]]
            if load.op != "load" or inputs_below(program, other) or not _is_plain(load):
                continue
            name = load.access.tensor
            needs = [program.nodes[n] for n in cone(program.nodes, [other])]
            if any(n.op == "load" for n in needs) and not any(
                n.op == "load" and n.access.tensor == name for n in needs
            ):
                found.setdefault(name, (load, other))
    return {n: f for n, f in found.items() if program.tensors[n].dtype.is_float}


def _is_plain(load: Node) -> bool:
    """Whether every axis is read along a dimension of its own."""
    names = [i.name for i in load.access.index if i.op == "dim"]
    return len(names) == len(load.access.index) == len(set(names))


def _largest_beside(
    program: Program, arrays: Mapping[str, PeriodicInput], load: Node, other: int
) -> FloatArray | None:
    """The largest of the numbers that each element is subtracted from; None if there is none, or
    it takes long.
    """
    builder = ProgramBuilder(program.name, program.fp32_precision)
    for d in program.dims:
        builder.dim(d.name, d.size)
    for t in program.inputs:
        builder.input(t.name, t.shape, t.dtype, t.strides)
    new: dict[int, int] = {}
    for position in cone(program.nodes, [other]):
        node = program.nodes[position]
        new[position] = copied(builder, node, [new[a] for a in node.args])
    dims = [i.name for i in load.access.index]
    top = new[other]
    away = [d for d in builder.nodes[top].dims if d not in dims]
    top = builder.max(top, away) if away else top
    builder.output("largest", top, dims, F64)
    read = {t for n in builder.nodes if n.op == "load" for t in n.access.tensors}
    builder.inputs = {name: t for name, t in builder.inputs.items() if name in read}
    built = builder.build()
    if program_work(built, prices=FLOAT_PRICES) > _MOST_WORK:
        return None
    given = {name: arrays[name].dense() for name in builder.inputs}
    found = np.empty(built.outputs[0].tensor.shape)
    for window in windows(built):
        sample = evaluate_at(built, given, FloatMeaning(), window)["largest"]
        found[sample.elements] = sample.values
    return found
