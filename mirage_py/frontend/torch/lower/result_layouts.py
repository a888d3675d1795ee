"""Memory layouts of results: a kernel writes them so that they have torch's strides as views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class ResultLayout:
    """``order`` are the axes of a result by descending stride: what a program writes, row-major.

    ``strides`` are torch's at the ``shape`` that was traced. A result that is not dense there (a
    slice, an expanded tensor) is dense here, with its axes in the same order.
    """

    order: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, shape: Sequence[int], strides: Sequence[int]) -> ResultLayout:
        """That of a tensor of torch."""
        axes = range(len(shape))
        # Axes of extent 1 stay where they stand, and so do those of stride 0.
        moving = [a for a in axes if shape[a] > 1 and strides[a] > 0]
        by_stride = iter(sorted(moving, key=strides.__getitem__, reverse=True))
        order = tuple(next(by_stride) if a in moving else a for a in axes)
        return cls(order, tuple(shape), tuple(strides))

    @property
    def is_row_major(self) -> bool:
        """Whether there is nothing to be done."""
        return self.order == tuple(range(len(self.order)))

    def arranged(self, written: torch.Tensor) -> torch.Tensor:
        """The result as torch lays it out, from what the program wrote."""
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        result = written.permute(inverse)
        if result.stride() == self.strides or tuple(result.shape) != self.shape:
            return result
        # Along axes of extent 1 strides say nothing to the memory, but to a later view.
        pairs = zip(self.shape, result.stride(), self.strides, strict=True)
        if all(extent == 1 or mine == theirs for extent, mine, theirs in pairs):
            return result.as_strided(self.shape, self.strides)
        return result

    def written(self, result: torch.Tensor) -> torch.Tensor:
        """What the program would write for a result."""
        return result.permute(self.order)
