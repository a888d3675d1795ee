"""The state of this process's GPU context: after a kernel has broken it, no launch means anything.

CUDA has no way back from that: every call of the process fails, until the process ends.
"""

from __future__ import annotations

import sys

from mirage_py.errors import LostGpuError


def gpu_is_lost() -> bool:
    """Waits for the GPU; False where this process has not used one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        # Nobody may wait while a CUDA graph is captured, in whichever thread.
        return "captur" not in str(error)
    return False


def require_gpu(launched: str, error: Exception) -> None:
    """Raise LostGpuError, which names what was ``launched``, where its ``error`` is the end of the
    GPU for this process.
    """
    if not gpu_is_lost():
        return
    lines = str(error).splitlines() or [type(error).__name__]
    raise LostGpuError(
        f"{launched} broke this process's GPU context",
        launched=launched,
        why=lines[0],
        repair="start again: what did it is not launched any more, and results that were found "
        "before are kept",
    ) from error
