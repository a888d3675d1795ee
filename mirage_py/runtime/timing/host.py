"""Host time of a call, which a loop of short kernels waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# So few calls that the queue of launches never fills, and enough that the clock is fine.
_CALLS, _ROUNDS = 25, 9


def host_us(call: Callable[[], Any], wait: Callable[[], object] = lambda: None) -> float:
    """Microseconds of the host for one call in a row of them: the least of some rounds, for what
    else runs on the machine only adds to it.

    ``wait`` returns when the GPU has done what it was asked for; it is not on the clock.
    """
    call()
    found = []
    for _ in range(_ROUNDS):
        wait()
        start = time.perf_counter()
        for _ in range(_CALLS):
            call()
        found.append((time.perf_counter() - start) / _CALLS * 1e6)
    wait()
    return min(found)
