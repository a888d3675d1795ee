"""The builder of graphs: nodes are typed as they are added, and equal ones are one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirage_py.errors import InputError
from mirage_py.networks.ir.graph import INPUTS, Graph, Input, Node, Value
from mirage_py.networks.operators import AttributeValue, TensorType, operator
from mirage_py.ugraph.ir.dtypes import F32, DType


class GraphBuilder:
    """Inputs first or last, in any order; values are what its methods return."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.constants: list[str] = []
        self.nodes: list[Node] = []
        self.types: list[tuple[TensorType, ...]] = []
        self._known: dict[Node, int] = {}

    def input(
        self, name: str, shape: Sequence[int], dtype: DType = F32, *, constant: bool = False
    ) -> Value:
        """Declare an input; ``constant`` says that it is a weight."""
        if not name.isidentifier():
            raise InputError(f"'{name}' is no name of an input", repair="use letters, digits and _")
        if any(known.name == name for known in self.inputs):
            raise InputError(f"input '{name}' is declared twice")
        if min(shape, default=1) < 1:
            raise InputError(f"input '{name}' has shape {list(shape)}", why="it is empty")
        self.inputs.append(Input(name, TensorType(tuple(shape), dtype)))
        if constant:
            self.constants.append(name)
        return Value(INPUTS, len(self.inputs) - 1)

    def type_of(self, value: Value) -> TensorType:
        """The type of a value."""
        if value.is_input:
            return self.inputs[value.index].type
        return self.types[value.node][value.index]

    def apply(self, op: str, *operands: Value, **attributes: object) -> Value:
        """An operator that has one result; InputError where its shape rule refuses."""
        found = self.apply_all(op, *operands, **attributes)
        if len(found) != 1:
            raise InputError(f"{op} has {len(found)} results here", repair="use apply_all")
        return found[0]

    def apply_all(self, op: str, *operands: Value, **attributes: object) -> tuple[Value, ...]:
        """An operator with all its results."""
        number = self._number(Node(op, operator(op).normal(attributes), operands))
        return tuple(Value(number, n) for n in range(len(self.types[number])))

    def copied(
        self, graph: Graph, operands: Mapping[Value, Value] | None = None
    ) -> dict[Value, Value]:
        """All nodes of a graph on given inputs (by default declared anew): old values to new."""
        place = dict(operands or {})
        for position, entry in enumerate(graph.inputs):
            if Value(INPUTS, position) not in place:
                place[Value(INPUTS, position)] = self.input(
                    entry.name,
                    entry.type.shape,
                    entry.type.dtype,
                    constant=entry.name in graph.constants,
                )
        for number, node in enumerate(graph.nodes):
            inputs = tuple(place[v] for v in node.inputs)
            new = self._number(Node(node.operator, node.attributes, inputs))
            for n in range(len(self.types[new])):
                place[Value(number, n)] = Value(new, n)
        return place

    def build(self, *outputs: Value) -> Graph:
        """The finished graph: all inputs, and the nodes that the outputs need."""
        if not outputs:
            raise InputError("a graph has outputs", repair="name at least one")
        live: dict[int, None] = {}
        waiting = [v.node for v in outputs]
        while waiting:
            number = waiting.pop()
            if number != INPUTS and number not in live:
                live[number] = None
                waiting += [v.node for v in self.nodes[number].inputs]
        place = {INPUTS: INPUTS} | {old: new for new, old in enumerate(sorted(live))}

        def moved(values: Sequence[Value]) -> tuple[Value, ...]:
            return tuple(Value(place[v.node], v.index) for v in values)

        nodes = [self.nodes[old] for old in sorted(live)]
        kept = tuple(Node(n.operator, n.attributes, moved(n.inputs)) for n in nodes)
        return Graph(tuple(self.inputs), tuple(self.constants), kept, moved(outputs))

    def _number(self, node: Node) -> int:
        if node in self._known:
            return self._known[node]
        types = [self.type_of(value) for value in node.inputs]
        found = operator(node.operator).result_types(types, node.values)
        self._known[node] = len(self.nodes)
        self.nodes.append(node)
        self.types.append(found)
        return self._known[node]


def graph_of(
    op: str, operands: Sequence[TensorType], attributes: Mapping[str, AttributeValue]
) -> Graph:
    """The graph of one operator, with inputs x0, x1, ..."""
    builder = GraphBuilder()
    values = [builder.input(f"x{n}", t.shape, t.dtype) for n, t in enumerate(operands)]
    return builder.build(*builder.apply_all(op, *values, **attributes))
