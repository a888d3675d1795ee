"""The first k elements of long rows: the largest or smallest in order, and their places.

``torch.topk`` goes over a row with one block, several times. Here blocks share a row.
"""

from __future__ import annotations

import torch

# Fewer elements are sorted or compared with each other; of what parts find, more than so many would
# make the second kernel the longer one.
SHORTEST_ROW = 4096
_BLOCK = 4096
_MOST_FOUND = 8192
_MOST_ELEMENTS = 2**31
# Each element that is wanted is a pass over all; of these torch.topk takes as long (on an H200 bf16
# [64, 128256]: 12.7 us for one, 108 for 50, torch 98 to 101).
_MOST = {torch.float32: 16, torch.float16: 32, torch.bfloat16: 32}


def takes(x: torch.Tensor, count: int, dim: int) -> bool:
    """Whether ``first_k`` is for such a call of topk; ``x`` may be without data."""
    if not x.ndim or dim not in (-1, x.ndim - 1):
        return False
    extents = (*x.shape, x.numel(), count)
    if not all(isinstance(e, int) for e in extents) or not 0 < count <= _MOST.get(x.dtype, 0):
        return False
    extent = x.shape[-1]
    found = -(-extent // _BLOCK) * count
    return extent >= SHORTEST_ROW and found <= _MOST_FOUND and 0 < x.numel() < _MOST_ELEMENTS


def first_k(x: torch.Tensor, count: int, *, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``torch.topk`` along the last axis, of equal elements those in front first."""
    import triton

    from mirage_py.runtime.selection.kernels import first_of_all, first_of_parts

    extent = x.shape[-1]
    rows = x.contiguous().view(-1, extent)
    parts = triton.cdiv(extent, _BLOCK)
    # Whole vectors in each part.
    length = triton.cdiv(triton.cdiv(extent, parts), 8) * 8
    scratch = torch.empty((2, len(rows), parts, count), dtype=torch.int32, device=x.device)
    shape = (*x.shape[:-1], count)
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    index = torch.empty(shape, dtype=torch.int64, device=x.device)
    kind = {
        "COUNT": count,
        "PADDED": triton.next_power_of_2(count),
        "HALF": x.dtype.itemsize == 2,
        "LARGEST": largest,
    }
    first_of_parts[(len(rows) * parts,)](
        rows, scratch[0], scratch[1], extent, extent, parts, length,
        BLOCK=_BLOCK, num_warps=4, **kind,
    )  # fmt: skip
    first_of_all[(len(rows),)](
        scratch[0], scratch[1], out, index, parts * count,
        BLOCK=triton.next_power_of_2(parts * count), num_warps=4, **kind,
    )  # fmt: skip
    return out, index
