"""Counters of blocks that share a tile of a fused convolution: zero before and after a launch.

``make_counters`` makes them, once; without it each launch makes zeros. Launches on one stream use
the same counters one after the other. A launch that is captured has counters of its own, as graphs
that were captured on one stream may run at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage_py.runtime.compile.compile import POINTER_ALIGNMENT_BYTES

if TYPE_CHECKING:
    import torch

# Counters of all captured launches of a process, on each GPU.
_COUNTERS = 1 << 20


class _Counters:
    """Zeros on a GPU, of which each captured launch takes some for good."""

    def __init__(self, index: int) -> None:
        import torch

        self.all = torch.zeros(_COUNTERS, dtype=torch.int32, device=f"cuda:{index}")
        torch.cuda.synchronize(index)  # every stream may use them from now on
        self.taken = 0
        self.of_streams: dict[tuple[int, int], torch.Tensor] = {}

    def take(self, count: int) -> torch.Tensor:
        """So many that nobody has; made on the spot where there are no more."""
        import torch

        if self.taken + count > _COUNTERS:
            return torch.zeros(count, dtype=torch.int32, device=self.all.device)
        found = self.all[self.taken : self.taken + count]
        self.taken += -(-count // POINTER_ALIGNMENT_BYTES) * POINTER_ALIGNMENT_BYTES
        return found


_COUNTERS_OF: dict[int, _Counters] = {}


def make_counters(index: int) -> None:
    """Make the counters of a GPU, so that launches need not make zeros each. To be called where
    memory may be held for good: not while a graph is captured, or warmed up in a pool.
    """
    if index not in _COUNTERS_OF:
        _COUNTERS_OF[index] = _Counters(index)


def block_counters(index: int, count: int, stream: int) -> torch.Tensor:
    """So many counters for a launch on a stream of a GPU."""
    import torch

    counters = _COUNTERS_OF.get(index)
    if counters is None:
        # Whoever launches may do so in a memory pool of its own, as before it captures: what is
        # made here is gone after the launch.
        return torch.zeros(count, dtype=torch.int32, device=f"cuda:{index}")
    if torch.cuda.is_current_stream_capturing():
        return counters.take(count)
    key = stream, count
    if key not in counters.of_streams:
        counters.of_streams[key] = counters.take(count)
    return counters.of_streams[key]
