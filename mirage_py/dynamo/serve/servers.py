"""Servers of a region's program: a kernel that was found for it, or a reference on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from mirage_py.dynamo.regions.region_program import RegionProgram
from mirage_py.dynamo.serve.chain import link_of
from mirage_py.dynamo.serve.fallback import compiled_graph
from mirage_py.dynamo.serve.measured_format import format_measured
from mirage_py.dynamo.serve.options import BackendOptions
from mirage_py.dynamo.serve.service import Kernel, RegionServer, Service
from mirage_py.errors import why_failed
from mirage_py.reasons import Code, Reason, Server, reason
from mirage_py.ugraph.checks.run_time_sizes import program_at_sizes, source_of
from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.program import Tensor


def server_for(options: BackendOptions, device: str) -> RegionServer:
    """The server for regions on a kind of device."""
    return optimizing(options) if device == "cuda" else reference


def optimizing(options: BackendOptions) -> RegionServer:
    """Search, verify, measure; or look up what was found before, in this process or another."""

    def serve(region: RegionProgram, own: Kernel) -> Service:
        # Here and not above: the search is loaded when the first kernel is wanted.
        from mirage_py.cache.cached_results import cached_artifact, cached_link, keep
        from mirage_py.dynamo.serve.failures import cache_failure, cached_failure
        from mirage_py.pipeline import pipeline
        from mirage_py.pipeline.cached_pipeline import question_of
        from mirage_py.pipeline.sized_kernels import sized_result
        from mirage_py.runtime.launch.launch import PlanRunner
        from mirage_py.runtime.launch.placed_runner import placed_runner
        from mirage_py.runtime.sized.sized_launch import SizedRunner
        from mirage_py.settings import Settings

        request = replace(options.request, streaming=options.chain != "off")
        question = question_of(region.program, request)
        with_cache = options.cache and not Settings.from_env().no_cache
        known = cached_artifact(question) if with_cache and not region.dims else None
        streaming = None
        if known is not None:
            plan, report, streaming = known.plan, known.report, cached_link(question)
        elif with_cache and (why := cached_failure(question, region.dims)):
            return Service(None, reason(Code.FAILED_BEFORE, why))
        else:
            against = functools.partial(baselines, region, own, options.effort, options.inductor)
            try:
                if region.dims:
                    found = sized_result(
                        region.program, region.dims, request, against, cache=options.cache
                    )
                    plan, report = found.plan, found.report
                else:
                    if question.measured:
                        request = replace(request, baselines=against())
                    result = pipeline.run(region.program, request)
                    plan, report = result.plan, result.document()
                    streaming = result.link
                    if with_cache:
                        keep(question, result)
            except Exception as error:
                if with_cache:
                    cache_failure(question, error, str(why_failed(error)), region.dims)
                raise
        measured = format_measured(report)
        if plan is None:
            return Service(None, reason(Code.NONE_FASTER, measured))
        count = len(plan.ugraph.kernels)
        if region.dims:
            words = (
                f"{count} kernels of triton for many sizes ({', '.join(region.dims)}): {measured}"
            )
            return Service(SizedRunner(plan), reason(Code.KERNEL, words), Server.OURS)
        words = f"{count} kernels of {plan.backend}: {measured}"
        runner = PlanRunner(plan)
        in_place = placed_runner(runner, [w.placement for w in region.writes])
        if in_place is not None:
            runner = in_place
            words += f", {len(region.writes)} results in place"
        places = in_place is not None
        linked = None if streaming is None else _placed(streaming, region, places=places)
        link = link_of(linked or runner.plan, region.constants, options)
        return Service(runner, reason(Code.KERNEL, words), Server.OURS, link, places)

    return serve


def _placed(plan: Plan, region: RegionProgram, *, places: bool) -> Plan | None:
    """A plan for a chain that writes in place where the one that serves does; None where not."""
    from mirage_py.runtime.launch.launch import PlanRunner
    from mirage_py.runtime.launch.placed_runner import placed_runner

    if not places:
        return plan
    found = placed_runner(PlanRunner(plan), [w.placement for w in region.writes])
    return None if found is None else found.plan


def baselines(
    region: RegionProgram, own: Kernel, effort: str, inductor: Mapping[str, Any] | None = None
) -> dict[str, Kernel]:
    """What a kernel has to beat: the region's own operators, one by one and compiled by Inductor,
    with the settings of the Inductor fallback.

    The tuner would use torch.compile. But it calls baselines in a thread of its own, while this
    one holds dynamo's lock: they would wait for each other. So Inductor is called here, directly.
    """
    found = {"eager": own}
    if effort != "none":
        found["compile"] = _by_inductor(region, own, inductor, max_autotune=False)
    if effort == "full":
        found["compile_max_autotune"] = _by_inductor(region, own, inductor, max_autotune=True)
    return found


def _by_inductor(
    region: RegionProgram, own: Kernel, inductor: Mapping[str, Any] | None, *, max_autotune: bool
) -> Kernel:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # Numbers that the region makes are tensors without data, too.
    with FakeTensorMode(shape_env=ShapeEnv()):
        inputs = [_fake(t) for t in region.program.inputs]
        graph = make_fx(lambda *given: _tupled(own(*given)))(*inputs)
    run = compiled_graph(graph, inputs, max_autotune=max_autotune, inductor=inductor or {})

    def baseline(*given: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        results = tuple(run(list(given)))
        return results[0] if len(results) == 1 else results

    return baseline


def _tupled(found: Any) -> Sequence[torch.Tensor]:
    return found if isinstance(found, tuple) else (found,)


def _fake(tensor: Tensor) -> torch.Tensor:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, tensor.dtype.torch_name)
    return torch.empty_strided(tensor.shape, tensor.element_strides, dtype=dtype, device=device)


def reference(region: RegionProgram, own: Kernel) -> Service:
    """The program as plain PyTorch: what a kernel would compute, for tests on a CPU."""
    del own
    from mirage_py.pipeline.sized_kernels import require_open
    from mirage_py.runtime.eager.eager_source import torch_function

    require_open(region.program, region.dims)

    program = region.program
    functions: dict[tuple[int, ...], Kernel] = {(): torch_function(program)}
    sources = [source_of(program, dim) for dim in region.dims]
    places = {t.name: n for n, t in enumerate(program.inputs)}

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sizes = tuple(inputs[places[s[0]]].shape[s[1]] for s in sources if s is not None)
        function = functions.get(sizes)
        if function is None:
            named = dict(zip(region.dims, sizes, strict=True))
            function = functions[sizes] = torch_function(program_at_sizes(program, named))
        # A program that only copies is no call at all; kernels write to memory of their own.
        row_major = torch.contiguous_format
        found = [r.clone(memory_format=row_major) for r in _tupled(function(*inputs))]
        for result in region.results:
            if result.dtype is not None:
                found[result.number] = found[result.number].to(result.dtype)
        return tuple(found)

    return Service(run, Reason(Code.REFERENCE))
