"""Interpreter of one block graph: block by block, section by section, iteration by iteration.

Every tile is really read and every accumulator really accumulates: a fault in a µGraph shows as a
wrong number, not as a broken rule. A cluster is one large block. So are blocks that share nothing,
where numbers do not depend on which others are computed with them: each element is the same then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Generic, TypeVar

from mirage_py.errors import ValidationError
from mirage_py.ugraph.interpret.buffers import Buffer
from mirage_py.ugraph.interpret.frame import Frame, Tile
from mirage_py.ugraph.interpret.meaning import Meaning
from mirage_py.ugraph.interpret.memory import Window
from mirage_py.ugraph.interpret.steps import Step, node_step, shift_key
from mirage_py.ugraph.ir.index import IndexExpr, Predicate
from mirage_py.ugraph.ir.node import Access, Node
from mirage_py.ugraph.ir.ugraph import BlockGraph, Section
from mirage_py.ugraph.operators import CONTRACT, EFFECT, REDUCE, STATE, operator

A = TypeVar("A")

# Elements of values that are kept for other blocks.
_MOST_KEPT = 1 << 19
# Points of all dimensions that one block may have in place of several.
_MOST_JOINED = 1 << 17


class BlockRun(Generic[A]):
    """One kernel: reads ``tensors``, writes ``buffers``."""

    def __init__(
        self,
        block: BlockGraph,
        sizes: Mapping[str, int],
        tensors: Mapping[str, A],
        buffers: Mapping[str, Buffer[A]],
        meaning: Meaning[A],
    ) -> None:
        self._block = block
        self._sizes = sizes
        self._buffers = buffers
        self._meaning = meaning
        self._steps: dict[int, Step[A]] = {}
        self._windows: dict[int, Window[A]] = {}
        for position, node in enumerate(block.nodes):
            kind = operator(node.op).kind
            if kind == EFFECT:
                self._windows[position] = Window(node.access.index, tuple(sizes), meaning)
            elif node.op == "shift":
                self._steps[position] = partial(self._shift, position)
            elif kind != STATE:
                self._steps[position] = node_step(
                    block.nodes, position, tensors, sizes, meaning, block.name
                )
        self._reused = _reusable(block) if getattr(meaning, "is_repeatable", False) else {}
        # Axes of which one block has all tiles, and these.
        self._joined: dict[str, int | None] = {}
        self._is_pointwise = getattr(meaning, "is_pointwise", False)
        self._known: dict[tuple[int, ...], A] = {}
        self._kept = 0
        # Of the block under way: what each node is now, and what it was before this iteration.
        self._values: dict[int, A] = {}
        self._before: dict[int, A] = {}
        # What each ``store_add`` has added up so far, by store and starts of its tile.
        self._sums: dict[tuple[int, ...], tuple[Frame, A]] = {}

    def run(self, starts: Mapping[str, Sequence[int]] | None = None) -> None:
        """Every block of the grid, or those whose tiles start at ``starts`` along some axes."""
        whole = Frame.whole(self._sizes)
        axes = {a.dim: a.tile for a in self._block.split_axes}
        # One block for all along these axes has the same elements, and takes a call for all.
        joined = _independent(self._block) if self._is_pointwise and not starts else ()
        shared = [n for d, n in self._sizes.items() if d in joined or d not in axes]
        if prod(shared) <= _MOST_JOINED:
            self._joined = {d: axes.pop(d) for d in joined}
        for frame in self._frames(whole, [*axes.items()], False, starts or {}):
            self._values.clear()
            for section in self._block.sections:
                self._run_section(section, frame)
        for (position, *_), (frame, total) in self._sums.items():
            self._write(position, frame, total)
        self._sums.clear()
        self._known.clear()
        self._kept = 0

    def _run_section(self, section: Section, frame: Frame) -> None:
        if section.loop is None:
            self._run_nodes(section, frame)
            return
        self._before.clear()
        for inner in self._frames(frame, [(section.loop, section.tile)], True, {}):
            self._run_nodes(section, inner)
            for position in section.nodes:
                if operator(self._block.nodes[position].op).kind == STATE:
                    self._before[position] = self._values[position]
                else:
                    self._values.pop(position, None)

    def _run_nodes(self, section: Section, frame: Frame) -> None:
        for position in section.nodes:
            node = self._block.nodes[position]
            args = self._operands(position, node)
            try:
                if position in self._steps:
                    self._values[position] = self._step(position, args, frame)
                elif position in self._windows:
                    self._store(position, node, frame, args[0])
                else:
                    self._values[position] = self._accumulate(position, node, frame, args)
            except ValueError as error:
                raise ValidationError(
                    "operands that do not broadcast",
                    where=f"kernel {self._block.name}, %{position} = {node.op}",
                    why=str(error),
                    repair="mix no whole dimension with tiles of it",
                ) from None

    def _step(self, position: int, args: Sequence[A], frame: Frame) -> A:
        if position not in self._reused:
            return self._steps[position](args, frame)
        # Another block with the same tiles of these axes has computed it.
        place = (position, *(int(frame.spans[d][0]) for d in self._reused[position]))
        if place in self._known:
            return self._known[place]
        value = self._steps[position](args, frame)
        self._kept += prod(self._meaning.shape(value))
        if self._kept <= _MOST_KEPT:
            self._known[place] = value
        return value

    def _operands(self, position: int, node: Node) -> list[A]:
        try:
            return [self._values[a] for a in node.args]
        except KeyError as missing:
            raise ValidationError(
                f"%{missing.args[0]} has no value here",
                where=f"kernel {self._block.name}, %{position} = {node.op}",
                why="it comes later, or died with an iteration of its loop",
                repair="carry it out of the loop with an accumulator",
            ) from None

    def _store(self, position: int, node: Node, frame: Frame, value: A) -> None:
        # The first block writes where all along an axis have the same.
        if any(frame.spans[d][0] != 0 for d in self._block.predicated_axes(node)):
            return
        if node.op == "store":
            self._write(position, frame, value)
            return
        summed = self._block.summed_axes(node)
        if summed:
            value = self._meaning.sum(value, frame.axes(summed))
        place = (position, *(int(frame.spans[d][0]) for d in node.dims))
        if place in self._sums:
            value = self._meaning.apply("add", None, [self._sums[place][1], value])
        self._sums[place] = (frame, value)

    def _write(self, position: int, frame: Frame, value: A) -> None:
        node = self._block.nodes[position]
        try:
            self._windows[position].write(self._buffers[node.access.tensor], frame, value)
        except ValidationError as error:
            where = f"kernel {self._block.name}, %{position} = {node.op} {node.access}"
            raise ValidationError(
                error.what, where=where, why=error.why, repair=error.repair
            ) from None

    def _accumulate(self, position: int, node: Node, frame: Frame, args: Sequence[A]) -> A:
        meaning = self._meaning
        value = args[0]
        state = self._before.get(position)
        if node.op == "accum_max":
            if state is not None:
                value = meaning.apply("maximum", None, [state, value])
            if node.attr == "shift":
                return self._shift(position, [value], frame)
            return value
        if state is None:
            return value
        if node.op == "accum_rescaled":
            for shift, new, degree in zip(node.args[1:], args[1:], node.degrees, strict=True):
                factor = meaning.rescale(self._before.get(shift, new), new, degree)
                state = meaning.apply("mul", None, [state, factor])
        return meaning.apply("add", None, [state, value])

    def _shift(self, position: int, args: Sequence[A], frame: Frame) -> A:
        """Tiles have shifts of their own."""
        meaning, node, (value,) = self._meaning, self._block.nodes[position], args
        tiles = [(d, tile) for d, tile in self._joined.items() if d in node.dims]
        if not tiles:
            return meaning.shift(value, shift_key(self._block.name, node, position, frame))
        shape = list(meaning.shape(value))
        for d, _ in tiles:
            shape[frame.axis[d]] = frame.extent(d)
        value, found = meaning.stretch(value, shape), meaning.buffer(shape)
        order = [a.dim for a in self._block.split_axes]
        for inner in self._frames(frame, tiles, False, {}):
            # In the order of the cuts that lead to a block of its own.
            inner.tiles = tuple(
                sorted(inner.tiles, key=lambda t: (t.is_loop, t.is_loop or order.index(t.dim)))
            )
            at = [slice(None)] * len(shape)
            for d, _ in tiles:
                span = inner.spans[d]
                at[frame.axis[d]] = slice(int(span[0]), int(span[-1]) + 1)
            key = shift_key(self._block.name, node, position, inner)
            found.write(tuple(at), meaning.shift(meaning.load(value, tuple(at)), key))
        return found.read()

    def _frames(
        self,
        outer: Frame,
        axes: Sequence[tuple[str, int | None]],
        is_loop: bool,
        only: Mapping[str, Sequence[int]],
    ) -> Iterator[Frame]:
        """The frame of every tile along ``axes``; the last tile of an axis may be shorter."""
        counts: list[Sequence[int]] = []
        for d, tile in axes:
            if tile is None:
                raise ValidationError(
                    f"the tile of dimension '{d}' is open",
                    where=f"kernel {self._block.name}",
                    why="a family has no value until its tiles are numbers",
                    repair="instantiate it first",
                )
            counts.append(only.get(d) or range(0, self._sizes[d], tile))
        for starts in product(*counts):
            spans = {
                d: range(start, min(start + (tile or 1), self._sizes[d]))
                for (d, tile), start in zip(axes, starts, strict=True)
            }
            tiles = (Tile(d, start, is_loop) for (d, _), start in zip(axes, starts, strict=True))
            yield outer.moved(spans, tuple(tiles))


def _independent(block: BlockGraph) -> tuple[str, ...]:
    """Grid axes along which each element is computed by itself: nothing is reduced over them, and
    every store has a place for each of their points.
    """
    nodes = block.nodes
    if any(n.op == "read" for n in nodes):
        return ()
    reductions = (n for n in nodes if operator(n.op).kind in (REDUCE, CONTRACT))
    joined = [d for n in reductions for d in n.reduced]
    joined += [s.loop for s in block.sections if s.loop is not None]
    # As they say themselves, and as they write.
    places = [dims for _, n in block.stores() for dims in (n.dims, n.access.dims())]
    axes = [a.dim for a in block.split_axes if a.tile is not None and a.dim not in joined]
    return tuple(d for d in axes if all(d in dims for dims in places))


def _reusable(block: BlockGraph) -> dict[int, tuple[str, ...]]:
    """Nodes outside of loops that lack a grid axis, and the axes on whose tiles each depends.

    What a node depends on is read off all that it is computed from, not off what it says of itself.
    Shifts and what has state differ from block to block.
    """
    axes = [a.dim for a in block.split_axes]
    straight = {n: None for s in block.sections if s.loop is None for n in s.nodes}
    depends: dict[int, dict[str, None]] = {}
    for position, node in enumerate(block.nodes):
        kind = operator(node.op).kind
        is_pure = node.op not in ("shift", "read") and kind not in (EFFECT, STATE)
        if is_pure and position in straight and all(a in depends for a in node.args):
            own = dict.fromkeys((*node.dims, *_named(node)))
            depends[position] = own | {d: None for a in node.args for d in depends[a]}
    found = {p: tuple(d for d in axes if d in dims) for p, dims in depends.items()}
    return {p: dims for p, dims in found.items() if len(dims) < len(axes)}


def _named(node: Node) -> tuple[str, ...]:
    """Dimensions of its indices, or of its condition."""
    attr = node.attr
    return attr.dims() if isinstance(attr, Access | IndexExpr | Predicate) else ()
