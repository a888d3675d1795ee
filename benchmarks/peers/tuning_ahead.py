"""Kernels of Inductor's autotuning, compiled in parallel instead of one after the other.

Inductor compiles its choices in a pool, but with the assembler that comes with torch, while the
process that times them uses Triton's own: of another version it finds none of them in Triton's
cache, and compiles all again, one by one. And coordinate descent compiles each configuration when
it is timed. What is chosen, and how it is timed, stays as it is.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_THREADS = 8
_TUNING = "_coordinate_descent_tuning"


def compile_ahead() -> None:
    """From now on Inductor finds compiled what it times. Before the first compilation."""
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path
    from torch._inductor.runtime.coordinate_descent_tuner import CoordescTuner
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    _set_triton_ptxas_path()
    # The pool starts; until it has, choices are compiled in threads of this process.
    AsyncCompile.use_process_pool()
    if hasattr(CachingAutotuner, _TUNING):
        _patch(CachingAutotuner, CoordescTuner)


def wait_for_pool() -> None:
    """Until Inductor's compile workers have started."""
    from torch._inductor.async_compile import AsyncCompile

    with contextlib.suppress(Exception):
        AsyncCompile.wait_pool_ready(60)


def _patch(autotuner: Any, tuner: Any) -> None:
    tune, compare = getattr(autotuner, _TUNING), tuner.compare_config

    def tuned(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
        # As it does itself: what a worker compiled has no function here.
        if self.fn.fn is None:
            self.fn = self._reload_kernel().fn
        self.coordesc_tuner.compiles = self._precompile_config
        _compile_neighbours(self.coordesc_tuner, launcher.config)
        return tune(self, launcher, *args, **kwargs)

    def compared(self: Any, func: Any, candidate: Any, *best: Any) -> Any:
        found = compare(self, func, candidate, *best)
        if found[0]:
            _compile_neighbours(self, candidate)
        return found

    setattr(autotuner, _TUNING, tuned)
    tuner.compare_config = compared


def _compile_neighbours(tuner: Any, config: Any) -> None:
    """Fill Triton's cache with the configurations that may be tried next."""
    compiles = getattr(tuner, "compiles", None)
    if compiles is None:
        return
    wanted = [c for c in neighbours(tuner, config) if tuner.lookup_in_cache(c) is None]

    def compiled(one: Any) -> None:
        # What it raises, it raises again where it is tried.
        with contextlib.suppress(Exception):
            compiles(one)

    if wanted:
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            list(pool.map(compiled, wanted))


def neighbours(tuner: Any, config: Any) -> Sequence[Any]:
    """The configurations one step from another, in each field that is tuned."""
    from torch._inductor.runtime.coordinate_descent_tuner import get_field, set_field

    found = []
    for field in tuner.tunable_fields:
        value = get_field(config, field)
        if value is None:
            continue
        for next_value in tuner.get_neighbour_values(field, value):
            made = copy.deepcopy(config)
            set_field(made, field, next_value)
            if getattr(tuner, "is_valid_config", lambda _config: True)(made):
                found.append(made)
    return found
