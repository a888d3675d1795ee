"""Layouts: a tensor's axes cut into digits, and the digits joined to other axes.

An axis of 12 elements may be counted by two digits, (3, 4); moving digits between axes is what a
reshape, a transpose and a reshape do together. Layouts compose: a chain of moves stays one layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Value
from mirage_py.ugraph.field import FieldArray

WHOLE = 0
SWAP = -1


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """A part of ``axis`` joined to the axis ``to``.

    The part is its minor digit of ``factor`` values, or its major one; ``WHOLE`` takes all of it
    and leaves an axis of one element. ``last`` puts it behind what is there (as the minor digit),
    else in front. ``SWAP`` exchanges the two axes instead.
    """

    axis: int
    to: int
    factor: int = WHOLE
    minor: bool = False
    last: bool = False

    def __str__(self) -> str:
        if self.factor == SWAP:
            return f"swap {self.axis} {self.to}"
        part = "all" if self.factor == WHOLE else f"{'minor' if self.minor else 'major'} "
        number = "" if self.factor == WHOLE else str(self.factor)
        return f"{part}{number} of {self.axis} {'behind' if self.last else 'before'} {self.to}"


@dataclass(frozen=True, slots=True)
class Layout:
    """``digits`` are the extents of all digits, in the order of the axes they come from; ``source``
    and ``axes`` say which ones an axis of the tensor, and of the result, is made of, major first.
    """

    digits: tuple[int, ...]
    source: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, shape: Sequence[int]) -> Layout:
        """The tensor as it is."""
        alone = tuple((n,) for n in range(len(shape)))
        return cls(tuple(shape), alone, alone)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the result."""
        return tuple(prod(self.digits[d] for d in axis) for axis in self.axes)

    @property
    def is_plain(self) -> bool:
        """Whether it is the tensor as it is."""
        return self.axes == self.source

    def moved(self, move: Move) -> Layout:
        """After one more move; InputError where the factor cuts through a digit."""
        axes = list(self.axes)
        if move.factor == SWAP:
            axes[move.axis], axes[move.to] = axes[move.to], axes[move.axis]
            return Layout(self.digits, self.source, tuple(axes))
        extent = prod(self.digits[d] for d in axes[move.axis])
        if move.factor == WHOLE:
            layout, part = self, axes[move.axis]
            rest: tuple[int, ...] = ()
        else:
            if extent % move.factor or move.factor in (1, extent):
                raise InputError(f"{move.factor} is no proper part of an axis of {extent}")
            minor = move.factor if move.minor else extent // move.factor
            layout, count = self._cut(move.axis, minor)
            whole = layout.axes[move.axis]
            major, low = whole[:count], whole[count:]
            part, rest = (low, major) if move.minor else (major, low)
        axes = list(layout.axes)
        axes[move.axis] = rest
        there = axes[move.to]
        axes[move.to] = (*there, *part) if move.last else (*part, *there)
        return Layout(layout.digits, layout.source, tuple(axes))

    def _cut(self, axis: int, minor: int) -> tuple[Layout, int]:
        """The layout with a border between digits above ``minor`` values of an axis, and how many
        digits are in front of it.
        """
        left = minor
        for place in range(len(self.axes[axis]) - 1, -1, -1):
            extent = self.digits[self.axes[axis][place]]
            if left == 1:
                return self, place + 1
            if left % extent == 0:
                left //= extent
            elif extent % left == 0:
                return self._split(self.axes[axis][place], left), place + 1
            else:
                raise InputError(f"a digit of {extent} values cannot be cut at {left}")
        return self, 0

    def _split(self, digit: int, minor: int) -> Layout:
        """One digit as two."""
        extents = self.digits[digit] // minor, minor
        digits = (*self.digits[:digit], *extents, *self.digits[digit + 1 :])

        def renumbered(axes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
            return tuple(
                tuple(
                    new for d in axis for new in ((d, d + 1) if d == digit else (d + (d > digit),))
                )
                for axis in axes
            )

        return Layout(digits, renumbered(self.source), renumbered(self.axes))

    @property
    def _order(self) -> tuple[int, ...]:
        return tuple(d for axis in self.axes for d in axis)

    @property
    def moved_digits(self) -> tuple[int, ...]:
        """The extents of the digits in the order of the result."""
        return tuple(self.digits[d] for d in self._order)

    def forward(self, builder: GraphBuilder, x: Value) -> Value:
        """The tensor in this layout."""
        if self.is_plain:
            return x
        return _reshaped(builder, self._apart(builder, x), self.shape)

    def _apart(self, builder: GraphBuilder, x: Value) -> Value:
        return _permuted(builder, _reshaped(builder, x, self.digits), self._order)

    def to_digits(self, builder: GraphBuilder, y: Value) -> Value:
        """What is in this layout, as the digits of the tensor in its own order."""
        order = self._order
        back = tuple(order.index(d) for d in range(len(order)))
        return _permuted(builder, _reshaped(builder, y, self.moved_digits), back)

    def of_field(self, array: FieldArray) -> FieldArray:
        """An array in this layout."""
        return array.reshape(self.digits).transpose(self._order).reshape(self.shape)


def _reshaped(builder: GraphBuilder, x: Value, shape: Sequence[int]) -> Value:
    if builder.type_of(x).shape == tuple(shape):
        return x
    return builder.apply("reshape", x, shape=tuple(shape))


def _permuted(builder: GraphBuilder, x: Value, perm: Sequence[int]) -> Value:
    if list(perm) == sorted(perm):
        return x
    return builder.apply("transpose", x, perm=tuple(perm))


def layout_after(shape: Sequence[int], moves: Sequence[Move]) -> Layout:
    """The layout of a tensor after some moves; InputError where one does not fit."""
    layout = Layout.of(shape)
    for move in moves:
        layout = layout.moved(move)
    return layout
