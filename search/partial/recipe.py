"""Recipes: mutants of one multilinear operator, at whatever sizes it has.

The operands are laid out anew, the operator is applied with other attributes, and the result is
laid out as before. A recipe that is found at small sizes is applied at the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from mirage_py.networks.ir.builder import GraphBuilder
from mirage_py.networks.ir.graph import Graph, Value
from mirage_py.search.networks.groups import merged_weight
from mirage_py.search.partial.layout import Layout, Move, layout_after


@dataclass(frozen=True, slots=True)
class Recipe:
    """``operands`` and ``result`` are moves from the program's layout to the mutant's.

    ``settings`` are attributes that change. ``copies`` repeats the first operand along its
    channels, so many times, for so many times more groups; ``merged`` makes so many groups one,
    with zeros in the weight. ``swapped`` exchanges the operands of a product.
    """

    operands: tuple[tuple[Move, ...], ...]
    result: tuple[Move, ...]
    settings: tuple[tuple[str, tuple[int, ...]], ...] = ()
    copies: int = 1
    merged: int = 1
    swapped: bool = False

    def __str__(self) -> str:
        parts = [
            f"operand {n}: {'; '.join(map(str, moves))}"
            for n, moves in enumerate(self.operands)
            if moves
        ]
        parts += [f"{name} = {value}" for name, value in self.settings]
        parts += [f"{self.copies} copies in groups"] * (self.copies > 1)
        parts += [f"{self.merged} groups as one"] * (self.merged > 1)
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
            self.merged * other.merged,
            self.swapped != other.swapped,
        )

    def attributes(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of the mutant's operator."""
        found = {**old, **dict(self.settings)}
        if "groups" in found:
            found["groups"] = found["groups"] * self.copies // self.merged
        return found

    def layouts(self, graph: Graph) -> tuple[Layout, ...]:
        """How the result of the graph's operator lies in the mutant."""
        return (layout_after(graph.output_types[0].shape, self.result),)

    def build(self, builder: GraphBuilder, graph: Graph) -> tuple[Value, ...]:
        """The digits of the result of the mutant of the graph's one operator."""
        inside = self.inside(builder, graph, 0)
        attributes = self.attributes(graph.nodes[0].values)
        result = builder.apply(graph.nodes[0].operator, *inside, **attributes)
        return (self.layouts(graph)[0].to_digits(builder, result),)

    def inside(self, builder: GraphBuilder, graph: Graph, number: int) -> list[Value]:
        """The operands of the mutant of one operator, whose own operands are inputs."""
        node = graph.nodes[number]
        found: list[Value] = []
        for value, moves in zip(node.inputs, self.operands, strict=True):
            layout = layout_after(builder.type_of(value).shape, moves)
            found.append(layout.forward(builder, value))
        if self.copies > 1:
            found[0] = _copied(builder, found[0], self.copies)
        if self.merged > 1:
            shape = builder.type_of(found[1]).shape
            found[1] = merged_weight(builder.apply, found[1], shape, node["groups"], self.merged)
        return found[::-1] if self.swapped else found


class Mutant(Protocol):
    """A way to compute all results of a graph otherwise, at whatever sizes it has."""

    def layouts(self, graph: Graph) -> tuple[Layout, ...]:
        """How each result lies in the mutant."""

    def build(self, builder: GraphBuilder, graph: Graph) -> tuple[Value, ...]:
        """Each result as digits of its layout, in a builder that has the graph's inputs.

        InputError where a move does not fit the sizes, or an operator refuses its operands.
        """


def with_inputs(graph: Graph) -> GraphBuilder:
    """A builder with the inputs of a graph."""
    builder = GraphBuilder()
    for entry in graph.inputs:
        constant = entry.name in graph.constants
        builder.input(entry.name, entry.type.shape, entry.type.dtype, constant=constant)
    return builder


def of_shape(builder: GraphBuilder, x: Value, shape: tuple[int, ...]) -> Value:
    """The value under a shape; itself where it has that."""
    if builder.type_of(x).shape == shape:
        return x
    return builder.apply("reshape", x, shape=shape)


def mutant_graph(graph: Graph, mutant: Mutant) -> Graph:
    """The mutant as a graph with the program's inputs and results, not corrected."""
    builder = with_inputs(graph)
    digits = mutant.build(builder, graph)
    types = zip(digits, graph.output_types, strict=True)
    return builder.build(*(of_shape(builder, x, kind.shape) for x, kind in types))


def _copied(builder: GraphBuilder, x: Value, copies: int) -> Value:
    """All channels so many times."""
    rows, channels, *rest = builder.type_of(x).shape
    apart = builder.apply("reshape", x, shape=(rows, 1, channels, *rest))
    wide = builder.apply("expand", apart, shape=(rows, copies, channels, *rest))
    return builder.apply("reshape", wide, shape=(rows, copies * channels, *rest))


def work(graph: Graph, *, step: int = 1) -> int:
    """Products that the multilinear operators of a graph sum up.

    With ``step`` the channels of a group, read and written, are counted in whole steps, as tensor
    cores take them.
    """
    total = 0
    for number, node in enumerate(graph.nodes):
        result = graph.types[number][0]
        if node.operator.startswith("conv"):
            outer, inner, *kernel = graph.type_of(node.inputs[1]).shape
            groups = node["groups"]
            pixels = result.elements // outer
            steps = -(-inner // step) * step * (-(-(outer // groups) // step) * step)
            total += pixels * groups * steps * prod(kernel)
        elif node.operator in ("matmul", "bmm"):
            total += result.elements * graph.type_of(node.inputs[0]).shape[-1]
    return total
