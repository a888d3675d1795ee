"""Running statistics of batch norms in training, written as any function would write them.

A batch norm in training normalises with the statistics of its batch, and moves two buffers towards
them. While a function is traced the move is a sum that is copied into the buffer, and a batch that
is counted is noted: a number of its own, which no kernel reads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch.nn.functional import batch_norm
from torch.overrides import TorchFunctionMode


class RunningStatistics(TorchFunctionMode):
    """``counted`` holds how often each counter went up."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: dict[int, tuple[torch.Tensor, int]] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Batch norms with the statistics of their batch, and additions to counters."""
        del types
        kwargs = kwargs or {}
        if func is batch_norm:
            given = inspect.signature(batch_norm).bind(*args, **kwargs)
            given.apply_defaults()
            if given.arguments["training"] and given.arguments["running_mean"] is not None:
                return self._normalised(**given.arguments)
        if func is torch.Tensor.add_ and _is_counter(args[0]) and args[1:] == (1,):
            held, times = self.counted.get(id(args[0]), (args[0], 0))
            self.counted[id(args[0])] = (held, times + 1)
            return args[0]
        return func(*args, **kwargs)

    def _normalised(
        self,
        input: torch.Tensor,  # noqa: A002  as torch calls it
        running_mean: torch.Tensor,
        running_var: torch.Tensor,
        momentum: float,
        **options: Any,
    ) -> torch.Tensor:
        dims = [d for d in range(input.dim()) if d != 1]
        count = prod(input.shape[d] for d in dims)
        _move(running_mean, input.mean(dims), momentum)
        # What is kept is the unbiased variance; what normalises is not.
        unbiased = input.var(dims, correction=0) * (count / max(count - 1, 1))
        _move(running_var, unbiased, momentum)
        return batch_norm(input, None, None, momentum=momentum, **options)


def _move(buffer: torch.Tensor, towards: torch.Tensor, momentum: float) -> None:
    # In this order the result has the dimensions of the statistics.
    buffer.copy_(towards.to(buffer.dtype) * momentum + buffer * (1.0 - momentum))


def _is_counter(x: Any) -> bool:
    """A tensor of one integer that the trace did not make."""
    plain = isinstance(x, torch.Tensor) and x.dtype is torch.int64 and x.dim() == 0
    return plain and not isinstance(x, torch._subclasses.FakeTensor)  # noqa: SLF001
