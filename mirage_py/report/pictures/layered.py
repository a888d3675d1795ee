"""A layered layout of nested boxes: sources above their users, boxes inside of boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

PAD = 12.0
TITLE = 20.0
GAP_X = 18.0
GAP_Y = 26.0
_ROUTE = 10.0  # width that is left for an edge that passes a layer
_SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Box:
    """A box of the drawing. A leaf has a size of its own; any other is as large as its ``parts``,
    one below the other where they are ``stacked``, else in layers by the edges between them.
    """

    key: str
    title: str = ""
    width: float = 0.0
    height: float = 0.0
    parts: tuple[Box, ...] = ()
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a box is: its top left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The middle of its width."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Every box by its key; for edges that pass layers the points between their ends."""

    width: float
    height: float
    places: Mapping[str, Placed]
    routes: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]


def layout(root: Box, edges: Sequence[tuple[str, str]]) -> Layout:
    """Place a box and all inside it; edges are between keys of leaves."""
    places: dict[str, Placed] = {}
    routes: dict[tuple[str, str], tuple[tuple[float, float], ...]] = {}
    found = _Sized(root, edges)
    _place(found, 0.0, 0.0, found.width, places, routes)
    return Layout(found.width, found.height, places, routes)


class _Sized:
    """A box with the places of its parts inside it."""

    def __init__(self, box: Box, edges: Sequence[tuple[str, str]]) -> None:
        self.box = box
        self.parts = tuple(_Sized(part, edges) for part in box.parts)
        self.leaves: set[str] = {box.key} | {k for part in self.parts for k in part.leaves}
        self.where: list[tuple[float, float]] = []
        self.through: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.width, self.height = box.width, box.height
        if self.parts:
            self._arrange(edges)

    def _arrange(self, edges: Sequence[tuple[str, str]]) -> None:
        owner = {key: n for n, part in enumerate(self.parts) for key in part.leaves}
        inner: dict[tuple[int, int], list[tuple[str, str]]] = {}
        for edge in edges:
            ends = owner.get(edge[0]), owner.get(edge[1])
            if ends[0] is not None and ends[1] is not None and ends[0] < ends[1]:
                inner.setdefault((ends[0], ends[1]), []).append(edge)
        top = PAD + (TITLE if self.box.title else 0.0)
        if self.box.stacked:
            width = max(part.width for part in self.parts)
            y = top
            for part in self.parts:
                self.where.append((PAD, y))
                y += part.height + GAP_Y
            bottom = y - GAP_Y
        else:
            width, bottom = self._layers(inner, top)
        self.width = max(width, len(self.box.title) * 7.0) + 2 * PAD
        self.height = bottom + PAD

    def _layers(
        self, inner: Mapping[tuple[int, int], list[tuple[str, str]]], top: float
    ) -> tuple[float, float]:
        """Places in layers: the width that they take, and where the last one ends."""
        count = len(self.parts)
        level = [0] * count
        for low, high in sorted(inner, key=lambda ends: ends[1]):
            level[high] = max(level[high], level[low] + 1)
        _lower_sources(level, inner)
        # What an edge passes gets a place of its own in each layer between its ends.
        links, widths = [], [part.width for part in self.parts]
        chains: dict[tuple[int, int], list[int]] = {}
        for low, high in inner:
            chain = [low]
            for passed in range(level[low] + 1, level[high]):
                level.append(passed)
                widths.append(_ROUTE)
                chain.append(len(widths) - 1)
            chain.append(high)
            chains[low, high] = chain[1:-1]
            links += list(pairwise(chain))
        rows = _ordered(level, links)
        xs = _positions(rows, widths, links)
        left = min(xs[n] for n in range(len(widths)))
        heights = [max([p.height for n, p in enumerate(self.parts) if level[n] == r] or [0])
                   for r in range(len(rows))]  # fmt: skip
        tops = [top]
        for height in heights:
            tops.append(tops[-1] + height + GAP_Y)
        self.where = [(xs[n] - left + PAD, tops[level[n]]) for n in range(count)]
        for ends, chain in chains.items():
            points = [
                (xs[n] - left + PAD + _ROUTE / 2, tops[level[n]] + offset)
                for n in chain
                for offset in (0.0, heights[level[n]])
            ]
            for edge in inner[ends]:
                self.through[edge] = points
        right = max(xs[n] + widths[n] for n in range(len(widths)))
        return right - left, tops[-1] - GAP_Y


