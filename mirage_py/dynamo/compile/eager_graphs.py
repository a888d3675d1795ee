"""A graph of dynamo's with regions in it, and torch's own operators one by one around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.compile.decompositions import decompositions
from mirage_py.dynamo.regions.compared_values import keep_compared


def compiled_with_eager(
    compiler: GraphCompiler, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """``module`` as a callable, through AOTAutograd."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def partition(joint: GraphModule, *args: Any, **kwargs: Any) -> tuple[GraphModule, GraphModule]:
        keep_compared(joint)
        parts: tuple[GraphModule, GraphModule]
        parts = min_cut_rematerialization_partition(joint, *args, **kwargs)
        return parts

    def compiles(name: str) -> Callable[..., Any]:
        return lambda graph, example: compiler.compile(name, graph, example)

    backend = aot_autograd(
        fw_compiler=compiles("forward"),
        bw_compiler=compiles("backward"),
        inference_compiler=compiles("inference"),
        decompositions=decompositions(),
        partition_fn=partition,
    )
    compiled: Callable[..., Any] = backend(module, inputs)
    return compiled
