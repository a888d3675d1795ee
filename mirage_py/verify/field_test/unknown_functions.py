"""Programs as rational functions of their inputs and of the values of unknown functions.

Over this meaning exp, sqrt, log and the like are functions of which nothing is known (but for
exp(-a) = 1 / exp(a) and exp(0) = 1): each new argument has a new random value. Two graphs that
agree here agree as rational functions of the inputs and of those values, whatever the functions
are, and how likely a disagreement is to be missed can be proven (see
mirage_py.verify.field_test.error_bound). What needs more, exp(a) exp(b) = exp(a + b) say, disagrees
here although it is right.

A value that only shifts exponents is a variable of its own, with exp(a - shift) = exp(a) /
exp(shift): the shift of a stabilised exponential and every maximum. Such a value that gets anywhere
else, into a product say, is refused. Values are FieldArrays whose q part counts shifts; None is
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import cast

import numpy as np

from mirage_py.errors import UnsupportedError
from mirage_py.ugraph.field import FieldArray, FieldOps
from mirage_py.ugraph.field import residues as rs
from mirage_py.ugraph.field.values import Residues
from mirage_py.ugraph.interpret.meaning import FieldMeaning
from mirage_py.ugraph.ir.node import Attr
from mirage_py.ugraph.operators import Calls, operator

# A pair of residues as one number.
_PAIR = np.int64(1 << 31)


class UnknownFunctions:
    """One random function for each name, its values drawn as they are asked for."""

    def __init__(self, p: int, seed: int) -> None:
        self._p = p
        self._draw = np.random.default_rng([seed % (1 << 63), p])
        self._tables: dict[str, tuple[Residues, Residues]] = {}

    def __call__(self, name: str, *arguments: Residues) -> Residues:
        """The values, none of them 0, at one or two broadcast arguments."""
        key = np.asarray(arguments[0])
        for argument in arguments[1:]:
            key = key * _PAIR + argument
        wanted, where = np.unique(key, return_inverse=True)
        keys, values = self._tables.get(name, (wanted[:0], wanted[:0]))
        place = np.searchsorted(keys, wanted)
        is_known = place < keys.size
        is_known[is_known] = keys[place[is_known]] == wanted[is_known]
        new = wanted[~is_known]
        if new.size:
            keys = np.concatenate([keys, new])
            values = np.concatenate([values, self._draw.integers(1, self._p, size=new.size)])
            order = np.argsort(keys)
            keys, values = keys[order], values[order]
            self._tables[name] = keys, values
            place = np.searchsorted(keys, wanted)
        return np.asarray(values[place][where].reshape(key.shape))


class UnknownFunctionMeaning(FieldMeaning):
    """See the module. Of two maxima no two are related, not even of the same values.

    Raises DivisionByZero where the trial must be drawn again, UnsupportedError where a shift leaves
    the exponents.
    """

    def __init__(self, ops: FieldOps) -> None:
        super().__init__(ops)
        self._functions = UnknownFunctions(ops.field.p, ops.seed)
        self._exponents = 0
        self._calls = Calls(self.apply, self.const)

    def apply(self, op: str, attr: Attr, args: Sequence[FieldArray]) -> FieldArray:
        if op == "cast" and self.ops.reading.is_opaque(str(attr)):
            _refuse_shift(args[0], op)
            return self.of_parity("odd", f"cast {attr}", args[0])
        if op in _SHIFTABLE:
            return self._linear(op, args)
        if op in _SELECTIONS and any(a.q is not None for a in args):
            return self._exponent(np.broadcast_shapes(*(a.shape for a in args)))
        if op == "exp":
            return self._exp(args[0])
        for a in args:
            _refuse_shift(a, op)
        if op == "where":
            # The value of a comparison is a variable: what holds for all of them holds for 0 and 1.
            return _bare(self.ops.blend(*args))
        row = operator(op)
        if row.defined is not None:
            return cast(FieldArray, row.defined(self._calls, *args))
        if row.is_rational:
            return _bare(super().apply(op, attr, args))
        return self.of_parity(row.parity, op, args[0]) if row.parity else self._unknown(op, args)

    def power(self, x: FieldArray, exponent: float) -> FieldArray:
        _refuse_shift(x, "pow")
        return _value(self._functions(f"power {exponent!r}", x.p))

    def select(self, mask: FieldArray, x: FieldArray) -> FieldArray:
        return self.apply("mul", None, (mask, x))

    def shift(self, x: FieldArray, key: str) -> FieldArray:
        return self._exponent(x.shape, f"shift {key}")

    def const(self, value: float) -> FieldArray:
        return _bare(super().const(value)) if isfinite(value) else self._exponent(())

    def size(self, extent: int) -> FieldArray:
        return _bare(super().size(extent))

    def index(self, values: Residues) -> FieldArray:
        return _bare(super().index(values))

    def mask(self, truth: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> FieldArray:
        return _bare(super().mask(truth))

    def sum(self, x: FieldArray, axes: Sequence[int]) -> FieldArray:
        _refuse_shift(x, "sum")
        return super().sum(x, axes)

    def max(self, x: FieldArray, axes: Sequence[int]) -> FieldArray:
        return self._exponent([1 if n in axes else e for n, e in enumerate(x.shape)])

    def contract(self, a: FieldArray, b: FieldArray, axes: Sequence[int]) -> FieldArray:
        _refuse_shift(a, "matmul")
        _refuse_shift(b, "matmul")
        return super().contract(a, b, axes)

    def rescale(self, old: FieldArray, new: FieldArray, degree: int) -> FieldArray:
        moved = self._linear("sub", (old, new))
        assert moved.q is not None
        field = self.ops.field
        times = FieldArray(moved.p * degree % field.p, moved.q * degree % field.q)
        return self._exp(times)

    def _linear(self, op: str, args: Sequence[FieldArray]) -> FieldArray:
        if all(a.q is None for a in args):
            return super().apply(op, None, args)
        known = [FieldArray(a.p, np.zeros_like(a.p) if a.q is None else a.q) for a in args]
        return super().apply(op, None, known)

    def _exp(self, a: FieldArray) -> FieldArray:
        p = self.ops.field.p
        value = self._functions("exp", np.minimum(a.p, p - a.p))
        flipped = np.where(2 * a.p > p, rs.inverse(value, p), value)
        result = np.where(a.p == 0, 1, flipped)
        if a.q is not None:
            result = rs.multiply(result, self.ops.exp(a).p, p)
        return _value(result)

    def _unknown(self, op: str, args: Sequence[FieldArray]) -> FieldArray:
        name, swapped = _MIRRORED.get(op, (op, False))
        operands = [a.p for a in (reversed(args) if swapped else args)]
        if len(operands) == 2:
            operands = list(np.broadcast_arrays(*operands))
            if op in _COMMUTATIVE:
                operands = [np.minimum(*operands), np.maximum(*operands)]
        return _value(self._functions(name, *operands))

    def _exponent(self, shape: Sequence[int], key: str = "") -> FieldArray:
        """A free value: its exp is a variable, and it has no other use."""
        self._exponents += 1
        drawn = self.ops.random(shape, key or f"exponent {self._exponents}")
        return FieldArray(np.zeros_like(drawn.p), drawn.q)

    def of_parity(self, parity: str, name: str, a: FieldArray) -> FieldArray:
        """An unknown function f with f(-a) = -f(a), or f(-a) = f(a)."""
        p = self.ops.field.p
        value = self._functions(name, np.minimum(a.p, p - a.p))
        if parity == "even":
            return _value(value)
        return _value(rs.multiply(value, np.sign(p - 2 * a.p) * (a.p > 0), p))


# Operators through which a shift may pass on its way to an exponent.
_SHIFTABLE = ("add", "sub", "neg", "cast")
# What these make of such a value is another one.
_SELECTIONS = ("maximum", "minimum", "where")
_COMMUTATIVE = ("maximum", "minimum", "eq", "ne")
# a > b is b < a.
_MIRRORED = {"gt": ("lt", True), "ge": ("le", True)}


def _value(p_part: Residues) -> FieldArray:
    return FieldArray(p_part, None)


def _bare(a: FieldArray) -> FieldArray:
    return a if a.q is None else _value(a.p)


def _refuse_shift(a: FieldArray, op: str) -> None:
    if a.q is not None:
        raise UnsupportedError(
            f"a shift reaches '{op}'",
            why="the error bound knows shifts inside exponents only",
        )
