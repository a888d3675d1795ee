"""What serves the program of a region: a kernel that was found for it, or a reference on a CPU."""

from __future__ import annotations

import torch

from mirage_py.dynamo.options import BackendOptions
from mirage_py.dynamo.region_call import Kernel, Served, Server
from mirage_py.dynamo.region_program import RegionProgram


def server_for(options: BackendOptions, device: str) -> Server:
    """The server for regions on a kind of device."""
    return optimizing(options) if device == "cuda" else reference


def optimizing(options: BackendOptions) -> Server:
    """Search, verify, measure; or look up what was found before, in this process or another."""

    def serve(region: RegionProgram, own: Kernel) -> Served:
        # Here and not above: the search is loaded when the first kernel is wanted.
        from mirage_py.pipeline import optimizer_for

        optimize = optimizer_for(
            target=options.target,
            effort=options.effort,
            budget=options.budget,
            seed=options.seed,
            cache=options.cache,
        )
        kernel = optimize(region.program, (), own)
        if kernel is own:
            return Served(None, "nothing was found that is faster")
        return Served(kernel, getattr(kernel, "description", "an optimised kernel"))

    return serve


def reference(region: RegionProgram, own: Kernel) -> Served:
    """The program as plain PyTorch: what a kernel would compute, for tests on a CPU."""
    del own
    from mirage_py.runtime.eager import torch_function

    function = torch_function(region.program)

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = function(*inputs)
        results = found if isinstance(found, tuple) else (found,)
        # A program that only copies is no call at all; kernels write to memory of their own.
        return tuple(r.clone(memory_format=torch.contiguous_format) for r in results)

    return Served(run, "its program in plain PyTorch")
