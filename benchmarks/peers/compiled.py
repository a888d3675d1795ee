"""torch.compile of the small functions between library calls."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

Call = Callable[..., Any]


def compiled(function: Call, *, mode: str | None = None, **more: Any) -> Call:
    """A compilation of its own, done at the first call, for static shapes if nothing else is asked
    for; ``more`` is handed on.

    torch keeps eight compilations of one code object, and runs eager PyTorch without a word after
    that: a process that measures many workloads would come to it, so each gets a copy of the code.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"{function!r} is not a Python function")
    copy = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    found: Call = torch.compile(copy, **{"dynamic": False, "mode": mode, **more})
    return found
