"""Turns of processes that measure on one GPU: kernels of two at once would slow each other down."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.base.stages import QUEUE, stage


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Hold the current GPU while others of this user that ask for it wait.

    Only who asks is kept waiting: a kernel of a process that does not measure runs whenever it is
    launched. Threads of one process are kept apart too. Not reentrant.
    """
    import torch

    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    name = str(getattr(device, "uuid", device.name)).replace("/", "_")
    handle = os.open(private_folder("gpus") / name, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        # Gone with the process, however it ends.
        with stage(QUEUE):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
