"""Tiles that TMA can load: boxes of the tensor, or pixels of windows (im2col).

A box is a panel of a tile, of at most 128 bytes a row, which TMA writes with the swizzle of
``SharedTile``. It begins anywhere, and goes evenly along axes of the tensor: positions may be sums
of dimensions, their multiples, and digits of a loop that are constant within its tile. Outside of
the tensor TMA reads zeros.

Places of an image that are one dimension, ``x[n, p // w + i, p % w + j, c]``, are no box where a
tile of them crosses a line. TMA's im2col mode goes along them: it takes so many pixels from a
place on, line by line, each moved by an offset (PTX ISA, "im2col mode").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mirage_py.codegen.cuda.analysis.block_analysis import BlockAnalysis
from mirage_py.codegen.cuda.layout.staging import Staged
from mirage_py.codegen.tiling.contiguity import merged_step, steps_along
from mirage_py.ugraph.ir.index import IndexExpr, add, const
from mirage_py.ugraph.ir.node import REDUCING

_MOST_AXES = 5
_MOST_POINTS = 256
_MOST_PIXELS = 1024
_MOST_PANELS = 16
_MOST_STEP = 8
_GRANULE_BYTES = 16
# Of what it writes to shared memory.
_ALIGNMENT_BYTES = 128
# By the number of an image's axes that windows move along: bits of an offset, and of a signed
# corner of the bounding box.
_OFFSET_BITS = {1: 16, 2: 8, 3: 5}


@dataclass(frozen=True, slots=True)
class Windows:
    """What im2col mode knows besides: by axis of the image, the last of them first, ``steps`` from
    place to place, where the last place is, counted back from the tensor's end (``corners``, which
    are not positive), and ``offsets`` of the pixels from their places.
    """

    steps: tuple[int, ...]
    corners: tuple[int, ...]
    offsets: tuple[IndexExpr, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A tile as TMA sees it: ``axes`` of the tensor, the contiguous one first, where the tile
    begins along each (``places``), the points along each and the steps between them, and how many
    such panels make the tile. In ``windows`` the points are channels and pixels.
    """

    axes: tuple[int, ...]
    places: tuple[IndexExpr, ...]
    points: tuple[int, ...]
    steps: tuple[int, ...]
    panels: int
    windows: Windows | None = None


def tma_box(facts: BlockAnalysis, staged: Staged) -> Box | None:
    """How TMA loads a tile; None where it cannot."""
    tile = staged.tile
    if facts.block.nodes[staged.load].access.is_look_up:
        return None
    width = _width(staged)
    panels = (1 << len(tile.columns)) // width
    panel_bytes = width * tile.element_bytes << len(tile.rows)
    whole = tile.row_bytes % _GRANULE_BYTES == 0 and panel_bytes % _ALIGNMENT_BYTES == 0
    if not whole or panels > _MOST_PANELS:
        return None
    box = _plain_box(facts, staged, panels) or _window_box(facts, staged, panels)
    return box if box is not None and _is_aligned(facts, staged, box.axes) else None


def _width(staged: Staged) -> int:
    """Elements of a panel's row."""
    tile = staged.tile
    if not tile.rows:  # no panels: its rows would follow one another
        return min(_MOST_POINTS, 1 << len(tile.columns))
    return tile.row_bytes // tile.element_bytes


def _is_aligned(facts: BlockAnalysis, staged: Staged, axes: Sequence[int]) -> bool:
    strides = facts.tensors[facts.block.nodes[staged.load].access.tensor].element_strides
    steps = [strides[a] * staged.tile.element_bytes for a in axes[1:]]
    return strides[axes[0]] == 1 and all(s > 0 and s % _GRANULE_BYTES == 0 for s in steps)


def _plain_box(facts: BlockAnalysis, staged: Staged, panels: int) -> Box | None:
    load, tile = staged.load, staged.tile
    node, section = facts.block.nodes[load], facts.section(load)
    tensor, index = facts.tensors[node.access.tensor], node.access.index
    axis_of: dict[str, int] = {}
    step_of: dict[str, int] = {}
    for d in facts.live(load):
        found = _axis_along(index, d, facts.extent(load, d))
        if found is None:
            return None
        axis_of[d], step_of[d] = found
    rows = tuple(dict.fromkeys(b[0] for b in tile.rows))
    if {tile.dim, *rows} != {*axis_of} or step_of[tile.dim] != 1:
        return None
    # Dimensions that lie behind one another along an axis are one.
    along: dict[int, list[tuple[str, int]]] = {}
    for d in rows:
        along.setdefault(axis_of[d], []).append((d, facts.extent(load, d)))
    merged = {a: merged_step(index[a], dims) for a, dims in along.items()}
    is_apart = [axis_of[d] for d in rows] == [a for a, dims in along.items() for _ in dims]
    if axis_of[tile.dim] in along or not is_apart or None in merged.values():
        return None
    shown = (axis_of[tile.dim], *along)
    others = tuple(a for a, e in enumerate(tensor.shape) if a not in shown and e > 1)
    axes = (*shown, *others)
    counts = (prod(extent for _, extent in dims) for dims in along.values())
    points = (_width(staged), *counts, *(1 for _ in others))
    steps = (1, *(step for step in merged.values() if step), *(1 for _ in others))
    reach = [n * s for n, s in zip(points, steps, strict=True)]
    fits = len(axes) <= _MOST_AXES and max(reach) <= _MOST_POINTS and max(steps) <= _MOST_STEP
    # Past the end of the tensor the engine gives zeros, as a masked copy does.
    inside = all(
        (index[a].is_dim and facts.program.sizes[d] == tensor.shape[a])
        or _may_be_any(facts, load, d)
        for d, a in axis_of.items()
        if facts.tiling.has_tail(d, section)
    )
    return (
        Box(axes, tuple(index[a] for a in axes), points, steps, panels) if fits and inside else None
    )


