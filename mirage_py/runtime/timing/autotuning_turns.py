"""Inductor's autotuning in turns with other measurements on the GPU.

Compilers keep the cores busy, beside which kernels can be timed; what Inductor times itself holds
the lock of ``turns.py``, each measurement of one of its candidates.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from mirage_py.runtime.timing.turns import turn

_MEASURING = ("benchmark_gpu", "benchmark_many_gpu")


class _Patches:
    """The methods of Inductor's that were replaced, as long as somebody wants them to be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._before: list[tuple[type, str, Any]] = []

    def add(self) -> None:
        with self._lock:
            self._wanted += 1
            if self._wanted == 1:
                self._before = _replaced()

    def remove(self) -> None:
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                for kind, name, method in self._before:
                    setattr(kind, name, method)


_PATCHES = _Patches()


def tune_in_turns() -> None:
    """From now on Inductor measures its choices while no other process measures."""
    _PATCHES.add()


@contextlib.contextmanager
def tuning_in_turns() -> Iterator[None]:
    """The same for as long as the block runs, on all threads."""
    _PATCHES.add()
    try:
        yield
    finally:
        _PATCHES.remove()


def can_take_turns() -> bool:
    """Whether this version of Inductor measures where ``tune_in_turns`` looks for it."""
    with contextlib.suppress(ImportError, AttributeError):
        return bool(_methods())
    return False


def _methods() -> list[tuple[type, str, Any]]:
    from torch._inductor.runtime import benchmarking

    kinds = type(benchmarking.benchmarker).__mro__
    return [(k, name, vars(k)[name]) for k in kinds for name in _MEASURING if name in vars(k)]


def _replaced() -> list[tuple[type, str, Any]]:
    found: list[tuple[type, str, Any]] = []
    with contextlib.suppress(ImportError, AttributeError):
        found = _methods()
    for kind, name, method in found:
        setattr(kind, name, _in_turn(method))
    return found


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
