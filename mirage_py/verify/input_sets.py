"""Inputs that a kernel is run on: random ones and ugly ones.

random       standard normal; inputs that are the second operand of a matrix product over n
             terms are divided by sqrt(n), so that results keep their size
large        the same, as large as the types allow: up to a quarter of the largest finite value,
             so that the results still have a value in their type, and so that all that the program
             reads may be multiplied before anything is divided
huge_row     one row of the first matrix is that large, the rest is as in random
offset       the first matrix lies around 32: what is computed from its rows less their means must
             not lose the difference
tiny         in the subnormal range of a half or 8-bit type; 2^-40 of random in wider ones
zeros        all 0
constant     all 0.75
alternating  signs alternate along the last axis

An input whose sums are under a root holds what was squared elsewhere: its values are not negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from mirage_py.ugraph.buffers import FloatArray, Index
from mirage_py.ugraph.dtypes import F32, DType
from mirage_py.ugraph.interpret import evaluate_at
from mirage_py.ugraph.meaning import FloatMeaning
from mirage_py.ugraph.node import Attr, Node
from mirage_py.ugraph.program import Program, Tensor
from mirage_py.verify.element_types import round_to, smallest_normal
from mirage_py.verify.labels import label_ranges
from mirage_py.verify.safe_exp import add_safe_shifts
from mirage_py.verify.windows import first_window

_Where = NDArray[np.bool_]

SET_NAMES = ("random", "large", "huge_row", "offset", "tiny", "zeros", "constant", "alternating")

_CONSTANT = 0.75
_OFFSET = 32.0
_WIDE_TINY = 2.0**-40
_PROBED_ELEMENTS = 1 << 18
# Of a negative number they have no value; and what hands a sign on to its result.
_ROOTS = ("sqrt", "rsqrt")
_KEEP_SIGNS = ("add", "div", "sum", "cast")
# The largest of some thousand normal numbers is about 4.
_NORMAL_PEAK = 4.0


@dataclass(frozen=True, slots=True)
class InputSet:
    """One value for every input, float64, each rounded to its input's type."""

    name: str
    arrays: dict[str, FloatArray]


def input_sets(program: Program, seed: int) -> tuple[InputSet, ...]:
    """All sets in the order above. The same seed gives the same arrays."""
    return tuple(drawn_sets(program, seed, SET_NAMES))


def drawn_sets(program: Program, seed: int, names: Sequence[str]) -> Iterator[InputSet]:
    """The sets of these names, one after the other: those of a large program take much memory."""
    draw = _Draw(program, seed)
    for name in names:
        arrays = draw.arrays(name)
        stored = {t.name: _as_stored(t, arrays[t.name]) for t in program.inputs}
        yield InputSet(name, stored)


class _Draw:
    """Everything that the sets of one program have in common."""

    def __init__(self, program: Program, seed: int) -> None:
        self._program = program
        self._base = _random(program, seed)
        self._rounded = {t.name: round_to(self._base[t.name], t.dtype) for t in program.inputs}
        self._squares = _under_roots(program)
        self._floats = [t for t in program.inputs if t.dtype.is_float]
        self._matrix = next((t for t in self._floats if len(t.shape) > 1), None)

    def arrays(self, name: str) -> dict[str, FloatArray]:
        """The inputs of one set."""
        if name == "random":
            return dict(self._rounded)
        if name == "large":
            return self._largest({t.name: np.broadcast_to(np.True_, t.shape) for t in self._floats})
        if name == "huge_row":
            matrix = self._matrix
            return self._largest({matrix.name: _first_row(matrix.shape)} if matrix else {})
        if name == "offset":
            matrix = self._matrix
            moved = {matrix.name: _moved(matrix, self._base[matrix.name])} if matrix else {}
            return {**self._rounded, **moved}
        if name == "tiny":
            matrix = self._matrix
            scaled = {matrix.name: _tiny(matrix, self._base[matrix.name])} if matrix else {}
            return {**self._rounded, **scaled}
        return {**self._rounded, **{t.name: self._plain(name, t) for t in self._floats}}

    def _plain(self, name: str, tensor: Tensor) -> FloatArray:
        if name == "zeros":
            return np.zeros(tensor.shape)
        if name == "constant":
            value = _CONSTANT / _contracted_terms(self._program).get(tensor.name, 1)
            return np.broadcast_to(round_to(np.full((), value), tensor.dtype), tensor.shape)
        values = np.abs(self._rounded[tensor.name])
        if tensor.shape and tensor.name not in self._squares:
            values[..., 1::2] *= -1.0
        return values

    def _largest(self, where: Mapping[str, _Where]) -> dict[str, FloatArray]:
        exponent = _Headroom(self._program, self._base).exponent(where)
        return {
            t.name: _scaled(t.dtype, self._base[t.name], where[t.name], exponent)
            if t.name in where
            else self._rounded[t.name]
            for t in self._program.inputs
        }


