"""Joins: several operators of one kind as one, on operands put side by side.

Each operator may be laid out anew first, so that their attributes agree (1 x k as k x 1). Then
operands are shared, where all read one value, or joined along an axis, for as many groups or
none, and the result is cut along an axis: all ways are tried at small sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.evaluation import over_field, random_inputs
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.networks.ir.regions import Region
from mirage_py.search.partial.enumerate import found_recipes, is_mutable
from mirage_py.search.partial.layout import Layout, layout_after
from mirage_py.search.partial.recipe import Recipe, mutant_graph, with_inputs
from mirage_py.search.partial.small_sizes import small_graph
from mirage_py.ugraph.field import FIELDS, FieldArray, FieldOps

# Of each operator so many recipes are tried, besides the operator as it is.
_RECIPES = 64
_LEAST_SHARE = 0.5
_PLAIN = Recipe(((), ()), ())


@dataclass(frozen=True, slots=True)
class Join:
    """``recipes`` lay out each operator; its operands are joined along ``axes`` (None: they are one
    value), and results cut along ``result``. ``groups`` multiplies the groups.
    """

    recipes: tuple[Recipe, ...]
    axes: tuple[int | None, ...]
    result: int
    groups: int = 1

    def __str__(self) -> str:
        how = [
            f"operand {n} {'shared' if axis is None else f'side by side on axis {axis}'}"
            for n, axis in enumerate(self.axes)
        ]
        how += [f"{self.groups} times the groups"] * (self.groups > 1)
        laid = [f"of operator {n}: {r}" for n, r in enumerate(self.recipes) if r != _PLAIN]
        return "; ".join([", ".join([*how, f"result cut on axis {self.result}"]), *laid])

    def layouts(self, graph: Graph) -> tuple[Layout, ...]:
        """How each result lies in the piece that is cut for it."""
        types = zip(graph.output_types, self.recipes, strict=True)
        return tuple(layout_after(kind.shape, recipe.result) for kind, recipe in types)

    def build(self, builder: GraphBuilder, graph: Graph) -> tuple[Value, ...]:
        """Each result as digits."""
        inside = [r.inside(builder, graph, n) for n, r in enumerate(self.recipes)]
        operands: list[Value] = []
        for values, axis in zip(zip(*inside, strict=True), self.axes, strict=True):
            if axis is None and len(dict.fromkeys(values)) > 1:
                raise InputError("operands that are shared are not one value")
            joined = values[0] if axis is None else builder.apply("concat", *values, axis=axis)
            operands.append(joined)
        node = graph.nodes[0]
        attributes = self.attributes(node.values)
        result = builder.apply(node.operator, *operands, **attributes)
        layouts = self.layouts(graph)
        sizes = tuple(layout.shape[self.result] for layout in layouts)
        pieces = builder.apply_all("split", result, axis=self.result, sizes=sizes)
        known = zip(layouts, pieces, strict=True)
        return tuple(layout.to_digits(builder, piece) for layout, piece in known)

    def attributes(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of the one operator."""
        found = self.recipes[0].attributes(old)
        return found | ({"groups": found["groups"] * self.groups} if "groups" in found else {})


def found_joins(graph: Graph, *, seed: int = 0) -> list[Join]:
    """Joins of all operators of a graph that agree with them on most of every result.

    The operators read inputs only, and each result is an output, in order. Ordered by the smallest
    share, then by how much is laid out anew.
    """
    kinds = dict.fromkeys(node.operator for node in graph.nodes)
    plain = tuple(Value(n) for n in range(len(graph.nodes))) == graph.outputs
    apart = all(v.is_input for node in graph.nodes for v in node.inputs)
    if len(kinds) > 1 or not plain or not apart:
        return []
    try:
        small = small_graph(graph)
    except InputError:
        return []
    found: list[tuple[float, int, Join]] = []
    for recipes in _matching(graph, small, seed):
        for join in _joins(small, recipes):
            share = _share(small, join, FieldOps(FIELDS[0], seed))
            if share >= _LEAST_SHARE:
                found.append((-share, len(str(join)), join))
    found.sort(key=lambda entry: entry[:2])
    return [join for _, _, join in found]


def _matching(graph: Graph, small: Graph, seed: int) -> Iterator[tuple[Recipe, ...]]:
    """For each kind of operator that all can be laid out as, the least that does it."""
    choices: list[dict[object, Recipe]] = []
    for number in range(len(graph.nodes)):
        few = Region.of(small, [number]).graph(small)
        if not is_mutable(few):
            return
        whole = Region.of(graph, [number]).graph(graph)
        exact = [f.recipe for f in found_recipes(whole, least_share=1.0, seed=seed)]
        moved = [r for r in exact if r.copies == r.merged == 1][:_RECIPES]
        known: dict[object, Recipe] = {}
        for recipe in [_PLAIN, *moved]:
            known.setdefault(_kind(few, recipe), recipe)
        choices.append(known)
    for kind, first in choices[0].items():
        if all(kind in known for known in choices):
            yield first, *(known[kind] for known in choices[1:])


def _kind(graph: Graph, recipe: Recipe) -> object:
    """What operators have to agree in to be joined: all but extents that may be joined."""
    mutant = mutant_graph(graph, recipe)
    (node,) = [n for n in mutant.nodes if n.operator == graph.nodes[0].operator]
    weight = mutant.type_of(node.inputs[1]).shape
    return node.attributes, weight[2:] if node.operator.startswith("conv") else len(weight)


def _joins(graph: Graph, recipes: tuple[Recipe, ...]) -> Iterator[Join]:
    builder = with_inputs(graph)
    inside = [r.inside(builder, graph, n) for n, r in enumerate(recipes)]
    options: list[Sequence[int | None]] = []
    for values in zip(*inside, strict=True):
        axes: list[int | None] = list(range(builder.type_of(values[0]).rank))
        options.append(axes + [None] * (len(dict.fromkeys(values)) == 1))
    rank = graph.output_types[0].rank
    groups = (1, len(recipes)) if "groups" in graph.nodes[0].values else (1,)
    for chosen in product(*options):
        for result, times in product(range(rank), groups):
            yield Join(recipes, chosen, result, times)


def _share(graph: Graph, join: Join, ops: FieldOps) -> float:
    """The share of the elements in which a join agrees, of the result where it is least."""
    try:
        mutant = mutant_graph(graph, join)
    except InputError:
        return 0.0
    inputs = [FieldArray(x.p, None) for x in random_inputs(graph, ops)]
    results = zip(over_field(graph, inputs, ops), over_field(mutant, inputs, ops), strict=True)
    return min(float(np.mean(one.p == other.p)) for one, other in results)
