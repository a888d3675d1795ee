"""Functions of tests in the process that has Triton's interpreter: all tests share one, as to start
another takes longer than what most of them do there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirage_py.runtime.cpu import triton_interpreter

Task = dict[str, Any]


def in_interpreter(function: Callable[[Task], Any], module: str, **task: Any) -> Any:
    """What ``function`` of the test module makes of ``task``, which is written as JSON. ``module``
    is its path from this folder, with dots.
    """
    service = f"{module}:{function.__name__}"
    with triton_interpreter._LOCK:
        (reply,) = triton_interpreter._POOL.map([{"service": service, **task}])
    assert reply.done, reply.reason
    return reply.value