def _lower_sources(level: list[int], inner: Iterable[tuple[int, int]]) -> None:
    """Put what has no source just above its first user, so that its edges are short."""
    users: dict[int, list[int]] = {}
    has_source = set()
    for low, high in inner:
        users.setdefault(low, []).append(high)
        has_source.add(high)
    for low, own in users.items():
        if low not in has_source:
            level[low] = min(level[high] for high in own) - 1


def _ordered(level: Sequence[int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The layers, each in an order that crosses few edges."""
    rows: list[list[int]] = [[] for _ in range(max(level) + 1)]
    for number, own in enumerate(level):
        rows[own].append(number)
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for low, high in links:
        above.setdefault(high, []).append(low)
        below.setdefault(low, []).append(high)
    for sweep in range(_SWEEPS):
        neighbours = below if sweep % 2 else above
        for row in reversed(rows) if sweep % 2 else rows:
            at = {n: i for other in rows for i, n in enumerate(other)}
            keys = {n: _mean([at[m] for m in neighbours.get(n, ())], at[n]) for n in row}
            row.sort(key=keys.__getitem__)
    return rows


def _positions(
    rows: Sequence[Sequence[int]], widths: Sequence[float], links: Sequence[tuple[int, int]]
) -> list[float]:
    """The left end of each node: near the middle of its neighbours, without overlaps."""
    near: dict[int, list[int]] = {}
    for low, high in links:
        near.setdefault(low, []).append(high)
        near.setdefault(high, []).append(low)
    xs = [0.0] * len(widths)
    for row in rows:
        _spread(row, widths, xs, dict.fromkeys(row, 0.0))
    for sweep in range(2 * _SWEEPS):
        for row in reversed(rows) if sweep % 2 else rows:
            middles = {n: xs[n] + widths[n] / 2 for n in range(len(widths))}
            wanted = {n: _mean([middles[m] for m in near.get(n, ())], middles[n]) for n in row}
            _spread(row, widths, xs, wanted)
    return xs


def _spread(
    row: Sequence[int], widths: Sequence[float], xs: list[float], wanted: Mapping[int, float]
) -> None:
    """Put a row at its wanted middles and apart: groups that touch sit around their mean."""
    groups: list[tuple[list[int], float, float]] = []  # members, left end, width
    for n in row:
        members, left, width = [n], wanted[n] - widths[n] / 2, widths[n]
        while groups and groups[-1][1] + groups[-1][2] + GAP_X > left:
            before, at, taken = groups.pop()
            joined = taken + GAP_X + width
            middle = (
                (at + taken / 2) * len(before)
                + (left - (joined - width) / 2 + joined / 2) * len(members)
            ) / (len(before) + len(members))
            members, left, width = before + members, middle - joined / 2, joined
        groups.append((members, left, width))
    for members, left, _ in groups:
        x = left
        for n in members:
            xs[n] = x
            x += widths[n] + GAP_X


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _place(
    own: _Sized,
    x: float,
    y: float,
    width: float,
    places: dict[str, Placed],
    routes: dict[tuple[str, str], tuple[tuple[float, float], ...]],
) -> None:
    places[own.box.key] = Placed(x, y, width, own.height)
    spare = width - own.width
    for part, (dx, dy) in zip(own.parts, own.where, strict=True):
        # Parts that are stacked are as wide as their box; layers stand in its middle.
        if own.box.stacked:
            _place(part, x + dx, y + dy, width - 2 * PAD, places, routes)
        else:
            _place(part, x + dx + spare / 2, y + dy, part.width, places, routes)
    for edge, points in own.through.items():
        routes[edge] = tuple((x + px + spare / 2, y + py) for px, py in points)
