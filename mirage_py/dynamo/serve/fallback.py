"""The compiler of the graph around the regions: Inductor, or torch's own operators one by one.

What Inductor gets it compiles as in torch.compile with the same mode: ``inductor_settings``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx import GraphModule

from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.errors import InputError

# Takes a list of inputs, which it may empty; returns a list or tuple of results.
BoxedCall = Callable[[list[Any]], Sequence[Any]]


def eager_fallback(module: GraphModule) -> BoxedCall:
    """The graph in eager PyTorch, operator by operator."""
    from torch._functorch._aot_autograd.utils import make_boxed_func

    module.recompile()
    boxed: BoxedCall = make_boxed_func(module.forward)
    return boxed


def inductor_settings(options: BackendOptions) -> dict[str, Any]:
    """What torch.compile sets in Inductor for the mode that the options amount to.

    Raises InputError for a setting that Inductor does not have.
    """
    from torch._inductor import list_mode_options, list_options

    known = list_options()
    for key in options.inductor:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            raise InputError(
                f"Inductor has no setting '{key}'",
                where="torch.compile",
                repair=f"did you mean '{close[0]}'?" if close else "see torch._inductor.config",
            )
    if options.effort == "full":
        mode = "max-autotune" if options.cuda_graphs else "max-autotune-no-cudagraphs"
    else:
        mode = "reduce-overhead" if options.cuda_graphs else "default"
    return {**list_mode_options(mode), **dict(options.inductor)}


def left_to_torch(
    module: GraphModule, inputs: Sequence[Any], settings: dict[str, Any]
) -> Callable[..., Any]:
    """What torch.compile itself would make of a graph of dynamo's."""
    from torch._dynamo.backends.registry import lookup_backend

    inductor: Callable[..., Any] = lookup_backend("inductor")
    compiled: Callable[..., Any] = inductor(module, list(inputs), config_patches=settings)
    return compiled


def compiled_graph(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    max_autotune: bool,
    inductor: Mapping[str, Any],
) -> BoxedCall:
    """An ATen graph compiled by Inductor, without dynamo and without a CUDA graph; ``inputs`` are
    fake tensors, ``inductor`` settings over those of the mode.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor.compile_fx import compile_fx

    # A compilation of its own: what AOTAutograd noted about the graph around is not about this one,
    # and neither are the symbols of its sizes and floats, of which that one's fake mode knows.
    modes = [x.fake_mode for x in inputs if isinstance(x, FakeTensor)]
    context = TracingContext(modes[0] if modes else None)
    effort = "full" if max_autotune else "quick"
    settings = inductor_settings(BackendOptions(effort=effort, inductor=inductor))
    # Whoever measures it captures it.
    settings["triton.cudagraphs"] = False
    with tracing(context), torch.no_grad():
        compiled: Any = compile_fx(module, list(inputs), config_patches=settings)

    def run(values: list[Any]) -> Sequence[Any]:
        taken = list(values)
        values.clear()
        results: Sequence[Any] = compiled(*taken)
        return results

    return run
