"""A check of the machine code that Triton made, once on every machine: before it is timed, or
before a process that loads a plan launches it. The plan may have been found with another
assembler.

CACHE/checked/KEY, an empty file, says of the code with that SHA-256 that nothing was found.
"""

from __future__ import annotations

import contextlib
import hashlib

from mirage_py.errors import CompileError
from mirage_py.reasons import Code
from mirage_py.runtime.base.atomic import write_text
from mirage_py.runtime.base.private_folder import private_folder
from mirage_py.runtime.compile.compiled_facts import CHECKS, check_registers
from mirage_py.runtime.sass.overwritten_stages import overwritten_in


def check_once(cubin: bytes, ttgir: str, where: str) -> None:
    """``check_registers`` and, by the text that the code was made from, ``overwritten_in``, unless
    this code was looked at before. Raises CompileError.
    """
    key = hashlib.sha256(cubin).hexdigest()
    path = private_folder("checked") / f"{key}-{CHECKS}"
    if path.exists():
        return
    check_registers(cubin, where)
    found = overwritten_in(ttgir)
    if found:
        raise CompileError(
            f"triton made a loop that writes a stage which a product still reads: {found[0]}",
            where=where,
            why="the tile has a stage too few: what comes out depends on who is first",
            repair="other tiles avoid it, or a loop without stages",
            code=Code.WRONG_MACHINE_CODE,
        )
    # Without a cache it is looked at once more in the next process.
    with contextlib.suppress(OSError):
        write_text(path, "")
