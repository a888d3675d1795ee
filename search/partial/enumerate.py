"""The search for mutants: every way to lay out the operands of one operator within bounds.

Candidates are a move of each operand and of the result, other strides, paddings, dilations and
groups. Each is computed over a field at small sizes and compared with the program element by
element; what agrees on most elements is a mutant. Nothing here knows what a good mutant looks like.

Source: PET (OSDI 2021), section 4, mutant generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import graph_of
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph, Node
from mirage_py.networks.operators import TensorType, operator
from mirage_py.search.partial.layout import SWAP, WHOLE, Move, layout_after
from mirage_py.search.partial.recipe import Recipe, mutant_graph
from mirage_py.search.partial.small_sizes import small_graph
from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_PRODUCTS = ("matmul", "bmm")
# Of a round, so many are mutated again.
_BEAM = 4
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A recipe, and the share of the elements in which it agreed with the program when tried."""

    recipe: Recipe
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class _Laid:
    """A tensor after some moves."""

    moves: tuple[Move, ...]
    array: FieldArray


def is_mutable(graph: Graph) -> bool:
    """Whether mutants of it are searched for: one convolution or product."""
    known = (*_CONVOLUTIONS, *_PRODUCTS)
    return len(graph.nodes) == 1 and graph.nodes[0].operator in known


def found_recipes(
    graph: Graph, *, least_share: float = 0.5, rounds: int = 1, seed: int = 0
) -> list[Found]:
    """Mutants of the one operator of a graph that agree with it on at least such a share.

    Ordered by the share, then by how little is moved. The plain program is none of them. In each
    further round the operators inside the best of the last one are mutated in turn.
    """
    small = small_graph(graph)
    found = _sorted(_Trial(small, FieldOps(FIELDS[0], seed)).candidates(), least_share)
    known = {f.recipe: f for f in found}
    latest = found
    for _ in range(rounds - 1):
        later: list[Found] = []
        for first in [f for f in latest if f.recipe.settings and not f.recipe.copies > 1][:_BEAM]:
            later += _next_round(small, first, least_share, seed)
        latest = _sorted((f for f in later if f.recipe not in known), least_share)
        known |= {f.recipe: f for f in latest}
    return _sorted(known.values(), least_share)


def _sorted(found: Iterable[Found], least_share: float) -> list[Found]:
    kept = [f for f in found if f.share >= least_share]
    return sorted(kept, key=lambda f: (-f.share, len(str(f.recipe)), str(f.recipe)))


def _next_round(small: Graph, first: Found, least_share: float, seed: int) -> list[Found]:
    """Recipes after a first one, with the share of the elements in which both together agree."""
    mutant = mutant_graph(small, first.recipe)
    (number,) = [n for n, v in enumerate(mutant.nodes) if v.operator == small.nodes[0].operator]
    node = mutant.nodes[number]
    types = [mutant.type_of(value) for value in node.inputs]
    inside = _Trial(graph_of(node.operator, types, node.values), FieldOps(FIELDS[0], seed))
    ops = FieldOps(FIELDS[0], seed)
    inputs = [FieldArray(x.p, None) for x in random_inputs(small, ops)]
    (wanted,) = over_field(small, inputs, ops)
    found: list[Found] = []
    for more in inside.candidates():
        if more.share < least_share:
            continue
        recipe = first.recipe.then(more.recipe)
        try:
            (result,) = over_field(mutant_graph(small, recipe), inputs, ops)
        except InputError:
            continue
        found.append(Found(recipe, float(np.mean(result.p == wanted.p))))
    return found


