"""What the host spends on a call of a compiled function before its code runs: frames and guards."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from mirage_py.runtime.eager.compiled import CompiledFunction

_CALLS, _ROUNDS = 200, 7


@functools.cache
def dispatch_us() -> float:
    """Microseconds that torch.compile adds to a call of a function of one tensor, on this host.

    Not while torch.compile compiles: this does.
    """

    def itself(x: torch.Tensor) -> torch.Tensor:
        return x + x

    compiled = CompiledFunction(itself, backend=_as_it_is, dynamic=False)
    x = torch.zeros(1)
    return max(0.0, host_us(compiled, x) - host_us(itself, x))


def host_us(function: Callable[..., Any], *inputs: Any) -> float:
    """Microseconds of the host for one call in a row of them: the median of some rounds."""
    function(*inputs)
    found = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(_CALLS):
            function(*inputs)
        found.append((time.perf_counter() - start) / _CALLS * 1e6)
    return statistics.median(found)


def _as_it_is(module: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
    return module.forward
