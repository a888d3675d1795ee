"""One process after the other measures on a GPU, and each GPU has turns of its own."""

import contextlib
import fcntl
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mirage_py.runtime.timing import turns


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """A GPU by its number, as torch names it."""
    current = threading.local()
    monkeypatch.setattr(turns, "private_folder", lambda _kind: tmp_path)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current.number)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda number: SimpleNamespace(name="NVIDIA H200", uuid=f"gpu-{number}"),
    )
    return current


def _begins(gpu, number: int, begun: threading.Event) -> threading.Thread:
    def measure():
        gpu.number = number
        with turns.turn():
            begun.set()

    thread = threading.Thread(target=measure)
    thread.start()
    return thread


def test_one_waits_for_the_other(gpu):
    begun = threading.Event()
    gpu.number = 0
    with turns.turn():
        with turns.turn():  # its own
            pass
        waiting = _begins(gpu, 0, begun)
        assert not begun.wait(0.2)
    waiting.join()
    assert begun.is_set()


def test_another_gpu_does_not_wait(gpu):
    begun = threading.Event()
    gpu.number = 0
    with turns.turn():
        _begins(gpu, 1, begun).join()
        assert begun.is_set()


def test_who_waits_is_next(gpu, tmp_path):
    """A process that asks again at once, as one that tunes does, is not served before."""
    order: list[str] = []
    gpu.number = 0

    def waits():
        gpu.number = 0
        with turns.turn():
            order.append("who waited")

    waiting = threading.Thread(target=waits)
    with turns.turn():
        waiting.start()
        assert _becomes_locked(tmp_path / "gpu-0.next")
    with turns.turn():
        order.append("who asked again")
    waiting.join()
    assert order == ["who waited", "who asked again"]


def _becomes_locked(path: Path) -> bool:
    for _ in range(20000):
        time.sleep(0.001)
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False
