"""A graph that runs operator by operator, captured in CUDA graphs by torch's own cudagraph trees.

The Inductor fallback captures its graphs itself. Everything is optimised before the first call; the
trees warm up, record and replay. A graph that cannot be captured (tensors on a CPU, inputs that are
written to) is not captured, and the log says why. ``torch.compiler.cudagraph_mark_step_begin()``
separates iterations as with Inductor.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from mirage_py.dynamo.serve.fallback import BoxedCall

log = logging.getLogger("mirage_py.dynamo")


def captured(name: str, run: BoxedCall, module: GraphModule, inputs: Sequence[Any]) -> BoxedCall:
    """``run`` in CUDA graphs, or ``run`` itself where ``module`` cannot be captured.

    The first inputs of a backward graph are what the forward one left behind: they lie still, as do
    parameters and buffers.
    """
    from torch._dynamo.backends.cudagraphs import (
        check_for_skip,
        find_input_mutations,
        get_device_index,
        get_stack_traces,
    )
    from torch._inductor.cudagraph_trees import cudagraphify_impl
    from torch._inductor.cudagraph_utils import get_placeholder_info
    from torch._inductor.utils import count_tangents

    is_backward = name == "backward"
    still = range(count_tangents(module)) if is_backward else _still_inputs()
    skip = check_for_skip(module, len(still))
    if skip:
        log.info("%s: not captured in a CUDA graph: %s", name, skip)
        return run

    def emptying(values: list[Any]) -> Sequence[Any]:
        # The trees count on it: nobody else may keep an input.
        taken = list(values)
        values.clear()
        return run(taken)

    record: Any = cudagraphify_impl
    taken: BoxedCall = record(
        emptying,
        [x if isinstance(x, torch.Tensor) else 0 for x in inputs],
        tuple(still),
        device_index=get_device_index(module),
        is_backward=is_backward,
        is_inference=name == "inference",
        stack_traces=get_stack_traces(module),
        placeholders=get_placeholder_info(module.graph),
        mutated_input_idxs=find_input_mutations(module.graph),
    )
    taken._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001  torch's protocol
    return taken


def _still_inputs() -> Sequence[int]:
    """The inputs of a forward graph that stay where they are: parameters and buffers."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    noted = getattr(context and context.fw_metadata, "static_input_indices", None)
    return tuple(noted or ())
