"""Writes at a position that is a tensor without axes, as writes at one of one element.

``x[:, at] = y`` takes the number out of ``at``, which a trace does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class ScalarPositions(TorchFunctionMode):
    """While active, ``x[..., at, ...] = y`` keeps the axis of ``at``, and gives it to ``y``."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Assignments to elements; others as they are."""
        del types
        if func is torch.Tensor.__setitem__:
            return func(*_with_an_axis(*args))
        return func(*args, **(kwargs or {}))


def _with_an_axis(x: torch.Tensor, index: Any, value: Any) -> tuple[Any, Any, Any]:
    entries = index if isinstance(index, tuple) else (index,)
    found = [n for n, entry in enumerate(entries) if isinstance(entry, torch.Tensor)]
    if len(found) != 1 or not _is_scalar(entries[found[0]]) or isinstance(index, list):
        return x, index, value
    (place,) = found
    here = (*entries[:place], entries[place].reshape(1), *entries[place + 1 :])
    if not isinstance(value, torch.Tensor):
        return x, here, value
    # How many axes the assignment has behind the position.
    read = sum(entry is not None and entry is not Ellipsis for entry in entries)
    behind = x.dim() - read if not any(e is Ellipsis for e in entries[:place]) else 0
    behind += sum(entry is None or isinstance(entry, slice) for entry in entries[place + 1 :])
    if value.dim() > behind:
        value = value.unsqueeze(value.dim() - behind)
    return x, here, value


def _is_scalar(entry: torch.Tensor) -> bool:
    whole = not entry.dtype.is_floating_point and not entry.dtype.is_complex
    return entry.dim() == 0 and whole and entry.dtype is not torch.bool
