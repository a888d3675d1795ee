"""The graph with each region in the place of its nodes, as one call."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import torch
from torch.fx import Graph, GraphModule, Node

from mirage_py.dynamo.regions.nodes import tensors_of
from mirage_py.dynamo.regions.region_graph import RegionGraph
from mirage_py.dynamo.regions.regions import Cut
from mirage_py.dynamo.serve.region_op import region_operator, writing_operator


def fused_graph(module: GraphModule, cut: Cut, served: Sequence[RegionGraph]) -> GraphModule:
    """``module`` with a call for each served region; all other nodes stay as they are.

    What a region needs stands before it, and views go to where they are read first.
    """
    graph = Graph()
    made: dict[Node, Node] = {}
    region_of = {n: r for r in served for n in r.outputs}
    inside = _nodes_inside(cut, served)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            made[node] = graph.node_copy(node)

    def emit(node: Node) -> None:
        # With a stack of its own: chains of views may be long.
        todo = [node]
        begun: dict[Node, None] = {}
        while todo:
            wanted = todo[-1]
            if wanted in made:
                todo.pop()
                continue
            region = region_of.get(wanted)
            needs = wanted.all_input_nodes if region is None else region.inputs
            missing = [n for n in needs if n not in made]
            if missing:
                if wanted in begun:
                    raise ValueError(f"{wanted} needs its own value")
                begun[wanted] = None
                todo.extend(reversed(missing))
                continue
            if region is None:
                made[wanted] = graph.node_copy(wanted, made.__getitem__)
            else:
                made.update(_called(graph, region, made))
            todo.pop()

    for node in cut.order:
        if node not in inside or node in region_of:
            emit(node)
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    for node in output.all_input_nodes:
        emit(node)
    graph.node_copy(output, made.__getitem__)
    graph.lint()
    return GraphModule(module, graph, "Fused")


def _nodes_inside(cut: Cut, served: Sequence[RegionGraph]) -> Mapping[Node, None]:
    outputs = {r.outputs: None for r in served}
    return {n: None for region in cut.regions if region.outputs in outputs for n in region.nodes}


def _called(graph: Graph, region: RegionGraph, made: Mapping[Node, Node]) -> dict[Node, Node]:
    """The call of a region, and a node for each of its results. What it writes in place is the
    input that it has written: whoever reads it stands after the call.
    """
    to = dict(region.written)
    kinds = ["w" if n in to.values() else _kind(node) for n, node in enumerate(region.inputs)]
    given = {kind: [made[n] for k, n in zip(kinds, region.inputs, strict=True) if k == kind]
             for kind in "wtn"}  # fmt: skip
    outputs = [n for number, n in enumerate(region.outputs) if number not in to]
    operator_ = writing_operator(len(to), len(outputs)) if to else region_operator()
    call = graph.call_function(
        operator_, (*given["w"], given["t"], given["n"], "".join(kinds), region.key)
    )
    values: list[torch.Tensor] = [n.meta["val"] for n in outputs]
    call.meta["val"] = values
    parts = {region.outputs[n]: made[region.inputs[place]] for n, place in to.items()}
    if to and len(outputs) == 1:
        call.meta = dict(outputs[0].meta)
        return {outputs[0]: call} | parts
    for number, node in enumerate(outputs):
        part = graph.call_function(operator.getitem, (call, number))
        part.meta = dict(node.meta)
        parts[node] = part
    return parts


def _kind(node: Node) -> str:
    return "t" if tensors_of(node) else "n"
