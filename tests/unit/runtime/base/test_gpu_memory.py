"""What a process gives back of a GPU's memory, with an allocator that is not one."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from mirage_py.runtime.base import gpu_memory
from mirage_py.runtime.worker_main import worker


class Allocator:
    """Stands for torch's: ``idle`` bytes are cached beside those of tensors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allocated: int, idle: int) -> None:
        self.allocated, self.idle, self.emptied = allocated, idle, 0
        self.broken = False
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: self.allocated)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: self.allocated + self.idle)
        monkeypatch.setattr(torch.cuda, "empty_cache", self.empty)

    def empty(self) -> None:
        if self.broken:
            raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")
        self.idle, self.emptied = 0, self.emptied + 1


def test_what_is_idle_is_given_back_and_tensors_are_not(monkeypatch: pytest.MonkeyPatch):
    allocator = Allocator(monkeypatch, allocated=8 << 30, idle=2 << 30)
    assert gpu_memory.reserved_bytes() == 10 << 30
    gpu_memory.give_back(4 << 30)
    assert allocator.idle == 2 << 30
    gpu_memory.give_back(1 << 30)
    assert gpu_memory.reserved_bytes() == 8 << 30


def test_a_process_without_a_gpu_asks_it_nothing(monkeypatch: pytest.MonkeyPatch):
    allocator = Allocator(monkeypatch, allocated=0, idle=1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    gpu_memory.give_back()
    assert allocator.emptied == 0
    assert gpu_memory.reserved_bytes() == 0


def test_where_nothing_may_be_freed_the_work_goes_on(monkeypatch: pytest.MonkeyPatch):
    allocator = Allocator(monkeypatch, allocated=0, idle=1 << 30)
    allocator.broken = True
    gpu_memory.make_room()
    assert allocator.idle == 1 << 30


def test_room_is_made_of_what_only_a_cycle_holds(monkeypatch: pytest.MonkeyPatch):
    allocator = Allocator(monkeypatch, allocated=4 << 30, idle=0)

    class Tensor:
        def __del__(self) -> None:
            allocator.allocated, allocator.idle = 0, 4 << 30

    tensor: Any = Tensor()
    tensor.itself = tensor
    gc.disable()
    try:
        del tensor
        gpu_memory.make_room()
    finally:
        gc.enable()
    assert gpu_memory.reserved_bytes() == 0


@pytest.mark.parametrize(
    ("said", "is_so"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.", True),
        ("AcceleratorError: CUDA error: out of memory", True),
        (torch.OutOfMemoryError("no words"), True),
        ("OutOfResources: out of resource: shared memory, Required: 270336", False),
        ("", False),
    ],
)
def test_errors_that_are_a_lack_of_memory(said: object, is_so: bool):
    assert gpu_memory.is_out_of_memory(said) == is_so


def test_a_worker_keeps_little_between_two_tasks(monkeypatch: pytest.MonkeyPatch):
    """Found on an H200: check workers held 14 to 31 GiB while others ran out of memory."""
    allocator = Allocator(monkeypatch, allocated=1 << 30, idle=0)
    answered: list[tuple[Any, int]] = []

    def task(_task: Any) -> str:
        allocator.idle = 31 << 30
        return "done"

    monkeypatch.setitem(worker.SERVICES, "large", task)  # type: ignore[arg-type]
    worker.serve(
        ['{"service": "large", "number": 7}'],
        lambda reply: answered.append((reply, allocator.idle)),
    )
    assert answered == [({"value": "done", "number": 7}, 0)]
