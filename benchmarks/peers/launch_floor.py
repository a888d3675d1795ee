"""The launch floor: the time of an empty kernel, the least that any row can show.

Only where there is a GPU: the import needs triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from mirage_py.runtime.timing.timing import MAX_SETS, time_interleaved

_REPS = 31


# Without annotations, which triton would compile too.
@triton.jit  # type: ignore[misc, untyped-decorator, unused-ignore]
def _store_one(out):  # type: ignore[no-untyped-def]  # noqa: ANN202
    tl.store(out, 1.0)


def launch_us() -> float:
    """Microseconds of one launch in a CUDA graph of 1024, timed as every candidate is."""
    out = torch.zeros(1, device="cuda")
    timed = time_interleaved(
        {"launch": lambda _number: _store_one[(1,)](out)}, MAX_SETS, reps=_REPS
    )["launch"]
    if not timed.ran:
        raise RuntimeError(f"an empty kernel does not run: {timed.failure}")
    return timed.median_us
