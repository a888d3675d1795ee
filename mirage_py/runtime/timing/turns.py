"""Turns of processes that measure on one GPU: kernels of two at once would slow each other down."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator

from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.base.stages import QUEUE, stage

# The GPUs that a thread holds.
_OF_THREAD = threading.local()


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Hold the current GPU while others of this user that ask for it wait.

    Only who asks is kept waiting: a kernel of a process that does not measure runs whenever it is
    launched. Threads of one process are kept apart too; inside a turn of its own a thread has it.
    Who waits is next: a process that measures again and again, as one that tunes, asks behind it.
    """
    import torch

    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    name = str(getattr(device, "uuid", device.name)).replace("/", "_")
    held: set[str] = vars(_OF_THREAD).setdefault("gpus", set())
    if name in held:
        yield
        return
    with contextlib.ExitStack() as locks:
        # A lock goes to whoever asks first after it is released, which is who releases it. So one
        # alone waits for it, behind a gate that is closed until then.
        with stage(QUEUE), _locked(f"{name}.next"):
            locks.enter_context(_locked(name))
        held.add(name)
        try:
            yield
        finally:
            held.discard(name)


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """The lock of a file, gone with the process, however it ends."""
    handle = os.open(private_folder("gpus") / name, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        # A process that was forked meanwhile has the file open, too.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
