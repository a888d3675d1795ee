"""Time of a call with a cold L2: replays of a CUDA graph with one call for each copy of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch

_REPEATS = 15


def time_us(call: Callable[[torch.Tensor], object], weights: Sequence[torch.Tensor]) -> float:
    """The median, in microseconds a call."""
    for w in weights[:3]:
        call(w)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(weights[0])
        with torch.cuda.graph(graph, stream=stream):
            for w in weights:
                call(w)
    torch.cuda.synchronize()
    times = []
    for _ in range(_REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(weights))
    return median(times)
