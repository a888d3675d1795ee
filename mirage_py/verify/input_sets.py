"""Inputs that a kernel is run on: random ones and ugly ones.

random       standard normal; inputs that are the second operand of a matrix product over n
terms are
divided by sqrt(n), so that results keep their size
large        the same, as large as the types allow: up to a quarter of the largest finite value,
and
so that the results still have a value in their type
huge_row     one row of the first matrix is that large, the rest is as in random
tiny         in the subnormal range of a half or 8-bit type; 2^-40 of random in wider ones
zeros        all 0
constant     all 0.75
alternating  signs alternate along the last axis
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod, sqrt

import numpy as np

from mirage_py.ugraph.buffers import FloatArray
from mirage_py.ugraph.dtypes import F32, DType
from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.meaning import FloatMeaning
from mirage_py.ugraph.node import Attr
from mirage_py.ugraph.program import Program, Tensor
from mirage_py.verify.element_types import round_to, smallest_normal
from mirage_py.verify.safe_exp import add_safe_shifts
from mirage_py.verify.windows import first_window

_CONSTANT = 0.75
_WIDE_TINY = 2.0**-40
_PROBED_ELEMENTS = 1 << 18
# The largest of some thousand normal numbers is about 4.
_NORMAL_PEAK = 4.0


@dataclass(frozen=True, slots=True)
class InputSet:
    """One value for every input, float64, each rounded to its input's type."""

    name: str
    arrays: dict[str, FloatArray]


def input_sets(program: Program, seed: int) -> tuple[InputSet, ...]:
    """All sets in the order above. The same seed gives the same arrays."""
    base = _random(program, seed)
    floats = [t.name for t in program.inputs if t.dtype.is_float]
    judge = _Headroom(program)

    def changed(name: str, change: Callable[[Tensor, FloatArray], FloatArray]) -> InputSet:
        arrays = {
            t.name: change(t, base[t.name]) if t.name in floats else base[t.name]
            for t in program.inputs
        }
        return _rounded(program, name, arrays)

    terms = _contracted_terms(program)
    matrix = next((t.name for t in program.inputs if t.name in floats and len(t.shape) > 1), None)
    large = judge.largest(base, lambda t, a, scale: a * scale)
    huge = judge.largest(base, lambda t, a, scale: _scaled_row(a, scale) if t.name == matrix else a)
    return (
        _rounded(program, "random", base),
        InputSet("large", large),
        InputSet("huge_row", huge),
        changed("tiny", lambda t, a: a * _tiny_scale(t.dtype) if t.name == matrix else a),
        changed("zeros", lambda t, a: np.zeros_like(a)),
        changed("constant", lambda t, a: np.full_like(a, _CONSTANT / terms.get(t.name, 1))),
        changed("alternating", lambda t, a: np.abs(a) * (1.0 - 2.0 * (np.arange(a.shape[-1]) % 2))),
    )


def _random(program: Program, seed: int) -> dict[str, FloatArray]:
    terms = _contracted_terms(program)
    arrays: dict[str, FloatArray] = {}
    for number, tensor in enumerate(program.inputs):
        draw = np.random.default_rng([seed, number])
        if tensor.dtype.is_float:
            values = draw.normal(size=tensor.shape) / sqrt(terms.get(tensor.name, 1))
        elif tensor.dtype.max_finite == 1.0:
            values = draw.integers(0, 2, size=tensor.shape).astype(np.float64)
        else:
            values = draw.integers(-8, 9, size=tensor.shape).astype(np.float64)
        arrays[tensor.name] = values
    return arrays


def _contracted_terms(program: Program) -> dict[str, int]:
    """For inputs that are read as second operands of matrix products, how many terms those sum."""
    terms: dict[str, int] = {}
    for node in program.nodes:
        if node.op == "matmul":
            count = prod(program.sizes[d] for d in node.reduced)
            for tensor in _inputs_below(program, node.args[1]):
                terms[tensor] = max(terms.get(tensor, 1), count)
    return terms


def _inputs_below(program: Program, position: int) -> list[str]:
    """The input that a node is, seen through casts and products with scalars."""
    node = program.nodes[position]
    if node.op == "load":
        return [node.access.tensor]
    if node.op in ("cast", "mul", "div", "neg"):
        wide = [a for a in node.args if program.nodes[a].dims]
        return _inputs_below(program, wide[0]) if len(wide) == 1 else []
    return []


def _tiny_scale(dtype: DType) -> float:
    if dtype.bytes <= 2 and smallest_normal(dtype) > smallest_normal(F32):
        return smallest_normal(dtype)
    return _WIDE_TINY


def _scaled_row(values: FloatArray, scale: float) -> FloatArray:
    result = values.copy()
    result[(0,) * (values.ndim - 1)] *= scale
    return result


def _rounded(program: Program, name: str, arrays: Mapping[str, FloatArray]) -> InputSet:
    return InputSet(name, {t.name: round_to(arrays[t.name], t.dtype) for t in program.inputs})


class _Headroom:
    """Finds how large inputs may be."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._safe = add_safe_shifts(program)
        # A part is enough: an element elsewhere that does overflow is judged as such.
        self._window = first_window(self._safe, _PROBED_ELEMENTS)

    def largest(
        self,
        base: Mapping[str, FloatArray],
        change: Callable[[Tensor, FloatArray, float], FloatArray],
    ) -> dict[str, FloatArray]:
        """The change with the largest power of two for which inputs and results fit their types."""
        floats = [t for t in self._program.inputs if t.dtype.is_float]
        limit = min((t.dtype.max_finite / 4 for t in floats), default=1.0)
        fits, too_large = 0, 1 + int(log2(max(limit / _NORMAL_PEAK, 1.0)))
        best = self._scaled(base, change, fits)
        while too_large - fits > 1:
            middle = (fits + too_large) // 2
            arrays = self._scaled(base, change, middle)
            if self._fits(arrays):
                fits, best = middle, arrays
            else:
                too_large = middle
        return best

    def _scaled(
        self,
        base: Mapping[str, FloatArray],
        change: Callable[[Tensor, FloatArray, float], FloatArray],
        exponent: int,
    ) -> dict[str, FloatArray]:
        arrays: dict[str, FloatArray] = {}
        for t in self._program.inputs:
            values = base[t.name]
            if t.dtype.is_float:
                values = np.clip(
                    change(t, values, 2.0**exponent),
                    -t.dtype.max_finite / 4,
                    t.dtype.max_finite / 4,
                )
            arrays[t.name] = round_to(values, t.dtype)
        return arrays

    def _fits(self, arrays: Mapping[str, FloatArray]) -> bool:
        """Whether results fit their types, and what is computed on the way fits float32."""
        meaning = _PeakMeaning()
        results = evaluate_at(self._safe, arrays, meaning, self._window)
        if not meaning.peak <= F32.max_finite / 4:
            return False
        return all(
            bool((np.abs(results[o.tensor.name].values) <= o.tensor.dtype.max_finite / 2).all())
            for o in self._safe.outputs
        )


class _PeakMeaning(FloatMeaning):
    """Floats that remember the largest magnitude they reached."""

    def __init__(self) -> None:
        self.peak = 0.0

    def apply(self, op: str, attr: Attr, args: Sequence[FloatArray]) -> FloatArray:
        return self._seen(super().apply(op, attr, args))

    def sum(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._seen(super().sum(x, axes))

    def contract(self, a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._seen(super().contract(a, b, axes))

    def _seen(self, values: FloatArray) -> FloatArray:
        self.peak = float(np.fmax(self.peak, np.abs(values).max()))
        return values
