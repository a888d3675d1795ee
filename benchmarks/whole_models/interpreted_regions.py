"""A backend of torch.compile whose regions run as Triton kernels in the interpreter on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from mirage_py.dynamo.compile.compiler import GraphCompiler
from mirage_py.dynamo.regions.region_program import RegionProgram
from mirage_py.dynamo.serve.options import backend_options
from mirage_py.dynamo.serve.service import Kernel, Service
from mirage_py.reasons import Code, Server, reason
from mirage_py.ugraph.checks.run_time_sizes import source_of


def backend(options: Mapping[str, Any], budget_s: float) -> Callable[..., Any]:
    """The backend; a search for each distinct region may take ``budget_s``."""
    from torch._dynamo.backends.common import aot_autograd

    from mirage_py.dynamo.compile.decompositions import decompositions
    from mirage_py.dynamo.serve.graph_target import graph_target

    chosen = backend_options(None, options)

    def serve(region: RegionProgram, own: Kernel) -> Service:
        del own
        return interpreted(region, budget_s)

    def compiled(module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        compiler = GraphCompiler(chosen, graph_target(chosen.target), serve)
        found: Callable[..., Any] = aot_autograd(
            fw_compiler=lambda graph, example: compiler.compile("inference", graph, example),
            decompositions=decompositions(),
        )(module, inputs)
        return found

    return compiled


def interpreted(region: RegionProgram, budget_s: float) -> Service:
    """The plan that the model ranks first, kernel by kernel in Triton's interpreter."""
    from mirage_py.pipeline import pipeline
    from mirage_py.pipeline.sized_kernels import sized_plan
    from mirage_py.runtime.cpu.triton_interpreter import run_interpreted

    program = region.program
    result = pipeline.optimize(
        program, target="h200", backend="triton", effort="none", budget=budget_s
    )
    plan = sized_plan(result, region.dims) if region.dims else result.plan
    if plan is None:
        return Service(None, reason(Code.NONE_FASTER, "there is none"))
    sources = {dim: source_of(program, dim) for dim in region.dims}
    places = {t.name: n for n, t in enumerate(program.inputs)}
    outputs = [o.tensor for o in program.outputs]

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = zip(program.inputs, inputs, strict=True)
        arrays = {t.name: x.double().numpy() for t, x in named}
        found_at = {d: inputs[places[s[0]]].shape[s[1]] for d, s in sources.items() if s}
        found = run_interpreted(plan, arrays, found_at or None)
        types = [getattr(torch, t.dtype.torch_name) for t in outputs]
        return tuple(
            torch.from_numpy(np.ascontiguousarray(found[t.name])).to(dtype)
            for t, dtype in zip(outputs, types, strict=True)
        )

    why = reason(Code.KERNEL, f"{len(plan.ugraph.kernels)} kernels, interpreted")
    return Service(run, why, Server.OURS)
