"""A graph of composite operators, decomposed by Inductor's own table."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch.fx import GraphModule, Interpreter, Node

from mirage_py.dynamo.serve.region_op import calls_region


def decomposed_graph(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The same graph in the operators that Inductor wants; calls of regions stay as they are.

    ``inputs`` are tensors without data, and symbols. Names and notes of the inputs are kept.
    """
    from torch._guards import detect_fake_mode
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    mode: Any = detect_fake_mode(inputs)
    tracer: Any = make_fx(_Interpreter(module).run, select_decomp_table())
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(preserve_node_meta())
        if mode is not None:
            stack.enter_context(mode)
            # Constants of the graph have data.
            stack.enter_context(patch.object(mode, "allow_non_fake_inputs", True))
        graph: GraphModule = tracer(*inputs)
    for node, old in zip(
        graph.graph.find_nodes(op="placeholder"),
        module.graph.find_nodes(op="placeholder"),
        strict=True,
    ):
        node.meta = {**old.meta, **node.meta}
        node._rename(old.name)  # noqa: SLF001  torch goes by what inputs are called
        node.target = old.target
    # As AOTAutograd does: what nobody reads would count as one more reader of its operands.
    graph.graph.eliminate_dead_code()
    graph.recompile()
    graph.meta.update(module.meta)
    return graph


class _Interpreter(Interpreter):
    """Runs a graph; a constant that a region reads is made a value of the graph first."""

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        is_read = any(calls_region(u) for u in n.users)
        if n.op == "get_attr" and is_read and isinstance(value, torch.Tensor):
            return torch.ops.aten.lift_fresh_copy.default(value)
        return value


def settled(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The graph, described anew where its inputs lie otherwise than it was traced for.

    A backward graph gets what the forward one left behind, which Inductor may have laid out anew.
    """
    from torch._guards import detect_fake_mode
    from torch._inductor.fx_passes.post_grad import view_to_reshape
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    nodes = module.graph.find_nodes(op="placeholder")
    if all(_strides(n.meta.get("val")) == _strides(x) for n, x in zip(nodes, inputs, strict=True)):
        return module
    to_reshapes: Any = view_to_reshape
    to_reshapes(module)
    with torch.no_grad():
        FakeTensorProp(module, detect_fake_mode(inputs)).propagate_dont_convert_inputs(*inputs)
    return module


def _strides(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value.stride())) if isinstance(value, torch.Tensor) else ()