def _random(program: Program, seed: int) -> dict[str, FloatArray]:
    terms = _contracted_terms(program)
    labels = label_ranges(program)
    squares = _under_roots(program)
    arrays: dict[str, FloatArray] = {}
    for number, tensor in enumerate(program.inputs):
        draw = np.random.default_rng([seed, number])
        if tensor.dtype.is_float:
            values = draw.normal(size=tensor.shape) / sqrt(terms.get(tensor.name, 1))
            values = np.abs(values) if tensor.name in squares else values
        elif tensor.dtype.max_finite == 1.0:
            values = draw.integers(0, 2, size=tensor.shape).astype(np.float64)
        else:
            low, high = labels.get(tensor.name, (-8, 8))
            values = draw.integers(low, high + 1, size=tensor.shape).astype(np.float64)
        # Of a tensor without axes NumPy draws a number, which is no array to write to.
        arrays[tensor.name] = _as_stored(tensor, np.asarray(values))
    return arrays


def _as_stored(tensor: Tensor, values: FloatArray) -> FloatArray:
    """The values as a tensor of this layout can hold them: where elements share memory, as in an
    expanded tensor or in windows that overlap, the last one written is the value of all.
    """
    strides = tensor.element_strides
    if not _shares_memory(tensor.shape, strides):
        return values
    span = 1 + sum((e - 1) * s for e, s in zip(tensor.shape, strides, strict=True))
    memory = np.zeros(span)
    view = np.lib.stride_tricks.as_strided(
        memory, tensor.shape, [s * memory.itemsize for s in strides]
    )
    view[...] = values
    return view.copy()


