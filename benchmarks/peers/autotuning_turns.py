"""Inductor's autotuning in turns with whoever else measures on the GPU.

Compilers of several processes keep the cores busy; whatever is timed holds the lock of
mirage_py/runtime/timing/turns.py, each measurement of a peer's candidate with it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from mirage_py.runtime.timing.turns import turn

_MEASURING = ("benchmark_gpu", "benchmark_many_gpu")


def tune_in_turns() -> None:
    """From now on Inductor measures its choices while no other process measures."""
    from torch._inductor.runtime import benchmarking

    for kind in type(benchmarking.benchmarker).__mro__:
        for name in _MEASURING:
            if name in vars(kind):
                setattr(kind, name, _in_turn(vars(kind)[name]))


def _in_turn(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def measured(*args: Any, **kwargs: Any) -> Any:
        _warm_up([*args, *kwargs.values()])
        with turn():
            return method(*args, **kwargs)

    return measured


def _warm_up(given: list[Any]) -> None:
    """Call once what is measured: it may compile then, and nobody shall wait for that."""
    for value in given:
        for call in value if isinstance(value, list | tuple) else [value]:
            if callable(call):
                # What it raises, it raises again where it is measured.
                with contextlib.suppress(Exception):
                    call()
