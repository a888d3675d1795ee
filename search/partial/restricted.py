"""A part of a program: its one operator computed for a box of its result alone.

A box of digits is a regular grid of positions along each axis; a convolution of such a grid is one
of a larger stride, on a piece of its image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Node, Value


@dataclass(frozen=True, slots=True)
class Grid:
    """``count`` positions of an axis, ``step`` apart, from ``start`` on."""

    start: int
    step: int
    count: int

    @property
    def stop(self) -> int:
        """One behind the last position."""
        return self.start + (self.count - 1) * self.step + 1


@dataclass(frozen=True, slots=True)
class Part:
    """A box of digits whose positions are a grid along each axis of the result."""

    box: tuple[tuple[int, int], ...]
    grids: tuple[Grid, ...]


def parts_of(digits: Sequence[Sequence[int]], box: Sequence[tuple[int, int]]) -> list[Part]:
    """A box in pieces that are grids: a digit whose positions are none is taken value by value."""
    along: list[list[tuple[tuple[tuple[int, int], ...], Grid]]] = []
    place = 0
    for extents in digits:
        ends = box[place : place + len(extents)]
        place += len(extents)
        along.append(_grids(extents, ends))
    return [
        Part(tuple(e for ends, _ in chosen for e in ends), tuple(grid for _, grid in chosen))
        for chosen in product(*along)
    ]


def _grids(
    extents: Sequence[int], ends: Sequence[tuple[int, int]]
) -> list[tuple[tuple[tuple[int, int], ...], Grid]]:
    found: list[tuple[tuple[tuple[int, int], ...], Grid]] = [((), Grid(0, 1, 1))]
    unit = 1
    for extent, (low, high) in reversed(list(zip(extents, ends, strict=True))):
        more: list[tuple[tuple[tuple[int, int], ...], Grid]] = []
        for inner, grid in found:
            count, start = high - low, grid.start + low * unit
            if count == 1:
                more.append((((low, high), *inner), Grid(start, grid.step, grid.count)))
            elif grid.count == 1:
                more.append((((low, high), *inner), Grid(start, unit, count)))
            elif grid.step * grid.count == unit:
                more.append((((low, high), *inner), Grid(start, grid.step, grid.count * count)))
            else:
                more += [
                    (((n, n + 1), *inner), Grid(grid.start + n * unit, grid.step, grid.count))
                    for n in range(low, high)
                ]
        found = more
        unit *= extent
    return found


def restricted(builder: GraphBuilder, node: Node, grids: Sequence[Grid]) -> Value:
    """The result of an operator, whose operands are inputs, on grids of positions only."""
    if node.operator in ("matmul", "bmm"):
        return _product(builder, node, node.inputs, grids)
    return _convolution(builder, node, node.inputs, grids)


def _sliced(builder: GraphBuilder, x: Value, axis: int, grid: Grid) -> Value:
    extent = builder.type_of(x).shape[axis]
    if grid == Grid(0, 1, extent):
        return x
    return builder.apply("slice", x, axis=axis, start=grid.start, stop=grid.stop, step=grid.step)


def _product(
    builder: GraphBuilder, node: Node, operands: Sequence[Value], grids: Sequence[Grid]
) -> Value:
    a, b = operands
    rank = len(grids)
    for axis, grid in enumerate(grids[:-2]):
        found: list[Value] = []
        for x in (a, b):
            shape = builder.type_of(x).shape
            own = axis - rank + len(shape)
            found.append(_sliced(builder, x, own, grid) if own >= 0 and shape[own] > 1 else x)
        a, b = found
    a = _sliced(builder, a, builder.type_of(a).rank - 2, grids[-2])
    b = _sliced(builder, b, builder.type_of(b).rank - 1, grids[-1])
    return builder.apply(node.operator, a, b)


def _convolution(
    builder: GraphBuilder, node: Node, operands: Sequence[Value], grids: Sequence[Grid]
) -> Value:
    image, weight = operands
    attributes: dict[str, Any] = dict(node.values)
    image = _sliced(builder, image, 0, grids[0])
    # Groups have channels of their own; a box cuts through none of them but where it takes all.
    if attributes["groups"] == 1:
        weight = _sliced(builder, weight, 0, grids[1])
    kernel = builder.type_of(weight).shape[2:]
    before, after, stride = [0, 0], [0, 0], []
    for n, grid in enumerate(grids[2:]):
        size = builder.type_of(image).shape[2 + n]
        step, dilation = attributes["stride"][n], attributes["dilation"][n]
        low = grid.start * step - attributes["padding"][n]
        high = low + (grid.count - 1) * grid.step * step + (kernel[n] - 1) * dilation + 1
        start, stop = min(max(low, 0), size - 1), max(min(high, size), 1)
        image = _sliced(builder, image, 2 + n, Grid(start, 1, stop - start))
        before.append(start - low)
        after.append(high - stop)
        stride.append(step * grid.step)
    even = before == after and all(n <= k // 2 for n, k in zip(before[2:], kernel, strict=True))
    attributes["stride"] = tuple(stride)
    attributes["padding"] = tuple(before[2:]) if even else (0,) * len(kernel)
    if not even:
        image = builder.apply("pad", image, before=tuple(before), after=tuple(after))
    result = builder.apply(node.operator, image, weight, **attributes)
    return result if attributes["groups"] == 1 else _sliced(builder, result, 1, grids[1])
