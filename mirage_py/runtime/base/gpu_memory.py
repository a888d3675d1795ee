"""GPU memory that torch's caching allocator keeps unused, given back to other processes.

The allocator frees nothing until an allocation of its own process fails. The processes of a tuning
(the caller, the workers of the numerical check) share one GPU and run by turns: what one keeps, the
next one lacks, and so does whatever else runs on that GPU.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# What a process may keep between two tasks: so little is not worth allocating anew.
MOST_IDLE_BYTES = 1 << 30
# As torch, the CUDA runtime and Triton's launcher say it.
_WORDS = "out of memory"


def is_out_of_memory(error: object) -> bool:
    """Whether an error, or what was said of it, is that the GPU has no memory left."""
    return _WORDS in str(error).lower() or type(error).__name__ == "OutOfMemoryError"


def give_back(most_idle: int = 0) -> None:
    """Free the unused memory of this process on its current GPU, where that is more than
    ``most_idle`` bytes. Does nothing in a process that has not used a GPU.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    # A lost GPU has nothing to give, and while a graph is captured nothing may be freed.
    with contextlib.suppress(RuntimeError):
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > most_idle:
            torch.cuda.empty_cache()


def reserved_bytes() -> int:
    """What the allocator of this process holds of its current GPU; 0 where it has not used one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.memory_reserved())


def make_room() -> None:
    """Free all that this process can, tensors in reference cycles too."""
    gc.collect()
    give_back()


def with_room(call: Callable[[], T], free: Callable[[], object] = make_room) -> T:
    """What ``call`` returns; where it runs out of memory it is called once more after ``free``."""
    try:
        return call()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # Not while the error is handled, whose frames hold tensors.
    free()
    return call()
