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
    """
    import torch

    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    name = str(getattr(device, "uuid", device.name)).replace("/", "_")
    held: set[str] = vars(_OF_THREAD).setdefault("gpus", set())
    if name in held:
        yield
        return
    handle = os.open(private_folder("gpus") / name, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        # Gone with the process, however it ends.
        with stage(QUEUE):
            fcntl.flock(handle, fcntl.LOCK_EX)
        held.add(name)
        yield
    finally:
        held.discard(name)
        # A process that was forked meanwhile has the file open, too.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
