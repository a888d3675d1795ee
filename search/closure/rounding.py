"""Removal of alternatives that rounding spoils, before anything is extracted from a pool.

Equal values are one tensor of a pool, however each way to compute them rounds. The cheapest way to
a variance is the mean square less the squared mean, and extraction would take it and lose all
others. So each way is evaluated on floats: in float64, and with the precision of float32 at the
range of float64 (overflow is left to the stabiliser and the float screen). A way is dropped if its
error is a multiple of that of the best way and of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mirage_py.search.closure.pool import Alternative, Pool
from mirage_py.search.space.leaves import SCALAR_LEAVES, TENSOR_LEAVES
from mirage_py.search.space.spaces import Space, rounding_space
from mirage_py.search.space.values import Values, evaluate
from mirage_py.ugraph.interpret.buffers import FloatArray
from mirage_py.ugraph.ir.dtypes import BOOL, F32, I32, DType
from mirage_py.ugraph.ir.node import REDUCING, Node
from mirage_py.ugraph.ir.program import Program, Tensor
from mirage_py.verify.intervals.structured_inputs import selects
from mirage_py.verify.rounding.kernel_meaning import KernelMeaning, common_half, with_bits_of
from mirage_py.verify.rounding.rounding_inputs import rounding_sets

_BEST_ERRORS = 8.0
_ROUNDINGS = 8.0
_NOTHING = 1e-30

# The value, operator, operands and axes.
_Way = tuple[int, str, tuple[int, ...], tuple[int, ...]]


@dataclass(slots=True)
class _Known:
    """A value in float64 and as the best way gives it, and for each set of inputs its error.

    ``changes`` counts how often another way improved on it; ``scale`` has the largest element of
    each set. ``is_open``: another way may have an element of the exact value that none had so far.
    """

    exact: FloatArray
    rounded: FloatArray
    error: FloatArray
    own: FloatArray | None = None
    changes: int = 0
    is_open: bool = field(init=False)
    scale: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self._measure()

    def _measure(self) -> None:
        self.scale = _largest(self.exact)
        is_whole = self.exact.dtype != np.bool_ and bool(np.isfinite(self.exact).all())
        self.is_open = self.own is None and not is_whole

    def fill(self, exact: FloatArray) -> None:
        """Where one way divides by zero and another does not, the value is what that gives."""
        filled = np.where(np.isfinite(self.exact), self.exact, exact)
        if filled.dtype != self.exact.dtype or not np.array_equal(
            filled, self.exact, equal_nan=True
        ):
            self.exact, self.error = filled, _errors(self.rounded, filled)
            self.changes += 1
            self._measure()


class Rounding:
    """What rounding does to the values of one draw."""

    def __init__(self, program: Program, values: Values) -> None:
        self._space = rounding_space(program, values.space)
        self._operands = common_half(program)
        self._roundoff = max(o.tensor.dtype.unit_roundoff for o in program.outputs)
        self._meaning = KernelMeaning(np.float64, 1)
        self._known: dict[int, _Known] = {}
        # Errors of ways, as long as nothing that they were computed from has changed: most ways are
        # in the pools of many configurations.
        self._errors_of: dict[_Way, tuple[list[int], FloatArray]] = {}
        leaves = [n for n in program.nodes if n.op in TENSOR_LEAVES]
        drawn = _drawn(program, leaves, self._space)
        numbers = evaluate(program, values)
        for position, node in enumerate(program.nodes):
            number = numbers[position]
            if number in self._known:
                continue
            if node.op in TENSOR_LEAVES:
                exact = rounded = drawn[node]
            elif node.op in SCALAR_LEAVES:
                exact = rounded = self._scalar(node.op, str(node.attr))
            elif node.op == "cast":
                continue
            else:
                reduced = node.reduced if node.op in REDUCING else ()
                axes = [x for d in reduced for x in self._space.axes[d]]
                args = tuple(numbers[a] for a in node.args)
                exact, rounded = self._made(node.op, args, axes)
            error = _errors(rounded, exact)
            self._known[number] = _Known(exact, rounded, error, error)

    def prune(self, pool: Pool) -> list[tuple[int, Alternative]]:
        """Take the ways out of the pool that rounding spoils; what was taken, by tensor."""
        removed: list[tuple[int, Alternative]] = []
        for number, tensor in enumerate(pool.tensors):
            errors = [self._error(pool, number, way) for way in tensor.alternatives]
            known = self._known.get(tensor.value)
            if known is None or len(errors) < 2:
                continue
            own = known.error if known.own is None else np.maximum(known.error, known.own)
            allowed = _BEST_ERRORS * own + _ROUNDINGS * self._roundoff * known.scale + _NOTHING
            spoilt = [
                w
                for w, e in zip(tensor.alternatives, errors, strict=True)
                if e is not None and (e > allowed).any()
            ]
            if len(spoilt) < len(errors):
                removed += [(number, w) for w in spoilt]
                tensor.alternatives = [w for w in tensor.alternatives if w not in spoilt]
        return removed

    def _error(self, pool: Pool, number: int, way: Alternative) -> FloatArray | None:
        """The error of a way on each set of inputs, None where it is not known."""
        tensor = pool[number]
        args = tuple(pool[a].value for a in way.args)
        known = self._known.get(tensor.value)
        if not way.args:
            if known is None and way.op in SCALAR_LEAVES:
                exact = self._scalar(way.op, str(way.attr))
                self._known[tensor.value] = _Known(exact, exact, _errors(exact, exact))
            return None
        if any(a not in self._known for a in args):
            return None
        axes = tuple(self._axes(way, tensor.looped))
        if known is None:
            exact, rounded = self._made(way.op, args, axes)
            error = _errors(rounded, exact)
            self._known[tensor.value] = _Known(exact, rounded, error)
            return error
        key = (tensor.value, way.op, args, axes)
        operands = [self._known[a].changes for a in args]
        before, error = self._errors_of.get(key, ([], known.error))
        if before != [known.changes, *operands]:
            error = self._compared(known, way.op, args, axes)
            self._errors_of[key] = ([known.changes, *operands], error)
        return error

    def _compared(
        self, known: _Known, op: str, args: tuple[int, ...], axes: Sequence[int]
    ) -> FloatArray:
        """The error of what a way gives, which is kept if it is the smallest."""
        if known.is_open:
            known.fill(self._exact(op, args, axes))
        rounded = self._rounded(op, args, axes)
        error = _errors(rounded, known.exact)
        scale = known.scale + _NOTHING
        if (error / scale).max() < (known.error / scale).max():
            known.rounded, known.error = rounded, error
            known.changes += 1
        return error

    def _axes(self, way: Alternative, looped: str | None) -> list[int]:
        if not isinstance(way.attr, tuple):
            return []
        dims = [str(d) for d in way.attr]
        if way.op.startswith("accum_"):
            return [self._space.axes[d][0] for d in dims]
        # In its own loop a dimension is reduced over its tile, elsewhere over all of it.
        return [x for d in dims for x in self._space.axes[d][1 if d == looped else 0 :]]

    def _made(
        self, op: str, args: tuple[int, ...], axes: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        return self._exact(op, args, axes), self._rounded(op, args, axes)

    def _exact(self, op: str, args: tuple[int, ...], axes: Sequence[int]) -> FloatArray:
        return self._applied(op, [self._known[a].exact for a in args], axes)

    def _rounded(self, op: str, args: tuple[int, ...], axes: Sequence[int]) -> FloatArray:
        operands = [self._known[a].rounded for a in args]
        if op == "matmul" and self._operands is not None:
            operands = [with_bits_of(self._operands, x) for x in operands]
        rounded = self._applied(op, operands, axes)
        return rounded if rounded.dtype == np.bool_ else with_bits_of(F32, rounded)

    def _applied(self, op: str, args: Sequence[FloatArray], axes: Sequence[int]) -> FloatArray:
        meaning = self._meaning
        with np.errstate(all="ignore"):
            if op == "matmul":
                return meaning.contract(args[0], args[1], axes)
            if op.removeprefix("accum_") == "sum":
                return meaning.sum(args[0], axes)
            if op.removeprefix("accum_") == "max":
                return meaning.max(args[0], axes)
            return meaning.apply(op, None, args)

    def _scalar(self, op: str, text: str) -> FloatArray:
        number = float(text) if op == "const" else float(self._space.extent(text))
        return np.full((1,) * self._space.rank, number)


def _drawn(program: Program, leaves: Sequence[Node], space: Space) -> dict[Node, FloatArray]:
    """Every leaf on all sets of inputs, which are the first axis."""
    tensors = [
        Tensor(f"{n}", tuple(space.extent(d) for d in space.dims if d in leaf.dims), dtype)
        for n, leaf in enumerate(leaves)
        for dtype in [_type(program, leaf)]
    ]
    sets = [arrays for _, arrays in rounding_sets(tensors, 0, masked=selects(program))]
    return {
        leaf: np.stack([s[t.name] for s in sets]).reshape(len(sets), *space.shape(leaf.dims)[1:])
        for leaf, t in zip(leaves, tensors, strict=True)
    }


def _type(program: Program, leaf: Node) -> DType:
    if leaf.op == "load":
        return program.tensors[leaf.access.tensor].dtype
    return BOOL if leaf.op == "mask" else I32


def _errors(rounded: FloatArray, exact: FloatArray) -> FloatArray:
    """The largest error on each set of inputs, where there is a value."""
    with np.errstate(all="ignore"):
        distance = np.subtract(rounded, exact, dtype=np.float64)
        np.abs(distance, out=distance)
        largest = _largest(distance, finite=False)
        if np.isfinite(largest).all():  # so both are, everywhere
            return largest
        distance = np.where(np.isfinite(rounded), distance, np.inf)
    return _largest(np.where(np.isfinite(exact), distance, 0.0), finite=False)


def _largest(values: FloatArray, *, finite: bool = True) -> FloatArray:
    sizes = np.abs(np.asarray(values, np.float64))
    largest = np.asarray(sizes.reshape(len(sizes), -1).max(axis=1))
    if not finite or np.isfinite(largest).all():
        return largest
    sizes = np.where(np.isfinite(sizes), sizes, 0.0)
    return np.asarray(sizes.reshape(len(sizes), -1).max(axis=1))