class _Trial:
    """One operator at small sizes, with random operands modulo one prime."""

    def __init__(self, graph: Graph, ops: FieldOps) -> None:
        self._ops = ops
        self._node: Node = graph.nodes[0]
        self._row = operator(self._node.operator)
        drawn = [FieldArray(x.p, None) for x in random_inputs(graph, ops)]
        operands = [drawn[v.index] for v in self._node.inputs]
        (wanted,) = over_field(graph, drawn, ops)
        self._factors = _factors(self._node)
        self._operands = [self._laid_out(x) for x in operands]
        self._results = self._laid_out(wanted)

    def candidates(self) -> Iterator[Found]:
        """Every candidate whose shapes fit, with its share."""
        for variant in _variants(self._node, self._factors):
            attributes = variant.attributes(self._node.values)
            for shapes in product(*self._operands):
                kind = self._result_shape(variant, attributes, shapes)
                if kind not in self._results:
                    continue
                for x, w in product(*(of[s] for of, s in zip(self._operands, shapes, strict=True))):
                    recipe = replace(variant, operands=(x.moves, w.moves))
                    given = self._given(variant, x.array, w.array)
                    (result,) = self._row.over_field(self._ops, given, attributes)
                    yield from self._compared(recipe, attributes, result, self._results[kind])

    def _compared(
        self,
        recipe: Recipe,
        attributes: dict[str, Any],
        result: FieldArray,
        wanted: Sequence[_Laid],
    ) -> Iterator[Found]:
        for laid in wanted:
            known = replace(recipe, result=laid.moves)
            if not (_is_plain(known, attributes, self._node) and not laid.moves):
                yield Found(known, float(np.mean(result.p == laid.array.p)))

    def _given(self, variant: Recipe, x: FieldArray, w: FieldArray) -> list[FieldArray]:
        """The operands of the mutant's operator."""
        if variant.copies > 1:
            x = FieldArray(np.concatenate([x.p] * variant.copies, 1), None)
        if variant.merged > 1:
            w = _merged(w, self._node["groups"], variant.merged)
        return [w, x] if variant.swapped else [x, w]

    def _result_shape(
        self, variant: Recipe, attributes: dict[str, Any], shapes: tuple[Shape, ...]
    ) -> Shape | None:
        (rows, *more), (first, *rest) = shapes
        if variant.copies > 1:
            more[0] *= variant.copies
        rest[0] *= variant.merged
        pair = [TensorType((rows, *more)), TensorType((first, *rest))]
        try:
            (kind,) = self._row.result_types(pair[::-1] if variant.swapped else pair, attributes)
        except InputError:
            return None
        return kind.shape

    def _laid_out(self, x: FieldArray) -> dict[Shape, list[_Laid]]:
        """By shape, the tensor as it is and after each move; of moves of one effect the first."""
        seen: dict[object, None] = {}
        found: dict[Shape, list[_Laid]] = {}
        for moves in ((), *((m,) for m in _moves(x.shape, self._factors, self._node.operator))):
            try:
                layout = layout_after(x.shape, moves)
            except InputError:
                continue
            # Digits of one value are nowhere.
            order = tuple(tuple(d for d in axis if layout.digits[d] > 1) for axis in layout.axes)
            if (layout.digits, order) not in seen:
                seen[layout.digits, order] = None
                found.setdefault(layout.shape, []).append(_Laid(moves, layout.of_field(x)))
        return found


def _is_plain(recipe: Recipe, attributes: dict[str, Any], node: Node) -> bool:
    moved = any(recipe.operands) or recipe.copies > 1 or recipe.merged > 1 or recipe.swapped
    return not moved and attributes == node.values


def _factors(node: Node) -> tuple[int, ...]:
    """Parts of an axis that may move: halves, and what strides and dilations skip."""
    steps = [n for name in ("stride", "dilation") for n in node.values.get(name, ())]
    return tuple(dict.fromkeys([2, *(n for n in steps if n > 1)]))


def _moves(shape: Sequence[int], factors: Sequence[int], op: str) -> Iterator[Move]:
    """Every move of a part of an axis to any axis, and swaps of axes of one kind."""
    rank = len(shape)
    for axis, to in product(range(rank), repeat=2):
        if axis != to and shape[axis] > 1:
            yield from (Move(axis, to, WHOLE, last=last) for last in (False, True))
        for factor in factors:
            if axis == to:
                # Its minor digit as the major one: every second row first, then the others.
                yield Move(axis, to, factor, minor=True)
                continue
            for minor, last in product((False, True), repeat=2):
                yield Move(axis, to, factor, minor=minor, last=last)
    first = 2 if op in _CONVOLUTIONS else 0
    for axis in range(first, rank):
        yield from (Move(axis, to, SWAP) for to in range(axis + 1, rank))


def _variants(node: Node, factors: Sequence[int]) -> Iterator[Recipe]:
    """Recipes without moves: other attributes, groups made or undone, operands exchanged."""
    plain = Recipe(((), ()), ())
    yield plain
    if node.operator in _PRODUCTS:
        yield replace(plain, swapped=True)
        return
    yield replace(plain, copies=2)
    for merged in (2, 4):
        if node["groups"] % merged == 0:
            yield replace(plain, merged=merged)
    known = {name: node[name] for name in ("stride", "padding", "dilation")}
    rank = len(known["stride"])
    seen: dict[tuple[tuple[str, tuple[int, ...]], ...], None] = {}
    for axis in range(rank):
        for numbers in _steps([known[name][axis] for name in known], factors):
            changed = {
                name: (*old[:axis], new, *old[axis + 1 :])
                for (name, old), new in zip(known.items(), numbers, strict=True)
            }
            seen[tuple(changed.items())] = None
    for one, other in product(range(rank), repeat=2):
        order = [other if n == one else one if n == other else n for n in range(rank)]
        seen[tuple((name, tuple(old[n] for n in order)) for name, old in known.items())] = None
    for settings in seen:
        different = tuple((name, value) for name, value in settings if value != known[name])
        if different:
            yield replace(plain, settings=different)


def _steps(numbers: Sequence[int], factors: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Stride, padding and dilation along one axis, with some of them multiplied or divided."""
    for factor in factors:
        times = [(n, n * factor, n // factor if n % factor == 0 else n) for n in numbers]
        for s, p, d in product(*times):
            if s > 0 and d > 0:
                yield s, p, d


def _merged(w: FieldArray, groups: int, merged: int) -> FieldArray:
    rows, channels, *rest = w.shape
    apart = w.p.reshape(groups // merged, merged, rows // groups, channels, *rest)
    shape = (*apart.shape[:3], merged * channels, *rest)
    whole = np.zeros(shape, dtype=np.int64)
    for n in range(merged):
        whole[:, n, :, n * channels : (n + 1) * channels] = apart[:, n]
    return FieldArray(whole.reshape(rows, merged * channels, *rest), None)
