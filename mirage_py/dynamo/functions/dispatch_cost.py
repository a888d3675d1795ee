"""The cost on the host of a call of a compiled function before its code runs: frames and guards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from mirage_py.runtime.eager.compiled import CompiledFunction
from mirage_py.runtime.timing.host import host_us


@functools.cache
def dispatch_us() -> float:
    """Microseconds that torch.compile adds to a call of a function of one tensor, on this host.

    Not while torch.compile compiles: this does.
    """

    def itself(x: torch.Tensor) -> torch.Tensor:
        return x + x

    compiled = CompiledFunction(itself, backend=_as_it_is, dynamic=False)
    x = torch.zeros(1)
    return max(0.0, host_us(lambda: compiled(x)) - host_us(lambda: itself(x)))


def _as_it_is(module: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
    return module.forward
