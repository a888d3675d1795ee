"""Cuts: positions along each axis of a tensor between which all elements are computed alike.

Between neighbouring cuts of all axes lies a box. In a box each element is a sum over the same
region, of products whose indices are affine in the element's position: padding begins, a window
leaves one image for the next, or one digit of an axis turns over at a cut and nowhere else.

Source: PET (OSDI 2021), section 5.1, box propagation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirage_py.errors import UnsupportedError
from mirage_py.networks.ir.graph import INPUTS, Graph, Node, Value
from mirage_py.ugraph.building.factorisation import grouped, refinement, segments

# Positions in [1, extent), ascending.
AxisCuts = tuple[int, ...]
Cuts = tuple[AxisCuts, ...]


def cuts_of(graph: Graph, value: Value) -> Cuts:
    """The cuts of each axis of a value.

    UnsupportedError for operators whose elements are not sums of products.
    """
    found: dict[Value, Cuts] = {
        Value(INPUTS, n): ((),) * entry.type.rank for n, entry in enumerate(graph.inputs)
    }
    for number, node in enumerate(graph.nodes):
        operands = [found[v] for v in node.inputs]
        shapes = [graph.type_of(v).shape for v in node.inputs]
        if node.operator == "split":
            found |= zip(
                (Value(number, n) for n in range(len(node["sizes"]))),
                _pieces(node, operands[0]),
                strict=True,
            )
            continue
        result = graph.types[number][0].shape
        found[Value(number)] = _through(node, operands, shapes, result)
    return found[value]


def _through(
    node: Node,
    operands: Sequence[Cuts],
    shapes: Sequence[tuple[int, ...]],
    result: tuple[int, ...],
) -> Cuts:
    op = node.operator
    if op == "reshape":
        return reshaped_cuts(operands[0], shapes[0], result)
    if op == "expand":
        return (*((),) * (len(result) - len(shapes[0])), *operands[0])
    if op == "transpose":
        return tuple(operands[0][p] for p in node["perm"])
    if op in ("conv1d", "conv2d", "conv3d"):
        return _convolved(node, operands, shapes, result)
    if op in ("matmul", "bmm"):
        return _multiplied(operands)
    if op == "concat":
        return _concatenated(node["axis"], operands, shapes)
    if op == "pad":
        sides = zip(operands[0], node["before"], shapes[0], result, strict=True)
        return tuple(_normal([at, at + size, *(at + c for c in cuts)], extent)
                     for cuts, at, size, extent in sides)  # fmt: skip
    if op == "overwrite":
        along = zip(*operands, node["start"], shapes[1], result, strict=True)
        return tuple(_normal([*cuts, at, at + size, *(at + c for c in inner)], extent)
                     for cuts, inner, at, size, extent in along)  # fmt: skip
    if op == "slice":
        cuts = list(operands[0])
        axis, start, step = node["axis"], node["start"], node["step"]
        cuts[axis] = _normal([-(-(c - start) // step) for c in cuts[axis]], result[axis])
        return tuple(cuts)
    raise UnsupportedError(f"the boxes of '{op}'", why="it is not made of sums of products")


def _pieces(node: Node, cuts: Cuts) -> list[Cuts]:
    axis, found, start = node["axis"], [], 0
    for size in node["sizes"]:
        inside = _normal([c - start for c in cuts[axis]], size)
        found.append((*cuts[:axis], inside, *cuts[axis + 1 :]))
        start += size
    return found


def _normal(cuts: Sequence[int], extent: int) -> AxisCuts:
    return tuple(sorted({c for c in cuts if 0 < c < extent}))


def _convolved(
    node: Node,
    operands: Sequence[Cuts],
    shapes: Sequence[tuple[int, ...]],
    result: tuple[int, ...],
) -> Cuts:
    """A window has a cut where any of its elements passes one of the image, or its border."""
    image, weight = operands
    groups = node["groups"]
    rows = result[1] // groups
    # Channel f reads the group f // rows: affine within a group, or where groups have one row.
    borders = [rows * n for n in range(groups)] if rows > 1 else []
    found = [image[0], _normal([*borders, *weight[0]], result[1])]
    for n, cuts in enumerate(image[2:]):
        stride, before, dilation = (node[name][n] for name in ("stride", "padding", "dilation"))
        borders = [0, shapes[0][2 + n], *cuts]
        places = [
            -(-(at + before - tap * dilation) // stride)
            for at in borders
            for tap in range(shapes[1][2 + n])
        ]
        found.append(_normal(places, result[2 + n]))
    return tuple(found)


def _multiplied(operands: Sequence[Cuts]) -> Cuts:
    a, b = operands
    rank = max(len(a), len(b))
    stacks = [((),) * (rank - len(c)) + c[:-2] for c in (a, b)]
    stack = [tuple(sorted({*one, *other})) for one, other in zip(*stacks, strict=True)]
    return (*stack, a[-2], b[-1])


def _concatenated(axis: int, operands: Sequence[Cuts], shapes: Sequence[tuple[int, ...]]) -> Cuts:
    found = [
        tuple(sorted({c for cuts in along for c in cuts})) for along in zip(*operands, strict=True)
    ]
    joined: list[int] = []
    start = 0
    for cuts, shape in zip(operands, shapes, strict=True):
        joined += [start, *(start + c for c in cuts[axis])]
        start += shape[axis]
    found[axis] = _normal(joined, start)
    return tuple(found)


def reshaped_cuts(cuts: Cuts, old: Sequence[int], new: Sequence[int]) -> Cuts:
    """The cuts of a tensor under another shape: axes fall into digits, and digits make axes."""
    olds = [n for n, extent in enumerate(old) if extent > 1]
    news = [n for n, extent in enumerate(new) if extent > 1]
    found: list[AxisCuts] = [()] * len(new)
    for ours, theirs in segments([old[n] for n in olds], [new[n] for n in news]):
        before, after = [old[olds[n]] for n in ours], [new[news[n]] for n in theirs]
        digits = refinement(before, after)
        if digits is None:
            raise UnsupportedError(f"the boxes of a reshape of {before} to {after}")
        fine: list[AxisCuts] = []
        for place, extents in zip(ours, grouped(digits, before), strict=True):
            fine += _split(cuts[olds[place]], extents)
        ends = iter(zip(fine, digits, strict=True))
        for place, extents in zip(theirs, grouped(digits, after), strict=True):
            found[news[place]] = _joined([next(ends) for _ in extents])
    return tuple(found)


def _split(cuts: AxisCuts, extents: Sequence[int]) -> list[AxisCuts]:
    """A cut of a number between two of its values, as cuts of its digits."""
    found: list[list[int]] = [[] for _ in extents]
    for cut in cuts:
        rest, unit = cut, prod(extents)
        for place, extent in enumerate(extents):
            unit //= extent
            digit, rest = divmod(rest, unit)
            found[place] += [digit, digit + 1] if rest else [digit]
            if not rest:
                break
    return [_normal(places, extent) for places, extent in zip(found, extents, strict=True)]


def _joined(digits: Sequence[tuple[AxisCuts, int]]) -> AxisCuts:
    """The cuts of a number from those of its digits: also where a minor digit turns over."""
    found, total = digits[0]
    for cuts, extent in digits[1:]:
        turns = [*range(0, total * extent, extent)] if extent > 1 else []
        places = [n * extent + c for n in range(total) for c in cuts]
        found = _normal([*(c * extent for c in found), *turns, *places], total * extent)
        total *= extent
    return found
