"""Who runs the graph around the regions: Inductor, or torch's own operators one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

log = logging.getLogger("mirage_py.dynamo")

# Takes a list of inputs, which it may empty; returns a list or tuple of results.
BoxedCall = Callable[[list[Any]], Sequence[Any]]


def eager_rest(module: GraphModule) -> BoxedCall:
    """The graph as it is, operator by operator."""
    from torch._functorch._aot_autograd.utils import make_boxed_func

    module.recompile()
    boxed: BoxedCall = make_boxed_func(module.forward)
    return boxed


def inductor_rest(module: GraphModule, inputs: Sequence[Any], *, max_autotune: bool) -> BoxedCall:
    """The graph compiled by Inductor, to which a region is one opaque operator.

    Where Inductor fails, its error is logged and the graph runs as it is.
    """
    try:
        return compiled_graph(module, inputs, max_autotune=max_autotune)
    # Inductor has many ways to fail, and the graph runs without it.
    except Exception as error:  # noqa: BLE001
        log.warning("Inductor does not take the rest, which runs as it is: %s", error)
        return eager_rest(module)


def compiled_graph(module: GraphModule, inputs: Sequence[Any], *, max_autotune: bool) -> BoxedCall:
    """The graph compiled by Inductor, without dynamo; ``inputs`` are fake tensors."""
    from torch._guards import TracingContext, detect_fake_mode, tracing
    from torch._inductor.compile_fx import compile_fx

    # A compilation of its own: what AOTAutograd noted about the graph around is not about this one.
    context = TracingContext(detect_fake_mode(inputs))
    patches = {"max_autotune": True} if max_autotune else None
    # The gradient has been dealt with: this graph is forward or backward already.
    with tracing(context), torch.no_grad():
        compiled: Any = compile_fx(module, list(inputs), config_patches=patches)

    def run(values: list[Any]) -> Sequence[Any]:
        taken = list(values)
        values.clear()
        results: Sequence[Any] = compiled(*taken)
        return results

    run._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001  torch's protocol
    return run
