"""An operator graph as an ATen graph again.

Known operators are traced from what they mean in torch, opaque ones are the calls that they were.
What follows from weights alone is computed here, once, and held by the new module. Outputs lie in
memory as they did: with the strides of before, and sharing memory with inputs only where they did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch.fx import GraphModule, Node

from mirage_py.errors import UnsupportedError
from mirage_py.frontend.networks.aten_import import ImportedNetwork
from mirage_py.frontend.networks.folded import folded_weights
from mirage_py.networks.ir.graph import INPUTS, Graph, Value
from mirage_py.networks.operators import operator
from mirage_py.networks.operators.opaque import OPAQUE


def emitted_network(
    network: ImportedNetwork,
    graph: Graph,
    module: GraphModule,
    constants: Mapping[str, torch.Tensor],
) -> GraphModule:
    """``graph`` in the place of the graph that was imported from ``module``: the same placeholders,
    the same outputs. ``constants`` are the tensors of the placeholders that are weights.

    Raises UnsupportedError where outputs share memory with each other.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    held = {n: _attribute(module, str(n.target)) for n in network.sources if n.op == "get_attr"}
    known = {**held, **{n: constants[n.name] for n in placeholders if n.name in constants}}
    weights = {
        Value(INPUTS, place): known[source]
        for place, source in enumerate(network.sources)
        if source in known and graph.inputs[place].name in graph.constants
    }
    folded = folded_weights(graph, weights)
    bases = _input_views(module, network)

    def run(*given: Any) -> Any:
        arguments = dict(zip(placeholders, given, strict=True))
        values: dict[Value, Any] = dict(folded)
        for place, source in enumerate(network.sources):
            if source in arguments:
                values[Value(INPUTS, place)] = arguments[source]
            elif source in held:
                values[Value(INPUTS, place)] = held[source]
            else:
                target: Any = source.target
                values[Value(INPUTS, place)] = target(*source.args, **source.kwargs)
        _run(graph, network, values)
        taken: list[Any] = list(given)
        made: dict[Node, Any] = {}
        for node, value in zip(network.outputs, graph.outputs, strict=True):
            if node not in made:
                made[node] = _as_before(values[value], node, bases, arguments, taken)
        return torch.fx.node.map_arg(module.graph.output_node().args[0], made.__getitem__)

    return _traced(run, module, placeholders)


def _run(graph: Graph, network: ImportedNetwork, values: dict[Value, Any]) -> None:
    for number, node in enumerate(graph.nodes):
        if Value(number) in values or any(v not in values for v in node.inputs):
            continue  # folded, or read by what is folded alone
        operands = [values[v] for v in node.inputs]
        if node.operator == OPAQUE.name:
            results = _called(network.opaque[node["key"]], operands)
        else:
            results = list(operator(node.operator).over_torch(operands, node.values))
        values |= {Value(number, n): x for n, x in enumerate(results)}


def _called(node: Node, operands: Sequence[Any]) -> list[Any]:
    """The tensors that a call of the old graph returns."""
    new = dict(zip(node.all_input_nodes, operands, strict=True))
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), new.__getitem__)
    target: Any = node.target
    found = target(*args, **kwargs)
    several = found if isinstance(found, (tuple, list)) else [found]
    return [x for x in several if x is not None]


def _as_before(
    value: torch.Tensor,
    node: Node,
    bases: Mapping[Node, Node],
    arguments: Mapping[Node, Any],
    taken: list[Any],
) -> torch.Tensor:
    """An output that lies as that of ``node`` did; ``taken`` are tensors whose memory is no fresh
    one, with which it may not be shared.
    """
    old = node.meta["val"]
    if node in bases:
        return torch.as_strided(
            arguments[bases[node]], old.shape, old.stride(), old.storage_offset()
        )
    shares = any(_memory(value) == _memory(x) for x in taken if isinstance(x, torch.Tensor))
    if not _is_dense(old):
        value = value.clone() if shares else value
    elif value.stride() != old.stride():
        order = sorted(range(old.dim()), key=lambda axis: -old.stride(axis))
        back = [order.index(axis) for axis in range(old.dim())]
        packed = value.permute(order).clone(memory_format=torch.contiguous_format)
        value = packed.permute(back)
    elif shares:
        value = value.clone()
    taken.append(value)
    return value


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a range of memory, each once."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _input_views(module: GraphModule, network: ImportedNetwork) -> dict[Node, Node]:
    """The outputs that are views of placeholders, or them.

    Raises UnsupportedError where two outputs share memory otherwise.
    """
    owners = {
        _memory(n.meta["val"]): n
        for n in module.graph.find_nodes(op="placeholder")
        if isinstance(n.meta.get("val"), torch.Tensor)
    }
    found: dict[Node, Node] = {}
    seen: dict[Any, Node] = {}
    for node in dict.fromkeys(network.outputs):
        memory = _memory(node.meta["val"])
        if memory in owners:
            found[node] = owners[memory]
        elif memory in seen:
            raise UnsupportedError(
                "a graph that the graph level does not take", why="two outputs share memory"
            )
        seen[memory] = node
    return found


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  fake tensors have no addresses


def _traced(
    run: Callable[..., Any], module: GraphModule, placeholders: Sequence[Node]
) -> GraphModule:
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = [n.meta["val"] for n in placeholders]
    mode: Any = detect_fake_mode(inputs)
    tracer: Any = make_fx(run)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if mode is not None:
            stack.enter_context(mode)
            # Constants of the graph have data.
            stack.enter_context(patch.object(mode, "allow_non_fake_inputs", True))
        graph: GraphModule = tracer(*inputs)
    for node, old in zip(graph.graph.find_nodes(op="placeholder"), placeholders, strict=True):
        node.meta = {**old.meta, **node.meta}
        node._rename(old.name)  # noqa: SLF001  torch goes by what inputs are called
        node.target = old.target
    graph.graph.output_node().meta.update(module.graph.output_node().meta)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    graph.meta.update(module.meta)
    return graph


def _attribute(module: GraphModule, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value
