"""Small inputs that expose rounding and overflow, for the float screen.

far_NAME     one input lies so far from zero that its type just keeps how it varies
logits_high  sums of products are about 110, and so is what no product is made of: exponentials of
             differences are about 1, those of what is subtracted are infinite in float32
logits_low   the same at -110: those exponentials are 0
logits_huge  the same at 1000
outlier_row, outlier_column  one index of the first or of the last axis of every input is a
             thousand times as large
tiny         near the smallest normal number of the type, at least 2^-60
positive     all above zero, for logarithms and roots
whole        whole numbers from -2 to 2
zeros, ones  all 0, all 1: no deviation
random       standard normal

More zeros and ties are in mirage_py.verify.intervals.structured_inputs. Truth values are random but
for one row, which is all false. In ``masked`` all are false, in ``unmasked`` none is, in ``single``
one in each row is true. Of programs that select, the first element of an input is no number in
``garbage_NAME``, the last one in ``last_garbage_NAME``: what a mask leaves out may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod, sqrt

import numpy as np

from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import BOOL, DType
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.evaluate.element_types import round_to, smallest_normal
from mirage_py.verify.evaluate.labels import label_ranges
from mirage_py.verify.intervals.structured_inputs import selects

# Inputs beyond these have no set of their own.
_SINGLE_INPUTS = 8
_FARTHEST = 1e4
_LOGITS = {"logits_high": 110.0, "logits_low": -110.0, "logits_huge": 1000.0}
_OUTLIER = 1e3
_TINY = 2.0**-60

_Draw = Callable[[Tensor, np.random.Generator], FloatArray]


def rounding_inputs(program: Program, seed: int) -> Iterator[tuple[str, dict[str, FloatArray]]]:
    """Every set by its name: float64 arrays, rounded to the types of the inputs; truth values are
    arrays of bool.
    """
    labels = label_ranges(program)
    yield from rounding_sets(program.inputs, seed, labels, masked=selects(program))
    for name, draw in _of_logits(program):
        yield name, _drawn(program.inputs, seed, draw, labels)


def rounding_sets(
    tensors: Sequence[Tensor],
    seed: int,
    labels: Mapping[str, tuple[int, int]] | None = None,
    *,
    masked: bool,
) -> Iterator[tuple[str, dict[str, FloatArray]]]:
    """The sets that do not depend on a program, but for whether it leaves something out;
    ``labels`` has the ranges of whole numbers.
    """
    ranges = labels or {}
    for name, draw in (*_PLAIN.items(), *_of_single_inputs(tensors, masked=masked)):
        yield name, _drawn(tensors, seed, draw, ranges)
    if any(t.dtype == BOOL for t in tensors):
        for name, truth in _TRUTHS.items():
            yield name, _drawn(tensors, seed, _normal, ranges, truth)


def _of_single_inputs(tensors: Sequence[Tensor], *, masked: bool) -> Iterator[tuple[str, _Draw]]:
    """One input is far from zero, or has an element that a mask should leave out."""
    floats = [t for t in tensors if t.dtype.is_float][:_SINGLE_INPUTS]
    for tensor in floats:
        yield f"far_{tensor.name}", _only(tensor.name, lambda t, x: x + _far(t.dtype))
    for tensor in floats if masked else ():
        yield f"garbage_{tensor.name}", _only(tensor.name, _without_number(0))
        yield f"last_garbage_{tensor.name}", _only(tensor.name, _without_number(-1))


def _of_logits(program: Program) -> Iterator[tuple[str, _Draw]]:
    terms, negated = _contracted(program)

    def logits(t: Tensor, rng: np.random.Generator, level: float) -> FloatArray:
        if t.name not in terms:
            return level + rng.normal(size=t.shape)
        value = sqrt(abs(level) / terms[t.name]) * (1.0 + rng.normal(size=t.shape) / 200.0)
        return -value if level < 0.0 and t.name in negated else value

    for name, level in _LOGITS.items():
        yield name, partial(logits, level=level)


def _drawn(
    tensors: Sequence[Tensor],
    seed: int,
    draw: _Draw,
    labels: Mapping[str, tuple[int, int]],
    truth: Callable[[Tensor], FloatArray] | None = None,
) -> dict[str, FloatArray]:
    arrays: dict[str, FloatArray] = {}
    for number, tensor in enumerate(tensors):
        rng = np.random.default_rng([seed, number])
        if tensor.dtype == BOOL:
            bits = rng.integers(0, 2, size=tensor.shape) > 0
            if tensor.shape:
                bits[0] = False
            arrays[tensor.name] = np.asarray(bits if truth is None else truth(tensor) != 0)
        elif tensor.dtype.is_float:
            arrays[tensor.name] = round_to(np.asarray(draw(tensor, rng)), tensor.dtype)
        else:
            low, high = labels.get(tensor.name, (-2, 2))
            values = rng.integers(low, high + 1, size=tensor.shape)
            arrays[tensor.name] = values.astype(np.float64)
    return arrays


def _normal(tensor: Tensor, rng: np.random.Generator) -> FloatArray:
    return rng.normal(size=tensor.shape)


def _tiny(tensor: Tensor, rng: np.random.Generator) -> FloatArray:
    return _normal(tensor, rng) * max(_TINY, smallest_normal(tensor.dtype))


def _first_row_times(factor: float, axis: int = 0) -> Callable[[Tensor, FloatArray], FloatArray]:
    def changed(tensor: Tensor, values: FloatArray) -> FloatArray:
        if tensor.shape:
            np.moveaxis(values, axis, 0)[0] *= factor
        return values

    return changed


def _without_number(place: int) -> Callable[[Tensor, FloatArray], FloatArray]:
    def changed(tensor: Tensor, values: FloatArray) -> FloatArray:
        found = np.array(values)
        found[(place,) * len(tensor.shape)] = np.nan
        return found

    return changed


def _changed(change: Callable[[Tensor, FloatArray], FloatArray]) -> _Draw:
    return lambda t, rng: change(t, _normal(t, rng))


def _only(name: str, change: Callable[[Tensor, FloatArray], FloatArray]) -> _Draw:
    """Standard normal, and one input changed."""
    return _changed(lambda t, values: change(t, values) if t.name == name else values)


def _far(dtype: DType) -> float:
    """So far that steps of the type are half of the deviation, but no farther than ten thousand."""
    return min(_FARTHEST, 0.5 / dtype.unit_roundoff)


def _contracted(program: Program) -> tuple[dict[str, int], dict[str, None]]:
    """How many products are added up that an input is a factor of, and the second factors."""
    terms: dict[str, int] = {}
    second: dict[str, None] = {}
    for node in program.nodes:
        if node.op != "matmul":
            continue
        count = prod(program.sizes[d] for d in node.reduced)
        for place, operand in enumerate(node.args):
            for name in _inputs_of(program, operand):
                terms.setdefault(name, count)
                if place == 1:
                    second[name] = None
    return terms, second


def _inputs_of(program: Program, position: int) -> list[str]:
    """The inputs that a node is, seen through casts and products with numbers."""
    node = program.nodes[position]
    if node.op == "load":
        return [node.access.tensor]
    if node.op in ("cast", "mul", "div", "neg"):
        return [name for a in node.args[:2] for name in _inputs_of(program, a)]
    return []


def _single(tensor: Tensor) -> FloatArray:
    """True at the first place of each row."""
    bits = np.zeros(tensor.shape)
    bits[(..., slice(1)) if tensor.shape else ()] = 1.0
    return bits


_TRUTHS: dict[str, Callable[[Tensor], FloatArray]] = {
    "masked": lambda t: np.zeros(t.shape),
    "unmasked": lambda t: np.ones(t.shape),
    "single": _single,
}
_PLAIN: dict[str, _Draw] = {
    "random": _normal,
    "outlier_row": _changed(_first_row_times(_OUTLIER)),
    "outlier_column": _changed(_first_row_times(_OUTLIER, axis=-1)),
    "tiny": _tiny,
    "positive": _changed(lambda t, values: np.abs(values) + 0.1),
    "zeros": lambda t, rng: np.zeros(t.shape),
    "ones": lambda t, rng: np.ones(t.shape),
    "whole": lambda t, rng: rng.integers(-2, 3, size=t.shape).astype(np.float64),
}
