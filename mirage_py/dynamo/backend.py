"""The entry point: ``torch.compile(model, backend="mirage_py", mode=..., options={...})``.

torch finds it through the entry points ``torch_dynamo_backends`` and imports this module when the
first model is compiled; the search is loaded when the first region is optimised.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from mirage_py.dynamo.serve.graph_target import graph_target
from mirage_py.dynamo.serve.options import BackendOptions, backend_options

log = logging.getLogger("mirage_py.dynamo")


def mirage_py(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile what dynamo captured. Raises InputError for a mode or an option that there is not."""
    chosen = backend_options(mode, options)
    if chosen.on_cpu == "rest" and not has_gpu_tensors(module, example_inputs):
        log.info("the graph has no tensor on a GPU: all of it is left to %s", chosen.rest)
        return _left_to_fallback(module, example_inputs, chosen)
    return _compiled(module, example_inputs, chosen)


def has_gpu_tensors(module: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph computes with tensors on a GPU."""
    tensors = [*inputs, *module.parameters(), *module.buffers()]
    return any(isinstance(t, torch.Tensor) and t.device.type == "cuda" for t in tensors)


def _left_to_fallback(
    module: GraphModule, inputs: Sequence[Any], options: BackendOptions
) -> Callable[..., Any]:
    if options.rest == "eager":
        return module.forward
    from mirage_py.dynamo.serve.fallback import inductor_settings, left_to_torch

    return left_to_torch(module, inputs, inductor_settings(options))


def _compiled(
    module: GraphModule, inputs: Sequence[Any], options: BackendOptions
) -> Callable[..., Any]:
    from mirage_py.dynamo.compile.compiler import GraphCompiler
    from mirage_py.dynamo.compile.held_floats import held_floats_as_numbers

    compiler = GraphCompiler(options, graph_target(options.target))
    with held_floats_as_numbers(module):
        if options.rest == "inductor":
            from mirage_py.dynamo.compile.inductor_graphs import compiled_by_inductor

            return compiled_by_inductor(compiler, module, inputs)
        from mirage_py.dynamo.compile.eager_graphs import compiled_with_eager

        return compiled_with_eager(compiler, module, inputs)


def _reset() -> None:
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is not None:
        trees.reset_cudagraph_trees()


# torch._dynamo.reset() calls it: the memory of CUDA graphs is given back.
mirage_py.reset = _reset  # type: ignore[attr-defined]
