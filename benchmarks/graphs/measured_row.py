"""A model on a GPU: the graph level beside eager PyTorch and torch.compile.

Everything compiled is compiled with max-autotune, in CUDA graphs; candidates are called in turns.
``ours`` is the rewritten graph with kernels of ours in it, whoever wins; where none was found it is
the original with freezing. ``served`` is what a race of all of them gives.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._inductor import list_mode_options

from benchmarks.graphs.convolutions import words
from benchmarks.graphs.models import model_at
from mirage_py.dynamo.networks.convolution_times import convolution_times
from mirage_py.dynamo.networks.optimized_module import OptimizedModule, held_tensors
from mirage_py.dynamo.networks.rewriting import rewritten
from mirage_py.dynamo.serve.graph_target import graph_target
from mirage_py.dynamo.whole_graph.timer import CompiledGraph, times_on_gpu
from mirage_py.runtime.timing.turns import turn
from mirage_py.ugraph.ir.convolution import read_plan

Json = dict[str, Any]


def measured_row(
    name: str,
    batch: int,
    *,
    mode: str,
    budget_s: float,
    stage: Callable[[Json], None] = lambda _row: None,
    before_peers: Callable[[], None] = lambda: None,
) -> Json:
    """Medians in microseconds, and how far ours is from eager, of the largest element. ``stage``
    gets the row so far after each stage, ``before_peers`` waits until their choices are cached.

    What is timed is timed in a turn: other processes may compile for the same GPU.
    """
    begin = time.monotonic()
    seconds: dict[str, float] = {}
    so_far: Json = {"seconds": seconds}

    def note(what: str) -> None:
        seconds[what] = round(time.monotonic() - begin - sum(seconds.values()), 1)
        stage(so_far)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        model, inputs = model_at(name, batch, "cuda")
        want = model(*inputs)
        program = torch.export.export(model, inputs, strict=False).run_decompositions({})
        note("export")
        found = rewritten(
            program.graph_module,
            graph_target("auto"),
            effort="full",
            constants={n: t.detach() for n, t in held_tensors(program).items()},
            budget=budget_s,
        )
        note("search")
        calls = {"eager": lambda: model(*inputs)}
        if found.is_changed:
            ours = OptimizedModule(program, found.module)
            calls["ours"] = _compiled(ours, inputs, mode, freezing=True)
            so_far |= {"kernels": list(found.kernels)}
            so_far |= {"convolutions": _convolutions(found.module.graph)}
            with turn():
                so_far["so_far_us"] = _times(calls)
        note("ours")
        before_peers()
        note("peers tuned")
        calls["max_autotune_freezing"] = _compiled(model, inputs, mode, freezing=True)
        calls["max_autotune"] = _compiled(model, inputs, mode, freezing=False)
        note("peers")
        with turn():
            got = calls.get("ours", calls["max_autotune_freezing"])()
            error = float((got.double() - want.double()).abs().max() / want.abs().max())
            times = _times(calls)
            launches = {n: _launches(call) for n, call in calls.items()}
        note("timing")
    times.setdefault("ours", times["max_autotune_freezing"])
    times["served"] = min(us for peer, us in times.items() if peer != "eager")
    result = found.result
    row = {
        "model": name,
        "batch": batch,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "times_us": {n: round(us, 2) for n, us in times.items()},
        "launches": launches,
        "error": error,
        "verdict": found.why or "another graph",
        "modelled": None if result is None else round(result.speedup, 3),
        "evidence": str(found.evidence),
        "steps": [] if result is None else [str(s) for s in result.steps],
        "kernels": list(found.kernels),
        "convolutions": so_far.get("convolutions", []),
        "operators": None
        if result is None
        else [_calls(program.graph), _calls(found.module.graph)],
        "seconds": seconds,
    }
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
    return row


def _times(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    graphs = {n: CompiledGraph(call, is_captured=n == "eager") for n, call in calls.items()}
    return times_on_gpu(graphs, lambda: None)


def tune_peers(name: str, batch: int, mode: str) -> None:
    """Compile a model with freezing, so that Inductor's caches have what was chosen for it."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        model, inputs = model_at(name, batch, "cuda")
        _compiled(model, inputs, mode, freezing=True)


def _launches(call: Callable[[], object]) -> int:
    """Kernels, copies and fills that a call runs on the GPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return sum(e.device_type == torch.autograd.DeviceType.CUDA for e in profile.events() or ())


def _convolutions(graph: torch.fx.Graph) -> list[str]:
    """The kernels of convolutions in a graph, each with its time and cuDNN's."""
    plans = Counter(str(n.args[-1]) for n in graph.nodes if "fused_conv" in str(n.target))
    specs = {plan: read_plan(plan)[0] for plan in plans}
    if not specs:
        return []
    times = convolution_times([*specs.values()], graph_target("auto"), torch.device("cuda"))
    return [
        f"{count} x {words(specs[plan])}: {times[specs[plan]].us:.1f} us, library "
        f"{times[specs[plan]].library_us:.1f} us; {read_plan(plan)[1]}"
        for plan, count in plans.items()
    ]


def _calls(graph: torch.fx.Graph) -> int:
    return sum(node.op == "call_function" for node in graph.nodes)


def _compiled(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    mode: str,
    *,
    freezing: bool,
) -> Callable[[], torch.Tensor]:
    """Compiled here. As options, as torch keeps graphs of one function apart by these, and as a
    reset would throw the others away.
    """
    options = {**list_mode_options(mode), "freezing": freezing}
    compiled = torch.compile(model, options=options)
    compiled(*inputs)
    with turn():
        for _ in range(2):
            compiled(*inputs)
        torch.cuda.synchronize()
    return lambda: compiled(*inputs)
