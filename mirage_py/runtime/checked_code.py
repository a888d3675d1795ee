"""Machine code that Triton made, looked at once on every machine: before it is timed, or before a
process that loads a plan launches it. The plan may have been found with another assembler.

CACHE/checked/KEY, an empty file, says of the code with that SHA-256 that nothing was found.
"""

from __future__ import annotations

import contextlib
import hashlib

from mirage_py.runtime.atomic import write_text
from mirage_py.runtime.compiled_facts import CHECKS, check_registers
from mirage_py.settings import Settings


def check_once(cubin: bytes, where: str) -> None:
    """``check_registers``, unless this code was looked at before. Raises CompileError."""
    key = hashlib.sha256(cubin).hexdigest()
    path = Settings.from_env().cache_dir / "checked" / f"{key}-{CHECKS}"
    if path.exists():
        return
    check_registers(cubin, where)
    # Without a cache it is looked at once more in the next process.
    with contextlib.suppress(OSError):
        write_text(path, "")
