"""The graph of a traced call as a function: what the program that was made of it has to compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch._subclasses import FakeTensor
from torch.fx import Graph, GraphModule, Interpreter, Node


class TracedGraph:
    """From tensors in the place of the nodes ``inputs`` to those of the nodes ``outputs``, by
    PyTorch. ``held`` are the values of other placeholders; one that is in neither gives the graph
    its shape and type alone, and is zeros.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Node],
        outputs: Sequence[Node],
        held: Mapping[Node, torch.Tensor],
    ) -> None:
        places = {node: n for n, node in enumerate(inputs)}
        self._graph, self._outputs = graph, tuple(outputs)
        self._given: list[int | torch.Tensor] = [
            places[node] if node in places else held.get(node, node.meta["val"])
            for node in graph.find_nodes(op="placeholder")
        ]

    @property
    def draws(self) -> bool:
        """Whether an operator draws random numbers: no two calls are alike."""
        tag = torch.Tag.nondeterministic_seeded
        return any(tag in getattr(node.target, "tags", ()) for node in self._graph.nodes)

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs. Raises what an operator raises."""
        device = inputs[0].device
        values = [inputs[g] if isinstance(g, int) else _there(g, device) for g in self._given]
        with torch.no_grad():
            found: tuple[torch.Tensor, ...] = Interpreter(self._module).run(*values)
        return found

    @cached_property
    def _module(self) -> GraphModule:
        copy = Graph()
        of: dict[Node, Node] = {}
        copy.graph_copy(self._graph, of)
        copy.output(tuple(of[node] for node in self._outputs))
        return GraphModule(torch.nn.Module(), copy)


def _there(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    if isinstance(value, FakeTensor):
        return torch.zeros(value.shape, dtype=value.dtype, device=device)
    return value.to(device)
