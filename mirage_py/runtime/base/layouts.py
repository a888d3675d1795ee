"""Filling of tensors: where elements share memory, and with a value that no right result has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def write_once(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copy ``values``, of the same shape, into ``target``; along an axis of stride 0 the first.

    torch refuses to write where several elements have one place.
    """
    for axis, (extent, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if extent > 1 and stride == 0:
            target, values = target.narrow(axis, 0, 1), values.narrow(axis, 0, 1)
    target.copy_(values)


def poison(dtype: torch.dtype) -> float:
    """NaN, or the smallest integer, which no right result has; 0 for booleans."""
    import torch

    if dtype.is_floating_point:
        return float("nan")
    return 0.0 if dtype == torch.bool else float(torch.iinfo(dtype).min)
