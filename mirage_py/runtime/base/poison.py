"""The value that memory holds before a kernel writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def poison(dtype: torch.dtype) -> float:
    """NaN, or the smallest integer, which no right result has; 0 for booleans."""
    import torch

    if dtype.is_floating_point:
        return float("nan")
    return 0.0 if dtype == torch.bool else float(torch.iinfo(dtype).min)
