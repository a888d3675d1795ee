"""Operator graphs of networks: frozen values, in topological order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mirage_py.networks.operators import Attributes, AttributeValue, TensorType, operator

INPUTS = -1
"""The node number of values that are inputs of the graph."""


@dataclass(frozen=True, slots=True, order=True)
class Value:
    """A result of a node by its number, or with ``node == INPUTS`` an input by its position."""

    node: int
    index: int = 0

    @property
    def is_input(self) -> bool:
        """Whether it is an input of the graph."""
        return self.node == INPUTS


@dataclass(frozen=True, slots=True)
class Input:
    """An input: its name and its type."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Node:
    """An operator applied to values. Attributes are all there, in the order of its row."""

    operator: str
    attributes: tuple[tuple[str, AttributeValue], ...]
    inputs: tuple[Value, ...]

    @property
    def values(self) -> Attributes:
        """The attributes by name."""
        return dict(self.attributes)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True)
class Graph:
    """``constants`` names the inputs that are weights: what is computed from them alone may be
    computed once. Nodes come after what they read.
    """

    inputs: tuple[Input, ...]
    constants: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    @cached_property
    def types(self) -> tuple[tuple[TensorType, ...], ...]:
        """The types of the results of each node; InputError where a shape rule refuses."""
        found: list[tuple[TensorType, ...]] = []
        for node in self.nodes:
            operands = [self._type(value, found) for value in node.inputs]
            found.append(operator(node.operator).result_types(operands, node.values))
        return tuple(found)

    def type_of(self, value: Value) -> TensorType:
        """The type of an input or of a result."""
        return self._type(value, self.types)

    def _type(
        self, value: Value, found: tuple[tuple[TensorType, ...], ...] | list[tuple[TensorType, ...]]
    ) -> TensorType:
        return self.inputs[value.index].type if value.is_input else found[value.node][value.index]

    @cached_property
    def output_types(self) -> tuple[TensorType, ...]:
        """The types of the outputs."""
        return tuple(self.type_of(value) for value in self.outputs)

    @cached_property
    def is_constant(self) -> tuple[bool, ...]:
        """For each node, whether it is computed from constants alone."""
        found: list[bool] = []
        for node in self.nodes:
            known = [
                self.inputs[v.index].name in self.constants if v.is_input else found[v.node]
                for v in node.inputs
            ]
            found.append(all(known))
        return tuple(found)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each node the nodes that read a result of it, in order, each once."""
        found: list[dict[int, None]] = [{} for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for value in node.inputs:
                if not value.is_input:
                    found[value.node][number] = None
        return tuple(tuple(users) for users in found)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that defines it."""
        content = self.inputs, self.constants, self.nodes, self.outputs
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def with_outputs(self, outputs: tuple[Value, ...]) -> Graph:
        """The same nodes with other results; what none of them needs stays."""
        return replace(self, outputs=outputs)