def _axis_along(index: Sequence[IndexExpr], dim: str, extent: int) -> tuple[int, int] | None:
    """The one axis along which a tile goes with a dimension, and the step; None where there are
    several, or none, or it goes unevenly.
    """
    found = [(a, steps_along(e, dim, extent)[0]) for a, e in enumerate(index) if dim in e.dims()]
    moving = [(a, step) for a, step in found if step != 0]
    if len(moving) != 1:
        return None
    ((axis, step),) = moving
    return (axis, step) if step is not None and step > 0 else None


def _may_be_any(facts: BlockAnalysis, load: int, dim: str) -> bool:
    """Whether it is no matter what a tile holds past the end of a dimension: matmuls alone read it,
    and nothing is reduced over what is a row or column of theirs.
    """
    reduced = (d for n in facts.block.nodes if n.op in REDUCING for d in n.reduced)
    return not facts.reads_in_registers(load) and dim not in reduced


def _window_box(facts: BlockAnalysis, staged: Staged, panels: int) -> Box | None:
    load, tile = staged.load, staged.tile
    node, section = facts.block.nodes[load], facts.section(load)
    tensor, index = facts.tensors[node.access.tensor], node.access.index
    along = tuple(dict.fromkeys(b[0] for b in tile.rows))
    if len(along) != 1 or {tile.dim, *along} != {*facts.live(load)}:
        return None
    (place,) = along
    if facts.tiling.has_tail(tile.dim, section) or 1 << len(tile.rows) > _MOST_PIXELS:
        return None
    if facts.tiling.has_tail(place, section) and not _may_be_any(facts, load, place):
        return None
    parts = [_parted(e, place) for e in index]
    if any(moving is None for moving, _ in parts):
        return None
    found = _axis_along(index, tile.dim, facts.extent(load, tile.dim))
    moved = [a for a, (moving, _) in enumerate(parts) if place in moving.dims()]  # type: ignore[union-attr]
    if found is None or found[1] != 1 or found[0] in moved:
        return None
    strides = tensor.element_strides
    moved.sort(key=lambda a: strides[a])
    still = [a for a in range(len(index)) if a not in moved and a != found[0]]
    large = [a for a in still if tensor.shape[a] > 1]
    # The outermost axis is the image's number: of one image with several axes the first one.
    outer = (large or still or moved[-1:])[:1]
    inner = [a for a in moved if a not in outer]
    if len(large) > 1 or not 1 <= len(inner) <= 3:
        return None
    size = facts.program.sizes[place]
    digits = _digits([parts[a][0].evaluate({place: np.arange(size)}) for a in moved])  # type: ignore[union-attr]
    if digits is None or (not still and digits[-1][1] != 1):
        return None
    steps = tuple(step for _, step in digits[: len(inner)])
    corners = tuple(
        (count - 1) * step - (tensor.shape[a] - 1)
        for a, (count, step) in zip(inner, digits, strict=False)
    )
    offsets = tuple(parts[a][1] for a in inner)
    bits = _OFFSET_BITS[len(inner)]
    ranges = [e.bounds(facts.program.sizes) for e in offsets]
    fits = (
        max(steps) <= _MOST_STEP
        and all(-(1 << bits - 1) <= c <= 0 for c in corners)
        and all(0 <= low and high < 1 << bits for low, high in ranges)
    )
    if not fits:
        return None
    axes = (found[0], *inner, *outer)
    places = (index[found[0]], *(parts[a][0] for a in inner), *(index[a] for a in outer))
    points = (_width(staged), 1 << len(tile.rows))
    windows = Windows(steps, corners, offsets)
    return Box(axes, places, points, (1,) * len(axes), panels, windows)  # type: ignore[arg-type]


def _parted(expr: IndexExpr, dim: str) -> tuple[IndexExpr | None, IndexExpr]:
    """What of a sum moves with a dimension alone, and the rest; None where a term has others."""
    moving, rest = const(0), const(0)
    for term in _terms(expr):
        if dim not in term.dims():
            rest = add(rest, term)
        elif term.dims() != (dim,):
            return None, rest
        else:
            moving = add(moving, term)
    return moving, rest


def _terms(expr: IndexExpr) -> list[IndexExpr]:
    return [t for a in expr.args for t in _terms(a)] if expr.op == "add" else [expr]


def _digits(
    values: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]],
) -> list[tuple[int, int]] | None:
    """For each sequence, the fastest first, how many values it has and the step between them, where
    they are the digits of 0, 1, 2, ..., in multiples; None where they are not.
    """
    found: list[tuple[int, int]] = []
    for number, sequence in enumerate(values):
        period = prod(count for count, _ in found)
        every = sequence[::period]
        if len(every) < 2 or every[0] != 0 or every[1] <= 0:
            return None
        falls = np.flatnonzero(np.diff(every) <= 0)
        is_last = number == len(values) - 1
        count = len(every) if is_last or not len(falls) else int(falls[0]) + 1
        step = int(every[1])
        wanted = np.arange(len(sequence)) // period % count * step
        if not np.array_equal(sequence, wanted):
            return None
        found.append((count, step))
    return found
