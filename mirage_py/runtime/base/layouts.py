"""Tensors of torch in the layouts of a program: filled where elements share memory, and with a
value that no right result has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from mirage_py.ugraph.ir.program import Tensor


def write_once(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copy ``values``, of the same shape, into ``target``; along an axis of stride 0 the first.

    torch refuses to write where several elements have one place.
    """
    for axis, (extent, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if extent > 1 and stride == 0:
            target, values = target.narrow(axis, 0, 1), values.narrow(axis, 0, 1)
    target.copy_(values)


def laid_out(tensor: Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values in the type and layout of ``tensor``, in memory of their own."""
    import torch

    dtype = getattr(torch, tensor.dtype.torch_name)
    memory = torch.zeros(_span(tensor), dtype=dtype, device=values.device)
    fresh = memory.as_strided(tensor.shape, tensor.element_strides)
    write_once(fresh, values)
    return fresh


def _span(tensor: Tensor) -> int:
    pairs = zip(tensor.shape, tensor.element_strides, strict=True)
    return 1 + sum((extent - 1) * stride for extent, stride in pairs)


def poison(dtype: torch.dtype) -> float:
    """NaN, or the smallest integer, which no right result has; 0 for booleans."""
    import torch

    if dtype.is_floating_point:
        return float("nan")
    return 0.0 if dtype == torch.bool else float(torch.iinfo(dtype).min)
