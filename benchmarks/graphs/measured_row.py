"""One candidate for a model on a GPU, beside eager PyTorch: a process of its own measures it.

Peers are compiled by Inductor with max-autotune, in CUDA graphs. ``ours`` is the rewritten graph
with kernels of ours in it compiled so, whoever wins, ``ours_freezing`` the same with Inductor's
freezing, and ``ours_branches`` its operators without Inductor, branches side by side in one graph.
"""

from __future__ import annotations

import contextlib
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._inductor import list_mode_options
from torch.fx import GraphModule

from benchmarks.graphs.convolutions import words
from benchmarks.graphs.models import model_at
from mirage_py.dynamo.networks.branched_graph import BranchedGraph, captured_branches
from mirage_py.dynamo.networks.convolution_times import convolution_times
from mirage_py.dynamo.networks.optimized_module import OptimizedModule, held_tensors
from mirage_py.dynamo.networks.rewriting import Rewriting, rewritten
from mirage_py.dynamo.serve.graph_target import graph_target
from mirage_py.dynamo.whole_graph.timer import CompiledGraph, times_on_gpu
from mirage_py.runtime.timing.turns import turn
from mirage_py.ugraph.ir.convolution import read_plan

Json = dict[str, Any]

PEERS = ("max_autotune_freezing", "max_autotune")
OURS = ("ours_branches", "ours", "ours_freezing")
CANDIDATES = (*OURS, *PEERS)


def measured_candidate(
    name: str,
    batch: int,
    candidate: str,
    *,
    mode: str,
    budget_s: float,
    device: str,
    stage: Callable[[Json], None] = lambda _part: None,
    before_compiling: Callable[[], None] = lambda: None,
) -> Json:
    """Medians in microseconds of a candidate and of eager, and how far the candidate's result is
    from eager's, of the largest element. ``stage`` gets what there is after each stage.

    What is timed is timed in a turn: other processes may compile for the same GPU.
    """
    begin = time.monotonic()
    seconds: dict[str, float] = {}
    part: Json = {"seconds": seconds}

    def note(what: str) -> None:
        seconds[what] = round(time.monotonic() - begin - sum(seconds.values()), 1)
        stage(part)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        model, inputs = model_at(name, batch, device)
        want = model(*inputs)
        note("model")
        calls: dict[str, Callable[[], torch.Tensor]] = {"eager": lambda: model(*inputs)}
        with _turn(device):
            part["times_us"] = _times(calls, device)
        note("eager")
        before_compiling()
        note("waited")
        module: torch.nn.Module | None = model
        if candidate in OURS:
            module = _rewritten(model, inputs, budget_s, part)
            note("search")
        if module is None:
            return part
        if candidate == "ours_branches":
            calls[candidate] = _captured(module, inputs, device)
        else:
            freezing = candidate.endswith("freezing")
            calls[candidate] = _compiled(module, inputs, mode, device, freezing=freezing)
        note("first call")
        with _turn(device):
            calls[candidate]()
            got = calls[candidate]()
            part["error"] = float((got.double() - want.double()).abs().max() / want.abs().max())
            part["times_us"] = _times(calls, device)
            part["launches"] = {n: _launches(call, device) for n, call in calls.items()}
        note("timing")
        if candidate == OURS[0] and device == "cuda":
            part["convolutions"] = _convolutions(module)
    part |= {"torch": torch.__version__}
    if device == "cuda":
        part |= {"device": torch.cuda.get_device_name()}
    return part


def _rewritten(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], budget_s: float, part: Json
) -> torch.nn.Module | None:
    """What the graph level makes of a model, told to ``part``; None where it is as it was."""
    program = torch.export.export(model, inputs, strict=False).run_decompositions({})
    found = rewritten(
        program.graph_module,
        graph_target("auto"),
        effort="full",
        constants={n: t.detach() for n, t in held_tensors(program).items()},
        budget=budget_s,
    )
    part |= _found(found, program.graph)
    return OptimizedModule(program, found.module) if found.is_changed else None


def _found(found: Rewriting, before: torch.fx.Graph) -> Json:
    """What the graph level did."""
    result = found.result
    return {
        "verdict": found.why or "another graph",
        "modelled": None if result is None else round(result.speedup, 3),
        "evidence": str(found.evidence),
        "steps": [] if result is None else [str(s) for s in result.steps],
        "kernels": list(found.kernels),
        "operators": [_calls(before), _calls(found.module.graph)],
    }


def _turn(device: str) -> contextlib.AbstractContextManager[None]:
    return turn() if device == "cuda" else contextlib.nullcontext()


def _times(calls: Mapping[str, Callable[[], object]], device: str) -> dict[str, float]:
    if device == "cuda":
        graphs = {n: CompiledGraph(call, is_captured=n == "eager") for n, call in calls.items()}
        times = times_on_gpu(graphs, lambda: None)
    else:
        times = {
            n: statistics.median(_seconds(call) for _ in range(3)) for n, call in calls.items()
        }
        times = {n: 1e6 * s for n, s in times.items()}
    return {n: round(us, 2) for n, us in times.items()}


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _launches(call: Callable[[], object], device: str) -> int:
    """Kernels, copies and fills that a call runs on the GPU."""
    if device != "cuda":
        return 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return sum(e.device_type == torch.autograd.DeviceType.CUDA for e in profile.events() or ())


def _convolutions(module: torch.nn.Module) -> list[str]:
    """The kernels of convolutions in a graph, each with its time and cuDNN's."""
    nodes = [n for m in module.modules() if isinstance(m, GraphModule) for n in m.graph.nodes]
    plans = Counter(str(n.args[-1]) for n in nodes if "fused_conv" in str(n.target))
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


def _captured(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], device: str
) -> Callable[[], torch.Tensor]:
    assert isinstance(module, OptimizedModule)
    if device != "cuda":
        return lambda: module.through(BranchedGraph(module.graph_module), inputs, {})
    call = captured_branches(module, inputs)
    return lambda: call(*inputs)


def _compiled(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    mode: str,
    device: str,
    *,
    freezing: bool,
) -> Callable[[], torch.Tensor]:
    compiled = torch.compile(model, options={**list_mode_options(mode), "freezing": freezing})
    if device != "cuda":
        # Inductor's code for a CPU is none of what is rehearsed.
        compiled = torch.compile(model, backend="aot_eager")
    compiled(*inputs)
    return lambda: compiled(*inputs)
