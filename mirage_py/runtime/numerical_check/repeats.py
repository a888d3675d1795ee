"""A repeated launch as a test: without atomics its result is the same to the last bit.

Blocks of one launch write to different places and each sums in one order, so two results that
differ are a race. Atomic additions come in the order that the GPU chooses: there results differ by
roundings, and how far they do is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirage_py.ugraph.ir.plan import Plan
from mirage_py.ugraph.ir.ugraph import BlockGraph

if TYPE_CHECKING:
    import torch

    Outputs = Sequence[torch.Tensor]

# Launches after the first. Of additions in any order a few show how far the results spread.
_AGAIN, _AGAIN_ATOMIC = 1, 4


def adds_atomically(plan: Plan) -> bool:
    """Whether some kernel's blocks add to one tensor."""
    return any(k.added_tensors for k in plan.ugraph.kernels if isinstance(k, BlockGraph))


def spread_of(plan: Plan, first: Outputs, launch: Callable[[], Outputs]) -> float:
    """How far the results of further launches are from those of the ``first``: the norm of the
    difference over that of the result, of the worst output and launch; 0 where all bits are equal.
    """
    times = _AGAIN_ATOMIC if adds_atomically(plan) else _AGAIN
    return max(
        _distance(one, other)
        for _ in range(times)
        for one, other in zip(first, launch(), strict=True)
    )


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    import torch

    if torch.equal(_bits(one), _bits(other)):
        return 0.0
    a, b = one.double(), other.double()
    if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return float("inf")
    finite = torch.isfinite(a)
    moved = float(torch.linalg.vector_norm(torch.where(finite, a - b, 0.0)))
    scale = float(torch.linalg.vector_norm(torch.where(finite, a, 0.0)))
    # 0 and -0, or two kinds of NaN, are no distance apart but not the same either.
    return max(moved / scale if scale else float("inf") if moved else 0.0, 2.0**-149)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)
