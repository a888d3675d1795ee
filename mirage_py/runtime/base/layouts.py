"""Filling tensors whose elements may share memory: an expanded one has one value along an axis."""

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
