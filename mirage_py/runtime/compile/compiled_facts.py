"""Facts of compiled machine code: registers, spilled values, shared memory."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mirage_py.errors import CompileError
from mirage_py.reasons import Code
from mirage_py.runtime.base.private_folder import scratch_folder
from mirage_py.runtime.sass.machine_code import unwritten_in
from mirage_py.runtime.sass.sass import disassembled, is_readable
from mirage_py.runtime.sass.shared_registers import shared_in

# Counts the faults of compiled code that are looked for: what was looked at before is so again.
CHECKS = 5
_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class CompiledFacts:
    """One compiled kernel in numbers.

    ``capability`` is 90 for sm_90. ``registers`` are those of one thread and ``spills`` the
    four-byte values that it keeps in local memory instead; both are None where no tool says it.
    ``asm_path`` is the PTX in triton's cache.
    """

    name: str
    capability: int
    smem_bytes: int
    registers: int | None
    spills: int | None
    cubin_bytes: int
    seconds: float
    asm_path: str | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel takes by its machine code; None where no tool says it. ``smem_bytes`` is what
    it has of shared memory without being asked at its launch.
    """

    registers: int | None = None
    spills: int | None = None
    smem_bytes: int | None = None


def resources(cubin: bytes) -> Resources:
    """What triton's kernel takes, as far as the tools say."""
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        for tool in cuda_tools("cuobjdump"):
            try:
                done = subprocess.run(
                    [tool, "--dump-resource-usage", str(path)],
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=_TIMEOUT_S,
                )
            except (OSError, subprocess.SubprocessError):
                continue  # too old for this code, say
            return parse_resource_usage(done.stdout)
    return Resources()


def parse_resource_usage(text: str) -> Resources:
    """What cuobjdump prints of one kernel."""
    found = {name: int(n) for name, n in re.findall(r"\b(REG|STACK|LOCAL|SHARED):(\d+)", text)}
    # The stack of a kernel without calls or local arrays is nothing but spilled registers.
    spilled = [found[name] for name in ("STACK", "LOCAL") if name in found]
    return Resources(found.get("REG"), sum(spilled) // 4 if spilled else None, found.get("SHARED"))


def said_by_ptxas(log: str) -> Resources:
    """What ``ptxas -v`` says of one kernel."""
    registers = re.search(r"\bUsed (\d+) registers", log)
    stack = re.search(r"\b(\d+) bytes stack frame", log)
    smem = re.search(r"\b(\d+) bytes smem", log)
    if registers is None:
        return Resources()
    return Resources(
        int(registers[1]),
        int(stack[1]) // 4 if stack else 0,
        int(smem[1]) if smem else 0,
    )


def check_registers(cubin: bytes, where: str) -> None:
    """CompileError where code reads a register that nothing has written (``machine_code``), or one
    in which two products of warp groups keep their operands (``shared_registers``).

    Where no tool reads the code nothing is known, and nothing is refused.
    """
    for tool in cuda_tools("nvdisasm"):
        try:
            sass = disassembled(cubin, tool)
        except (OSError, subprocess.SubprocessError):
            continue
        if not is_readable(sass):
            continue
        for found, what in (
            (unwritten_in(sass), "reads registers nothing has written"),
            (shared_in(sass), "has the operands of two products in the same registers"),
        ):
            if found:
                raise CompileError(
                    f"ptxas made code that {what}: {found[0]}",
                    where=where,
                    why="a fault of the assembler: the launch would fail, or give something else",
                    repair="other tiles or warps avoid it, or another version of the compiler",
                    code=Code.WRONG_MACHINE_CODE,
                )
        return


def cuda_tools(name: str) -> tuple[str, ...]:
    """Where a tool of CUDA's is: first triton's, of a version that is known, which reads what later
    compilers make for the same GPUs too; then the toolkit's.
    """
    found = (_triton_tool(name), shutil.which(name))
    return tuple(path for path in found if path is not None)


def _triton_tool(name: str) -> str | None:
    try:
        from triton import knobs

        return str(getattr(knobs.nvidia, name).path)
    except (ImportError, AttributeError, RuntimeError):
        return None
