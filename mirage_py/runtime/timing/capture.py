"""A function captured in a CUDA graph, in memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# torch's allocator goes on asking a graph whose capture broke off whether it is capturing: such a
# graph must outlive every later capture.
_FAILED_GRAPHS: list[Any] = []


def captured(run: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph | None, Exception | None]:
    """What ``run`` launches as a CUDA graph, or None and why it cannot be captured.

    ``run`` has been called before: compiling, loading and choosing of algorithms are no part of a
    capture. ``reset()`` of the graph gives its memory back.
    """
    import torch

    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    try:
        # What other threads of the user's do meanwhile is no part of it, and does not end it.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            run()
    except Exception as error:  # noqa: BLE001  whatever forbids a capture does not forbid a call
        # A capture that breaks off leaves its own stream behind as the current one.
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        _FAILED_GRAPHS.append(graph)
        return None, error
    return graph, None
