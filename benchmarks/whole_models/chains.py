"""A model's step with the same tuned kernels launched normally and as a chain, each captured.

``python -m benchmarks.whole_models.chains NAME [--budget SECONDS]``: NAME of ``zoo.py``, batch 1.
Prints for each way how many edges of the CUDA graph are programmatic, how far logits are off
eager's, and microseconds a step, in turns. Needs a GPU of compute capability 9.0.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from dataclasses import replace

import torch

from benchmarks.peers.compiled import compiled
from benchmarks.whole_models.step import Steps, step_function
from benchmarks.whole_models.zoo import MARGIN, WHOLE_MODELS, WholeModel, built
from mirage_py.dynamo.backend import mirage_py
from mirage_py.dynamo.serve.region_op import living_calls
from mirage_py.runtime.launch.launch import PlanRunner
from mirage_py.ugraph.ir.launch_choices import NextStart
from mirage_py.ugraph.ir.plan import Plan, chained

# For each way when kernels let others start, if they do, and whether weights are copied early.
_WAYS: dict[str, tuple[NextStart | None, bool]] = {
    "normal": (None, False),
    "chained": (NextStart.STORES, False),
    "chained, weights early": (NextStart.STORES, True),
    "chained at the wait": (NextStart.WAITED, False),
    "chained at the wait, weights early": (NextStart.WAITED, True),
}
_PROGRAMMATIC = 1
_ROUNDS = 15


class Captured:
    """One step in a CUDA graph of its own."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.graph = torch.cuda.CUDAGraph(keep_graph=True)
        for _ in range(2):
            steps.rewind()
            steps()
        steps.rewind()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.logits = steps()
        self.edges, self.programmatic = graph_edges(self.graph)
        self.graph.instantiate()

    def round_us(self) -> float:
        """Microseconds a step, of as many as the cache has room for."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self.steps.rewind()
        self.graph.replay()
        start.record()
        for _ in range(MARGIN - 2):
            self.graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / (MARGIN - 2)


def graph_edges(graph: torch.cuda.CUDAGraph) -> tuple[int, int]:
    """All edges of a graph that is not instantiated yet, and the programmatic ones."""
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t()
    handle = ctypes.c_void_p(graph.raw_cuda_graph())
    assert driver.cuGraphGetEdges_v2(handle, None, None, None, ctypes.byref(count)) == 0
    ends = [(ctypes.c_void_p * count.value)() for _ in range(2)]
    data = (ctypes.c_uint8 * (8 * count.value))()
    assert driver.cuGraphGetEdges_v2(handle, *ends, data, ctypes.byref(count)) == 0
    return count.value, sum(data[8 * n + 2] == _PROGRAMMATIC for n in range(count.value))


def _runner(link: Plan, when: NextStart | None, early: bool) -> PlanRunner:
    """The plan of a link, launched in another way."""
    constants = link.options[0].constants if early else ()
    if when is not None:
        return PlanRunner(chained(link, when, constants))
    plain = tuple(replace(o, next_start=None, constants=()) for o in link.options)
    return PlanRunner(replace(link, options=plain))


def main() -> None:
    """Compile a model once, and time it in all ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=WHOLE_MODELS)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each region")
    parser.add_argument("--layers", type=int, default=0)
    asked = parser.parse_args()
    model = WHOLE_MODELS[asked.model]
    with torch.no_grad():
        _measure(model, asked.layers or model.layers, asked.budget)


def _measure(model: WholeModel, layers: int, budget_s: float) -> None:
    module, config = built(model, layers, "cuda", tiny=False)
    function = step_function(module)
    eager = Steps(model, module, config, 1, function)
    eager.rewind()
    wanted = eager().float().clone()
    options = {"effort": "full", "budget": budget_s, "whole_graph": "trust", "chain": "on"}
    fast = compiled(function, fullgraph=True, backend=mirage_py, options=options)
    steps = Steps(model, module, config, 1, fast)
    steps.rewind()
    steps()
    links = [(call, *item) for call in living_calls() for item in call.links().items()]
    for _, _, link in links:
        print(f"{link.backend}, constants {link.options[0].constants}: {link.options}", flush=True)
    found: dict[str, Captured] = {}
    for name, (when, early) in _WAYS.items():
        for call, key, link in links:
            call.serve_link(key, _runner(link, when, early))
        found[name] = one = Captured(steps)
        one.steps.rewind()
        one.graph.replay()
        error = float((one.logits.float() - wanted).abs().max() / wanted.abs().max())
        words = f"{one.programmatic} of {one.edges} edges programmatic, logits off by {error:.4f}"
        print(f"{name}: {words}", flush=True)
    times = {name: [one.round_us() for _ in range(2)] for name, one in found.items()}
    for _ in range(_ROUNDS):
        for name, one in found.items():
            times[name].append(one.round_us())
    for name, samples in times.items():
        kept = samples[2:]
        print(f"{name:36s} {statistics.median(kept):8.1f} us, {min(kept):.1f} to {max(kept):.1f}")


if __name__ == "__main__":
    main()