def _shares_memory(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may have one place: some axis steps less far than those within it."""
    reach = 0
    for stride, extent in sorted((s, e) for s, e in zip(strides, shape, strict=True) if e > 1):
        if stride <= reach:
            return True
        reach += (extent - 1) * stride
    return False


def _under_roots(program: Program) -> set[str]:
    """The inputs that roots are taken of, or of sums of them: a region of a model may begin behind
    the squares of a norm.
    """
    todo = [a for node in program.nodes if node.op in _ROOTS for a in node.args]
    found: set[str] = set()
    while todo:
        node = program.nodes[todo.pop()]
        if node.op == "load":
            found.add(node.access.tensor)
        # A product may be a square.
        is_scaled = node.op == "mul" and any(program.nodes[a].op == "const" for a in node.args)
        if node.op in _KEEP_SIGNS or is_scaled:
            todo.extend(node.args)
    return found


def _contracted_terms(program: Program) -> dict[str, int]:
    """For inputs that are read as second operands of matrix products, how many terms those sum.

    A product of one row is a sum of products, of which the matrix is the one with more dimensions.
    """
    terms: dict[str, int] = {}
    for node in program.nodes:
        matrix = node.args[1] if node.op == "matmul" else _matrix_of_row(program, node)
        if matrix is not None:
            count = prod(program.sizes[d] for d in node.reduced)
            for tensor in _inputs_below(program, matrix):
                terms[tensor] = max(terms.get(tensor, 1), count)
    return terms


def _matrix_of_row(program: Program, node: Node) -> int | None:
    product = program.nodes[node.args[0]] if node.op == "sum" else node
    if node.op != "sum" or product.op != "mul":
        return None
    one, other = product.args
    more, less = sorted((one, other), key=lambda n: -len(program.nodes[n].dims))
    both = set(node.reduced) <= set(program.nodes[less].dims)
    wider = len(program.nodes[more].dims) > len(program.nodes[less].dims)
    return more if both and wider else None


def _inputs_below(program: Program, position: int) -> list[str]:
    """The input that a node is, seen through casts and products with scalars."""
    node = program.nodes[position]
    if node.op == "load":
        return [node.access.tensor]
    if node.op in ("cast", "mul", "div", "neg"):
        wide = [a for a in node.args if program.nodes[a].dims]
        return _inputs_below(program, wide[0]) if len(wide) == 1 else []
    return []


def _moved(tensor: Tensor, values: FloatArray) -> FloatArray:
    return round_to(values + _OFFSET, tensor.dtype)


def _tiny(tensor: Tensor, values: FloatArray) -> FloatArray:
    return round_to(values * _tiny_scale(tensor.dtype), tensor.dtype)


def _tiny_scale(dtype: DType) -> float:
    if dtype.bytes <= 2 and smallest_normal(dtype) > smallest_normal(F32):
        return smallest_normal(dtype)
    return _WIDE_TINY


def _first_row(shape: tuple[int, ...]) -> _Where:
    where = np.zeros(shape, dtype=np.bool_)
    where[(0,) * (len(shape) - 1)] = True
    return where


class _Headroom:
    """Finds how large inputs may be; ``base`` holds them unrounded."""

    def __init__(self, program: Program, base: Mapping[str, FloatArray]) -> None:
        self._program = program
        self._base = base
        self._safe = add_safe_shifts(program)
        # A part is enough: an element elsewhere that does overflow is judged as such.
        self._window = first_window(self._safe, _PROBED_ELEMENTS)

    def exponent(self, where: Mapping[str, _Where]) -> int:
        """Of the largest power of two that inputs can be multiplied with ``where`` it is true, so
        that they and the results fit their types.
        """
        floats = [t for t in self._program.inputs if t.dtype.is_float]
        limit = min((t.dtype.max_finite / 4 for t in floats), default=1.0)
        most = min(log2(max(limit / _NORMAL_PEAK, 1.0)), _exponent_in_any_order(self._program))
        fits, too_large = 0, 1 + int(most)
        while too_large - fits > 1:
            middle = (fits + too_large) // 2
            if self._fits(where, middle):
                fits = middle
            else:
                too_large = middle
        return fits

    def _fits(self, where: Mapping[str, _Where], exponent: int) -> bool:
        """Whether results fit their types, and what is computed on the way fits float32."""
        meaning = _PeakMeaning(self._program, self._base, where, exponent)
        results = evaluate_at(self._safe, self._base, meaning, self._window)
        if not meaning.peak <= F32.max_finite / 4:
            return False
        return all(
            bool((np.abs(results[o.tensor.name].values) <= o.tensor.dtype.max_finite / 2).all())
            for o in self._safe.outputs
        )


def _exponent_in_any_order(program: Program) -> float:
    """Of the inputs whose product, each as often as the program reads it, times the terms of all
    contractions fits float32: equal programs may multiply before they divide.
    """
    factors, terms = 0, 0.0
    for node in program.nodes:
        if node.op == "load":
            factors += program.tensors[node.access.tensor].dtype.is_float
        factors += node.op == "square"
        if node.op in ("matmul", "sum"):
            terms = max(terms, log2(prod(program.sizes[d] for d in node.reduced)))
    return (log2(F32.max_finite / 4) - terms) / max(1, factors) - log2(_NORMAL_PEAK)


def _scaled(dtype: DType, values: FloatArray, where: _Where, exponent: int) -> FloatArray:
    """Times 2^exponent at some places, within a quarter of what the type holds."""
    limit = dtype.max_finite / 4
    large = np.multiply(values, 2.0**exponent, where=where, out=values.copy())
    return round_to(np.clip(large, -limit, limit, out=large), dtype)


class _PeakMeaning(FloatMeaning):
    """Floats that remember the largest magnitude they reached.

    Inputs are scaled as they are read: a window needs a small part of them.
    """

    def __init__(
        self,
        program: Program,
        base: Mapping[str, FloatArray],
        where: Mapping[str, _Where],
        exponent: int,
    ) -> None:
        self.peak = 0.0
        self._exponent = exponent
        # The interpreter hands over the very arrays that it was given.
        self._inputs = {
            id(base[t.name]): (t.dtype, where.get(t.name))
            for t in program.inputs
            if t.dtype.is_float
        }

    def load(self, x: FloatArray, index: Index) -> FloatArray:
        part = super().load(x, index)
        if id(x) not in self._inputs:
            return part
        dtype, where = self._inputs[id(x)]
        if where is None:
            return round_to(part, dtype)
        return _scaled(dtype, part, where[index], self._exponent)

    def apply(self, op: str, attr: Attr, args: Sequence[FloatArray]) -> FloatArray:
        return self._seen(super().apply(op, attr, args))

    def sum(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._seen(super().sum(x, axes))

    def contract(self, a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
        return self._seen(super().contract(a, b, axes))

    def _seen(self, values: FloatArray) -> FloatArray:
        self.peak = float(np.fmax(self.peak, np.abs(values).max()))
        return values
