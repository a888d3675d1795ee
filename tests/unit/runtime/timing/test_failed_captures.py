"""Captures that fail, and entries that found no memory, with graphs that are none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch

from mirage_py.runtime.timing import timing
from mirage_py.runtime.timing.timing import captured, time_interleaved


class Stream:
    def wait_stream(self, _other: Any) -> None: ...


class Event:
    def __init__(self, **_kinds: Any) -> None: ...
    def record(self) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, _end: Any) -> float:
        return 1.0


class Graph:
    """A graph with a pool, if its capture came to an end."""

    def __init__(self) -> None:
        self.has_ended, self.held = False, 0

    def pool(self) -> tuple[int, int]:
        if not self.has_ended:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return (1, 0)

    def replay(self) -> None: ...

    def reset(self) -> None:
        assert self.has_ended
        Gpu.used -= self.held
        self.held = 0


class Gpu:
    """So many bytes; graphs hold what is allocated while they are captured."""

    used, total = 0, 100
    underway: ClassVar[list[Any]] = []
    ended: ClassVar[list[Any]] = []
    capturing: ClassVar[Graph | None] = None
    is_invalid = False

    @classmethod
    def take(cls, size: int) -> None:
        if size > cls.total or (cls.capturing is not None and cls.used + size > cls.total):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")
        if cls.capturing is not None:
            cls.used += size
            cls.capturing.held += size


@contextlib.contextmanager
def graph(made: Graph, pool: Any, capture_error_mode: str) -> Iterator[None]:
    assert capture_error_mode == "thread_local"
    assert not Gpu.underway, "the allocator thinks that a capture is under way"
    Gpu.underway.append(pool)
    Gpu.capturing = made
    try:
        yield
    finally:
        Gpu.capturing = None
        if Gpu.is_invalid:
            raise RuntimeError("CUDA error: operation failed due to a previous error")
        made.has_ended = True
        Gpu.underway.remove(pool)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu.used, Gpu.underway, Gpu.ended, Gpu.is_invalid = 0, [], [], False
    handles = iter(range(1, 100))

    def end(_device: int, pool: Any) -> None:
        Gpu.underway.remove(pool)

    for name, value in {
        "is_available": lambda: True,
        "Stream": Stream,
        "stream": lambda _: contextlib.nullcontext(),
        "set_stream": lambda _: None,
        "current_stream": Stream,
        "current_device": lambda: 0,
        "synchronize": lambda: None,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": graph,
        "graph_pool_handle": lambda: (0, next(handles)),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(
        torch._C, "_cuda_releasePool", lambda _, pool: Gpu.ended.append(pool), raising=False
    )
    monkeypatch.setattr(timing, "turn", contextlib.nullcontext)


def takes(size: int) -> Callable[[int], None]:
    return lambda _number: Gpu.take(size)


def test_the_memory_of_a_capture_that_failed_comes_back():
    def run() -> None:
        Gpu.take(60)
        raise ValueError("as an operator that reads from the host")

    found, error = captured(run)
    assert found is None
    assert isinstance(error, ValueError)
    assert Gpu.used == 0
    # Of one that CUDA has invalidated torch's allocator has to be told: it would free nothing more.
    Gpu.is_invalid = True
    assert captured(lambda: None)[0] is None
    assert Gpu.underway == []
    assert Gpu.ended == [(0, 2)]
    Gpu.is_invalid = False
    found, error = captured(lambda: Gpu.take(60))
    assert error is None
    assert found is not None


def test_what_found_no_memory_beside_others_is_timed_alone():
    """Found on an H200: torch.compile fell for 2 MiB, and eager served at 0.39x of it."""
    entries = {"eager": takes(20), "plan": takes(25), "compile": takes(30), "never": takes(101)}
    found = time_interleaved(entries, 2, reps=3)
    assert list(found) == list(entries)
    assert [name for name, time in found.items() if time.ran] == ["eager", "plan", "compile"]
    assert all(found[name].median_us == 500.0 for name in ("eager", "plan", "compile"))
    assert "out of memory" in found["never"].failure
    assert Gpu.used == 0
