"""Programs in the arithmetic of a kernel, in NumPy: float32, sums tile by tile, half operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirage_py.ugraph.interpret import evaluate_program
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.interpret.meaning import FloatMeaning
from mirage_py.ugraph.ir.dtypes import F32, DType
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.ir.program import Program
from mirage_py.ugraph.rewrite.logs import logs_apart
from mirage_py.verify.evaluate.element_types import round_to
from mirage_py.verify.rounding.kernel_meaning import with_bits_of
from mirage_py.verify.shifts.safe_exp import add_safe_shifts


@dataclass(frozen=True, slots=True)
class Form:
    """How a kernel sums: so many terms at a time, from the end if ``backward``, in so many parts
    that are added last; rounded to ``kept_in`` after each tile.
    """

    tile: int = 64
    backward: bool = False
    parts: int = 1
    kept_in: DType = F32


def run(
    program: Program, arrays: Mapping[str, FloatArray], form: Form | None = None
) -> dict[str, FloatArray]:
    """The outputs, rounded to their types."""
    safe = add_safe_shifts(logs_apart(program))
    meaning = _KernelMeaning(program.matmul_type, form or Form())
    with np.errstate(all="ignore"):
        found = evaluate_program(safe, arrays, meaning)
        return {
            o.tensor.name: round_to(found[o.tensor.name], o.tensor.dtype) for o in program.outputs
        }


class _KernelMeaning(FloatMeaning):
    """Values are float64 arrays of what float32 holds."""

    def __init__(self, operands: DType, form: Form) -> None:
        self._operands = operands
        self._form = form

    def apply(self, op: str, attr: Attr, args: Sequence[FloatArray]) -> FloatArray:
        if op == "cast" and isinstance(attr, DType):
            return round_to(np.asarray(args[0], np.float64), attr)
        return _single(super().apply(op, attr, args))

    def power(self, x: FloatArray, exponent: float) -> FloatArray:
        return _single(super().power(x, exponent))

    def const(self, value: float) -> FloatArray:
        return _single(super().const(value))

    def sum(self, x: FloatArray, axes: Sequence[int]) -> FloatArray:
        axis = max(axes, key=lambda a: x.shape[a])

        def part(tile: slice) -> FloatArray:
            return FloatMeaning.sum(self, x[(slice(None),) * axis + (tile,)], axes)

        return self._in_tiles(x.shape[axis], part)

    def contract(self, a: FloatArray, b: FloatArray, axes: Sequence[int]) -> FloatArray:
        shape = np.broadcast_shapes(a.shape, b.shape)
        axis = max(axes, key=lambda x: shape[x])
        left, right = (with_bits_of(self._operands, _single(x)) for x in (a, b))

        def part(tile: slice) -> FloatArray:
            index = (slice(None),) * axis + (tile,)
            cut = (x if x.shape[axis] < shape[axis] else x[index] for x in (left, right))
            return FloatMeaning.contract(self, *cut, axes)

        return self._in_tiles(shape[axis], part)

    def _in_tiles(self, count: int, part: Callable[[slice], FloatArray]) -> FloatArray:
        form = self._form
        starts = range(0, count, form.tile)[:: -1 if form.backward else 1]
        length = -(-len(starts) // form.parts)
        totals = []
        for first in range(0, len(starts), length):
            total: FloatArray = np.zeros(())
            for start in starts[first : first + length]:
                total = _single(total + _single(part(slice(start, start + form.tile))))
                total = round_to(total, form.kept_in)
            totals.append(total)
        whole = totals[0]
        for total in totals[1:]:
            whole = _single(whole + total)
        return whole


def _single(x: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x, np.float32).astype(np.float64)
