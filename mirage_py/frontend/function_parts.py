"""The parts of a function that is no program: how they are compiled, by its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mirage_py.dynamo.functions.in_parts import InParts
from mirage_py.dynamo.regions.region_program import RegionProgram
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.service import Kernel as RegionKernel
from mirage_py.dynamo.serve.service import RegionServer, Service
from mirage_py.errors import LostGpuError, MirageError, why_failed
from mirage_py.frontend.cached_kernels import what_serves
from mirage_py.frontend.searches import CallOptions, Optimizer
from mirage_py.frontend.torch.guards.call_key import Call
from mirage_py.frontend.torch.guards.calls import runs_later
from mirage_py.reasons import Code, Server

# Calls that run as they stand: torch.compile would not serve them, or the next one is another.
_AS_THEY_STAND = (
    Code.REQUIRES_GRAD,
    Code.SEVERAL_DEVICES,
    Code.NOT_ON_A_GPU,
    Code.INSIDE_CUDA_GRAPH,
    Code.UNSTEADY,
    Code.UNHASHABLE,
)


def function_parts(
    function: Callable[..., Any],
    call: Call,
    error: Exception,
    options: CallOptions,
    *,
    optimizer: Optimizer | None,
    is_sized: bool,
) -> InParts | None:
    """What may serve the calls that ``error`` speaks of; None where only the function itself does.

    A given ``optimizer`` finds the kernels of regions, too, on any device; else they are searched,
    for a GPU. ``is_sized``: it is called with many sizes.
    """
    # What torch.compile makes of them is no coroutine and no generator.
    if runs_later(function):
        return None
    kinds = {t.device.type for t in call.tensors}
    code = error.code if isinstance(error, MirageError) else None
    if code in _AS_THEY_STAND or isinstance(error, LostGpuError) or not kinds:
        return None
    if optimizer is None and kinds != {"cuda"}:
        return None
    asked = BackendOptions(
        effort=options.effort,
        target=options.target,
        budget=options.budget,
        seed=options.seed,
        cache=options.cache,
        rest="inductor" if kinds == {"cuda"} else "eager",
        # The random numbers are those of eager.
        inductor={"fallback_random": True},
    )
    server = _asking(optimizer) if optimizer is not None else None
    dynamic = None if is_sized else False
    return InParts(function, asked, why_failed(error), server=server, dynamic=dynamic)


def _asking(optimizer: Optimizer) -> RegionServer:
    """The server of regions that asks the optimizer of a decorated function."""

    def serve(region: RegionProgram, own: RegionKernel) -> Service:
        inputs = tuple(
            torch.zeros(t.shape, dtype=getattr(torch, t.dtype.torch_name))
            for t in region.program.inputs
        )
        kernel = optimizer(region.program, inputs, own)
        served = what_serves(kernel, own)
        ours = served.by is Server.OURS
        return Service(kernel if ours else None, served.why, served.by)

    return serve
