"""Recipes: mutants of one multilinear operator, at whatever sizes it has.

The operands are laid out anew, the operator is applied with other attributes, and the result is
laid out as before. A recipe that is found at small sizes is applied at the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mirage_py.errors import InputError
from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.search.partial.layout import Layout, Move, layout_after

# A weight of groups is so many times as large without them.
_MOST_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Recipe:
    """``operands`` and ``result`` are moves from the program's layout to the mutant's.

    ``settings`` are attributes that change. ``copies`` repeats the first operand along its
    channels, so many times, for so many times more groups; ``dense`` fills the weight of groups
    with zeros, for one group. ``swapped`` exchanges the operands of a product.
    """

    operands: tuple[tuple[Move, ...], ...]
    result: tuple[Move, ...]
    settings: tuple[tuple[str, tuple[int, ...]], ...] = ()
    copies: int = 1
    dense: bool = False
    swapped: bool = False

    def __str__(self) -> str:
        parts = [
            f"operand {n}: {'; '.join(map(str, moves))}"
            for n, moves in enumerate(self.operands)
            if moves
        ]
        parts += [f"{name} = {value}" for name, value in self.settings]
        parts += [f"{self.copies} copies in groups"] * (self.copies > 1)
        parts += ["one group, zeros in the weight"] * self.dense
        parts += ["operands exchanged"] * self.swapped
        if self.result:
            parts.append(f"result: {'; '.join(map(str, self.result))}")
        return ", ".join(parts)

    def then(self, other: Recipe) -> Recipe:
        """One recipe after another: the second one changes the operator inside the first."""
        operands = zip(self.operands, other.operands, strict=True)
        return Recipe(
            tuple((*one, *more) for one, more in operands),
            (*self.result, *other.result),
            tuple(sorted({**dict(self.settings), **dict(other.settings)}.items())),
            self.copies * other.copies,
            self.dense or other.dense,
            self.swapped != other.swapped,
        )

    def attributes(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of the mutant's operator."""
        found = {**old, **dict(self.settings)}
        if "groups" in found:
            found["groups"] = 1 if self.dense else found["groups"] * self.copies
        return found

    def layout_of_result(self, graph: Graph) -> Layout:
        """How the result of the graph's operator lies in the mutant."""
        return layout_after(graph.output_types[0].shape, self.result)


@dataclass(frozen=True, slots=True)
class MutantValues:
    """Values of a mutant in a builder: the result as digits of the program's result, and whole."""

    digits: Value
    whole: Value


def build_mutant(
    builder: GraphBuilder, graph: Graph, recipe: Recipe, operands: Sequence[Value]
) -> MutantValues:
    """The mutant of the one operator of ``graph`` on given operands.

    InputError where a move does not fit the sizes, or the operator refuses its operands.
    """
    (node,) = graph.nodes
    inside: list[Value] = []
    for value, moves in zip(operands, recipe.operands, strict=True):
        shape = builder.type_of(value).shape
        inside.append(layout_after(shape, moves).forward(builder, value))
    if recipe.copies > 1:
        inside[0] = _copied(builder, inside[0], recipe.copies)
    if recipe.dense:
        inside[1] = _dense(builder, inside[1], node["groups"])
    if recipe.swapped:
        inside.reverse()
    result = builder.apply(node.operator, *inside, **recipe.attributes(node.values))
    layout = recipe.layout_of_result(graph)
    digits = layout.to_digits(builder, result)
    shape = layout.source_shape()
    same = builder.type_of(digits).shape == shape
    whole = digits if same else builder.apply("reshape", digits, shape=shape)
    return MutantValues(digits, whole)


def mutant_graph(graph: Graph, recipe: Recipe) -> Graph:
    """The mutant as a graph with the program's inputs and result."""
    builder = GraphBuilder()
    return builder.build(build_mutant(builder, graph, recipe, _operands(builder, graph)).whole)


def _operands(builder: GraphBuilder, graph: Graph) -> list[Value]:
    """The operands of a graph of one operator, its inputs declared in a builder."""
    for entry in graph.inputs:
        constant = entry.name in graph.constants
        builder.input(entry.name, entry.type.shape, entry.type.dtype, constant=constant)
    return [Value(INPUTS, value.index) for value in graph.nodes[0].inputs]


def _copied(builder: GraphBuilder, x: Value, copies: int) -> Value:
    """All channels so many times."""
    rows, channels, *rest = builder.type_of(x).shape
    apart = builder.apply("reshape", x, shape=(rows, 1, channels, *rest))
    wide = builder.apply("expand", apart, shape=(rows, copies, channels, *rest))
    return builder.apply("reshape", wide, shape=(rows, copies * channels, *rest))


def _dense(builder: GraphBuilder, w: Value, groups: int) -> Value:
    """A weight of groups as one of all channels: zeros where a group does not read."""
    if groups > _MOST_GROUPS:
        raise InputError(f"{groups} groups as one", why="nearly all of the weight would be zeros")
    shape = builder.type_of(w).shape
    rows, channels, rest = shape[0] // groups, shape[1], (0,) * (len(shape) - 2)
    blocks: list[Value] = []
    for group in range(groups):
        part = builder.apply("slice", w, axis=0, start=group * rows, stop=(group + 1) * rows)
        before = (0, group * channels, *rest)
        after = (0, (groups - 1 - group) * channels, *rest)
        blocks.append(builder.apply("pad", part, before=before, after=after))
    return builder.apply("concat", *blocks, axis=0)


def work(graph: Graph) -> int:
    """Products that the multilinear operators of a graph sum up."""
    total = 0
    for number, node in enumerate(graph.nodes):
        if node.operator.startswith("conv"):
            weight = graph.type_of(node.inputs[1]).shape
            total += graph.types[number][0].elements * prod(weight[1:])
        elif node.operator in ("matmul", "bmm"):
            total += graph.types[number][0].elements * graph.type_of(node.inputs[0]).shape[-1]
    return total
